"""Rows as text: one line per row, cells split by ``|``.

A list of records inside a cell stands as ``[cell,cell;cell,cell]``. A row that does not follow the columns stands as
JSON after ``!``, so that any list can be written; a cell that does not follow its column as JSON after ``=``.
Frequent strings are written as ``&1``, ``&2``, … and defined once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from refold.stages.densify.cells import ABSENT, CELL_AS_JSON, ROW_AS_JSON, SPLIT, guard, write_leaf, write_string
from refold.stages.densify.derive import cook
from refold.stages.densify.plan import is_record
from refold.stages.densify.shape import Column, Record, Table
from refold.stages.densify.values import Value, dump


class RowWriter:
    """Writes the rows of tables; ``words`` are the strings that are written as a short code."""

    def __init__(self, words: Mapping[str, str]) -> None:
        self._words = words
        self.uses: Counter[str] = Counter()
        self.has_absent = False

    def write_rows(self, container: Value, table: Table) -> list[str]:
        """Return one line per row of a list, or of an object whose keys are data."""
        if table.keyed:
            return [self._write_row(row, key, table, inside=False) for key, row in container.items()]
        return [self._write_row(row, None, table, inside=False) for row in container]

    def _write_row(self, row: Value, key: str | None, table: Table, *, inside: bool) -> str:
        head = [] if key is None else [write_string(key, inside=inside, typed=True)]
        split = "," if inside else SPLIT
        values = [row] if table.record is None else collect_cells(row, table.record)
        if values is not None:
            cells = [
                self._write_cell(value, column, key, inside=inside)
                for column, value in zip(table.columns, values, strict=True)
                if column.is_free
            ]
            while cells and not cells[-1]:
                cells.pop()
            text = split.join(head + cells)
            # An empty row would be indistinguishable from a missing one.
            if text:
                return text
        return split.join([*head, ROW_AS_JSON + guard(dump(row))])

    def _write_cell(self, value: Value, column: Column, key: str | None, *, inside: bool) -> str:
        if value is ABSENT:
            self.has_absent = True
            return ""
        if column.recipe is not None:
            known = cook(column.recipe, {column.recipe.source: key})
            if type(value) is str and value.startswith(known):
                return write_string(value[len(known) :], inside=inside, typed=True)
            return CELL_AS_JSON + guard(dump(value))
        if type(value) is str and value in self._words:
            self.uses[value] += 1
            return self._words[value]
        inner = column.table
        if inner is None or type(value) not in (dict, list):
            return write_leaf(value, inside=inside, typed=column.is_text)
        if type(value) is dict and inner.keyed and value:
            rows = [self._write_row(row, name, inner, inside=True) for name, row in value.items()]
            return f"[{';'.join(rows)}]"
        if type(value) is list and not inner.keyed:
            return f"[{';'.join([self._write_row(row, None, inner, inside=True) for row in value])}]"
        return CELL_AS_JSON + guard(dump(value))


def collect_cells(row: Value, record: Record) -> list[Value] | None:
    """Return the value of each column in one row; None if the row does not follow the record."""
    cells: list[Value] = []
    return cells if _collect(row, record, cells) else None


def _collect(row: Value, record: Record, cells: list[Value]) -> bool:
    if record.is_list:
        if type(row) is not list or len(row) != len(record.fields):
            return False
        row = dict(enumerate(row))
    elif not is_record(row) or [key for key in record.fields if key in row] != list(row):
        return False
    for key, one in record.fields.items():
        value = row.get(key, ABSENT)
        if isinstance(one, Column):
            cells.append(value)
        elif is_record(value):
            cells += [] if one.other is None else [ABSENT]
            if not _collect(value, one, cells):
                return False
        elif one.other is not None or value is ABSENT:
            cells += [value] if one.other is not None else []
            cells += [ABSENT] * _count_columns(one)
        else:
            return False
    return True


def _count_columns(record: Record) -> int:
    """Columns of a record, its own for what is no record left out."""
    return sum(
        1 if isinstance(one, Column) else _count_columns(one) + (one.other is not None)
        for one in record.fields.values()
    )
