"""``refold verify``: whether everything in the record is what it should be."""

from __future__ import annotations

from dataclasses import asdict

import typer

from refold.cli.reading import write_json
from refold.cli.render import count_things
from refold.cli.workspace import choose_session, open_workspace, write_line


def run(workspace: str, session: str | None, *, repair: bool, as_json: bool) -> None:
    """Print what differs; end with exit code 1 if anything does that was not repaired."""
    with open_workspace(workspace) as manager:
        if session is not None:
            choose_session(manager.ledger, session)  # Says so if there is no such session.
        findings = manager.verify(session, repair=repair)
        left = manager.verify(session) if repair and findings else findings
        count = len(manager.ledger.list_sessions(limit=1_000_000)) if session is None else 1
    if as_json:
        write_json({"findings": [asdict(one) for one in findings], "left": [asdict(one) for one in left]})
    else:
        for finding in findings:
            kind = "derived" if finding.is_derived else "ORIGINAL"
            write_line(f"{finding.session_id or 'ledger'}: {finding.what} [{kind}]")
        if not findings:
            write_line(f"{count_things(count, 'session')} verified: nothing differs")
        elif repair:
            write_line(f"{count_things(len(findings) - len(left), 'finding')} repaired, {len(left):,} left")
        else:
            write_line(f"{count_things(len(findings), 'finding')}; --repair rebuilds what is derived")
    if left:
        raise typer.Exit(1)
