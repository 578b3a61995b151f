"""``refold delete`` and ``refold forget``: the two commands that erase. They ask first."""

from __future__ import annotations

import sys

import typer

from refold.cli.reading import write_json
from refold.cli.render import clean_line, count_things
from refold.cli.workspace import open_workspace, write_line
from refold.errors import ConfigError


def run_delete(workspace: str, session: str, *, yes: bool, as_json: bool) -> None:
    """Delete a session after asking."""
    with open_workspace(workspace) as manager:
        status = manager.status(session)
        _ask(f"delete session {session!r} with {count_things(status.messages, 'message')}? there is no undo", yes=yes)
        manager.delete_session(session)
    if as_json:
        write_json({"deleted": session, "messages": status.messages})
    else:
        write_line(f"deleted {session!r} with {count_things(status.messages, 'message')}")


def run_forget(workspace: str, session: str, handle: str, *, yes: bool, as_json: bool) -> None:
    """Erase what is behind a handle after asking."""
    with open_workspace(workspace) as manager:
        text = manager.expand(session, handle, 0, 200)
        _ask(f"erase {clean_line(text, 60)!r} for good? there is no undo", yes=yes)
        forgotten = manager.forget(session, handle)
    if as_json:
        write_json(
            {"messages": forgotten.messages, "sections": forgotten.sections, "warnings": list(forgotten.warnings)}
        )
        return
    pages = f" and {count_things(forgotten.sections, 'section')} of daily pages" if forgotten.sections else ""
    write_line(f"forgot {count_things(forgotten.messages, 'message')}{pages}")
    for warning in forgotten.warnings:
        write_line(f"warning: {warning}")


def _ask(question: str, *, yes: bool) -> None:
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigError("this erases for good and nobody is there to ask; give --yes if that is meant")
    typer.confirm(clean_line(question, 300), abort=True, err=True)
