"""What the commands over sessions share: the manager of a workspace, JSON for programs, times for people."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path

from refold.config import load_config
from refold.errors import ConfigError
from refold.manager import ContextCompressionManager


def open_workspace(folder: str) -> ContextCompressionManager:
    """Return the manager of a folder, with the settings that hold there. Nothing is created."""
    path = Path(folder)
    if not path.is_dir():
        raise ConfigError(f"{folder!r} is not a folder; --workspace names the folder that .refold is in")
    return ContextCompressionManager(load_config(path), path)


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
