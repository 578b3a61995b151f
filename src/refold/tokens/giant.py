"""Giant texts, counted exactly without making the encoder slow.

The encoder needs n log n time, and fifty bytes for each byte, on one piece that nothing splits: a megabyte of one
letter, a genome, a wall of dashes. Here such a text is taken apart. Every way of doing so keeps the count exact:
a *safe cut* is a place where every pre-tokenizer splits; elsewhere this law of byte-pair encodings is used:

    a sequence of tokens is *the* encoding of its piece if and only if every two neighbours,
    encoded alone, come out as themselves

Where the law cannot be shown to hold, the text is counted whole. Nothing here is ever an estimate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from splintr import AnyTokenizer

Encode = Callable[[str], bytes]

GIANT_CHARS = 32_768  # A shorter text cannot be slow.
_PROBE_CHARS = 16_384  # A run of GIANT_CHARS covers at least one whole probe, wherever it starts.
_RUN_KEPT_CHARS = 4_096  # What stays of a run; more than any context of a token can reach.
_CHUNK_CHARS = 262_144
_CUT_REACH_CHARS = 65_536
_SEAM_CHARS = 8_192  # On both sides of a seam the text must be of one class this far.
_SEAM_TOKENS = (16, 64, 256)
_ID_BYTES = 4
_TOKEN_BYTES_MAX = 512  # The longest token has 128.

# Between an ASCII letter or digit and a blank, between a letter and a digit, and between an ideograph and a Chinese
# mark there is a split, whatever stands around: no piece goes across.
_SAFE_CUT = re.compile(r"(?<=[A-Za-z0-9])(?=[ \n])|(?<=[A-Za-z])(?=[0-9])|(?<=[\u4e00-\u9fa5])(?=[，。！？；：])")
# Any part of a text of one of these classes is one piece by itself.
_ONE_PIECE = tuple(re.compile(pattern) for pattern in (r"[a-z]+", r"[A-Z]+", r"[!-/:-@\[-`{-~]+"))


class Run(NamedTuple):
    """A stretch of one character: text[start:end]."""

    start: int
    end: int


class Group(NamedTuple):
    """Runs with the text around them, up to a safe cut on both sides."""

    start: int
    end: int
    runs: list[Run]


class _SeamError(Exception):
    """The two sides of a cut could not be shown to fit: the text is counted whole."""


def count_giant(text: str, tokenizer: AnyTokenizer, encode: Encode) -> int:
    """Return the number of tokens of a long text. ``encode`` gives four bytes for each token."""
    total = done = 0
    for group in _group_runs(text, _find_runs(text)):
        if group.start > done:
            total += _count_chunks(text[done : group.start], tokenizer, encode)
        runs = [Run(run.start - group.start, run.end - group.start) for run in group.runs]
        total += _count_by_period(text[group.start : group.end], runs, tokenizer, encode)
        done = group.end
    rest = text[done:] if done else text
    return total + (_count_chunks(rest, tokenizer, encode) if rest else 0)


# -- chunks ----------------------------------------------------------------------------------------------------------


def _count_chunks(text: str, tokenizer: AnyTokenizer, encode: Encode) -> int:
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


def _is_one_piece(text: str, start: int, end: int) -> bool:
    return any(pattern.fullmatch(text, start, end) for pattern in _ONE_PIECE)


def _mend_seam(before: bytes, after: bytes, tokenizer: AnyTokenizer) -> int:
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


def _are_neighbours(first: int, second: int, tokenizer: AnyTokenizer) -> bool:
    """Tell whether two tokens of one piece, encoded alone, come out as themselves."""
    pair = [first, second]
    return tokenizer.encode_ordinary(tokenizer.decode_bytes(pair).decode("ascii")) == pair


# -- runs of one character -------------------------------------------------------------------------------------------


def _find_runs(text: str) -> list[Run]:
    """Return the long runs of one character, in order; looks at one place in every 16,384."""
    runs: list[Run] = []
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
        runs.append(Run(start, end))
    return runs


def _group_runs(text: str, runs: list[Run]) -> list[Group]:
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


def _count_by_period(text: str, runs: list[Run], tokenizer: AnyTokenizer, encode: Encode) -> int:
    """Count a text whose runs are shortened by whole tokens, and add those tokens again.

    Where a token stands next to its own copy, one more copy may be put between them: by the law above the result is
    again an encoding, that of the longer text. Where no such place is found, the text is counted as it is.
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
    if not _stand_in_pairs(tokenizer, ids, places):
        return _count_chunks(text, tokenizer, encode)
    return len(ids) + added


def _find_period(tokenizer: AnyTokenizer, character: str) -> tuple[int, int]:
    """Return the token that fills a long run of a character, and how many of it the token holds; 0 if none does."""
    ids = tokenizer.encode_ordinary(character * _RUN_KEPT_CHARS)
    token = ids[len(ids) // 2]
    unit = character.encode()
    piece = tokenizer.decode_token_bytes(token)
    period = len(piece) // len(unit)
    return token, period if piece == unit * period else 0


def _stand_in_pairs(tokenizer: AnyTokenizer, ids: list[int], places: list[tuple[int, int, int]]) -> bool:
    """Tell whether in every place (first byte, last byte, token) the token stands next to its own copy."""
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
