"""``refold config`` and ``refold presets``: the settings in force, and where each value comes from."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from refold.cli.app import PlainTyper, app, format_examples
from refold.cli.input import AsJson, Model, Preset
from refold.cli.output import clean_line, make_console, make_table, write_json
from refold.cli.words import tr, translate, use_language
from refold.errors import ConfigError, Sentence

if TYPE_CHECKING:
    from refold.config import Row

settings = PlainTyper(help="Show the settings in force and where they come from.")
app.add_typer(settings, name="config")


@settings.command(epilog=format_examples("refold config explain --all", "refold config explain fold"))
def explain(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="Only these settings.")] = None,
    preset: Preset = None,
    model: Model = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also the values that nobody has set.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the settings that are set, and where each comes from.

    Named settings are printed whether they are set or not.
    """
    from refold.config import explain as list_rows
    from refold.config import load_config

    config = load_config(call={"preset": preset, "model": model})
    use_language(config.language)
    rows = _choose_rows(list_rows(config), names or [])
    if not everything and not names:
        rows = [row for row in rows if row.is_set and row.layer not in ("built in", "preset")]
    if as_json:
        write_json([row.to_dict() for row in rows])
        return
    if rows:
        _show_rows(rows)
    else:
        sys.stdout.write(
            tr("Nothing is set: every value comes from the preset {preset}.", preset=config.preset_name) + "\n"
        )
    if not everything and not names:
        sys.stdout.write(tr("'refold config explain --all' shows every setting.") + "\n")


def _choose_rows(rows: list[Row], names: Sequence[str]) -> list[Row]:
    """Return the rows with these names; the name of a stage selects all its options. Unknown names are errors."""
    from refold.config.layers import read_name, suggest

    wanted = [".".join(read_name(part) for part in name.split(".")) for name in names]
    chosen: list[Row] = []
    for name in wanted:
        found = [row for row in rows if row.name == name or row.name.startswith(f"{name}.")]
        if not found:
            hint = suggest(name, [row.name for row in rows]) or Sentence("; 'refold config explain --all' lists them")
            raise ConfigError(tr("unknown setting '{name}'{hint}", name=name[:80], hint=translate(hint)))
        chosen += found
    return chosen if names else rows


def _show_rows(rows: list[Row]) -> None:
    from rich.text import Text

    console = make_console(err=False)
    table = make_table("setting", "value", "from", "where", wide=("value", "where"), wraps=True)
    for row in rows:
        style = "dim" if row.layer == "built in" else "" if row.layer == "preset" else "bold"
        table.add_row(
            row.name,
            Text(clean_line(format_row(row))),
            translate(row.layer),
            Text(clean_line(row.place)),
            style=style,
        )
    console.print(table)
    console.print()
    console.print(Text(tr("Precedence: call, session, environment, project, user, preset, built in."), style="dim"))


def format_row(row: Row) -> str:
    """Return the value of a setting as people say it: a share is a percentage."""
    return row.share or format_value(row.value)


def format_value(value: object) -> str:
    """Return a value as it is written in a settings file."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


@settings.command("path")
def show_paths(as_json: AsJson = False) -> None:
    """Print the settings files and whether they exist."""
    from refold.config.load import project_file, user_file

    user, project = user_file(), project_file()
    paths = {"user": user, "project": project}
    if as_json:
        write_json(
            {name: {"path": str(path), "exists": path.exists()} if path else None for name, path in paths.items()}
        )
        return
    for name, path in paths.items():
        nothing = tr("none (refold.yaml or x-agent.yaml, searched upwards from here)")
        absent = "" if path is None or path.exists() else tr("  (does not exist)")
        sys.stdout.write(f"{translate(name):8}{nothing if path is None else path}{absent}\n")


@app.command("presets")
def list_presets(as_json: AsJson = False) -> None:
    """List the presets and their stages."""
    from refold.config import PRESETS, CompressionConfig

    if as_json:
        write_json([{"name": name, "for": means, "settings": _settings_of(name)} for name, means in PRESETS.items()])
        return
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, means in PRESETS.items():
        table.add_row(name, translate(means))
        table.add_row("", Text(" → ".join(CompressionConfig.preset(name).ladder), style="dim"))
    make_console(err=False).print(table)


def _settings_of(name: str) -> dict[str, object]:
    from refold.config import CompressionConfig
    from refold.config import explain as list_rows

    return {row.name: row.value for row in list_rows(CompressionConfig.preset(name)) if row.layer == "preset"}
