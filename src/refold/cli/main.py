"""Entry point of ``refold``. Importing a command's module registers the command with the application."""

from __future__ import annotations

import gc
import sys
from typing import Any

from refold.cli import chat, compact, config, doctor, measure, serve, session, sessions, transfer, wrap
from refold.cli.app import app, keep_command, run_to_end

COMMANDS = (doctor, config, chat, serve, wrap, compact, measure, sessions, session, transfer)


def main() -> None:
    """Run the command line and end the process with its exit code."""
    # Loaded modules stay until the end: scanning them for garbage would take a tenth of a short command's time.
    gc.set_threshold(20_000, 20, 20)
    sys.exit(run_to_end(_run))


def _run(**options: Any) -> object:
    keep_command(app, sys.argv[1:])
    return app(**options)
