"""Plans: which columns a list of like records has, found by looking at all of its rows.

Nested objects become dotted columns, lists of records a table inside a cell, objects whose keys are data (ids,
dates) a table whose first cell is the key. A plan says how to write; whether it pays is measured afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from refold.stages.densify.derive import are_risky_texts, derive_columns
from refold.stages.densify.shape import Column, Path, Record, Table
from refold.stages.densify.values import Value

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
    """Tell whether the keys of these objects are data, such as ids: many, over values that are all alike."""
    rows = [row for one in dicts for row in one.values()]
    if len(rows) < ROWS_MIN * len(dicts) and (len(dicts) < ROWS_MIN or share_keys(dicts) > _LIKE_SHARE):
        return False
    records = [row for row in rows if is_record(row)]
    if len(records) == len(rows):
        return share_keys(records) >= _KEYED_SHARE
    lists = [row for row in rows if type(row) is list and row]
    return len(lists) == len(rows) and all(is_like_list(row) for row in lists)


def is_like_list(rows: Sequence[Value]) -> bool:
    """Tell whether most rows of a list are records, or all are short lists of one length."""
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
