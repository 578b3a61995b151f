"""What a column need not say in every row: one value for all, the row's key, or text built from another column.

An API's records carry ``url``, ``followers_url`` and the like, all made from one login: such a column is named once
with its recipe. Ids, names, numbers and times are never split: a reader must find them whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from refold.stages.densify.cells import is_literal
from refold.stages.densify.shape import KEY, Column, Path, Recipe
from refold.stages.densify.values import Value, dump

_CONSTANT_MAX = 2_000
_SOURCES_MAX = 12
_PREFIX_MIN = 12
_MOST = 0.8
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://")
_MISSING = object()

Source = tuple[Path | str, list[str]]


def derive_columns(columns: list[Column], rows: Sequence[Value], keys: Sequence[str] | None) -> None:
    """Mark the columns that hold one value in all rows or repeat another column, and strings that look like numbers."""
    free = len(columns) + (keys is not None)
    sources: list[Source] = [] if keys is None else [(KEY, list(keys))]
    for column in columns:
        if column.table is not None:
            continue
        values = [find_value(row, column.path) for row in rows]
        present = [value for value in values if value is not _MISSING]
        column.is_text = are_risky_texts(present)
        if len(rows) < 2 or free < 2:
            continue
        is_full = len(present) == len(values)
        if is_full and (_hold_constant(column, values) or _repeat_source(column, values, sources)):
            free -= 1
        elif _shorten(column, values):
            column.is_text = False
        elif is_full and len(sources) < _SOURCES_MAX and all(isinstance(value, str) for value in values):
            # Num is a str: the text of an id serves as well as a name.
            sources.append((column.path, values))


def find_value(row: Value, path: tuple[str | int, ...]) -> Value:
    """Return what sits at a path of a row, or a mark that nothing does."""
    for key in path:
        if isinstance(key, int):
            if type(row) is not list or key >= len(row):
                return _MISSING
            row = row[key]
        elif type(row) is not dict or key not in row:
            return _MISSING
        else:
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


def _shorten(column: Column, values: list[Value]) -> bool:
    """Find the address that most strings of a column begin with, so that it is said once."""
    texts = [value for value in values if type(value) is str]
    if len(texts) < 2:
        return False
    prefix = _find_address(texts)
    if prefix and sum(text.startswith(prefix) for text in texts) >= _MOST * len(texts):
        column.recipe = Recipe(prefix, None, "")
    column.has_rest = column.recipe is not None
    return column.has_rest


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


def _find_address(values: list[str]) -> str:
    """Return the begin that most of these addresses may share, up to a border; empty if they are none."""
    # Sorted, addresses of one kind are adjacent; what is left out at both ends may be of another kind.
    ranked = sorted(values)
    low, high = ranked[len(ranked) // 10], ranked[-1 - len(ranked) // 10]
    size = next((at for at, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    prefix = low[: max(low.rfind(sign, 0, size) for sign in "/?=&") + 1]
    return prefix if len(prefix) >= _PREFIX_MIN and _ADDRESS.match(prefix) else ""


def cook(recipe: Recipe, values: dict[object, Value], rest: Value = None) -> str:
    """Return the text that a recipe makes in one row from the values of its columns, and what the cell adds."""
    source = "" if recipe.source is None else values[recipe.source]
    if not isinstance(source, str) or not isinstance(rest, str | None):
        raise ValueError("a recipe names a column that is no text")
    return f"{recipe.before}{source}{recipe.after}{rest or ''}"
