"""``refold verify``: check the ledger and, if asked, rebuild derived data."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from refold.cli.app import app
from refold.cli.input import AsJson, SessionFilter, Workspace, choose_session, open_workspace
from refold.cli.output import write_json, write_line
from refold.cli.words import count_things, tr
from refold.errors import LedgerError

if TYPE_CHECKING:
    from refold import ContextCompressionManager


@app.command()
def verify(
    session: SessionFilter = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Rebuild derived data; copy what a damaged file still holds to a new one.")
    ] = False,
    workspace: Workspace = "",
    as_json: AsJson = False,
) -> None:
    """Check every hash, flag, count and file of the ledger.

    Everything is recomputed. Differences are listed, and the exit code is 1 if any remains.
    """
    with open_workspace(workspace) as manager:
        if session is not None:
            choose_session(manager.ledger, session)  # Raises if there is no such session.
        try:
            findings = manager.verify(session, repair=repair)
        except LedgerError as error:
            from refold.ledger.sqlite_file import is_damaged  # Loads the database library, which help does not need.

            if not repair or not is_damaged(error):
                raise
            _salvage(manager, str(error), as_json=as_json)
        if repair and any(one.what.startswith("database:") and not one.is_derived for one in findings):
            _salvage(manager, tr("the database is damaged"), as_json=as_json)
        left = manager.verify(session) if repair and findings else findings
        count = len(manager.ledger.list_sessions(limit=1_000_000)) if session is None else 1
    if as_json:
        write_json({"findings": [asdict(one) for one in findings], "left": [asdict(one) for one in left]})
    else:
        for finding in findings:
            kind = tr("derived") if finding.is_derived else tr("ORIGINAL")
            write_line(f"{finding.session_id or tr('ledger')}: {finding.what} [{kind}]")
        if not findings:
            write_line(tr("{count} verified: nothing differs", count=count_things(count, "session")))
        elif repair:
            write_line(
                tr(
                    "{findings} repaired, {left:,} left",
                    findings=count_things(len(findings) - len(left), "finding"),
                    left=len(left),
                )
            )
        else:
            write_line(
                tr("{findings}; --repair rebuilds derived data", findings=count_things(len(findings), "finding"))
            )
    if left:
        raise typer.Exit(1)


def _salvage(manager: ContextCompressionManager, why: str, *, as_json: bool) -> NoReturn:
    """Copy what can be read of a damaged ledger to a new file, say what is lost, and exit with 1."""
    made = manager.salvage()
    if as_json:
        lost = [asdict(one) for one in made.lost]
        write_json({"salvaged": str(made.path), "sessions": made.sessions, "messages": made.messages, "lost": lost})
        raise typer.Exit(1)
    write_line(why)
    for finding in made.lost:
        write_line(f"{finding.session_id or tr('ledger')}: {finding.what} [{tr('LOST')}]")
    if not made.lost:
        write_line(tr("nothing is lost"))
    sessions, messages = count_things(made.sessions, "session"), count_things(made.messages, "message")
    write_line(tr("copied {sessions} with {messages} to {path}", sessions=sessions, messages=messages, path=made.path))
    write_line(
        tr("the damaged file was not changed: stop refold, keep it elsewhere, and move the new file to its place")
    )
    raise typer.Exit(1)
