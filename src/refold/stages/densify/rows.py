"""A table as text: one line that names the columns, then one line per row with cells split by ``|``; and back.

``name`` is a column, ``a.b`` a field of a nested object, ``name=value`` a constant, ``name:text`` strings that may look
like numbers, ``name[...]`` a list of rows, ``name{...}`` rows by key. ``name=@key`` is the key of the row,
``name="https://x/"+@login+"/repos"`` is built from another column, and the cells of ``name="https://x/"+`` continue
that address. A list of records inside a cell is written ``[cell,cell;cell,cell]``. A row that does not follow the
columns is JSON after ``!``, a cell that does not follow its column JSON after ``=``. Frequent strings are written
``&1``, ``&2``, … and defined once. Reading is the exact inverse and strict: anything else raises ValueError or
IndexError.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from refold.stages.densify.cells import (
    ABSENT,
    CELL_AS_JSON,
    ROW_AS_JSON,
    SPLIT,
    WORD,
    Value,
    dump,
    guard,
    parse_at,
    quote,
    read_leaf_at,
    write_key,
    write_leaf,
    write_string,
)
from refold.stages.densify.table import KEY, Column, Path, Recipe, Record, Table, is_record

_NAME = re.compile(r"[^|\"\[\]{}=+,;:.()\n]+")
_INDEX = re.compile(r"#(\d{1,4})")
_TEXT = ":text"
_DEPTH_MAX = 40


def write_columns(table: Table, *, inside: bool = False) -> str:
    """Return the list of columns of a table."""
    split = "," if inside else SPLIT
    return split.join([_write_column(column, inside=inside) for column in table.columns])


def read_columns(text: str, *, keyed: bool) -> Table:
    """Read a list of columns back into a table, without its record: reading rows needs none."""
    columns, end = _read_list(text, 0, "", 0)
    if end != len(text):
        raise ValueError("the list of columns goes on after its end")
    return Table(keyed, None, columns)


def _write_column(column: Column, *, inside: bool) -> str:
    name = _write_path(column.path)
    if column.table is not None:
        opening, closing = "{}" if column.table.keyed else "[]"
        return f"{name}{opening}{write_columns(column.table, inside=True)}{closing}"
    if column.prefix:
        return f"{name}={guard(quote(column.prefix))}+"
    if column.recipe is not None:
        return f"{name}={_write_recipe(column.recipe)}"
    if column.held:
        text = write_leaf(column.constant, inside=inside)
        # A bare @ would begin a recipe here.
        return f"{name}={quote(column.constant) if text[0] == '@' else text}"
    return name + _TEXT if column.is_text else name


def _write_path(path: Path) -> str:
    return ".".join([f"#{key}" if isinstance(key, int) else write_key(key) for key in path])


def _write_recipe(recipe: Recipe) -> str:
    source = KEY if isinstance(recipe.source, str) else f"@{_write_path(recipe.source)}"
    before, after = ([guard(quote(text))] if text else [] for text in (recipe.before, recipe.after))
    return "+".join([*before, source, *after])


def _read_list(text: str, at: int, closing: str, depth: int) -> tuple[list[Column], int]:
    if depth > _DEPTH_MAX:
        raise ValueError("columns are nested too deep")
    columns: list[Column] = []
    while True:
        column, at = _read_column(text, at, bool(closing), depth)
        columns.append(column)
        if at == len(text) or text[at] == closing:
            return columns, at
        if text[at] != ("," if closing else SPLIT):
            raise ValueError(f"{text[at]!r} in a list of columns")
        at += 1


def _read_column(text: str, at: int, inside: bool, depth: int) -> tuple[Column, int]:
    path, at = _read_path(text, at)
    column = Column(path)
    sign = text[at : at + 1]
    if sign in ("[", "{"):
        closing = "]" if sign == "[" else "}"
        inner, at = _read_list(text, at + 1, closing, depth + 1)
        if text[at : at + 1] != closing:
            raise ValueError("a list of columns is not closed")
        column.table = Table(sign == "{", None, inner)
        return column, at + 1
    if text.startswith(_TEXT, at):
        column.is_text = True
        return column, at + len(_TEXT)
    if sign != "=":
        return column, at
    value, at = ("", at + 1) if text.startswith("@", at + 1) else read_leaf_at(text, at + 1, inside=inside)
    is_joined = text.startswith("+", at)
    at += is_joined
    if text.startswith("@", at):
        column.recipe, at = _read_recipe(value, text, at)
    elif is_joined:
        column.prefix = value
    else:
        column.held, column.constant = True, value
    return column, at


def _read_recipe(before: str, text: str, at: int) -> tuple[Recipe, int]:
    """Read the source of a recipe, which begins here, and the text after it."""
    path, at = _read_path(text, at + 1)
    after = ""
    if text.startswith("+", at):
        after, at = parse_at(text, at + 1)
    return Recipe(before, KEY if path == (KEY[1:],) else path, after), at


def _read_path(text: str, at: int) -> tuple[Path, int]:
    path: list[str | int] = []
    while True:
        if text[at : at + 1] == '"':
            name, at = parse_at(text, at)
            path.append(name)
        elif index := _INDEX.match(text, at):
            path.append(int(index[1]))
            at = index.end()
        elif match := _NAME.match(text, at):
            path.append(match[0])
            at = match.end()
        if text[at : at + 1] != ".":
            return tuple(path), at
        at += 1


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
                self._write_cell(value, column, inside=inside)
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

    def _write_cell(self, value: Value, column: Column, *, inside: bool) -> str:
        if value is ABSENT:
            self.has_absent = True
            return ""
        if column.prefix:
            if type(value) is str and value.startswith(column.prefix):
                return write_string(value[len(column.prefix) :], inside=inside, typed=True)
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
    if record.is_list:
        if type(row) is not list or len(row) != len(record.fields):
            return None
        row = dict(enumerate(row))
    elif not is_record(row) or [key for key in record.fields if key in row] != list(row):
        return None
    cells: list[Value] = []
    for key, one in record.fields.items():
        value = row.get(key, ABSENT)
        if isinstance(one, Column):
            cells.append(value)
            continue
        has_fields = is_record(value)
        inner = collect_cells(value, one) if has_fields else [ABSENT] * _count_columns(one)
        if inner is None or not (has_fields or one.other or value is ABSENT):
            return None
        cells += [ABSENT if has_fields else value] * (one.other is not None) + inner
    return cells


def _count_columns(record: Record) -> int:
    """Return the number of a record's columns, without the one for values that are not records."""
    return sum(
        1 if isinstance(one, Column) else _count_columns(one) + (one.other is not None)
        for one in record.fields.values()
    )


class RowReader:
    """Reads the rows of tables; ``words`` are the strings behind the short codes."""

    def __init__(self, words: Mapping[str, str]) -> None:
        self._words = words

    def read_rows(self, lines: list[str], table: Table) -> Value:
        """Read the lines of a table back into the list or the object that they were."""
        rows: list[tuple[str, Value]] = []
        for line in lines:
            key, row, end = self._read_row(line, 0, table, inside=False)
            if end != len(line):
                raise ValueError("a row goes on after its last cell")
            rows.append((key, row))
        return _join_rows(rows, table)

    def _read_row(self, text: str, at: int, table: Table, *, inside: bool) -> tuple[str, Value, int]:
        """Read the row that begins here; return its key, the row and where it ends."""
        split = "," if inside else SPLIT
        key = ""
        values: list[Value] = []
        has_cells = True
        if table.keyed:
            key, at = read_leaf_at(text, at, inside=inside, typed=True)
            if not isinstance(key, str):
                raise ValueError("a row has no key")
            has_cells = text.startswith(split, at)
            at += has_cells
        if has_cells and text.startswith(ROW_AS_JSON, at):
            row, at = parse_at(text, at + 1)
            return key, row, at
        for column in table.columns if has_cells else ():
            if not column.is_free:
                continue
            if values:
                if not text.startswith(split, at):
                    break
                at += 1
            value, at = self._read_cell(text, at, column, inside=inside)
            values.append(value)
        return key, _build_row(values, key, table), at

    def _read_cell(self, text: str, at: int, column: Column, *, inside: bool) -> tuple[Value, int]:
        if text.startswith(CELL_AS_JSON, at):
            return parse_at(text, at + 1)
        if column.table is not None and text.startswith("[", at):
            return self._read_inner(text, at, column.table)
        is_text = column.is_text or bool(column.prefix)
        value, end = read_leaf_at(text, at, inside=inside, typed=is_text)
        if text.startswith(WORD, at):
            return self._words[value], end
        return (value if value is ABSENT else column.prefix + value) if column.prefix else value, end

    def _read_inner(self, text: str, at: int, table: Table) -> tuple[Value, int]:
        """Read the list of rows inside a cell; ``at`` is its opening bracket."""
        rows: list[tuple[str, Value]] = []
        at += 1
        while text[at] != "]":
            if rows:
                if text[at] != ";":
                    raise ValueError(f"{text[at]!r} between rows")
                at += 1
            key, row, at = self._read_row(text, at, table, inside=True)
            rows.append((key, row))
        return _join_rows(rows, table), at + 1


def _join_rows(rows: list[tuple[str, Value]], table: Table) -> Value:
    if not table.keyed:
        return [row for _, row in rows]
    made = dict(rows)
    if len(made) != len(rows):
        raise ValueError("two rows have one key")
    return made


def _build_row(values: list[Value], key: str, table: Table) -> Value:
    """Build one row from its cells and from the constants of the table."""
    if not table.columns[0].path:
        (value,) = values
        if value is ABSENT:
            raise ValueError("a row has no value")
        return value
    given = iter(values)
    texts: dict[Path | str, Value] = {KEY: key}
    texts |= {column.path: next(given, ABSENT) for column in table.columns if column.is_free}
    row: Value = [] if isinstance(table.columns[0].path[0], int) else {}
    for column in table.columns:
        if column.recipe is not None:
            source = texts[column.recipe.source]
            if not isinstance(source, str):
                raise ValueError("a recipe names a column that is not text")
            found: Value = f"{column.recipe.before}{source}{column.recipe.after}"
        else:
            found = column.constant if column.held else texts[column.path]
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
