"""Tokens of a text: exact counts with public vocabularies, offline, and estimates for other tokenizers.

The encoder is loaded at the first count. Text is always ordinary text, also where it looks like a special token; lone
surrogates are repaired first. A giant text is counted in chunks, still exactly: chunks end where every pre-tokenizer
splits, or at a seam inside one piece. There a law of byte-pair encodings holds: tokens are *the* encoding of a piece if
and only if every two neighbours, encoded alone, come out as themselves. Without proof the text is counted whole.

An estimate corrects the exact count of o200k for other scripts and digits, because large vocabularies cut English and
code alike. It leans to the high side; ``margin`` says by how much it may be too low, and ``Calibration`` narrows that.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Protocol

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


@cache
def load_vocabulary(encoding_name: str) -> Vocabulary:
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
            return sum(len(load_vocabulary(self.name).encode_ordinary(piece)) for piece in _cut(text))
        if len(text) >= GIANT_CHARS:
            return count_giant(text, load_vocabulary(self.name), self._encode)
        return len(self._encode(text)) >> 2

    def _encode(self, text: str) -> bytes:
        """Return the ids of a text, four bytes each."""
        # The flat form builds no list of ints, which is half the time, but it reads special tokens.
        if _SPECIAL_OPENS in text:
            return array("I", load_vocabulary(self.name).encode_ordinary(text)).tobytes()
        if self._flat is None:
            self._flat = load_vocabulary(self.name).encode_flat
        # The encoder caches the UTF-8 form on every string that is not ASCII, for as long as the string lives. Encoding
        # a copy lets that memory go with the copy.
        plain = text if text.isascii() else f"{text[:1]}{text[1:]}"
        return (
            self._flat(plain) if len(text) < SHARED_CHARS else load_vocabulary(self.name).encode_batch_flat([plain])[0]
        )


Encode = Callable[[str], bytes]

GIANT_CHARS = 32_768  # A shorter text cannot be slow.
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


class _SeamError(Exception):
    """The two sides of a cut could not be proved to fit, so the text is counted as a whole."""


def count_giant(text: str, tokenizer: Vocabulary, encode: Encode) -> int:
    """Return the number of tokens of a long text, counted chunk by chunk. ``encode`` gives four bytes per token."""
    total = start = 0
    before = b""  # The end of the previous chunk, if the cut between the two is a seam.
    piece, ids = "", b""
    try:
        for end, is_seam in _find_cuts(text):
            if text[start:end] != piece:  # In a run of one character most chunks are equal.
                piece = text[start:end]
                ids = encode(piece)
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
    # Digits are split in threes, so a run of them is many pieces.
    is_run = text[start:end] == text[start] * (end - start) and not text[start].isnumeric()
    return is_run or any(pattern.fullmatch(text, start, end) for pattern in _ONE_PIECE)


def _mend_seam(before: bytes, after: bytes, tokenizer: Vocabulary) -> int:
    """Return how many tokens more (or fewer) there are when the text at a seam is encoded in one."""
    left, right = memoryview(before).cast("I").tolist(), memoryview(after[: len(before)]).cast("I").tolist()
    for width in _SEAM_TOKENS:
        if len(left) < width or len(right) < width:
            break
        first, last = left[-width], right[width - 1]
        middle = left[1 - width :] + right[: width - 1]
        if len(tokenizer.decode_bytes(middle)) > _SEAM_CHARS - 2 * _TOKEN_BYTES_MAX:
            break
        mended = _encode_again(middle, tokenizer)
        if not mended:
            continue
        pairs = ([first, mended[0]], [mended[-1], last])
        if all(_encode_again(pair, tokenizer) == pair for pair in pairs):
            return len(mended) - len(middle)
    raise _SeamError


def _encode_again(tokens: list[int], tokenizer: Vocabulary) -> list[int]:
    """Return the encoding of the text of these tokens; empty if they are no text, because they cut a character."""
    try:
        return tokenizer.encode_ordinary(tokenizer.decode_bytes(tokens).decode())
    except UnicodeDecodeError:
        return []


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
