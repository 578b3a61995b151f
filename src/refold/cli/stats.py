"""``refold stats``: what compressions did over a session or a workspace (S1.9)."""

from __future__ import annotations

from refold.cli.render import describe_share, make_console, make_table, show_pairs
from refold.cli.workspace import open_workspace, write_json
from refold.manager.status import gather_statistics


def run(workspace: str, session: str | None, *, as_json: bool) -> None:
    """Print the figures of the event log."""
    with open_workspace(workspace) as manager:
        if session is not None:
            manager.status(session)  # Says so if there is no such session.
        found = gather_statistics(manager.ledger, session)
    if as_json:
        write_json(found.to_dict())
        return
    console = make_console(err=False)
    told = [
        ("compressions", f"{found.compressions:,} ({found.manual:,} by hand, {found.undone:,} undone)"),
        ("tokens", f"{found.tokens_before:,} → {found.tokens_after:,}"),
        ("archived", f"{found.archived:,} messages"),
        ("beside", f"{found.skipped:,} skipped, {found.failed:,} failed, {found.warned:,} warnings"),
    ]
    if found.compressions:
        told[1] = ("tokens", f"{told[1][1]}  {describe_share(found.tokens_before, found.tokens_after)}")
    show_pairs(console, told)
    for title, figures in (("stage", found.by_stage), ("reason", found.by_reason)):
        if figures:
            unit = "tokens freed" if title == "stage" else "times"
            table = make_table(title, unit, numbers=(unit,), wide=(title,))
            for name, figure in figures.items():
                table.add_row(name, f"{figure:,}")
            console.print()
            console.print(table)
