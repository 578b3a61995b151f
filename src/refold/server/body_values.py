"""How many JSON values a body holds, found without parsing it: too many of them would stop the whole process.

A parser makes an object of every value and lets no other thread run meanwhile. A conversation is mostly text: even a
very long one has some thousands of values. A body of thirty megabytes can hold ten million, and parsing it takes
seconds. Counting goes piece by piece, so that other requests are answered in between.
"""

from __future__ import annotations

import re

# Below this size no body holds so many values that it matters.
BYTES_MIN = 1_000_000
VALUES_MAX = 500_000
_PIECE_BYTES = 262_144
_SIGNS = (b",", b"[", b"{")
_INSIDE = re.compile(rb'(?:[^"\\]++|\\.)*+', re.S)
_OUTSIDE = re.compile(rb'[^"]*+')


def has_too_many_values(body: bytes, values_max: int = VALUES_MAX) -> bool:
    """Tell whether parsing a body would take too long: it holds more values than any conversation does."""
    if len(body) < BYTES_MIN:
        return False
    pieces = range(0, len(body), _PIECE_BYTES)
    # Signs inside strings count too here: only if there are many of them all in all are strings told apart.
    if sum(_count_signs(body, at, at + _PIECE_BYTES) for at in pieces) <= values_max:
        return False
    return _exceeds(body, values_max)


def _count_signs(body: bytes, start: int, stop: int) -> int:
    return sum(body.count(sign, start, stop) for sign in _SIGNS)


def _exceeds(body: bytes, values_max: int) -> bool:
    """Count the signs outside strings; a string is passed over piece by piece, however long it is."""
    found = at = 0
    while at < len(body) and found <= values_max:
        outside = _OUTSIDE.match(body, at, min(len(body), at + _PIECE_BYTES))
        stop = outside.end() if outside is not None else at
        found += _count_signs(body, at, stop)
        at = stop
        if body[at : at + 1] == b'"':
            at = _find_end(body, at + 1)
    return found > values_max


def _find_end(body: bytes, at: int) -> int:
    """Return where a string ends, behind its quote; the end of the body if it does not."""
    while at < len(body):
        inside = _INSIDE.match(body, at, min(len(body), at + _PIECE_BYTES))
        stop = inside.end() if inside is not None else at
        if body[stop : stop + 1] == b'"':
            return stop + 1
        # A backslash at the very end of a piece belongs to what follows it.
        at = stop + 2 if body[stop : stop + 1] == b"\\" else max(stop, at + 1)
    return len(body)
