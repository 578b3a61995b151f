"""Tokens of a text: exact counts with public vocabularies, offline, and estimates for other tokenizers.

The encoder is loaded at the first count, once per process. Text is always ordinary text: a string that looks like a
special token counts as the characters it has. Input that no encoder takes (lone surrogates) is repaired first, the same
way every time.

Giant texts are counted exactly, too. On one piece that nothing splits (a megabyte of one letter, a genome, a wall of
dashes) the encoder needs n log n time and fifty bytes for each byte, so such a text is taken apart. Each way of doing
so keeps the count exact. A *safe cut* is a place where every pre-tokenizer splits. Elsewhere this law of byte-pair
encodings is used: a sequence of tokens is *the* encoding of its piece if and only if every two neighbours, encoded
alone, come out as themselves. Where the law cannot be shown to hold, the text is counted whole.

An estimate starts from the exact count of o200k: any large byte-pair vocabulary cuts English, code, JSON and base64
much like another, so a measured text is a far better guess than a formula over its characters. Two things differ
between vendors and are corrected: scripts beyond Latin (by their extra UTF-8 bytes) and digits (one token each, or
groups). An estimate leans to the high side; ``margin`` says by how much it may still be too low, and reported usage
narrows the margin through ``Calibration``.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, Protocol

from refold.errors import ConfigError

# Checked id for id against the reference encoder: counts are exact.
EXACT_ENCODINGS = ("cl100k_base", "o200k_base")
# The vocabularies of open models. We have no reference to check them against, so they carry a small margin.
OPEN_VOCABULARIES = ("llama3", "qwen3", "deepseek_v3", "glm4", "kimi_k2", "mistral_v3")

# The encoder lets other threads run only while it encodes a batch: a longer text is a batch of one.
SHARED_CHARS = 4_096
_SPECIAL_OPENS = "<|"  # Every special token of the exact encodings begins with this.


def clean_text(text: str) -> str:
    """Return the text with lone surrogates replaced by U+FFFD and surrogate pairs joined."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Vocabulary(Protocol):
    """The methods of the encoder library that we call. Its own types come only with some of its versions."""

    def encode_ordinary(self, text: str, /) -> list[int]: ...
    def encode_flat(self, text: str, /) -> bytes: ...
    def encode_batch_flat(self, texts: list[str], /) -> tuple[bytes, bytes]: ...
    def decode_bytes(self, tokens: list[int], /) -> bytes: ...
    def decode_token_bytes(self, token: int, /) -> bytes: ...


@cache
def _load(encoding_name: str) -> Vocabulary:
    from splintr import Tokenizer  # Slow to import: most of the time of a first count.

    loaded: Vocabulary = Tokenizer.from_pretrained(encoding_name)
    return loaded


class Encoding:
    """One vocabulary. ``count`` returns how many tokens a text has."""

    def __init__(self, name: str) -> None:
        if name not in EXACT_ENCODINGS and name not in OPEN_VOCABULARIES:
            known = ", ".join((*EXACT_ENCODINGS, *OPEN_VOCABULARIES))
            raise ConfigError(
                "tokenizer {name!r} is not known; use one of {known}, 'estimate' or 'chars/4'", name=name, known=known
            )
        self.name = name
        self.is_exact = name in EXACT_ENCODINGS
        self._flat: Callable[[str], bytes] | None = None

    def count(self, text: str) -> int:
        """Return the number of tokens of a text, read as ordinary text throughout."""
        if not text:
            return 0
        try:
            return self._count(text)
        except UnicodeEncodeError:
            return self._count(clean_text(text))

    def _count(self, text: str) -> int:
        if not self.is_exact:
            return sum(len(_load(self.name).encode_ordinary(piece)) for piece in _cut(text))
        if len(text) >= GIANT_CHARS:
            return count_giant(text, _load(self.name), self._encode)
        return len(self._encode(text)) >> 2

    def _encode(self, text: str) -> bytes:
        """Return the ids of a text, four bytes each."""
        # The flat form builds no list of ints, which is half the time, but it reads special tokens.
        if _SPECIAL_OPENS in text:
            return array("I", _load(self.name).encode_ordinary(text)).tobytes()
        if self._flat is None:
            self._flat = _load(self.name).encode_flat
        # The encoder caches the UTF-8 form on every string that is not ASCII, for as long as the string lives. Encoding
        # a copy lets that memory go with the copy.
        plain = text if text.isascii() else f"{text[:1]}{text[1:]}"
        return self._flat(plain) if len(text) < SHARED_CHARS else _load(self.name).encode_batch_flat([plain])[0]


Encode = Callable[[str], bytes]

GIANT_CHARS = 32_768  # A shorter text cannot be slow.
_PROBE_CHARS = 16_384  # A run of GIANT_CHARS covers at least one whole probe, wherever it starts.
_RUN_KEPT_CHARS = 4_096  # Shortened runs keep this much; no token's context reaches further.
_CHUNK_CHARS = 65_536  # Other threads may have to wait while a chunk is encoded.
_CUT_REACH_CHARS = 32_768
_SEAM_CHARS = 8_192  # This much text on both sides of a seam must be of one class.
_SEAM_TOKENS = (16, 64, 256)
_ID_BYTES = 4
_TOKEN_BYTES_MAX = 512  # The longest token has 128.

# Between an ASCII letter or digit and a blank, between a letter and a digit, and between an ideograph and a Chinese
# mark there is always a split, whatever the context: no piece crosses it.
_SAFE_CUT = re.compile(r"(?<=[A-Za-z0-9])(?=[ \n])|(?<=[A-Za-z])(?=[0-9])|(?<=[\u4e00-\u9fa5])(?=[，。！？；：])")
# Any part of a text of one of these classes is one piece by itself.
_ONE_PIECE = tuple(re.compile(pattern) for pattern in (r"[a-z]+", r"[A-Z]+", r"[!-/:-@\[-`{-~]+"))


class CharRun(NamedTuple):
    """A stretch of one character: text[start:end]."""

    start: int
    end: int


class Group(NamedTuple):
    """Runs with the text around them, up to a safe cut on both sides."""

    start: int
    end: int
    runs: list[CharRun]


class _SeamError(Exception):
    """It could not be shown that the two sides of a cut fit: the text is counted whole."""


def count_giant(text: str, tokenizer: Vocabulary, encode: Encode) -> int:
    """Return the number of tokens of a long text. ``encode`` gives four bytes for each token."""
    total = done = 0
    for group in _group_runs(text, _find_runs(text)):
        if group.start > done:
            total += _count_chunks(text[done : group.start], tokenizer, encode)
        runs = [CharRun(run.start - group.start, run.end - group.start) for run in group.runs]
        total += _count_by_period(text[group.start : group.end], runs, tokenizer, encode)
        done = group.end
    rest = text[done:] if done else text
    return total + (_count_chunks(rest, tokenizer, encode) if rest else 0)


# -- chunks ----------------------------------------------------------------------------------------------------------


def _count_chunks(text: str, tokenizer: Vocabulary, encode: Encode) -> int:
    """Count a text chunk by chunk."""
    if len(text) <= 2 * _CHUNK_CHARS:
        return len(encode(text)) // _ID_BYTES
    total = start = 0
    before = b""  # The end of the chunk before, where the cut between the two is a seam.
    try:
        for end, is_seam in _find_cuts(text):
            ids = encode(text[start:end])
            total += len(ids) // _ID_BYTES
            if before:
                total += _mend_seam(before, ids, tokenizer)
            before = ids[-_SEAM_TOKENS[-1] * _ID_BYTES :] if is_seam else b""
            start = end
    except _SeamError:
        return len(encode(text)) // _ID_BYTES
    return total


def _find_cuts(text: str) -> Iterator[tuple[int, bool]]:
    """Yield where each chunk ends, and whether that is a seam (to be mended) rather than a safe cut."""
    at = _CHUNK_CHARS
    while at + _CHUNK_CHARS < len(text):
        cut = _SAFE_CUT.search(text, at, at + _CUT_REACH_CHARS)
        if cut:
            yield cut.start(), False
            at = cut.start()
        elif _is_one_piece(text, at - _SEAM_CHARS, at + _SEAM_CHARS):
            yield at, True
        at += _CHUNK_CHARS
    yield len(text), False


def _cut(text: str) -> Iterator[str]:
    """Yield a text in chunks for a vocabulary that is not exact: a seam may cost a token."""
    start = 0
    for end, _ in _find_cuts(text):
        yield text[start:end]
        start = end


def _is_one_piece(text: str, start: int, end: int) -> bool:
    return any(pattern.fullmatch(text, start, end) for pattern in _ONE_PIECE)


def _mend_seam(before: bytes, after: bytes, tokenizer: Vocabulary) -> int:
    """Return how many tokens more (or fewer) there are when the text at a seam is encoded in one."""
    left, right = memoryview(before).cast("I").tolist(), memoryview(after[: len(before)]).cast("I").tolist()
    for width in _SEAM_TOKENS:
        if len(left) < width or len(right) < width:
            break
        first, last = left[-width], right[width - 1]
        middle = left[1 - width :] + right[: width - 1]
        text = tokenizer.decode_bytes(middle)
        if len(text) > _SEAM_CHARS - 2 * _TOKEN_BYTES_MAX:
            break
        mended = tokenizer.encode_ordinary(text.decode("ascii"))
        if _are_neighbours(first, mended[0], tokenizer) and _are_neighbours(mended[-1], last, tokenizer):
            return len(mended) - len(middle)
    raise _SeamError


def _are_neighbours(first: int, second: int, tokenizer: Vocabulary) -> bool:
    """Tell whether two tokens of one piece, encoded alone, come out as themselves."""
    pair = [first, second]
    return tokenizer.encode_ordinary(tokenizer.decode_bytes(pair).decode("ascii")) == pair


# -- runs of one character -------------------------------------------------------------------------------------------


def _find_runs(text: str) -> list[CharRun]:
    """Return the long runs of one character, in order; looks at one place in every 16,384."""
    runs: list[CharRun] = []
    end = 0
    for at in range(0, len(text) - _PROBE_CHARS, _PROBE_CHARS):
        if at < end or text[at] != text[at + 1] or text[at] != text[at + 99]:
            continue
        character = text[at]
        block = character * _PROBE_CHARS
        if text[at : at + _PROBE_CHARS] != block or character.isnumeric():
            continue  # Numbers are split in threes: short pieces, never slow.
        before = text[max(end, at - _PROBE_CHARS) : at]
        start = at - (len(before) - len(before.rstrip(character)))
        end = at + _PROBE_CHARS
        while text.startswith(block, end):
            end += _PROBE_CHARS
        after = text[end : end + _PROBE_CHARS]
        end += len(after) - len(after.lstrip(character))
        runs.append(CharRun(start, end))
    return runs


def _group_runs(text: str, runs: list[CharRun]) -> list[Group]:
    """Put each run between two safe cuts, as near as there are any; runs with no cut between them go together."""
    groups: list[Group] = []
    done = 0
    for run in runs:
        if run.start < done:
            start, inside = groups[-1].start, [*groups[-1].runs, run]
            groups.pop()
        else:
            start, inside = done, [run]
            for cut in _SAFE_CUT.finditer(text, max(done, run.start - _CUT_REACH_CHARS), run.start):
                start = cut.start()
        after = _SAFE_CUT.search(text, run.end)
        done = after.start() if after else len(text)
        groups.append(Group(start, done, inside))
    return groups


def _count_by_period(text: str, runs: list[CharRun], tokenizer: Vocabulary, encode: Encode) -> int:
    """Count a text whose runs are shortened by whole tokens, and add those tokens again.

    Between a token and its own copy, one more copy may be inserted: by the law above the result is again an encoding,
    that of the longer text. Where no such place is found, the text is counted as it is.
    """
    kept: list[str] = []
    places: list[tuple[int, int, int]] = []  # first and last byte of what is left of a run, and its token
    added = at = size = 0
    for run in runs:
        character = text[run.start]
        token, period = _find_period(tokenizer, character)
        if not period:
            return _count_chunks(text, tokenizer, encode)
        length = _RUN_KEPT_CHARS + (run.end - run.start - _RUN_KEPT_CHARS) % period
        added += (run.end - run.start - length) // period
        before = text[at : run.start]
        size += len(before.encode())
        kept += (before, character * length)
        places.append((size, size + length * len(character.encode()), token))
        size = places[-1][1]
        at = run.end
    ids = tokenizer.encode_ordinary("".join((*kept, text[at:])))
    if not _are_in_pairs(tokenizer, ids, places):
        return _count_chunks(text, tokenizer, encode)
    return len(ids) + added


def _find_period(tokenizer: Vocabulary, character: str) -> tuple[int, int]:
    """Return the token that fills a long run of a character, and how many characters it holds; 0 if none does."""
    ids = tokenizer.encode_ordinary(character * _RUN_KEPT_CHARS)
    token = ids[len(ids) // 2]
    unit = character.encode()
    piece = tokenizer.decode_token_bytes(token)
    period = len(piece) // len(unit)
    return token, period if piece == unit * period else 0


def _are_in_pairs(tokenizer: Vocabulary, ids: list[int], places: list[tuple[int, int, int]]) -> bool:
    """Tell whether in every place (first byte, last byte, token) the token is next to its own copy."""
    sizes: dict[int, int] = {}
    waiting = iter(places)
    first, last, token = next(waiting)
    offset = 0
    previous = -1
    for current in ids:
        size = sizes.get(current)
        if size is None:
            size = sizes[current] = len(tokenizer.decode_token_bytes(current))
        if current == token == previous and offset - size >= first and offset + size <= last:
            found = next(waiting, None)
            if found is None:
                return True
            first, last, token = found
        previous = current
        offset += size
    return False


_DIGITS = b"0123456789"


@dataclass(frozen=True, slots=True)
class Profile:
    """The difference of a family's tokenizer from o200k: a factor, tokens per extra byte and per digit, the margin."""

    factor: float
    per_wide_byte: float
    per_digit: float
    margin: float


# Measured in 2026-11 against the vocabularies of Llama 3, Qwen 3, DeepSeek V3, GLM 4, Kimi K2, Mistral, Gemma 3 and
# of an early Claude, on English, Chinese, JSON, logs, code, base64 (see tests). Arabic and Hindi may exceed the
# margin with vocabularies that hardly know them; reported usage corrects that.
PROFILES: dict[str, Profile] = {
    "claude": Profile(factor=1.2, per_wide_byte=0.2, per_digit=0.0, margin=0.25),
    "gemini": Profile(factor=1.1, per_wide_byte=0.0, per_digit=0.6, margin=0.15),
    "generic": Profile(factor=1.1, per_wide_byte=0.05, per_digit=0.2, margin=0.25),
}


class Estimate:
    """An estimator of one family, with the same ``count`` as an exact encoding."""

    def __init__(self, family: str) -> None:
        self.family = family if family in PROFILES else "generic"
        self.name = f"estimate:{self.family}"
        self.profile = PROFILES[self.family]
        self._ruler = Encoding("o200k_base")

    def count(self, text: str) -> int:
        """Return about how many tokens a text has, rounded up."""
        if not text:
            return 0
        profile = self.profile
        tokens = self._ruler.count(text) * profile.factor
        if profile.per_digit or not text.isascii():
            # A lone surrogate is three bytes here, as the character that replaces it is.
            utf8 = text.encode("utf-8", "surrogatepass")
            tokens += (len(utf8) - len(text)) * profile.per_wide_byte
            if profile.per_digit:
                tokens += (len(utf8) - len(utf8.translate(None, _DIGITS))) * profile.per_digit
        return math.ceil(tokens)


class CharsQuarter:
    """Four characters a token: the rough rule many tools use, for comparison with them. Far too low for Chinese."""

    name = "chars/4"
    margin = 2.0  # It undercounts Chinese threefold.

    def count(self, text: str) -> int:
        """Return a quarter of the characters, rounded up."""
        return (len(text) + 3) // 4
