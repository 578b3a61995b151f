"""``refold verify``: check the ledger and, if asked, rebuild derived data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from refold.cli.app import app
from refold.cli.input import AsJson, SessionFilter, Workspace, choose_session, open_workspace
from refold.cli.output import write_json, write_line
from refold.cli.words import count_things, tr


@app.command()
def verify(
    session: SessionFilter = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Rebuild derived data; originals are never changed.")
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
        findings = manager.verify(session, repair=repair)
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
