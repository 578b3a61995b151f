"""``refold config``, ``trust``, ``presets``, ``init`` and ``tune``: show settings, trust and write a file, improve it.

``init`` writes a commented ``refold.yaml`` in which only the preset is set. Names, values and descriptions come from
the settings themselves, so they match this version. An existing file is never changed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refold.cli.app import PlainTyper, app, format_examples
from refold.cli.input import open_workspace
from refold.cli.options import AsJson, Model, Preset, Workspace
from refold.cli.output import make_console, make_table, note, say, show_progress, write_json, write_line
from refold.cli.words import clean_line, count_things, tr, use_language
from refold.errors import ConfigError, FormatError, Sentence

if TYPE_CHECKING:
    from refold.config import Row
    from refold.config.load import GuardedSetting, SettingsFile
    from refold.tuning import Figures, Tuning, TuningStep


settings = PlainTyper(help="Show the settings in force and where they come from.")
app.add_typer(settings, name="config")

NAME = "refold.yaml"
# The settings that people change most. docs/reference/configuration.md lists all of them.
GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("The model that reads the conversation", ("model", "window", "reserve")),
    (
        "When to compress, as shares of the room (window minus reserve)",
        ("auto_compress", "warn_ratio", "trigger_ratio", "target_ratio", "economic", "economic_ratio"),
    ),
    (
        "Triggers and limits by count instead of tokens",
        ("threshold_rounds", "threshold_tokens", "max_turns", "retention_count", "importance_threshold"),
    ),
    (
        "Summaries",
        ("summariser", "compact_model", "compact_url", "compact_timeout_s", "language", "redact", "background"),
    ),
    ("The ladder, cheapest stage first", ("ladder", "write_files")),
)
# Example values for settings without a default.
SAMPLES = {
    "model": "claude-opus-5-5",
    "window": "200000",
    "reserve": "16000",
    "threshold_rounds": "40",
    "threshold_tokens": "60000",
    "max_turns": "50",
    "retention_count": "10",
    "importance_threshold": "0.3",
    "compact_model": "gpt-6-luna",
    "compact_url": "http://127.0.0.1:11434/v1",
    "language": "en",
}
TAIL = """\
# Each stage has a block with its own options:
# truncate:
#   lines_max: 2000

# The gateway, 'refold serve'. Addresses, ports and limits in a project's file need 'refold trust':
# gateway:
#   port: 7788
"""


@settings.command(epilog=format_examples("refold config explain --all", "refold config explain fold"))
def explain(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="Only these settings.")] = None,
    preset: Preset = None,
    model: Model = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also settings that are not set.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the settings that are set, and where each comes from.

    Named settings are printed whether they are set or not.
    """
    from refold.config import explain as list_rows
    from refold.config import load_config
    from refold.config.load import list_refused, project_file, read_file
    from refold.manager.memory_notes import apply_folder
    from refold.memory import CompressionFolder

    config = load_config(call={"preset": preset, "model": model}, skips_refused=True)
    config = apply_folder(config, CompressionFolder(Path.cwd()))
    use_language(config.language)
    file = read_file(project_file())
    refused = list_refused(file) if file is not None else []
    rows = _choose_rows(list_rows(config), names or [])
    if not everything and not names:
        rows = [row for row in rows if row.is_set and row.layer not in ("built in", "preset")]
    if as_json:
        write_json([row.to_dict() for row in rows])
        _show_refused(refused, file)
        return
    if everything and not names:
        from refold.config.names import DOCUMENT_NAMES

        _show_rows([row for row in rows if row.name not in DOCUMENT_NAMES])
        typer.echo("\n" + tr("Appendix: names from the documents"))
        _show_rows([row for row in rows if row.name in DOCUMENT_NAMES])
    elif rows:
        _show_rows(rows)
    else:
        typer.echo(tr("Nothing is set: every value comes from the preset {preset}.", preset=config.preset_name))
    if rows:
        typer.echo("\n" + tr("Precedence: call, session, environment, project, user, preset, built in."))
    if not everything and not names:
        typer.echo(tr("'refold config explain --all' shows every setting."))
    _show_refused(refused, file)


def _show_refused(refused: Sequence[GuardedSetting], file: SettingsFile | None) -> None:
    """Print the settings of the project's file that have no effect, on standard error."""
    if file is None or not refused:
        return
    from refold.config.load import name_trust

    command = name_trust(file.path.parent)
    note("refused, because {place} is not trusted ('{command}' trusts it):", place=file.place, command=command)
    for one in refused:
        typer.echo(f"  {clean_line(one.place)}  {_format_guarded(one)}", err=True)


def _format_guarded(setting: GuardedSetting) -> str:
    """Return a setting and its value without a password."""
    from refold.config.layers import show
    from refold.ledger.place import redact_address

    value = setting.value
    if isinstance(value, str):
        return clean_line(f"{setting.name}: {redact_address(value)}", 300)
    return clean_line(f"{setting.name}: {format_value(value) if isinstance(value, bool) else show(value)}", 300)


def _choose_rows(rows: list[Row], names: Sequence[str]) -> list[Row]:
    """Return the rows with these names; the name of a stage selects all its options. Unknown names are errors."""
    from refold.config.layers import read_name, suggest

    wanted = [".".join(read_name(part) for part in name.split(".")) for name in names]
    chosen: list[Row] = []
    for name in wanted:
        found = [row for row in rows if row.name == name or row.name.startswith(f"{name}.")]
        if not found:
            hint = suggest(name, [row.name for row in rows]) or Sentence("; 'refold config explain --all' lists them")
            raise ConfigError("unknown setting '{name}'{hint}", name=name[:80], hint=tr(hint))
        chosen += found
    return chosen if names else rows


def _show_rows(rows: list[Row]) -> None:
    table = make_table("setting", "value", "from", "where", wide=("value", "where"), wraps=True)
    for row in rows:
        style = "dim" if row.layer == "built in" else "" if row.layer == "preset" else "bold"
        cells = (row.name, clean_line(format_row(row)), tr(row.layer), clean_line(tr(row.place)))
        table.add_row(*cells, style=style)
    make_console(err=False).print(table)


def format_row(row: Row) -> str:
    """Return the value of a setting for people: a share as a percentage, a missing value as a word."""
    if row.value is None or row.value == ():
        return tr("unset" if row.value is None else "none")
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
    from refold.cli.options import find_workspace
    from refold.config.load import project_file, user_file
    from refold.memory import FOLDER_PLACE

    folder = Path(find_workspace("")).absolute() / FOLDER_PLACE
    paths = {"user": user_file(), "project": project_file(), "folder": folder}
    if as_json:
        write_json(
            {name: {"path": str(path), "exists": path.exists()} if path else None for name, path in paths.items()}
        )
        return
    for name, path in paths.items():
        nothing = tr("none (refold.yaml or x-agent.yaml, searched upwards from here)")
        absent = "" if path is None or path.exists() else tr("  (does not exist)")
        layer = "user" if name == "user" else "project"
        typer.echo(f"{tr(layer):9}{nothing if path is None else path}{absent}")


@app.command(epilog=format_examples("refold trust", "refold trust ~/work/shop", "refold trust --revoke"))
def trust(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", show_default=False, help="Folder to trust; default: this one.")
    ] = "",
    revoke: Annotated[bool, typer.Option("--revoke", help="End the trust in this folder.")] = False,
) -> None:
    """Trust a folder that somebody else may have written.

    Its settings file may then choose addresses, listeners and protection, until the file changes. 'refold wrap' may
    send requests to the addresses that its other files choose now. A record of conversations that came with the folder
    becomes your own. 'refold config explain' shows what is refused without it.
    """
    from refold.cli.options import find_workspace
    from refold.config.load import find_user_folder, list_guarded, load_config, project_file, read_file, trust_file
    from refold.config.trust import find_fault, find_page_fault

    workspace = Path(find_workspace(folder))
    if not workspace.is_dir():
        raise ConfigError("{folder!r} is not a folder", folder=folder)
    file = read_file(project_file(workspace))
    if revoke:
        for path in {workspace, Path(folder or "."), *([file.path.parent] if file else [])}:
            find_user_folder(path).revoke()
        note("{folder} is no longer trusted", folder=workspace.resolve())
        return
    guarded = list_guarded(file, workspace) if file is not None else []
    has_clients = _trust_clients(Path(folder or "."))
    if file is not None and guarded:
        for setting in guarded:
            typer.echo(_format_guarded(setting))
        trust_file(file)
        note("{path} is trusted until it changes", path=file.path)
    fault = find_fault(workspace, load_config(workspace).ledger) or find_page_fault(workspace)
    if fault is not None:
        typer.echo(tr(fault), err=True)
        find_user_folder(workspace).adopt()
        note("conversations, keys and memory pages in {folder} are your own now", folder=workspace.resolve())
    if not guarded and fault is None and not has_clients:
        note("nothing here needs your trust")


def _trust_clients(folder: Path) -> bool:
    """Trust and print the addresses that files in a folder choose for the clients of ``refold wrap``."""
    from refold.cli.clients import CLIENTS, TRUSTED, Start, find_choice_of_folder, list_choices, name_choice
    from refold.config.load import copy_environment, find_user_folder
    from refold.llm.errors import show_url

    environ, is_any = copy_environment(), False
    for name in CLIENTS:
        start = Start((name,), environ, folder.absolute())
        with contextlib.suppress(ConfigError):  # It is not installed, or 'refold wrap' says what is wrong.
            for url in {url for choice in list_choices(start) for url in find_choice_of_folder(choice).values()}:
                typer.echo(f"{name}: {clean_line(show_url(url) if url else tr('its default address'))}")
                find_user_folder(start.folder).trust(name_choice(start, url), TRUSTED)
                is_any = True
    if is_any:
        note("'refold wrap' may send requests to these addresses from {folder}", folder=folder.absolute())
    return is_any


@app.command("presets")
def list_presets(as_json: AsJson = False) -> None:
    """List the presets and their stages."""
    from refold.config import PRESETS, CompressionConfig
    from refold.config import explain as list_rows

    if as_json:
        rows = {name: list_rows(CompressionConfig.preset(name)) for name in PRESETS}
        own = {name: {row.name: row.value for row in rows[name] if row.layer == "preset"} for name in PRESETS}
        write_json([{"name": name, "for": means, "settings": own[name]} for name, means in PRESETS.items()])
        return
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, means in PRESETS.items():
        table.add_row(name, tr(means))
        table.add_row("", Text(" → ".join(CompressionConfig.preset(name).ladder), style="dim"))
    make_console(err=False).print(table)


@app.command()
def init(
    preset: Annotated[str, typer.Option("--preset", "-p", metavar="PRESET", help="See 'refold presets'.")] = "default",
    workspace: Annotated[
        str,
        typer.Option(
            "--workspace", "-w", metavar="FOLDER", show_default=False, help="Folder to write to; default: this one."
        ),
    ] = ".",
    to_output: Annotated[bool, typer.Option("--print", help="Print it and write nothing.")] = False,
) -> None:
    """Write a commented refold.yaml to start from.

    An existing file is not changed.
    """
    text = write_settings(preset)
    if to_output:
        typer.echo(text, nl=False)
        return
    path = Path(workspace) / NAME
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(
            "{path} already exists; 'refold init --print' prints what would be written", path=path
        ) from None
    except OSError as error:
        raise ConfigError("{path} cannot be written: {why}", path=path, why=error.strerror or error) from None
    note("wrote {path}; 'refold config explain' shows the settings in force", path=path)


def write_settings(preset: str) -> str:
    """Return a settings file based on a preset, with the preset's values as explained comments."""
    from refold.config import PRESETS, CompressionConfig, explain
    from refold.config.layers import family_of

    rows = {row.name: row for row in explain(CompressionConfig.preset(preset))}
    presets = "\n".join(f"#   {name:<12}{means}" for name, means in PRESETS.items())
    lines = [
        "# refold settings of this project. 'refold config explain' shows the values in force and their sources.",
        "",
        "# The preset to start from:",
        presets,
        f"preset: {preset}",
    ]
    for title, names in GROUPS:
        lines += ["", f"# {title}"]
        for name in names:
            # A preset may set it under another name with the same meaning.
            row = next((rows[one] for one in (name, *family_of(name)) if rows[one].value is not None), rows[name])
            value = SAMPLES.get(name, "0.5") if row.value is None else format_value(row.value)
            if isinstance(row.value, tuple):
                value = f"[{value}]"
            lines.append(f"{f'# {row.name}: {value}':<34}  # {row.means}")
    return "\n".join(lines) + "\n\n" + TAIL


@app.command()
def tune(
    sessions: Annotated[
        int, typer.Option("--sessions", metavar="N", min=1, max=200, help="Number of sessions, newest first.")
    ] = 12,
    apply_it: Annotated[bool, typer.Option("--apply", help="Write the changes to the project's settings.")] = False,
    workspace: Workspace = "",
    as_json: AsJson = False,
) -> None:
    """Propose settings that would have cost less.

    The stored sessions are replayed with other settings. Every request must still fit and be valid, and at least as
    many values must stay in view as now.
    """
    from refold.tuning import TRIALS_MAX, apply, propose, read_stored

    with open_workspace(workspace) as manager:
        stored = read_stored(manager, sessions)
        if not stored:
            raise FormatError("no session here has eight messages or more yet; tune once there are some")
        with show_progress(tr("tuning")) as advance:
            tuning = propose(stored, manager.config, tell=lambda trials: advance(trials, TRIALS_MAX))
        if tuning.changes and apply_it:
            apply(workspace, manager.ledger, tuning, time.time())
    if as_json:
        is_applied = apply_it and bool(tuning.changes)
        write_json({**asdict(tuning), "saving": round(tuning.saving, 4), "is_applied": is_applied})
    else:
        _show_tuning(tuning, is_applied=apply_it)


def _show_tuning(tuning: Tuning, *, is_applied: bool) -> None:
    replayed = tr(", ").join((count_things(tuning.sessions, "session"), count_things(tuning.requests, "request")))
    say(
        "replayed {replayed} with {trials} of the settings",
        replayed=replayed,
        trials=count_things(tuning.trials, "variant"),
    )
    if not tuning.changes:
        say("the current settings are the best of those tried; nothing to change")
        return
    for step in tuning.steps:
        change = {"name": step.name, "before": step.value_before, "after": step.value, "why": _explain_step(step)}
        write_line(tr("  {name}: {before:g} → {after:g}  ({why})", **change))
        write_line(f"    {_compare_figures(step.before, step.after, step.saving)}")
    if len(tuning.steps) > 1:
        say("together: {figures}", figures=_compare_figures(tuning.now, tuning.then, tuning.saving))
    write_line(
        tr("written to the project's settings") if is_applied else tr("nothing was changed; --apply writes the changes")
    )


def _explain_step(step: TuningStep) -> str:
    """Return what a change does, in words."""
    is_more = step.value > step.value_before
    if step.name == "target_ratio":
        return tr("folds less at a time") if is_more else tr("folds more at a time, so the next time comes later")
    if step.name == "economic_ratio":
        return tr("acts later to save money") if is_more else tr("acts earlier to save money")
    if step.name in ("retention_count", "keep_recent", "keep_last_turns"):
        return tr("keeps more of what is new") if is_more else tr("keeps less of what is new")
    return tr("compresses later") if is_more else tr("compresses earlier")


def _compare_figures(before: Figures, after: Figures, saving: float) -> str:
    view = (before.in_view_percent, after.in_view_percent)
    kept = "" if None in view else tr(", values in view {before:.1f} → {after:.1f}%", before=view[0], after=view[1])
    return tr(
        "whole bill {before.cost:,.0f} → {after.cost:,.0f} tokens (−{saving:.1%}), prefix changes "
        "{before.prefix_changes:,} → {after.prefix_changes:,}{kept}",
        before=before,
        after=after,
        saving=saving,
        kept=kept,
    )
