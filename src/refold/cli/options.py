"""The arguments and options that commands share: one name, one letter, one sentence for each.

Only their looks; what they mean is up to the command. Nothing here reads a file or a setting.
"""

from __future__ import annotations

import re
from typing import Annotated

import typer

SESSIONS_COMPLETED_MAX = 1_000


def complete_preset(incomplete: str) -> list[str]:
    """Return the presets that begin so, for the shell."""
    from refold.config import PRESETS

    return [name for name in PRESETS if name.startswith(incomplete)]


def complete_session(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the sessions that begin so, for the shell: those of the workspace that is named, else of this one."""
    from refold.cli.workspace import open_workspace
    from refold.errors import RefoldError

    try:
        with open_workspace(str(ctx.params.get("workspace") or ".")) as manager:
            rows = manager.ledger.list_sessions(limit=SESSIONS_COMPLETED_MAX)
    except RefoldError:  # Whoever presses Tab is not told about it: the command itself will.
        return []
    return [row.id for row in rows if row.id.startswith(incomplete)]


File = Annotated[str, typer.Argument(metavar="FILE", help="JSON or JSONL, also .gz; '-' is the standard input.")]
Model = Annotated[
    str | None, typer.Option("--model", "-m", metavar="MODEL", help="The model: its window and its tokenizer.")
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", "-f", metavar="FORMAT", help="openai-chat, anthropic or openai-responses; unset: detected."
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        "-p",
        metavar="PRESET",
        autocompletion=complete_preset,
        help="The settings to start from: see 'refold presets'.",
    ),
]
Workspace = Annotated[
    str,
    typer.Option(
        "--workspace", "-w", metavar="FOLDER", show_default=False, help="The folder that .refold is in; unset: here."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs: JSON on standard output.")]
Limit = Annotated[int, typer.Option("--limit", "-n", "-l", metavar="N", min=1, max=100_000, help="At most so many.")]

Session = Annotated[
    str,
    typer.Argument(metavar="SESSION", autocompletion=complete_session, help="The session's id: see 'refold sessions'."),
]
SessionMeant = Annotated[
    str | None,
    typer.Argument(
        metavar="SESSION", autocompletion=complete_session, help="Its id; unset: the one that changed last."
    ),
]
SessionOnly = Annotated[
    str | None,
    typer.Argument(metavar="SESSION", autocompletion=complete_session, help="Only this session; unset: all."),
]
SessionOption = Annotated[
    str | None,
    typer.Option(
        "--session",
        "-s",
        metavar="SESSION",
        autocompletion=complete_session,
        help="Its id; unset: the one that changed last.",
    ),
]
Everywhere = Annotated[bool, typer.Option("--all", "-a", help="All sessions of the workspace.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def read_tokens(text: str) -> int:
    """Return a number of tokens as people write it: 8000, 8_000, 8,000, 8k, 0.2M."""
    found = re.fullmatch(r"(-?[0-9]+)(?:(\.[0-9]+)?([km]))?", text.strip().lower().replace(",", "").replace("_", ""))
    if found is None:
        raise typer.BadParameter(f"{text[:40]!r} is no number of tokens; give one such as 8000, 8,000 or 8k")
    factor = {"k": 1_000, "m": 1_000_000}.get(found[3] or "", 1)
    return int(found[1]) * factor + int(float(found[2] or 0) * factor)
