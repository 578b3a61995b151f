"""JSON values that keep what parsing loses: the literal text of every number, and the order of keys.

``parse`` refuses what cannot come back the same (duplicate keys, NaN); ``dump`` writes the one canonical text of
a value, on one line. Two values are equal here only if their texts are: 1, 1.0, "1" and true all differ.
"""

from __future__ import annotations

import json
import re
from json.encoder import encode_basestring
from typing import Any, NoReturn

# Values are plain: dict, list, str, Num, True, False, None.
Value = Any


class Num(str):
    """A number, as it was written."""

    __slots__ = ()


# What a block must never hold raw: brackets of marks, what some readers take for a line break, lone surrogates.
_RISKY = re.compile("[⟨\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]")


def _read_pairs(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return made


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_read_pairs, parse_int=Num, parse_float=Num, parse_constant=_refuse_constant
)


def parse(text: str) -> Value:
    """Read one JSON value, all of the text; raise ValueError or RecursionError if it is invalid or cannot be kept."""
    return _DECODER.decode(text)


def parse_at(text: str, start: int) -> tuple[Value, int]:
    """Read one JSON value that begins here; return it and where it ends."""
    value, end = _DECODER.raw_decode(text, start)
    return value, end


def quote(text: str) -> str:
    """Return a string as JSON, readable, with nothing raw in it that a line or a block could break on."""
    quoted = encode_basestring(text)
    if quoted.isascii() and "\x7f" not in quoted:
        return quoted
    return _RISKY.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)


def dump(value: Value) -> str:
    """Return the canonical text of a value: no spaces, numbers as they were written."""
    kind = type(value)
    if kind is str:
        return quote(value)
    if kind is Num:
        return str.__str__(value)
    if kind is dict:
        return "{" + ",".join([f"{quote(key)}:{dump(item)}" for key, item in value.items()]) + "}"
    if kind is list:
        return "[" + ",".join([dump(item) for item in value]) + "]"
    return "null" if value is None else "true" if value else "false"
