"""``refold init``: a ``refold.yaml`` to begin with: every line is a comment but the preset.

What stands there is read from the settings themselves, so that name, value and meaning are those of this version.
A file that is there already is left alone.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from refold.errors import ConfigError

NAME = "refold.yaml"
# What people change, in the order in which they ask. The rest is on the page of settings.
GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("The model that reads the conversation", ("model", "window", "reserve")),
    (
        "When to act, as shares of the room (window less reserve)",
        ("auto_compress", "warn_ratio", "trigger_ratio", "target_ratio", "economic", "economic_ratio"),
    ),
    (
        "Counts that trigger or keep, whatever the tokens",
        ("threshold_rounds", "threshold_tokens", "max_turns", "retention_count", "importance_threshold"),
    ),
    (
        "Summaries",
        ("summariser", "compact_model", "compact_url", "compact_timeout_s", "language", "redact", "background"),
    ),
    ("The ladder, cheapest stage first", ("ladder", "write_files")),
)
# Shown where nobody has set a value yet.
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
# Which document a setting comes from is for the page of settings, not for those who begin.
_DOCUMENT = re.compile(r"\AS\d\.\d+: ")
TAIL = """\
# One block for each stage, with its own options:
# truncate:
#   lines_max: 2000

# The gateway, 'refold serve':
# gateway:
#   port: 7788
"""


def run(workspace: str, preset: str, *, to_output: bool) -> None:
    """Write the file, or print it; ConfigError if there is one already."""
    text = write_settings(preset)
    if to_output:
        typer.echo(text, nl=False)
        return
    path = Path(workspace) / NAME
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} is there already; 'refold init --print' shows what would be written") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from None
    typer.echo(f"wrote {path}; 'refold config explain' shows what holds", err=True)


def write_settings(preset: str) -> str:
    """Return a settings file that stands on a preset: its values as comments, each with what it means."""
    from refold.cli.config import format_value
    from refold.config import PRESETS, CompressionConfig, explain
    from refold.config.names import family_of

    rows = {row.name: row for row in explain(CompressionConfig.preset(preset))}
    presets = "\n".join(f"#   {name:<12}{means}" for name, means in PRESETS.items())
    lines = [
        "# refold: settings of this project. 'refold config explain' shows what holds and where it comes from.",
        "",
        "# The settings to start from:",
        presets,
        f"preset: {preset}",
    ]
    for title, names in GROUPS:
        lines += ["", f"# {title}"]
        for name in names:
            # A preset may say it by another name of the same meaning.
            row = next((rows[one] for one in (name, *family_of(name)) if rows[one].value is not None), rows[name])
            value = SAMPLES.get(name, "0.5") if row.value is None else format_value(row.value)
            if isinstance(row.value, tuple):
                value = f"[{value}]"
            lines.append(f"{f'# {row.name}: {value}':<34}  # {_DOCUMENT.sub('', row.means)}")
    return "\n".join(lines) + "\n\n" + TAIL


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""

    @app.command()
    def init(
        preset: Annotated[
            str, typer.Option("--preset", "-p", metavar="PRESET", help="See 'refold presets'.")
        ] = "default",
        workspace: Annotated[
            str,
            typer.Option(
                "--workspace", "-w", metavar="FOLDER", show_default=False, help="Where it is written to; unset: here."
            ),
        ] = ".",
        to_output: Annotated[bool, typer.Option("--print", help="Print it, write nothing.")] = False,
    ) -> None:
        """Write a commented refold.yaml to begin with.

        One that is there is left alone.
        """
        run(workspace, preset, to_output=to_output)
