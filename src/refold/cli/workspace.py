"""What the commands over sessions share: the manager of a workspace, which session is meant, times for people."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path

from refold.cli.reading import write_json
from refold.cli.render import clean_line, make_console, print_line
from refold.config import load_config
from refold.config.names import suggest
from refold.errors import ConfigError, LedgerError
from refold.ledger.port import Ledger
from refold.manager import ContextCompressionManager


def open_workspace(folder: str) -> ContextCompressionManager:
    """Return the manager of a folder, with the settings that hold there. Nothing is created."""
    path = Path(folder)
    if not path.is_dir():
        raise ConfigError(f"{folder!r} is not a folder; --workspace names the folder that .refold is in")
    return ContextCompressionManager(load_config(path), path)


def choose_session(ledger: Ledger, session: str | None, *, everywhere: bool = False) -> str | None:
    """Return the session that is meant: the one named, else the one that changed last, which is then said.

    None if all are meant, or if nothing is named and there is none. LedgerError if the one that is named is not there.
    """
    if session is not None:
        if ledger.read_session(session) is None:
            near = suggest(session, (row.id for row in ledger.list_sessions(limit=1_000)))
            raise LedgerError(f"there is no session {session[:80]!r}{near}; 'refold sessions' lists those there are")
        return session
    newest = None if everywhere else find_newest(ledger)
    if newest is not None:
        sys.stderr.write(f"session {clean_line(newest, 200)}\n")
    return newest


def find_newest(ledger: Ledger) -> str | None:
    """Return the session that changed last; None if there is none."""
    rows = ledger.list_sessions(limit=1)
    return rows[0].id if rows else None


def need_session(ledger: Ledger, session: str | None, folder: str) -> str:
    """Return the session that is meant, for a command that can do nothing without one."""
    found = choose_session(ledger, session)
    if found is None:
        raise LedgerError(_explain_empty(folder))
    return found


def tell_empty(folder: str, *, as_json: bool, value: object = ()) -> None:
    """Say that there is nothing to read yet, and how a session comes to be; for programs the empty value."""
    if as_json:
        write_json(value)
    else:
        write_line(_explain_empty(folder))


def _explain_empty(folder: str) -> str:
    where = "" if folder == "." else f" in {folder[:200]!r}"
    return (
        f"no sessions yet{where}: 'refold chat' and 'refold serve' make some, 'refold import FILE' brings one, "
        "--workspace FOLDER looks elsewhere"
    )


def write_line(text: str) -> None:
    """Write one line for people, on standard output."""
    print_line(make_console(err=False), clean_line(text, 1_000))


def tell_time(seconds: float) -> str:
    """Return a time as people say it here."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
