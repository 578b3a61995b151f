"""The line that names the columns of a table once, and how it is read back.

``name`` is a column, ``a.b`` one of an object inside, ``name=value`` the same in all rows, ``name:text`` strings that
may look like numbers, ``name[...]`` a list of rows, ``name{...}`` rows by key. ``name=@key`` is the key of the row,
``name="https://x/"+@login+"/repos"`` is made from another column, and a last ``+`` says that the cell follows.
"""

from __future__ import annotations

import re

from refold.stages.densify.cells import SPLIT, guard, read_bare, read_leaf_at, write_key, write_leaf
from refold.stages.densify.shape import KEY, Column, Path, Recipe, Table
from refold.stages.densify.values import Value, parse_at, quote

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
    if column.recipe is not None:
        return f"{name}={_write_recipe(column.recipe)}{'+' if column.has_rest else ''}"
    if column.held:
        text = write_leaf(column.constant, inside=inside)
        # Here a bare @ would begin a recipe.
        return f"{name}={quote(column.constant) if text[0] == '@' else text}"
    return name + _TEXT if column.is_text else name


def _write_path(path: Path) -> str:
    return ".".join([f"#{key}" if isinstance(key, int) else write_key(key) for key in path])


def _write_recipe(recipe: Recipe) -> str:
    source = recipe.source
    named = [] if source is None else [KEY if isinstance(source, str) else f"@{_write_path(source)}"]
    before, after = ([guard(quote(text))] if text else [] for text in (recipe.before, recipe.after))
    return "+".join([*before, *named, *after])


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
    if sign == "=":
        value, end = _read_constant(text, at + 1, inside) if text[at + 1 : at + 2] != "@" else ("", at + 1)
        if text[end : end + 1] in ("@", "+"):
            column.recipe, column.has_rest, at = _read_recipe(text, at + 1)
        else:
            column.held, column.constant, at = True, value, end
    return column, at


def _read_recipe(text: str, at: int) -> tuple[Recipe, bool, int]:
    """Read literals and one source, joined by ``+``; a last ``+`` says that the cell follows."""
    around = ["", ""]
    source: Path | str | None = None
    while True:
        if text[at : at + 1] == '"':
            around[source is not None], at = parse_at(text, at)
        elif text.startswith(KEY, at) and text[at + len(KEY) : at + len(KEY) + 1] in ("", "+", ",", SPLIT, "]", "}"):
            source, at = KEY, at + len(KEY)
        elif text[at : at + 1] == "@":
            source, at = _read_path(text, at + 1)
        else:
            return Recipe(around[0], source, around[1]), True, at
        if text[at : at + 1] != "+":
            return Recipe(around[0], source, around[1]), False, at
        at += 1


def _read_constant(text: str, at: int, inside: bool) -> tuple[Value, int]:
    if inside:
        return read_leaf_at(text, at)
    if text[at] in '"[{':
        return parse_at(text, at)
    end = text.find(SPLIT, at)
    end = len(text) if end < 0 else end
    return read_bare(text[at:end]), end


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
