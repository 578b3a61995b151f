"""The lines of a block for one JSON document, or for lines of JSON; and back.

Everything outside the tables is JSON on one line, with ``⟨1⟩`` in the place of the first table. In a block, only we
write the bracket ``⟨`` raw, so no text of the data can close the block or pass for a table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from refold.stages.densify.cells import Value, dump, parse, quote
from refold.stages.densify.rows import RowReader, RowWriter, read_columns, write_columns
from refold.stages.densify.table import ROWS_MIN, is_keyed, is_like_list, plan_table

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
