"""``refold config explain``, ``refold config path`` and ``refold presets``: what is set, and who said so."""

from __future__ import annotations

import sys

from refold.cli.reading import write_json
from refold.config import PRESETS, CompressionConfig, Row, load_config
from refold.config import explain as explain_config
from refold.config.load import project_file, user_file
from refold.config.names import read_name, suggest
from refold.errors import ConfigError


def explain(names: list[str], *, preset: str | None, model: str | None, only_set: bool, as_json: bool) -> None:
    """Print each setting, its value, and the layer, file and line, variable or option that it came from."""
    config = load_config(call={"preset": preset, "model": model})
    rows = choose_rows(explain_config(config), names)
    if only_set:
        rows = [row for row in rows if row.is_set and row.layer not in ("built in", "preset")]
    if as_json:
        write_json([row.to_dict() for row in rows])
    elif rows:
        _show_rows(rows)
    else:
        sys.stdout.write(f"Nothing is set: all values are those of the preset {config.preset_name}.\n")


def choose_rows(rows: list[Row], names: list[str]) -> list[Row]:
    """Return the rows with these names; a stage's name stands for all its options. Unknown names are errors."""
    wanted = [".".join(read_name(part) for part in name.split(".")) for name in names]
    chosen: list[Row] = []
    for name in wanted:
        found = [row for row in rows if row.name == name or row.name.startswith(f"{name}.")]
        if not found:
            hint = suggest(name, [row.name for row in rows]) or "; 'refold config explain' lists them all"
            raise ConfigError(f"unknown setting '{name[:80]}'{hint}")
        chosen += found
    return chosen if names else rows


def _show_rows(rows: list[Row]) -> None:
    from rich.text import Text

    from refold.cli.render import clean_line, make_console, make_table

    console = make_console(err=False)
    table = make_table("setting", "value", "from", "where", wide=("value", "where"), wraps=True)
    for row in rows:
        style = "dim" if row.layer == "built in" else "" if row.layer == "preset" else "bold"
        table.add_row(
            row.name, Text(clean_line(format_value(row.value))), row.layer, Text(clean_line(row.place)), style=style
        )
    console.print(table)
    console.print()
    console.print(Text("The last word: call, then session, environment, project, user, preset, built in.", style="dim"))


def format_value(value: object) -> str:
    """Return a value as one would write it in a settings file."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def show_paths(*, as_json: bool) -> None:
    """Print the files that are read, and whether they are there."""
    user, project = user_file(), project_file()
    paths = {"user": user, "project": project}
    if as_json:
        write_json(
            {name: {"path": str(path), "exists": path.exists()} if path else None for name, path in paths.items()}
        )
        return
    for name, path in paths.items():
        told = "none (refold.yaml or x-agent.yaml, from here upwards)" if path is None else str(path)
        absent = "" if path is None or path.exists() else "  (not there)"
        sys.stdout.write(f"{name:8}{told}{absent}\n")


def list_presets(*, as_json: bool) -> None:
    """Print the presets, what each is for, and its ladder."""
    if as_json:
        write_json([{"name": name, "for": means, "settings": _settings_of(name)} for name, means in PRESETS.items()])
        return
    from rich.table import Table
    from rich.text import Text

    from refold.cli.render import make_console

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, means in PRESETS.items():
        table.add_row(name, means)
        table.add_row("", Text(" → ".join(CompressionConfig.preset(name).ladder), style="dim"))
    make_console(err=False).print(table)


def _settings_of(name: str) -> dict[str, object]:
    return {row.name: row.value for row in explain_config(CompressionConfig.preset(name)) if row.layer == "preset"}
