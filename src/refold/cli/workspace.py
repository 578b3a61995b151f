"""What the commands over sessions share: the manager of a workspace, JSON for programs, times for people."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path

from refold.config import load_config
from refold.errors import ConfigError, FormatError
from refold.manager import ContextCompressionManager


def open_workspace(folder: str) -> ContextCompressionManager:
    """Return the manager of a folder, with the settings that hold there. Nothing is created."""
    path = Path(folder)
    if not path.is_dir():
        raise ConfigError(f"{folder!r} is not a folder; --workspace names the folder that .refold is in")
    return ContextCompressionManager(load_config(path), path)


def pick_session(folder: str, session: str | None) -> str:
    """Return the session that is meant: the one named, else the one that changed last, which is then said."""
    if session is not None:
        return session
    with open_workspace(folder) as manager:
        newest = manager.ledger.list_sessions(limit=1)
    if not newest:
        raise FormatError(f"there is no session in {folder!r}; 'refold chat' and 'refold serve' make some")
    sys.stderr.write(f"session {newest[0].id}\n")
    return newest[0].id


def write_json(value: object) -> None:
    """Write a value for programs, on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def write_line(text: str) -> None:
    """Write one line for people, on standard output."""
    from refold.cli.render import clean_line, make_console

    make_console(err=False).print(clean_line(text, 1_000), soft_wrap=True)


def tell_time(seconds: float) -> str:
    """Return a time as people say it here."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
