"""JSON values, and how one of them is written in a table cell and read back.

``parse`` keeps what parsing usually loses, the literal text of every number and the order of keys, and refuses what
could not be restored (duplicate keys, NaN). ``dump`` writes the one canonical text of a value, on one line. Two values
are equal only if their texts are: 1, 1.0, "1" and true all differ. In a cell a string is bare if nothing else could be
meant, and JSON otherwise; lists and objects are JSON on one line; an absent key is an empty cell.
"""

from __future__ import annotations

import json
import re
from json.encoder import encode_basestring
from typing import Any, Final

from refold.reading.fields import refuse_constant

# Values are plain: dict, list, str, Num, True, False, None.
Value = Any


class Num(str):
    """A number, as it was written."""

    __slots__ = ()


# Never raw in a block: brackets of marks, characters that some readers take for line breaks, lone surrogates.
_RISKY = re.compile("[⟨\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]")


def _read_pairs(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return made


_DECODER = json.JSONDecoder(
    object_pairs_hook=_read_pairs, parse_int=Num, parse_float=Num, parse_constant=refuse_constant
)


def parse(text: str) -> Value:
    """Read one JSON value, all of the text; raise ValueError or RecursionError if it is invalid or cannot be kept."""
    return _DECODER.decode(text)


def parse_at(text: str, start: int) -> tuple[Value, int]:
    """Read one JSON value that begins here; return it and where it ends."""
    value, end = _DECODER.raw_decode(text, start)
    return value, end


def quote(text: str) -> str:
    """Return a string as readable JSON, with every character escaped that could break a line or a block."""
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


# The value of a key that a row does not have: not null, not an empty string.
ABSENT: Final = object()
SPLIT: Final = "|"
ROW_AS_JSON: Final = "!"
CELL_AS_JSON: Final = "="
WORD: Final = "&"

_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORDS = {"true": True, "false": False, "null": None}
# A bare string does not begin with a special character, and contains no separator of its level.
_BARE = re.compile(r"[^\s|\"\[\]{}!&=][^|]*")
_BARE_INSIDE = re.compile(r"[^\s|\"\[\]{}!&=,;][^|,;\[\]{}]*")
_CELL = re.compile(r"[^|]*")
_CELL_INSIDE = re.compile(r"[^|,;\[\]{}]*")
_KEY = re.compile(r"[^\s|\"\[\]{}!@&=+,;:.#()][^|\"\[\]{}=+,;:.()\n]*")


def is_literal(text: str) -> bool:
    """Return whether a text would read as a number, true, false or null."""
    return text in _WORDS or _NUMBER.fullmatch(text) is not None


def write_string(text: str, *, inside: bool, typed: bool) -> str:
    """Return a string as a cell; ``typed`` cells are all strings, so that 007 needs no quotes."""
    pattern = _BARE_INSIDE if inside else _BARE
    if (
        pattern.fullmatch(text)
        and text.isprintable()
        and "⟨" not in text
        and text[-1] != " "
        and (typed or not is_literal(text))
    ):
        return text
    return guard(quote(text))


def write_leaf(value: Value, *, inside: bool, typed: bool = False) -> str:
    """Return any value as a cell."""
    if type(value) is str:
        return write_string(value, inside=inside, typed=typed)
    return guard(dump(value))


def guard(json_text: str) -> str:
    """Return JSON in which no separator of a row occurs raw: in JSON it can only be inside a string."""
    return json_text.replace(SPLIT, "\\u007c") if SPLIT in json_text else json_text


def read_leaf_at(text: str, at: int, *, inside: bool, typed: bool = False) -> tuple[Value, int]:
    """Read the cell that begins here; return its value and where it ends."""
    if text.startswith(('"', "[", "{"), at):
        return parse_at(text, at)
    match = (_CELL_INSIDE if inside else _CELL).match(text, at)
    assert match is not None
    bare, end = match[0], match.end()
    if not bare:
        return ABSENT, end
    if typed:
        return bare, end
    if bare in _WORDS:
        return _WORDS[bare], end
    return (Num(bare) if _NUMBER.fullmatch(bare) else bare), end


def write_key(key: str) -> str:
    """Return a key as it is written in a list of columns."""
    if _KEY.fullmatch(key) and key.isprintable() and key[-1] != " " and "⟨" not in key:
        return key
    return guard(quote(key))
