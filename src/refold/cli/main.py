"""Entry point of ``refold``. Importing a command's module registers the command with the application."""

from __future__ import annotations

import gc
import signal
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

from refold.cli.app import ALIASES, choose_command, run_to_end
from refold.cli.app import app as _app

MODULES = (
    *("doctor", "config", "chat", "serve", "wrap", "compact", "measure"),
    *("evaluate", "trial", "look", "sessions", "session", "transfer"),
)
# Commands that need no other command's module.
ALONE = {"chat": "chat", "serve": "serve", "mcp": "serve", "wrap": "wrap"}
ALONE |= dict.fromkeys(("compress", *ALIASES), "compact")


def main() -> None:
    """Run the command line and end the process with its exit code."""
    # Loaded modules stay until the end: scanning them for garbage would take a tenth of a short command's time.
    gc.set_threshold(20_000, 20, 20)
    code = run_to_end(_run)
    with suppress(ValueError):  # Not in the main thread.
        # There is nothing left to stop. A function would be replaced by the default, which kills, as Python ends.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def load_commands(name: str = "") -> None:
    """Import the module of one command, or all of them."""
    for module in (ALONE[name],) if name in ALONE else MODULES:
        import_module(f"refold.cli.{module}")


def _run(**options: Any) -> object:
    words = sys.argv[1:]
    load_commands(words[0] if words else "")
    return choose_command(_app, words)(**options)


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(name)
    load_commands()
    return _app
