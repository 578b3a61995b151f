"""densify: JSON without its spaces, and like records as columns and rows. Lossless, or not at all.

JSON is recognised where its borders are clear: it starts and ends a line, fenced or not, or is the whole text. A block
opens with the line ``⟨handle⟩ JSON ...`` and closes with the line ``⟨/handle⟩``; the rest stays byte for byte. Between
them is JSON: a list of like records is ``{"columns": [...], "rows": [[...], ...]}``, an object whose keys are data has
its rows under these keys, and a row with other keys stays an object. Every block is read back before it is used; if
the result differs or little is saved, the text stays as it was.

Only we write the bracket ``⟨`` raw in a block, so no text of the data can close it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any, ClassVar, NamedTuple

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
# A failed attempt may cost a pass over all the text before it.
_FAILURES_MAX = 100
ROWS_MIN = 3
_TABLE = ["columns", "rows"]
_PLAIN, _ROWS, _LINES = "without spaces", "with the keys of its rows in columns", "lines as rows of one table"
# Never raw in a block: brackets of marks, characters that some readers take for line breaks, lone surrogates.
_RISKY = re.compile("[⟨\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]")

# Values are plain: dict, list, str, Num, True, False, None.
Value = Any


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


def dump(value: Value, *, with_tables: bool = False) -> str:
    """Return a value without spaces, numbers as they were written; ``with_tables`` like records as columns and rows."""
    if type(value) is str:
        return quote(value)
    if type(value) is Num:
        return str.__str__(value)
    if type(value) is dict:
        columns = _find_columns(list(value.values())) if with_tables else ()
        pieces = [f"{quote(key)}:{_dump_row(item, columns, with_tables)}" for key, item in value.items()]
        return _write_table(columns, "{", pieces, "}")
    if type(value) is list:
        columns = _find_columns(value) if with_tables else ()
        return _write_table(columns, "[", [_dump_row(item, columns, with_tables) for item in value], "]")
    return "null" if value is None else "true" if value else "false"


def _dump_row(value: Value, columns: Sequence[str], with_tables: bool) -> str:
    if columns and tuple(value) == columns:
        return f"[{','.join([dump(cell, with_tables=with_tables) for cell in value.values()])}]"
    return dump(value, with_tables=with_tables)


def _write_table(columns: Sequence[str], opening: str, rows: Sequence[str], closing: str) -> str:
    """Return rows, each on a line below their columns; without columns they are plain JSON."""
    if not columns:
        return f"{opening}{','.join(rows)}{closing}"
    lines = ",\n".join(rows)
    return f'{{"columns":[{",".join(map(quote, columns))}],"rows":{opening}\n{lines}{closing}}}'


def _find_columns(rows: Sequence[Value]) -> tuple[str, ...]:
    """Return the keys that most of these values have if all are records; none if a table would not be shorter."""
    if len(rows) < ROWS_MIN or not all(map(_is_record, rows)):
        return ()
    columns, count = Counter(map(tuple, rows)).most_common(1)[0]
    return columns if count >= ROWS_MIN else ()


def _is_record(value: Value) -> bool:
    return type(value) is dict and bool(value)


def expand(value: Value) -> Value:
    """Return a value with every table read back to records."""
    if type(value) is list:
        return [expand(item) for item in value]
    if type(value) is not dict:
        return value
    if list(value) != _TABLE:
        return {key: expand(item) for key, item in value.items()}
    columns, rows = value.values()
    if type(rows) is dict:
        return {key: _expand_row(row, columns) for key, row in rows.items()}
    return [_expand_row(row, columns) for row in rows]


def _expand_row(row: Value, columns: Sequence[str]) -> Value:
    return dict(zip(columns, map(expand, row), strict=True)) if type(row) is list else expand(row)


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
    at = 0
    for span in find_spans(text, chars_min):
        block = _write_block(span, handle)
        if block is not None and len(block) <= (span.stop - span.start) * (1 - saving_min):
            pieces += [text[at : span.start], block]
            at = span.stop
    return "".join([*pieces, text[at:]]) if pieces else None


def expand_text(text: str) -> str:
    """Return a text with every block read back to JSON in canonical form, other text as it is.

    A block that was changed since raises ValueError.
    """
    pieces: list[str] = []
    at = 0
    for block in find_blocks(text):
        try:
            value = expand(parse("\n".join(block.lines[1:])))
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"a block does not read back ({error}); ask for its handle to get the original") from error
        is_lines = block.lines[0].endswith(_LINES)
        pieces += [text[at : block.start], "\n".join(map(dump, value)) if is_lines else dump(value)]
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


def _write_block(span: JsonSpan, handle: str) -> str | None:
    """Return a block: its first line says what it is, its last line closes it; None if it does not read back."""
    value = span.values if span.is_lines else span.values[0]
    try:
        written = dump(value, with_tables=True)
        kind = _LINES if span.is_lines else _ROWS if '"columns"' in written else _PLAIN
        block = f"⟨{handle}⟩ JSON {kind}\n{written}\n⟨/{handle}⟩"
        return block if expand_text(block) == "\n".join(map(dump, span.values)) else None
    except (ValueError, RecursionError):
        return None


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
