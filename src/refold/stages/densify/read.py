"""Rows back into values: the exact inverse of writing, and strict about it.

Anything that does not read as rows of these columns raises ValueError or IndexError; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping

from refold.stages.densify.cells import ABSENT, CELL_AS_JSON, ROW_AS_JSON, SPLIT, WORD, Whole, read_leaf, read_leaf_at
from refold.stages.densify.derive import cook
from refold.stages.densify.shape import KEY, Column, Path, Table
from refold.stages.densify.values import Value, parse, parse_at


class RowReader:
    """Reads the rows of tables; ``words`` are the strings behind the short codes."""

    def __init__(self, words: Mapping[str, str]) -> None:
        self._words = words

    def read_rows(self, lines: list[str], table: Table) -> Value:
        """Read the lines of a table back into the list or the object that they were."""
        rows = [self._read_line(line, table) for line in lines]
        return _join_rows(rows, table)

    def _read_line(self, line: str, table: Table) -> tuple[str, Value]:
        cells = line.split(SPLIT)
        key = ""
        if table.keyed:
            key = _expect_key(read_leaf(cells.pop(0), typed=True))
        if cells and cells[0].startswith(ROW_AS_JSON):
            (text,) = cells
            return key, parse(text[1:])
        free = [column for column in table.columns if column.is_free]
        if len(cells) > len(free):
            raise ValueError(f"a row has {len(cells)} cells for {len(free)} columns")
        values = [self._read_cell(text, column) for text, column in zip(cells, free, strict=False)]
        return key, _build_row(values, key, table)

    def _read_cell(self, text: str, column: Column) -> Value:
        if text.startswith(WORD):
            return self._words[text]
        if text.startswith(CELL_AS_JSON):
            return Whole(parse(text[1:]))
        if column.table is not None and text.startswith("["):
            value, end = self._read_inner(text, 0, column.table)
            if end != len(text):
                raise ValueError("a cell goes on after its list")
            return value
        return read_leaf(text, typed=column.is_text or column.has_rest)

    def _read_cell_at(self, text: str, at: int, column: Column) -> tuple[Value, int]:
        if text[at] == CELL_AS_JSON:
            value, end = parse_at(text, at + 1)
            return Whole(value), end
        if column.table is not None and text[at] == "[":
            return self._read_inner(text, at, column.table)
        value, end = read_leaf_at(text, at, typed=column.is_text or column.has_rest)
        return (self._words[value], end) if text[at] == WORD else (value, end)

    def _read_inner(self, text: str, at: int, table: Table) -> tuple[Value, int]:
        """Read the list of rows inside a cell; ``at`` is its opening bracket."""
        rows: list[tuple[str, Value]] = []
        at += 1
        while text[at] != "]":
            if rows:
                if text[at] != ";":
                    raise ValueError(f"{text[at]!r} between rows")
                at += 1
            key, row, at = self._read_inner_row(text, at, table)
            rows.append((key, row))
        return _join_rows(rows, table), at + 1

    def _read_inner_row(self, text: str, at: int, table: Table) -> tuple[str, Value, int]:
        key = ""
        if table.keyed:
            found, at = read_leaf_at(text, at, typed=True)
            key = _expect_key(found)
            at = at + 1 if text[at] == "," else at
        if text[at] == ROW_AS_JSON:
            row, at = parse_at(text, at + 1)
            return key, row, at
        values: list[Value] = []
        for column in table.columns:
            if not column.is_free:
                continue
            if text[at] in ";]":
                break
            value, at = (ABSENT, at) if text[at] == "," else self._read_cell_at(text, at, column)
            values.append(value)
            if text[at] == ",":
                at += 1
        return key, _build_row(values, key, table), at


def _join_rows(rows: list[tuple[str, Value]], table: Table) -> Value:
    if not table.keyed:
        return [row for _, row in rows]
    made = dict(rows)
    if len(made) != len(rows):
        raise ValueError("two rows have one key")
    return made


def _expect_key(key: Value) -> str:
    if not isinstance(key, str):
        raise ValueError("a row has no key")
    return key


def _build_row(values: list[Value], key: str, table: Table) -> Value:
    """Put the cells of one row, and what all rows hold, where they belong."""
    if not table.columns[0].path:
        (value,) = values
        return value.value if isinstance(value, Whole) else value
    given = iter(values)
    at_path: dict[object, Value] = {KEY: key, None: ""}
    for column in table.columns:
        if column.is_free:
            at_path[column.path] = next(given, ABSENT)
    row: Value = [] if isinstance(table.columns[0].path[0], int) else {}
    for column in table.columns:
        found: Value = column.constant if column.held else at_path.get(column.path)
        if isinstance(found, Whole):
            found = found.value
        elif column.recipe is not None and found is not ABSENT:
            found = cook(column.recipe, at_path, found)
        if found is not ABSENT:
            _place(row, column.path, found)
    return row


def _place(row: Value, path: Path, value: Value) -> None:
    for key in path[:-1]:
        if isinstance(key, int):
            if key == len(row):
                row.append({})
            row = row[key]
        else:
            row = row.setdefault(key, {})
    last = path[-1]
    if isinstance(last, int):
        row.append(value)
    else:
        row[last] = value
