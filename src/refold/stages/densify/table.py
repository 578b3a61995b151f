"""The columns of a table, found by looking at all rows of a list of similar records. Pure.

Nested objects become dotted columns, lists of records become a table inside a cell, and objects whose keys are data
(ids, dates) become a table whose first cell is the key. A column that is the same in all rows, repeats another column,
or is built from another column (``followers_url`` from ``login``) is described once instead of in every row. Ids,
names, numbers and times are never split: a reader must find them whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from refold.stages.densify.cells import ABSENT, Value, dump, is_literal

Path = tuple[str | int, ...]
KEY = "@key"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A rule that builds a text from the key of its row (``KEY``) or another column's text, and the text around it."""

    before: str
    source: Path | str
    after: str


@dataclass(slots=True)
class Column:
    """One column: where its value sits in a row, and how it is written.

    ``table`` is set where cells hold rows of their own, ``constant`` where all rows have one value (``held``),
    ``recipe`` where the value is built from another column, ``prefix`` where cells hold what follows a common address,
    ``is_text`` where all are strings and some look like numbers.
    """

    path: Path
    table: Table | None = None
    held: bool = False
    constant: Value = None
    recipe: Recipe | None = None
    prefix: str = ""
    is_text: bool = False

    @property
    def is_free(self) -> bool:
        """True if rows have a cell for this column."""
        return not self.held and self.recipe is None


@dataclass(slots=True)
class Record:
    """The fields of a row in order; a field is a column, or a record with a column for values that are not records."""

    fields: dict[str | int, Column | Record] = field(default_factory=dict)
    other: Column | None = None
    is_list: bool = False


@dataclass(slots=True)
class Table:
    """Rows of one kind. Without a record, each row is one plain value."""

    keyed: bool
    record: Record | None
    columns: list[Column]


_CONSTANT_MAX = 2_000
_SOURCES_MAX = 12
_PREFIX_MIN = 12
_MOST = 0.8
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://")

Source = tuple[Path | str, list[str]]


def derive_columns(columns: list[Column], rows: Sequence[Value], keys: Sequence[str] | None) -> None:
    """Mark the columns that hold one value in all rows or repeat another column, and strings that look like numbers."""
    free = len(columns) + (keys is not None)
    sources: list[Source] = [] if keys is None else [(KEY, list(keys))]
    for column in columns:
        if column.table is not None:
            continue
        values = [find_value(row, column.path) for row in rows]
        present = [value for value in values if value is not ABSENT]
        column.is_text = are_risky_texts(present)
        if len(rows) < 2 or free < 2:
            continue
        is_full = len(present) == len(values)
        if is_full and (_hold_constant(column, values) or _repeat_source(column, values, sources)):
            free -= 1
        elif prefix := _find_prefix(values):
            column.prefix = prefix
        elif is_full and len(sources) < _SOURCES_MAX and all(isinstance(value, str) for value in values):
            # Num is a str: the text of an id serves as well as a name.
            sources.append((column.path, values))


def find_value(row: Value, path: tuple[str | int, ...]) -> Value:
    """Return the value at a path of a row; ``ABSENT`` if the row has no such path."""
    for key in path:
        is_place = type(row) is list and isinstance(key, int) and key < len(row)
        if not is_place and not (type(row) is dict and key in row):
            return ABSENT
        row = row[key]
    return row


def are_risky_texts(values: Sequence[Value]) -> bool:
    """True if all are strings and one would read as something else without quotes, such as 007."""
    return all(type(value) is str for value in values) and any(is_literal(value) for value in values)


def _hold_constant(column: Column, values: list[Value]) -> bool:
    if type(values[0]) in (dict, list) and values[0]:
        return False
    first = dump(values[0])
    if len(first) > _CONSTANT_MAX or any(dump(value) != first for value in values):
        return False
    column.held, column.constant = True, values[0]
    return True


def _repeat_source(column: Column, values: list[Value], sources: list[Source]) -> bool:
    """Find the recipe that makes a column of strings from another one in every row, if there is one."""
    if any(type(value) is not str for value in values):
        return False
    for source, texts in sources:
        around = _find_recipe(values, texts)
        if around is not None:
            column.recipe = Recipe(around[0], source, around[1])
            return True
    return False


def _find_recipe(values: list[str], texts: list[str]) -> tuple[str, str] | None:
    """Return the text before and after the other column's text, if it is the same in every row."""
    first, inner = values[0], texts[0]
    if not inner:
        return None
    # Only an address may be put together from pieces; anything else is the other column's text or is written whole.
    if values == texts:
        return "", ""
    if not _ADDRESS.match(first):
        return None
    places = {first.rfind(inner), first.find(inner)} - {-1}
    for at in sorted(places):
        before, after = first[:at], first[at + len(inner) :]
        if all(value == f"{before}{text}{after}" for value, text in zip(values, texts, strict=True)):
            return before, after
    return None


def _find_prefix(values: list[Value]) -> str:
    """Return the longest address, up to a separator, that most strings of a column begin with; else an empty string."""
    # In sorted order, addresses of one kind are adjacent; the ones left out at both ends may be of other kinds.
    ranked = sorted(value for value in values if type(value) is str)
    if len(ranked) < 2:
        return ""
    low, high = ranked[len(ranked) // 10], ranked[-1 - len(ranked) // 10]
    size = next((at for at, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    prefix = low[: max(low.rfind(sign, 0, size) for sign in "/?=&") + 1]
    if len(prefix) < _PREFIX_MIN or not _ADDRESS.match(prefix):
        return ""
    return prefix if sum(text.startswith(prefix) for text in ranked) >= _MOST * len(ranked) else ""


ROWS_MIN = 3
COLUMNS_MAX = 400
_DEPTH_MAX = 12
_LIKE_SHARE = 0.5
_KEYED_SHARE = 0.2
_TUPLE_MAX = 12


def is_record(value: Value) -> bool:
    return type(value) is dict and bool(value)


def rows_of(container: Value) -> list[Value]:
    """Return the rows of a list or of a keyed object."""
    return list(container.values()) if type(container) is dict else container


def share_keys(dicts: Sequence[dict[str, Value]]) -> float:
    """Return how alike the keys of these objects are: 1 if all have the same."""
    union: set[str] = set()
    total = 0
    for one in dicts:
        union.update(one)
        total += len(one)
    return total / (len(dicts) * len(union)) if union else 0.0


def is_keyed(dicts: Sequence[dict[str, Value]]) -> bool:
    """Return whether the keys of these objects are data, such as ids: many, over values that are all alike."""
    rows = [row for one in dicts for row in one.values()]
    if len(rows) < ROWS_MIN * len(dicts) and (len(dicts) < ROWS_MIN or share_keys(dicts) > _LIKE_SHARE):
        return False
    records = [row for row in rows if is_record(row)]
    if len(records) == len(rows):
        return share_keys(records) >= _KEYED_SHARE
    lists = [row for row in rows if type(row) is list and row]
    return len(lists) == len(rows) and all(is_like_list(row) for row in lists)


def is_like_list(rows: Sequence[Value]) -> bool:
    """Return whether most rows of a list are records, or all are short lists of one length."""
    if not rows:
        return False
    records = sum(1 for row in rows if is_record(row))
    return records > len(rows) * _LIKE_SHARE or has_tuples(rows)


def has_tuples(rows: Sequence[Value]) -> bool:
    first = rows[0]
    if type(first) is not list or not 2 <= len(first) <= _TUPLE_MAX:
        return False
    return all(type(row) is list and len(row) == len(first) for row in rows)


def plan_table(containers: Sequence[Value], keyed: bool, depth: int = 0) -> Table:
    """Return the plan for all these lists (or keyed objects) together, so that one list of columns serves them."""
    rows = [row for container in containers for row in rows_of(container)]
    keys = [key for container in containers for key in container] if keyed else None
    if depth < _DEPTH_MAX and is_like_list(rows):
        kept = list(range(len(rows))) if has_tuples(rows) else [at for at, row in enumerate(rows) if is_record(row)]
        likes = [rows[at] for at in kept]
        record = _plan_record(likes, depth)
        columns: list[Column] = []
        _number(record, (), columns)
        if len(columns) <= COLUMNS_MAX:
            derive_columns(columns, likes, [keys[at] for at in kept] if keys else None)
            return Table(keyed, record, columns)
    lists = [row for row in rows if type(row) is list]
    if depth < _DEPTH_MAX and lists and len(lists) == len(rows) and all(is_like_list(row) for row in lists if row):
        return Table(keyed, None, [Column((), plan_table(lists, False, depth + 1))])
    return Table(keyed, None, [Column((), is_text=are_risky_texts(rows))])


def _plan_record(rows: Sequence[Value], depth: int) -> Record:
    if type(rows[0]) is list and has_tuples(rows):
        at_place: list[tuple[str | int, list[Value]]] = [(at, [row[at] for row in rows]) for at in range(len(rows[0]))]
        return Record({at: _plan_field(values, len(rows), depth + 1) for at, values in at_place}, is_list=True)
    dicts = [row for row in rows if type(row) is dict]
    by_key: dict[str, list[Value]] = {key: [] for key in merge_orders(dicts)}
    for row in dicts:
        for key, value in row.items():
            by_key[key].append(value)
    return Record({key: _plan_field(values, len(rows), depth + 1) for key, values in by_key.items()})


def _plan_field(values: Sequence[Value], rows: int, depth: int) -> Column | Record:
    if depth >= _DEPTH_MAX:
        return Column(())
    dicts = [value for value in values if is_record(value)]
    if dicts and len(dicts) >= len(values) * _LIKE_SHARE:
        if is_keyed(dicts) or _costs_less_keyed(dicts, rows):
            return Column((), plan_table(dicts, True, depth))
        record = _plan_record(dicts, depth)
        record.other = Column(()) if len(dicts) < len(values) else None
        return record
    lists = [value for value in values if type(value) is list and value]
    if lists and len(lists) >= len(values) * _LIKE_SHARE and is_like_list([row for rows in lists for row in rows]):
        return Column((), plan_table([value for value in values if type(value) is list], False, depth))
    return Column(())


def _costs_less_keyed(dicts: Sequence[dict[str, Value]], rows: int) -> bool:
    """Compare the empty cells that rare keys would make in all rows with writing the keys in the cells."""
    union: set[str] = set()
    keyed = 0
    for one in dicts:
        union.update(one)
        keyed += sum(len(key) + 2 for key in one)
    return sum(len(key) for key in union) + rows * len(union) > keyed


def merge_orders(dicts: Iterable[dict[str, Value]]) -> list[str]:
    """Return all keys in one order that agrees with as many objects as it can."""
    after: dict[str | None, list[str]] = {}
    known: set[str] = set()
    shapes: dict[tuple[str, ...], int] = {}
    for one in dicts:
        shape = tuple(one)
        shapes[shape] = shapes.get(shape, 0) + 1
    for shape in sorted(shapes, key=lambda keys: (-len(keys), -shapes[keys])):
        before: str | None = None
        for key in shape:
            if key not in known:
                known.add(key)
                after.setdefault(before, []).append(key)
            before = key
    order: list[str] = []
    # A key that came later is placed closer to the one it follows.
    stack = after.get(None, [])[:]
    while stack:
        key = stack.pop()
        order.append(key)
        stack += after.get(key, [])
    return order


def _number(record: Record, path: Path, columns: list[Column]) -> None:
    """Give every column its path and put all in order."""
    for key, one in record.fields.items():
        here = (*path, key)
        if isinstance(one, Column):
            one.path = here
            columns.append(one)
            continue
        if one.other is not None:
            one.other.path = here
            columns.append(one.other)
        _number(one, here, columns)
