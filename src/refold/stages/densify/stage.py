"""densify: JSON of similar records becomes tables, and repetitive logs state their common beginnings once. Lossless.

JSON is recognised where its borders are clear: it starts and ends a line, fenced or not, or is the whole text. A block
opens with the line ``⟨handle⟩ JSON ...`` or ``⟨handle⟩ log ...`` and closes with the line ``⟨/handle⟩``. The rest
stays byte for byte. Every block is read back before it is used; if the result differs or little is saved, the text
stays as it was.

In a block of JSON everything outside the tables is JSON on one line, with ``⟨1⟩`` in the place of the first table. Only
we write the bracket ``⟨`` raw in a block, so no text of the data can close the block or pass for a table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from refold.conversation import because
from refold.conversation.message import Part
from refold.conversation.reason import ReasonKind
from refold.conversation.view import Item
from refold.errors import ConfigError
from refold.stages.densify.cells import Value, dump, parse, parse_at, quote
from refold.stages.densify.logs import read_log, write_log
from refold.stages.densify.rows import RowReader, RowWriter, read_columns, write_columns
from refold.stages.densify.table import ROWS_MIN, is_keyed, is_like_list, is_record, plan_table
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
# Codes in a log are harder to read than cells in a table, so a log must save more.
_LOG_SAVING_MIN = 0.15


@dataclass(frozen=True, slots=True)
class Block:
    """A block in a text: the whole of it, and its lines without the marks."""

    start: int
    stop: int
    lines: list[str]


@dataclass(frozen=True, slots=True)
class JsonSpan:
    """A piece of a text that is JSON: one value, or values on a line each (``is_lines``)."""

    start: int
    stop: int
    values: list[Value]
    is_lines: bool = False

    @property
    def canonical(self) -> str:
        """The same values in the one form that reading back gives."""
        return "\n".join([dump(value) for value in self.values])


def densify_text(text: str, handle: str, *, chars_min: int = 300, saving_min: float = 0.1) -> str | None:
    """Return the text with its JSON, or its repetitive lines, in blocks; None if that saves too little or is not exact.

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
            expected += [text[at : span.start], span.canonical]
            at = span.stop
    if not pieces:
        return _densify_log(text, handle, saving_min)
    made = "".join([*pieces, text[at:]])
    return made if _reads_back(made, "".join([*expected, text[at:]])) else None


def expand_text(text: str) -> str:
    """Return a text with every block read back: JSON in canonical form, logs byte for byte, other text as it is.

    A block that was changed since raises ValueError.
    """
    pieces: list[str] = []
    at = 0
    for block in find_blocks(text):
        pieces += [text[at : block.start], _read(block.lines)]
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
            value, stop = parse_at(text, start)
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


def frame(handle: str, lines: list[str]) -> str:
    """Return a block: its first line says what it is and how to read it, its last line closes it."""
    return "\n".join([f"⟨{handle}⟩ {lines[0]}", *lines[1:], f"⟨/{handle}⟩"])


def _extend_lines(text: str, first: JsonSpan) -> JsonSpan:
    """Take the following lines in as long as each is one record."""
    if not is_record(first.values[0]) or text.find("\n", first.start, first.stop) >= 0:
        return first
    values, end = list(first.values), first.stop
    while text.startswith("\n{", end):
        try:
            value, after = parse_at(text, end + 1)
        except (ValueError, RecursionError):
            break
        if not is_record(value) or not _ends_line(text, after) or text.find("\n", end + 1, after) >= 0:
            break
        values.append(value)
        end = after
    return JsonSpan(first.start, end, values, True) if len(values) >= ROWS_MIN else first


def _ends_line(text: str, at: int) -> bool:
    return at == len(text) or text.startswith(("\n", "\r\n"), at)


def _write_block(span: JsonSpan, handle: str, saving_min: float) -> str | None:
    try:
        lines = write_lines(span.values) if span.is_lines else write_document(span.values[0])
    except RecursionError:
        return None
    block = frame(handle, lines)
    return block if len(block) <= (span.stop - span.start) * (1 - saving_min) else None


def _densify_log(text: str, handle: str, saving_min: float) -> str | None:
    lines = write_log(text)
    if lines is None:
        return None
    made = frame(handle, lines)
    return made if len(made) <= len(text) * (1 - max(saving_min, _LOG_SAVING_MIN)) and _reads_back(made, text) else None


def _read(lines: list[str]) -> str:
    try:
        return read_log(lines) if lines[0].startswith("log ") else read_block(lines)
    except _FAULTS as error:
        raise ValueError(f"a block does not read back ({error}); ask for its handle to get the original") from error


def _reads_back(made: str, expected: str) -> bool:
    try:
        return expand_text(made) == expected
    except ValueError:
        return False


# A table must be this much shorter than its JSON to be worth a second notation.
_TABLE_GAIN = 0.9
# Each level may plan everything below it again; this bounds the work.
_DEPTH_MAX = 8
_WORD_CHARS_MIN = 24
_WORD_USES_MIN = 3
_WORDS_MAX = 200
_WORD_LINE = re.compile(r"(&\d{1,4})=(\".*)")
_TABLE_HEAD = re.compile(r"⟨(\d{1,6})⟩ (list|map|lines) of (\d{1,12}) rows(?: by key)?: (.*)")
_TABLE_PLACE = re.compile(r"⟨(\d{1,6})⟩")


def write_document(value: Value) -> list[str]:
    """Return the lines of a block for one JSON value; the first says how to read the others."""
    return _DocumentWriter(value).write(lambda writer: writer.write_skeleton(value))


def write_lines(values: list[Value]) -> list[str]:
    """Return the lines of a block for JSON values that had a line each."""
    return _DocumentWriter(values).write(lambda writer: writer.write_place(values, "lines"))


def read_block(lines: list[str]) -> str:
    """Return the JSON text that a block encodes, canonical: one line, or one line per value for lines of JSON.

    Raises ValueError, KeyError, IndexError or TypeError if the lines are not what was written.
    """
    words: dict[str, str] = {}
    at = 1
    while match := _WORD_LINE.fullmatch(lines[at]):
        words[match[1]] = parse(match[2])
        at += 1
    skeleton = "⟨1⟩"
    if not _TABLE_HEAD.fullmatch(lines[at]):
        skeleton, at = lines[at], at + 1
    texts: dict[str, str] = {}
    reader = RowReader(words)
    while at < len(lines):
        head = _TABLE_HEAD.fullmatch(lines[at])
        if head is None:
            raise ValueError("a block goes on after its last row")
        number, kind, count, columns = head[1], head[2], int(head[3]), head[4]
        rows = lines[at + 1 : at + 1 + count]
        if len(rows) != count:
            raise ValueError(f"a table of {count} rows has {len(rows)}")
        value = reader.read_rows(rows, read_columns(columns, keyed=kind == "map"))
        texts[number] = "\n".join([dump(row) for row in value]) if kind == "lines" else dump(value)
        at += 1 + count
    return _TABLE_PLACE.sub(lambda place: texts[place[1]], skeleton)


class _DocumentWriter:
    """Writes one document; a second time if strings repeat often enough to be replaced by codes."""

    def __init__(self, value: Value) -> None:
        self._words = {text: f"&{at}" for at, text in enumerate(find_words(value), 1)}
        self._rows = RowWriter(self._words)
        self.tables: list[list[str]] = []

    def write(self, write_skeleton: Callable[[_DocumentWriter], str]) -> list[str]:
        skeleton = write_skeleton(self)
        used = [text for text in self._words if self._rows.uses[text] >= _WORD_USES_MIN]
        if len(used) < len(self._words):
            self._words = {text: f"&{at}" for at, text in enumerate(used, 1)}
            self._rows = RowWriter(self._words)
            self.tables = []
            skeleton = write_skeleton(self)
        words = [f"{code}={quote(text)}" for text, code in self._words.items()] if self.tables else []
        lines = [] if skeleton == "⟨1⟩" else [skeleton]
        return [self._explain(), *words, *lines, *(line for table in self.tables for line in table)]

    def write_skeleton(self, value: Value, depth: int = 0) -> str:
        """Return a value as JSON with placeholders for the tables that were worth writing."""
        kind = type(value)
        if kind is not dict and kind is not list:
            return dump(value)
        if depth < _DEPTH_MAX and _is_tabular(value):
            place = self.write_place(value, "list" if kind is list else "map")
            if sum(map(len, self.tables[-1])) + len(self.tables[-1]) < _TABLE_GAIN * len(dump(value)):
                return place
            self.tables.pop()
        if kind is list:
            return "[" + ",".join([self.write_skeleton(item, depth + 1) for item in value]) + "]"
        pairs = [f"{quote(key)}:{self.write_skeleton(item, depth + 1)}" for key, item in value.items()]
        return "{" + ",".join(pairs) + "}"

    def write_place(self, container: Value, kind: str) -> str:
        """Write a table and return its placeholder."""
        table = plan_table([container], keyed=kind == "map")
        place = f"⟨{len(self.tables) + 1}⟩"
        by_key = " by key" if kind == "map" else ""
        head = f"{place} {kind} of {len(container)} rows{by_key}: {write_columns(table)}"
        self.tables.append([head, *self._rows.write_rows(container, table)])
        return place

    def _explain(self) -> str:
        """Return the first line, which explains the notations that the block uses."""
        if not self.tables:
            return "JSON without spaces"
        heads = " ".join(table[0] for table in self.tables)
        notes = ["cells split by |"]
        if self._rows.has_absent:
            notes.append("empty = key absent")
        if "=" in heads:
            notes.append("name=value holds in every row")
        if "[" in heads or "{" in heads:
            notes.append("name[a,b] is a list of rows [..;..]")
        if "{" in heads or " map of " in heads:
            notes.append("rows by key begin with it")
        if self._words:
            notes.append("&1 is a string told once")
        return f"JSON as tables: {', '.join(notes)}"


def _is_tabular(value: Value) -> bool:
    return len(value) >= ROWS_MIN and (is_like_list(value) if type(value) is list else is_keyed([value]))


def find_words(value: Value) -> list[str]:
    """Return the long strings that occur often, most frequent first."""
    seen: Counter[str] = Counter()
    stack: list[Value] = [value]
    while stack:
        item = stack.pop()
        kind = type(item)
        if kind is dict:
            stack += item.values()
        elif kind is list:
            stack += item
        elif kind is str and len(item) >= _WORD_CHARS_MIN:
            seen[item] += 1
    often = [(-count * len(text), text) for text, count in seen.items() if count >= _WORD_USES_MIN]
    return [text for _, text in sorted(often)[:_WORDS_MAX]]


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
        if self.chars_min < 1:
            setting = "densify.chars_min"
            raise ConfigError("{setting} is {value}; give 1 or more", setting=setting, value=self.chars_min)
        if self.chars_max < self.chars_min:
            raise ConfigError(
                "{setting} is {value}, below chars_min {chars_min}; raise it",
                setting="densify.chars_max",
                value=self.chars_max,
                chars_min=self.chars_min,
            )
        if not 0 <= self.saving_min < 1:
            raise ConfigError(
                "{setting} is {value}; give a share from 0 up to 1", setting="densify.saving_min", value=self.saving_min
            )

    def rewrite(self, text: str, handle: str, tool: str) -> str | None:  # noqa: ARG002
        """Return the text made dense; None if that saves too little or could not be read back."""
        if len(text) > self.chars_max:
            return None
        return densify_text(text, handle, chars_min=self.chars_min, saving_min=self.saving_min)

    def _find_part(self, item: Item, number: int) -> Part | None:
        # Text that another edit has shortened is incomplete: a block made of it would not be lossless.
        return None if number in item.edited_parts() else item.message.parts[number]
