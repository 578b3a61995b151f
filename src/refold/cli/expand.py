"""``refold expand``: page through the exact original behind a handle."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import asdict

import typer

from refold.cli.reading import write_json
from refold.cli.render import clean_line, strip_controls
from refold.cli.workspace import need_session, open_workspace
from refold.errors import HandleUnknown
from refold.manager import ContextCompressionManager

SESSIONS_MAX = 1_000


def run(handle: str, session: str | None, offset: int, limit: int | None, workspace: str, *, as_json: bool) -> None:
    """Print a page of an original; where the next page begins goes to standard error."""
    with open_workspace(workspace) as manager:
        name = need_session(manager.ledger, session, workspace)
        if session is None:
            name = _find_session(manager, name, handle)
        page = manager.recalling.expand(name, handle, offset, limit)
    text = page.text.encode("utf-8", "replace").decode()
    if as_json:
        write_json({**asdict(page), "text": text, "next_offset": page.next_offset})
        return
    if offset and offset >= page.total:
        typer.echo(f"there are {page.total:,} characters; --offset {offset} is behind the last one", err=True)
        return
    # A pipe gets the exact original; a terminal would obey what stands in it.
    typer.echo(strip_controls(text) if sys.stdout.isatty() else text, color=True)
    if page.next_offset is not None:
        shown = f"characters {page.offset}–{page.next_offset} of {page.total}"
        typer.echo(f"{shown}; go on with --offset {page.next_offset}", err=True)


def _find_session(manager: ContextCompressionManager, newest: str, handle: str) -> str:
    """Return the session that has a handle: the newest one, else the first of the others, which is then said."""
    for row in manager.ledger.list_sessions(limit=SESSIONS_MAX):
        with contextlib.suppress(HandleUnknown):
            manager.recalling.expand(row.id, handle, 0, 0)
            if row.id != newest:
                typer.echo(f"it is in session {clean_line(row.id, 200)}", err=True)
            return row.id
    return newest  # Where it is told that nothing is behind it.
