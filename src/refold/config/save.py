"""Saves changed settings: tries them first, then writes them into the project's file.

The file is changed line by line, so that comments and order stay. If that is not possible, the whole file is written
again. The result is read back before it replaces the file. Other blocks and other programs' settings stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from refold.config.layers import Layer, family_of, read_name, read_yaml
from refold.config.load import (
    BLOCK,
    BYTES_MAX,
    list_guarded,
    list_refused,
    load_config,
    project_file,
    read_file,
    refuse,
    trust_file,
)
from refold.config.schema import CompressionConfig
from refold.errors import ConfigError
from refold.offload import write_whole

FILE = "refold.yaml"
FOREIGN = "x-agent.yaml"
# A comment after a value without quotes: quoted text may look like a comment.
_COMMENT = re.compile(r"(?<=[^'\"\s])\s++#[^'\"\n]{0,500}+(?=\n)")


def find_file(workspace: str | Path) -> Path:
    """Return the file that changes are written to, whether it exists or not."""
    return project_file(workspace) or Path(workspace).absolute() / FILE


def try_settings(workspace: str | Path, changes: Mapping[str, object], **call: object) -> CompressionConfig:
    """Return the settings as ``save_settings`` would make them; ``call`` holds those of the command line."""
    config = load_config(workspace, call=call or None)
    if not changes:
        return config
    path = find_file(workspace)
    known = next((layer for layer in config._layers if layer.name == "project"), None)
    values = dict(known.values) if known else {}
    places = dict(known.places) if known else {}
    for name, value in changes.items():
        for other in (name,) if value is None else family_of(name):
            values.pop(other, None)
        if value is not None:
            values[name] = value
            places[name] = path.name
    made = Layer("project", values, path.name, places)
    others = [layer for layer in config._layers if layer.name != "project"]
    return CompressionConfig([*others, made]).with_variables(config.variables)


def save_settings(workspace: str | Path, changes: Mapping[str, object], **call: object) -> CompressionConfig:
    """Write settings into the project's file and return the new config; None removes a setting from the file.

    The file is trusted as written if it needs that: the user has just changed it, and nothing in it was refused before.
    """
    config = try_settings(workspace, changes, **call)
    if not changes:
        return config
    path = find_file(workspace)
    known = read_file(path)
    if known is not None and (refused := list_refused(known, workspace)):
        raise refuse(known, refused)
    try:
        before = path.read_bytes().decode("utf-8-sig") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("{path}: cannot be read: {error}", path=path, error=error) from None
    after = change_text(before, changes, path.name)
    if len(after.encode()) > BYTES_MAX:
        raise ConfigError(
            "{name}: would be larger than {bytes_max:,} bytes; shorten a setting", name=path.name, bytes_max=BYTES_MAX
        )
    if after != before:
        try:
            write_whole(path, after.encode())
        except OSError as error:
            raise ConfigError("{path}: cannot be written: {why}", path=path, why=error.strerror or error) from None
    written = read_file(path)
    if written is not None and list_guarded(written, workspace):
        trust_file(written)
    return load_config(workspace, call=call or None)


def change_text(text: str, changes: Mapping[str, object], place: str = FILE) -> str:
    """Return a settings file with changes applied; comments and order are kept where possible."""
    loaded, _ = read_yaml(text, place)
    wanted = _change_table(loaded, changes, place)
    try:
        for name, value in changes.items():
            text = _change_line(text, name, value, place)
        if read_yaml(text, place)[0] == wanted:
            return text
    except ConfigError:
        pass  # Flow style, anchors or tabs: such a file cannot be changed line by line.
    return _write_yaml(wanted) if wanted else ""


def _change_table(loaded: dict[object, object], changes: Mapping[str, object], place: str) -> dict[object, object]:
    """Return the wanted content of the file, in its own spelling of each name."""
    made: dict[object, Any] = {key: dict(value) if isinstance(value, dict) else value for key, value in loaded.items()}
    home = made
    if isinstance(made.get(BLOCK), dict) or place == FOREIGN:
        home = made.setdefault(BLOCK, {})
        home.update({key: dict(value) for key, value in home.items() if isinstance(value, dict)})
    for name, value in changes.items():
        silenced = tuple(one for one in family_of(name) if one != name) if value is not None else (name,)
        for table in (made, home) if place != FOREIGN else (home,):
            _drop(table, silenced)
        if value is None:
            continue
        if home is not made and place != FOREIGN and _has(made, name):
            home = made  # The setting is outside the block, and stays there.
        block, dot, option = name.partition(".")
        table = home
        if dot:
            key = _find_key(table, block)
            if not isinstance(table.get(key), dict):
                table[key] = {}
            table = table[key]
        table[_find_key(table, option or block)] = _plain(value)
    return {key: value for key, value in made.items() if value != {} or loaded.get(key) == {}}


def _drop(table: dict[object, Any], names: tuple[str, ...]) -> None:
    """Remove settings from a table, and the block that this leaves empty."""
    for name in names:
        block, dot, option = name.partition(".")
        inner = table.get(_find_key(table, block)) if dot else table
        if isinstance(inner, dict):
            inner.pop(_find_key(inner, option or block), None)
            if dot and not inner:
                table.pop(_find_key(table, block), None)


def _has(table: Mapping[object, object], name: str) -> bool:
    block, dot, option = name.partition(".")
    inner = table.get(_find_key(table, block)) if dot else table
    return isinstance(inner, dict) and _find_key(inner, option or block) in inner


def _find_key(table: Mapping[object, object], name: str) -> object:
    return next((key for key in table if isinstance(key, str) and read_name(key) == name), name)


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _change_line(text: str, name: str, value: object, place: str) -> str:
    """Change, add or remove the line of one setting. A setting that has no separate line stays as it is."""
    _, lines = read_yaml(text, place)
    rows = text.splitlines(keepends=True)
    is_inside = place == FOREIGN or BLOCK in lines
    silenced = [one for one in family_of(name) if one != name] if value is not None else []
    for one in (*silenced, *([name] if value is None else [])):
        for path in (f"{BLOCK}.{one}", one):
            if path in lines:
                rows = _cut_setting(rows, lines[path] - 1)
                return _change_line("".join(rows), name, value, place)
    if value is None:
        return "".join(rows)
    path = next((path for path in (f"{BLOCK}.{name}", name) if path in lines), "")
    if path:
        at = lines[path] - 1
        indent = rows[at][: len(rows[at]) - len(rows[at].lstrip(" "))]
        key = rows[at].strip().split(":", 1)[0]
        rest = _cut_rows(rows, at)[at:]
        row = _write_row(indent, key, value)
        if row.count("\n") == 1 and (comment := _COMMENT.search(rows[at])):
            row = f"{row[:-1]}{comment[0]}\n"
        return "".join([*rows[:at], row, *rest])
    return _add_row(rows, name, value, f"{BLOCK}." if is_inside else "", lines=lines)


def _add_row(rows: list[str], name: str, value: object, prefix: str, *, lines: Mapping[str, int]) -> str:
    if rows and not rows[-1].endswith("\n"):
        rows[-1] += "\n"
    block, dot, option = name.partition(".")
    steps = [*([BLOCK] if prefix else []), *([block] if dot else []), option or block]
    path, at, indent = "", len(rows), ""
    for depth, step in enumerate(steps):
        path = f"{path}.{step}" if path else step
        if depth == len(steps) - 1:
            return "".join([*rows[:at], _write_row(indent, step, value), *rows[at:]])
        if path not in lines:
            rows = [*rows[:at], f"{indent}{step}:\n", *rows[at:]]
            at += 1
        else:
            at = lines[path]
            indent = rows[at - 1][: len(rows[at - 1]) - len(rows[at - 1].lstrip(" "))]
        indent += "  "
    raise AssertionError("unreachable: a name has at least one step")


def _cut_rows(rows: list[str], at: int) -> list[str]:
    """Remove the row of a key and everything indented below it."""
    indent = len(rows[at]) - len(rows[at].lstrip(" "))
    end = at + 1
    while end < len(rows) and rows[end].strip() and len(rows[end]) - len(rows[end].lstrip(" ")) > indent:
        end += 1
    return [*rows[:at], *rows[end:]]


def _cut_setting(rows: list[str], at: int) -> list[str]:
    """Remove a setting, and the block that this leaves empty."""
    indent = len(rows[at]) - len(rows[at].lstrip(" "))
    left = _cut_rows(rows, at)
    is_alone = indent > 0 and rows[at - 1].split("#")[0].rstrip().endswith(":")
    follows = left[at] if at < len(left) and left[at].strip() else ""
    if is_alone and len(follows) - len(follows.lstrip(" ")) < indent:
        return [*left[: at - 1], *left[at:]]
    return left


def _write_row(indent: str, key: str, value: object) -> str:
    return "".join(f"{indent}{row}\n" for row in _write_yaml({key: _plain(value)}).splitlines())


def _write_yaml(table: Mapping[Any, object]) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes text of several lines as a block."""

    def write_text(dumper: Any, text: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Dumper.add_representer(str, write_text)
    return yaml.dump(
        dict(table), Dumper=Dumper, allow_unicode=True, sort_keys=False, width=10_000, default_flow_style=False
    )
