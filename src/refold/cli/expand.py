"""``refold expand``: print the exact original behind a handle."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from refold.cli.app import app
from refold.cli.input import AsJson, SessionOption, Workspace, need_session, open_workspace
from refold.cli.output import clean_line, strip_controls, write_json
from refold.cli.words import tr
from refold.errors import HandleUnknown

if TYPE_CHECKING:
    from refold.manager import ContextCompressionManager

SESSIONS_MAX = 1_000


@app.command()
def expand(
    handle: Annotated[str, typer.Argument(metavar="HANDLE", help="Handle from a placeholder or a search result.")],
    session: SessionOption = None,
    offset: Annotated[int, typer.Option("--offset", metavar="N", min=0, help="First character to show.")] = 0,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", metavar="N", min=0, help="Maximum characters; default: all.")
    ] = None,
    workspace: Workspace = "",
    as_json: AsJson = False,
) -> None:
    """Print the exact original behind a handle, or a page of it."""
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
        typer.echo(
            tr(
                "--offset {offset} is past the end; the original has {total:,} characters",
                offset=offset,
                total=page.total,
            ),
            err=True,
        )
        return
    # A pipe gets the exact original; a terminal would obey control sequences in it.
    typer.echo(strip_controls(text) if sys.stdout.isatty() else text, color=True)
    if page.next_offset is not None:
        shown = tr("characters {start}–{stop} of {total}", start=page.offset, stop=page.next_offset, total=page.total)
        typer.echo(
            tr("{shown}; continue with --offset {next_offset}", shown=shown, next_offset=page.next_offset), err=True
        )


def _find_session(manager: ContextCompressionManager, newest: str, handle: str) -> str:
    """Return the first session that has the handle, the newest one first; print its id if it is another one."""
    for row in manager.ledger.list_sessions(limit=SESSIONS_MAX):
        with contextlib.suppress(HandleUnknown):
            manager.recalling.expand(row.id, handle, 0, 0)
            if row.id != newest:
                typer.echo(tr("found in session {id}", id=clean_line(row.id, 200)), err=True)
            return row.id
    return newest  # Expanding there raises HandleUnknown.
