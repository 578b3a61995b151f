"""Arguments and options that several commands have: one name, one letter and one sentence each."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from refold.cli.input import open_workspace
from refold.cli.words import tr
from refold.errors import ConfigError, RefoldError

SESSIONS_COMPLETED_MAX = 1_000


def complete_preset(incomplete: str) -> list[str]:
    """Return the presets that start with what was typed, for shell completion."""
    from refold.config import PRESETS

    return [name for name in PRESETS if name.startswith(incomplete)]


def complete_session(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the workspace's sessions that start with what was typed, for shell completion."""
    try:
        with open_workspace(find_workspace(ctx.params.get("workspace"))) as manager:
            rows = manager.ledger.list_sessions(limit=SESSIONS_COMPLETED_MAX)
    except RefoldError:  # The command itself reports it; completion stays silent.
        return []
    return [row.id for row in rows if row.id.startswith(incomplete)]


def find_workspace(folder: str | None = None) -> str:
    """Return the folder to work in: the named one, else the nearest one upwards that has a ``.refold``, else this one.

    The search ends at the root of a repository, and skips what another user owns.
    """
    if folder:
        return folder
    here = Path.cwd()
    owner = os.getuid() if sys.platform != "win32" else here.stat().st_uid
    for candidate in (here, *here.parents):
        with contextlib.suppress(OSError):
            if (candidate / ".refold").is_dir() and (candidate / ".refold").stat().st_uid == owner:
                return "." if candidate == here else str(candidate)
            if (candidate / ".git").exists():
                break
    return "."


FileOrFolder = Annotated[
    str, typer.Argument(metavar="FILE", help="JSON or JSONL, also .gz, or a folder; '-' reads standard input.")
]
Model = Annotated[
    str | None, typer.Option("--model", "-m", metavar="MODEL", help="Model, for its context window and tokenizer.")
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", "-f", metavar="FORMAT", help="openai-chat, anthropic, openai-responses, ai-sdk; or detected."
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        "-p",
        metavar="PRESET",
        autocompletion=complete_preset,
        help="Preset to start from; see 'refold presets'.",
    ),
]
Workspace = Annotated[
    str,
    typer.Option(
        "--workspace",
        "-w",
        metavar="FOLDER",
        show_default=False,
        callback=find_workspace,
        help="Folder that holds .refold; default: found upwards from here.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, max=100_000, help="Maximum number of rows.")]


def name_session(about: str) -> Any:
    """Return the option by which every command that works on a stored session names it."""
    return typer.Option("--session", "-s", metavar="SESSION", autocompletion=complete_session, help=about)


SessionOption = Annotated[str | None, name_session("Session id; default: the session that changed last.")]
SessionFilter = Annotated[str | None, name_session("Session id; default: all sessions.")]
SessionRequired = Annotated[str, name_session("Session id.")]
ResultFile = Annotated[
    str | None, typer.Option("--out", "-o", metavar="FILE", help="Result file; default: standard output.")
]
Everywhere = Annotated[bool, typer.Option("--all", "-a", help="All sessions of the workspace.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def read_tokens(text: str) -> int:
    """Parse a number of tokens: 8000, 8_000, 8,000, 8k, 0.2M."""
    from refold.budget import read_tokens as read

    try:
        return read(text)
    except ConfigError:
        raise typer.BadParameter(
            tr("{text!r} is not a number of tokens; write it as 8000, 8,000 or 8k", text=text[:40])
        ) from None


Window = Annotated[
    int | None,
    typer.Option("--window", parser=read_tokens, metavar="TOKENS", help="32000 or 32k; default: the model's."),
]
