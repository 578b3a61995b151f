"""``refold init``: write a commented ``refold.yaml`` in which only the preset is set.

Names, values and descriptions come from the settings themselves, so they match this version. An existing file is never
changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refold.cli.app import app
from refold.cli.words import tr
from refold.errors import ConfigError

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

# The gateway, 'refold serve':
# gateway:
#   port: 7788
"""


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
            tr("{path} already exists; 'refold init --print' prints what would be written", path=path)
        ) from None
    except OSError as error:
        raise ConfigError(
            tr("{path} cannot be written: {strerror}", path=path, strerror=error.strerror or error)
        ) from None
    typer.echo(tr("wrote {path}; 'refold config explain' shows the settings in force", path=path), err=True)


def write_settings(preset: str) -> str:
    """Return a settings file based on a preset, with the preset's values as explained comments."""
    from refold.cli.config import format_value
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
