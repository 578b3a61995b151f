"""Entry point of ``refold``. Importing a command's module registers the command with the application."""

from __future__ import annotations

import sys

from refold.cli import (
    chat,
    compact,
    config,
    count,
    doctor,
    expand,
    facts,
    forget,
    init,
    key,
    local,
    log,
    mcp,
    memory,
    pin,
    recall,
    replay,
    serve,
    sessions,
    show,
    stats,
    transfer,
    tune,
    undo,
    verify,
    wrap,
)
from refold.cli.app import app
from refold.cli.exit import run_to_end

COMMANDS = (
    *(init, doctor, config, local),
    *(chat, serve, wrap, key, mcp),
    *(compact, count, replay, tune),
    *(sessions, show, log, stats, memory, recall, expand, facts),
    *(undo, pin, forget, transfer, verify),
)


def main() -> None:
    """Run the command line and end the process with its exit code."""
    sys.exit(run_to_end(app))
