"""densify: JSON of similar records becomes a plain table. Lossless, or not at all.

JSON is recognised where its borders are clear: it starts and ends a line, fenced or not, or is the whole text. A block
opens with the line ``⟨handle⟩ JSON ...`` and closes with the line ``⟨/handle⟩``; the rest stays byte for byte. Outside
its tables a block is JSON on one line, with ``⟨1⟩`` in the place of the first table. A row has a cell for each column,
split by ``|``, and an empty one where it lacks the key; ``a.b`` is key ``b`` of the object under ``a``. Every block is
read back before it is used; if the result differs or little is saved, the text stays as it was.

Only we write the bracket ``⟨`` raw in a block, so no text of the data can close the block or pass for a table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any, ClassVar, Final, NamedTuple

from refold.conversation import because
from refold.conversation.message import Part
from refold.conversation.reason import ReasonKind
from refold.conversation.view import Item
from refold.errors import ConfigError
from refold.reading.fields import refuse_constant
from refold.stages.stage import OutputStage, When

# Characters that may follow an opening bracket in JSON: ``[12:00:00]`` and ``[INFO]`` are ruled out at once.
_JSON_START = re.compile(
    r"""^(?=\{\s*(?:\}|"[^"\\\n]*(?:\\.[^"\\\n]*)*"\s*:)
         |\[\s*(?:[\[{\]]|"[^"\\\n]*(?:\\.[^"\\\n]*)*"\s*[,\]]|(?:-?\d[\d.eE+-]*|true|false|null)\s*[,\]]))""",
    re.M | re.X,
)
_BLOCK_START = re.compile(r"^⟨([mf]:[0-9a-f]{4,32}(?:\.\d{1,5})?)⟩ (?=JSON |log )", re.M)
# Errors that reading a changed block may raise; our own blocks never do.
_FAULTS = (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError)
# A failed attempt may cost a pass over all the text before it.
_FAILURES_MAX = 100
# A table must be this much shorter than its JSON to be worth a second notation.
_TABLE_GAIN = 0.9
# Each level may look at everything below it again; this bounds the work.
_DEPTH_MAX = 8
ROWS_MIN = 3
COLUMNS_MAX = 400
_LIKE_SHARE = 0.5
_ROW_AS_JSON = "!"
_TABLE_HEAD = re.compile(r"⟨(\d{1,6})⟩ (list|map|lines) of (\d{1,12}) rows(?: by key)?: (.*)")
_TABLE_PLACE = re.compile(r"⟨(\d{1,6})⟩")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORDS = {"true": True, "false": False, "null": None}
# A bare string does not begin with a special character, and contains no separator.
_BARE = re.compile(r"[^\s|\"\[\]{}!][^|]*")
_KEY = re.compile(r"[^\s|\"\[\]{}!=.][^|\"=.\n]*")
_HEAD_CELL = re.compile(r"((?:\"(?:[^\"\\]|\\.)*\"|[^|=.\"]+)(?:\.(?:\"(?:[^\"\\]|\\.)*\"|[^|=.\"]+))*)(?:=([^|]*))?")
_HEAD_KEY = re.compile(r"\"(?:[^\"\\]|\\.)*+\"?|[^.\"]+")
# Never raw in a block: brackets of marks, characters that some readers take for line breaks, lone surrogates.
_RISKY = re.compile("[⟨\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]")

# Values are plain: dict, list, str, Num, True, False, None.
Value = Any
Path = tuple[str, ...]
# The value of a key that a row does not have: not null, not an empty string.
ABSENT: Final = object()


class Num(str):
    """A number, as it was written."""

    __slots__ = ()


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


def _write_cell(value: Value) -> str:
    """Return a value as a cell: a string bare if nothing else could be meant, else JSON without a raw separator."""
    if value is ABSENT:
        return ""
    if (
        type(value) is str
        and _BARE.fullmatch(value)
        and value.isprintable()
        and "⟨" not in value
        and value[-1] != " "
        and value not in _WORDS
        and not _NUMBER.fullmatch(value)
    ):
        return value
    return dump(value).replace("|", "\\u007c")


def _read_cell(text: str) -> Value:
    if not text:
        return ABSENT
    if text[0] in '"[{':
        return parse(text)
    if text in _WORDS:
        return _WORDS[text]
    return Num(text) if _NUMBER.fullmatch(text) else text


@dataclass(frozen=True, slots=True)
class Column:
    """Where a value is in a row; ``constant`` is the value of all rows, where they have one."""

    path: Path
    constant: Value = ABSENT

    def write(self) -> str:
        """Return the column as the head of a table has it."""
        name = ".".join(_write_key(key) for key in self.path)
        return name if self.constant is ABSENT else f"{name}={_write_cell(self.constant)}"


def _write_key(key: str) -> str:
    is_bare = _KEY.fullmatch(key) and key.isprintable() and key[-1] != " " and "⟨" not in key
    return key if is_bare else quote(key).replace("|", "\\u007c")


def _read_columns(text: str) -> list[Column]:
    columns: list[Column] = []
    at = 0
    while at <= len(text):
        found = _HEAD_CELL.match(text, at)
        if found is None or text[found.end() : found.end() + 1] not in ("", "|"):
            raise ValueError("a table has no readable columns")
        keys = (parse(key) if key[0] == '"' else key for key in _HEAD_KEY.findall(found[1]))
        columns.append(Column(tuple(keys), ABSENT if found[2] is None else _read_cell(found[2])))
        at = found.end() + 1
    return columns


def _is_record(value: Value) -> bool:
    return type(value) is dict and bool(value)


def _are_alike(rows: Sequence[Value]) -> bool:
    """Return whether most rows are records, most of whose keys most of them have."""
    records = [row for row in rows if _is_record(row)]
    if len(rows) < ROWS_MIN or len(records) <= _LIKE_SHARE * len(rows):
        return False
    return sum(map(len, records)) >= _LIKE_SHARE * len(records) * len({key for row in records for key in row})


def _plan_columns(rows: Sequence[dict[str, Value]], path: Path = ()) -> list[Column]:
    """Return the columns of like records; objects inside become columns of their own."""
    values: dict[str, list[Value]] = {}
    for row in rows:
        for key, value in row.items():
            values.setdefault(key, []).append(value)
    columns: list[Column] = []
    for key, found in values.items():
        here = (*path, key)
        is_full = len(found) == len(rows)
        if is_full and len(here) < _DEPTH_MAX and all(map(_is_record, found)):
            columns += _plan_columns(found, here)
        elif is_full and type(found[0]) not in (dict, list) and len({dump(value) for value in found}) == 1:
            columns.append(Column(here, found[0]))
        else:
            columns.append(Column(here))
    return columns


def _write_row(row: dict[str, Value], columns: Sequence[Column]) -> str:
    """Return a row as cells; as JSON if its cells would not give it back."""
    cells = "|".join(_write_cell(_find_value(row, column.path)) for column in columns if column.constant is ABSENT)
    try:
        is_same = dump(_read_row(cells, columns)) == dump(row)
    except _FAULTS:
        is_same = False
    return cells if is_same and not cells.startswith(_ROW_AS_JSON) else f"{_ROW_AS_JSON}{dump(row)}"


def _find_value(row: Value, path: Path) -> Value:
    for key in path:
        if type(row) is not dict or key not in row:
            return ABSENT
        row = row[key]
    return row


def _read_row(text: str, columns: Sequence[Column]) -> Value:
    if text.startswith(_ROW_AS_JSON):
        return parse(text[1:])
    cells = iter(text.split("|"))
    row: dict[str, Value] = {}
    for column in columns:
        value = _read_cell(next(cells)) if column.constant is ABSENT else column.constant
        if value is ABSENT:
            continue
        inner = row
        for key in column.path[:-1]:
            inner = inner.setdefault(key, {})
        inner[column.path[-1]] = value
    if next(cells, None) is not None:
        raise ValueError("a row has more cells than columns")
    return row


class _DocumentWriter:
    """Writes one document, and the tables in it."""

    def __init__(self) -> None:
        self.tables: list[list[str]] = []

    def finish(self, skeleton: str) -> str:
        """Return the lines of the block; the first says how to read the others."""
        if not self.tables:
            return f"JSON without spaces\n{skeleton}"
        notes = "cells split by |, empty = key absent"
        notes += ", name=value holds in every row" if any("=" in table[0] for table in self.tables) else ""
        lines = [] if skeleton == "⟨1⟩" else [skeleton]
        return "\n".join([f"JSON as tables: {notes}", *lines, *(line for table in self.tables for line in table)])

    def write(self, value: Value, depth: int = 0) -> str:
        """Return a value as JSON with placeholders for the tables that were worth writing."""
        kind = type(value)
        if kind is not dict and kind is not list:
            return dump(value)
        if depth < _DEPTH_MAX and _are_alike(list(value.values()) if kind is dict else value):
            place = self.write_table(value, "list" if kind is list else "map")
            if place and sum(map(len, self.tables[-1])) + len(self.tables[-1]) < _TABLE_GAIN * len(dump(value)):
                return place
            if place:
                self.tables.pop()
        if kind is list:
            return "[" + ",".join([self.write(item, depth + 1) for item in value]) + "]"
        return "{" + ",".join([f"{quote(key)}:{self.write(item, depth + 1)}" for key, item in value.items()]) + "}"

    def write_table(self, rows: Value, kind: str) -> str:
        """Write a table and return its placeholder; nothing if it would have too many columns."""
        records = list(rows.values()) if kind == "map" else rows
        columns = _plan_columns([row for row in records if _is_record(row)])
        if len(columns) > COLUMNS_MAX or not any(column.constant is ABSENT for column in columns):
            return ""
        place = f"⟨{len(self.tables) + 1}⟩"
        head = "|".join(column.write() for column in columns)
        by_key = " by key" if kind == "map" else ""
        written = [_write_row(row, columns) for row in records]
        if kind == "map":
            written = [f"{_write_cell(key)}|{row}" for key, row in zip(rows, written, strict=True)]
        self.tables.append([f"{place} {kind} of {len(records)} rows{by_key}: {head}", *written])
        return place


def read_block(lines: list[str]) -> str:
    """Return the JSON text that a block encodes, canonical: one line, or one line per value for lines of JSON."""
    at, skeleton = 1, "⟨1⟩"
    if not _TABLE_HEAD.fullmatch(lines[at]):
        skeleton, at = lines[at], at + 1
    texts: dict[str, str] = {}
    while at < len(lines):
        head = _TABLE_HEAD.fullmatch(lines[at])
        if head is None:
            raise ValueError("a block goes on after its last row")
        kind, count, columns = head[2], int(head[3]), _read_columns(head[4])
        rows = lines[at + 1 : at + 1 + count]
        if len(rows) != count:
            raise ValueError(f"a table of {count} rows has {len(rows)}")
        if kind == "map":
            pairs = (row.split("|", 1) for row in rows)
            texts[head[1]] = dump({_read_cell(key): _read_row(rest, columns) for key, rest in pairs})
        else:
            values = [_read_row(row, columns) for row in rows]
            texts[head[1]] = "\n".join(map(dump, values)) if kind == "lines" else dump(values)
        at += 1 + count
    return _TABLE_PLACE.sub(lambda place: texts[place[1]], skeleton)


class Block(NamedTuple):
    """A block in a text: the whole of it, and its lines without the marks."""

    start: int
    stop: int
    lines: list[str]


class JsonSpan(NamedTuple):
    """A piece of a text that is JSON: one value, or values on a line each (``is_lines``)."""

    start: int
    stop: int
    values: list[Value]
    is_lines: bool = False


def densify_text(text: str, handle: str, *, chars_min: int = 300, saving_min: float = 0.1) -> str | None:
    """Return the text with its JSON in blocks; None if that saves too little or is not exact.

    ``chars_min`` is the least a piece must have, ``saving_min`` the least share of it that a block must save.
    """
    if len(text) < chars_min or _BLOCK_START.search(text):
        return None
    pieces: list[str] = []
    expected: list[str] = []
    at = 0
    for span in find_spans(text, chars_min):
        block = _write_block(span, handle, saving_min)
        if block is not None:
            pieces += [text[at : span.start], block]
            expected += [text[at : span.start], "\n".join(map(dump, span.values))]
            at = span.stop
    if not pieces:
        return None
    made = "".join([*pieces, text[at:]])
    try:
        return made if expand_text(made) == "".join([*expected, text[at:]]) else None
    except ValueError:
        return None


def expand_text(text: str) -> str:
    """Return a text with every block read back to JSON in canonical form, other text as it is.

    A block that was changed since raises ValueError.
    """
    pieces: list[str] = []
    at = 0
    for block in find_blocks(text):
        try:
            pieces += [text[at : block.start], read_block(block.lines)]
        except _FAULTS as error:
            raise ValueError(f"a block does not read back ({error}); ask for its handle to get the original") from error
        at = block.stop
    return "".join([*pieces, text[at:]])


def find_blocks(text: str) -> Iterator[Block]:
    """Find the blocks of a text in order; checks use this to tell them from verbatim lines."""
    at = close = 0
    while match := _BLOCK_START.search(text, at):
        at = match.end()
        # One search for the next closing mark serves all openings before it, so the work is linear.
        close = text.find("\n⟨/", at) if close < at else close
        if close < 0:
            return
        closing = f"\n⟨/{match[1]}⟩"
        stop = close + len(closing)
        if text.startswith(closing, close) and _ends_line(text, stop):
            yield Block(match.start(), stop, text[at:close].split("\n"))
            at = stop


def find_spans(text: str, chars_min: int) -> Iterator[JsonSpan]:
    """Find the JSON in a text, in order. Linear: text that failed to parse is not tried again from a later start."""
    at = failures = 0
    while failures < _FAILURES_MAX and (match := _JSON_START.search(text, at)):
        start = match.start()
        try:
            value, stop = _DECODER.raw_decode(text, start)
        except ValueError as error:
            # JSON that cannot be restored, such as one with a duplicate key, does not show where it ends.
            at, failures = max(start + 1, getattr(error, "pos", 0)), failures + 1
            continue
        except RecursionError:
            return
        at = stop
        if not _ends_line(text, stop):
            continue
        span = _extend_lines(text, JsonSpan(start, stop, [value]))
        if span.stop - span.start >= chars_min:
            yield span
        at = span.stop


def _extend_lines(text: str, first: JsonSpan) -> JsonSpan:
    """Take the following lines in as long as each is one record."""
    if not _is_record(first.values[0]) or text.find("\n", first.start, first.stop) >= 0:
        return first
    values, end = list(first.values), first.stop
    while text.startswith("\n{", end):
        try:
            value, after = _DECODER.raw_decode(text, end + 1)
        except (ValueError, RecursionError):
            break
        if not _is_record(value) or not _ends_line(text, after) or text.find("\n", end + 1, after) >= 0:
            break
        values.append(value)
        end = after
    return JsonSpan(first.start, end, values, True) if len(values) >= ROWS_MIN else first


def _ends_line(text: str, at: int) -> bool:
    return at == len(text) or text.startswith(("\n", "\r\n"), at)


def _write_block(span: JsonSpan, handle: str, saving_min: float) -> str | None:
    """Return a block: its first line says what it is and how to read it, its last line closes it."""
    writer = _DocumentWriter()
    try:
        skeleton = writer.write_table(span.values, "lines") if span.is_lines else writer.write(span.values[0])
    except RecursionError:
        return None
    if not skeleton:
        return None
    block = f"⟨{handle}⟩ {writer.finish(skeleton)}\n⟨/{handle}⟩"
    return block if len(block) <= (span.stop - span.start) * (1 - saving_min) else None


@dataclass(frozen=True)
class Densify(OutputStage):
    """Options of the stage. ``chars_max`` bounds the work on one output; larger ones are left to truncate."""

    name: ClassVar[str] = "densify"
    when: ClassVar[When] = "arrival"
    reason: ClassVar[ReasonKind] = because.DENSER

    chars_min: int = 300
    chars_max: int = 20_000_000
    saving_min: float = 0.1
    texts: bool = False

    def __post_init__(self) -> None:
        name, value, wanted = "chars_min", float(self.chars_min), ""
        if self.chars_min < 1:
            wanted = "1 or more"
        elif self.chars_max < self.chars_min:
            name, value, wanted = "chars_max", self.chars_max, f"at least chars_min, {self.chars_min}"
        elif not 0 <= self.saving_min < 1:
            name, value, wanted = "saving_min", self.saving_min, "a share from 0 up to 1"
        if wanted:
            raise ConfigError(
                "{setting} is {value}; give {wanted}", setting=f"densify.{name}", value=value, wanted=wanted
            )

    def rewrite(self, text: str, handle: str, tool: str) -> str | None:  # noqa: ARG002
        """Return the text made dense; None if that saves too little or could not be read back."""
        if len(text) > self.chars_max:
            return None
        return densify_text(text, handle, chars_min=self.chars_min, saving_min=self.saving_min)

    def _find_part(self, item: Item, number: int) -> Part | None:
        # Text that another edit has shortened is incomplete: a block made of it would not be lossless.
        return None if number in item.edited_parts() else item.message.parts[number]
