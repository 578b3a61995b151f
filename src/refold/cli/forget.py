"""``refold delete`` and ``refold forget``: the two commands that erase. Both ask for confirmation."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from refold.cli.app import app
from refold.cli.input import AsJson, SessionRequired, Workspace, Yes, choose_session, open_workspace
from refold.cli.output import clean_line, write_json, write_line
from refold.cli.words import count_things, tr
from refold.errors import ConfigError


@app.command()
def delete(session: SessionRequired, yes: Yes = False, workspace: Workspace = "", as_json: AsJson = False) -> None:
    """Delete a session permanently.

    Its offloaded files are deleted too; daily pages stay. This cannot be undone.
    """
    with open_workspace(workspace) as manager:
        choose_session(manager.ledger, session)  # Raises if there is no such session.
        status = manager.status(session)
        count = count_things(status.messages, "message")
        _confirm(
            tr("Delete session {session!r} with {count}? This cannot be undone.", session=session, count=count), yes=yes
        )
        manager.delete_session(session)
    if as_json:
        write_json({"deleted": session, "messages": status.messages})
    else:
        write_line(tr("deleted {session!r} with {count}", session=session, count=count))


@app.command()
def forget(
    handle: Annotated[str, typer.Argument(metavar="HANDLE", help="Handle such as m:4f2a91c3 or f:09c1b2aa.")],
    session: SessionRequired,
    yes: Yes = False,
    workspace: Workspace = "",
    as_json: AsJson = False,
) -> None:
    """Erase an original permanently, such as a leaked key.

    It is erased from the ledger, from offloaded files and from daily pages. This cannot be undone.
    """
    with open_workspace(workspace) as manager:
        choose_session(manager.ledger, session)  # Raises if there is no such session.
        text = manager.expand(session, handle, 0, 200)
        _confirm(tr("Erase {text!r} permanently? This cannot be undone.", text=clean_line(text, 60)), yes=yes)
        forgotten = manager.forget(session, handle)
    if as_json:
        write_json(
            {"messages": forgotten.messages, "sections": forgotten.sections, "warnings": list(forgotten.warnings)}
        )
        return
    pages = (
        tr(" and {sections} of daily pages", sections=count_things(forgotten.sections, "section"))
        if forgotten.sections
        else ""
    )
    write_line(tr("forgot {messages}{pages}", messages=count_things(forgotten.messages, "message"), pages=pages))
    for warning in forgotten.warnings:
        write_line(tr("warning: {warning}", warning=warning))


def _confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigError(tr("not a terminal: pass --yes to confirm"))
    typer.confirm(clean_line(question, 300), abort=True, err=True)
