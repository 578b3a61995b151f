"""Where the messages stand in the bytes of a request, so that they can be told apart and copied without being parsed.

Offsets are found by a JSON reader on the bytes taken as Latin-1: one character is one byte, and JSON's own signs are
ASCII. With them a request is known by the bytes it shares with the one before, and a compressed request keeps every
untouched message byte for byte.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from refold.server.reading import dump_json

_BLOCK = 65_536
_PROBE = 512
_GAP = re.compile(r"[ \t\n\r]*")
_scan = json.JSONDecoder(strict=False).raw_decode


@dataclass(frozen=True, slots=True)
class Places:
    """The messages of a body: ``start`` is where the first may begin, ``spans`` where each begins and ends."""

    body: bytes = field(repr=False)
    start: int
    spans: tuple[tuple[int, int], ...] = field(repr=False)

    @property
    def end(self) -> int:
        """Where the last message ends."""
        return self.spans[-1][1] if self.spans else self.start

    def count_shared(self, body: bytes) -> int:
        """Return how many of these messages another body begins with, byte for byte."""
        spans = self.spans
        if not spans:
            return 0
        # Bytes compare themselves with a view without a copy of either; most requests go on from all that is known.
        if body.startswith(memoryview(self.body)[: spans[-1][1]]):
            return len(spans)
        first = spans[0][1]
        if self.body[max(0, first - _PROBE) : first] != body[max(0, first - _PROBE) : first]:
            return 0  # Most others differ in their first message.
        shared = count_shared_bytes(self.body, body, self.end)
        return bisect_right(spans, shared, key=lambda span: span[1])

    def leave_out(self, body: bytes, known: int) -> bytes:
        """Return a body without its first messages, which are these: valid JSON again, and small."""
        rest = self.spans[known - 1][1]
        comma = skip_gap(body, rest)
        if body[comma : comma + 1] == b",":
            rest = comma + 1
        return body[: self.start] + body[rest:]

    def write(self, pieces: Sequence[int | object]) -> bytes:
        """Return the body with these messages: a number stands for the one at that place, as it came."""
        texts = [
            self.body[slice(*self.spans[piece])] if isinstance(piece, int) else dump_json(piece) for piece in pieces
        ]
        return b"".join((self.body[: self.start], b",".join(texts), self.body[self.end :]))


def find_places(body: bytes, key: str, known: Places | None = None, kept: int = 0) -> Places | None:
    """Return where the messages stand under a key of the outermost object; None if that cannot be told.

    ``known`` are the places of a body that begins with the same ``kept`` messages: only the others are looked at.
    """
    # Taken as Latin-1 a character is a byte: what is found in the text stands at the same place in the bytes.
    skipped = known.spans[kept - 1][1] if known is not None and kept else 0
    text = body[skipped:].decode("latin-1") if skipped else body.decode("latin-1")
    spans: list[tuple[int, int]] = []
    try:
        if known is not None and skipped:
            start = known.start
            at = _GAP.match(text).end()  # type: ignore[union-attr]
            at += text[at] == ","
        else:
            at = start = _find_array(text, key)
        at = _find_spans(text, at, spans, skipped) + skipped
    except (ValueError, IndexError, RecursionError):
        return None
    # The same key once more would overrule what was found.
    if body.find(f'"{key}"'.encode(), at) >= 0:
        return None
    return Places(body, start, (known.spans[:kept] if known is not None and skipped else ()) + tuple(spans))


def _find_array(text: str, key: str) -> int:
    at = _skip(text, 0, "{")
    while True:
        name, at = _scan(text, _GAP.match(text, at).end())  # type: ignore[union-attr]
        at = _skip(text, at, ":")
        at = _GAP.match(text, at).end()  # type: ignore[union-attr]
        if name == key:
            return _skip(text, at, "[")
        _, at = _scan(text, at)
        at = _skip(text, at, ",")


def _find_spans(text: str, at: int, spans: list[tuple[int, int]], skipped: int) -> int:
    """Add where each message begins and ends; the text begins where ``skipped`` bytes of the body end."""
    at = _GAP.match(text, at).end()  # type: ignore[union-attr]
    while text[at] != "]":
        _, end = _scan(text, at)
        spans.append((at + skipped, end + skipped))
        at = _GAP.match(text, end).end()  # type: ignore[union-attr]
        if text[at] == ",":
            at = _GAP.match(text, at + 1).end()  # type: ignore[union-attr]
        elif text[at] != "]":
            raise ValueError(at)
    return at


def _skip(text: str, at: int, sign: str) -> int:
    at = _GAP.match(text, at).end()  # type: ignore[union-attr]
    if text[at] != sign:
        raise ValueError(at)
    return at + 1


def skip_gap(body: bytes, at: int) -> int:
    """Return where the white space at some place ends."""
    while body[at : at + 1] in (b" ", b"\t", b"\n", b"\r"):
        at += 1
    return at


def count_shared_bytes(left: bytes, right: bytes, limit: int) -> int:
    """Return how many bytes two bodies have in common at their beginning, ``limit`` at most."""
    low, high = 0, min(limit, len(left), len(right))
    view = memoryview(left)
    # Forward by blocks, then by halves: bytes compare themselves with a view without a copy.
    while low < high and right.startswith(view[low : min(low + _BLOCK, high)], low):
        low = min(low + _BLOCK, high)
    high = min(low + _BLOCK, high)
    while low < high:
        middle = (low + high + 1) // 2
        if right.startswith(view[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low
