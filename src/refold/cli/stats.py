"""``refold stats``: what compressions did over a session or a workspace (S1.9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from refold.cli.reading import write_json
from refold.cli.render import clean_line, describe_share, make_console, make_table, show_pairs
from refold.cli.workspace import choose_session, find_newest, open_workspace, tell_empty, tell_time
from refold.manager.status import Told

if TYPE_CHECKING:
    from rich.table import Table


def run(workspace: str, session: str | None, *, as_json: bool) -> None:
    """Print the figures of the event log."""
    with open_workspace(workspace) as manager:
        if session is not None:
            choose_session(manager.ledger, session)  # Says so if there is no such session.
        found = manager.statistics(session)
        is_empty = find_newest(manager.ledger) is None
    if as_json:
        write_json(found.to_dict())
        return
    if is_empty:
        tell_empty(workspace, as_json=False)
        return
    console = make_console(err=False)
    told = [
        ("compressions", f"{found.compressions:,} ({found.manual:,} by hand, {found.undone:,} undone)"),
        ("tokens", f"{found.tokens_before:,} → {found.tokens_after:,}"),
        ("archived", f"{found.archived:,} messages"),
        ("put off", f"{found.waited:,} that did not pay yet"),
        ("beside", f"{found.skipped:,} skipped, {found.failed:,} failed, {found.warned:,} warnings"),
    ]
    if found.compressions:
        told[1] = ("tokens", f"{told[1][1]}  {describe_share(found.tokens_before, found.tokens_after)}")
    show_pairs(console, told)
    for title, figures in (("stage", found.by_stage), ("reason", found.by_reason)):
        if figures:
            unit = "tokens freed" if title == "stage" else "times"
            table = make_table(title, unit, numbers=(unit,), wide=(title,), wraps=True)
            for name, figure in figures.items():
                table.add_row(clean_line(name, 1_000), f"{figure:,}")
            console.print()
            console.print(table)
    if found.decisions:
        console.print()
        console.print(make_decisions(found.decisions, with_session=session is None and found.sessions > 1))


def make_decisions(decisions: Sequence[Told], *, with_session: bool) -> Table:
    """Return the newest decisions, the last one below, each with its whole reason."""
    columns = ["when", *(["session"] if with_session else []), "tokens", "decision"]
    table = make_table(*columns, numbers=("tokens",), wide=("decision",), wraps=True)
    for one in decisions:
        sizes = f"{one.tokens_before:,}" + (f" → {one.tokens_after:,}" if one.tokens_after != one.tokens_before else "")
        name = [clean_line(one.session_id, 12)] if with_session else []
        table.add_row(tell_time(one.time), *name, sizes, clean_line(_explain(one), 1_000))
    return table


def _explain(decision: Told) -> str:
    """Return what was decided and why, as one sentence."""
    done = {"compressed": "folded: ", "skipped": "nothing done: ", "failed": "failed: "}
    return f"{done.get(decision.kind, '')}{decision.reason or 'no reason was given'}"
