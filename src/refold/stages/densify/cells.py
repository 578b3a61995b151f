"""Cells: how one value is written in a table row, and how it is read back.

A string stands bare where nothing could be mistaken for something else, else as JSON. Numbers, true, false and
null stand as they are; lists and objects as JSON on one line; an absent key is an empty cell.
"""

from __future__ import annotations

import re
from typing import Final

from refold.stages.densify.values import Num, Value, dump, parse, parse_at, quote


class Whole:
    """A cell with a value of its own in a column that has a recipe."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


class Absent:
    """The mark of a key that a row does not have: not null, not an empty string."""

    __slots__ = ()


ABSENT: Final = Absent()
SPLIT: Final = "|"
ROW_AS_JSON: Final = "!"
CELL_AS_JSON: Final = "="
WORD: Final = "&"

_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORDS = {"true": True, "false": False, "null": None}
# A bare string begins with nothing that has a meaning, and holds no split of its level.
_BARE = re.compile(r"[^\s|\"\[\]{}!&=][^|]*")
_BARE_INSIDE = re.compile(r"[^\s|\"\[\]{}!&=,;][^|,;\[\]{}]*")
_INSIDE_STOP = re.compile(r"[^|,;\[\]{}]*")
_KEY = re.compile(r"[^\s|\"\[\]{}!@&=+,;:.#()][^|\"\[\]{}=+,;:.()\n]*")


def is_literal(text: str) -> bool:
    """Tell whether a text would read as a number, true, false or null."""
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


def read_leaf(text: str, *, typed: bool = False) -> Value:
    """Read a whole cell back."""
    if not text:
        return ABSENT
    if text[0] in '"[{':
        return parse(text)
    return text if typed else read_bare(text)


def read_bare(text: str) -> Value:
    """Read an unquoted value: a word, a number or a string."""
    if text in _WORDS:
        return _WORDS[text]
    return Num(text) if _NUMBER.fullmatch(text) else text


def read_leaf_at(text: str, at: int, *, typed: bool = False) -> tuple[Value, int]:
    """Read a cell inside a list that begins here; return it and where it ends."""
    if text[at] in '"[{':
        return parse_at(text, at)
    match = _INSIDE_STOP.match(text, at)
    assert match is not None
    bare = match[0]
    if not bare:
        return ABSENT, at
    return (bare if typed else read_bare(bare)), match.end()


def write_key(key: str) -> str:
    """Return a key as it is written in a list of columns."""
    if _KEY.fullmatch(key) and key.isprintable() and key[-1] != " " and "⟨" not in key:
        return key
    return guard(quote(key))
