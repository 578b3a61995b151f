"""``refold stats``: figures on the compressions of a session or a workspace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from refold.cli.app import app
from refold.cli.input import (
    AsJson,
    SessionFilter,
    Workspace,
    choose_session,
    find_newest,
    open_workspace,
    show_empty,
)
from refold.cli.output import (
    clean_line,
    describe_share,
    format_time,
    make_console,
    make_table,
    show_pairs,
    write_json,
)
from refold.cli.words import say_reason, tr

if TYPE_CHECKING:
    from rich.table import Table

    from refold.manager import ContextCompressionManager
    from refold.manager.status import Told
    from refold.manager.usage import Bill

SESSIONS_MAX = 200


@app.command()
def stats(session: SessionFilter = None, workspace: Workspace = "", as_json: AsJson = False) -> None:
    """Show what compressions did: how often, why, by which stage."""
    with open_workspace(workspace) as manager:
        if session is not None:
            choose_session(manager.ledger, session)  # Raises if there is no such session.
        found = manager.statistics(session)
        is_empty = find_newest(manager.ledger) is None
        bill, folded = _add_up(manager, session)
    if as_json:
        write_json({**found.to_dict(), "folded_away": folded, "bill": describe_bill(bill)})
        return
    if is_empty:
        show_empty(workspace, as_json=False)
        return
    console = make_console(err=False)
    rows = [
        (
            "compressions",
            tr(
                "{all:,} ({manual:,} by hand, {undone:,} undone)",
                all=found.compressions,
                manual=found.manual,
                undone=found.undone,
            ),
        ),
        ("tokens", f"{found.tokens_before:,} → {found.tokens_after:,}"),
        ("archived", tr("{count:,} messages", count=found.archived)),
        ("postponed", tr("{count:,} that would not have paid off yet", count=found.waited)),
        (
            "other",
            tr(
                "{skipped:,} skipped, {failed:,} failed, {warned:,} warnings",
                skipped=found.skipped,
                failed=found.failed,
                warned=found.warned,
            ),
        ),
    ]
    rows[2:2] = [("folded away", tr("{count:,} tokens", count=folded)), *_list_bill(bill)]
    if found.compressions:
        rows[1] = ("tokens", f"{rows[1][1]}  {describe_share(found.tokens_before, found.tokens_after)}")
    show_pairs(console, rows)
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
        console.print(_list_decisions(found.decisions, with_session=session is None and found.sessions > 1))


def _add_up(manager: ContextCompressionManager, session: str | None) -> tuple[Bill, int]:
    """Return the bill and the tokens folded away, of a session or of all."""
    from refold.manager.usage import Bill

    names = [session] if session is not None else [row.id for row in manager.ledger.list_sessions(limit=SESSIONS_MAX)]
    figures = [manager.figures(name) for name in names]
    return sum((one.bill for one in figures), Bill()), sum(one.folded_away for one in figures)


def describe_bill(bill: Bill) -> dict[str, object]:
    """Return a bill as plain values, for JSON; amounts are dollars at list prices."""
    return {**asdict(bill), "dollars_saved": bill.dollars_saved}


def _list_bill(bill: Bill) -> list[tuple[str, str]]:
    """Return what providers reported and what it cost; nothing where no provider reported anything."""
    if not bill.requests:
        return []
    rows = [
        (
            "sent",
            tr(
                "{tokens:,} tokens in {requests:,} requests, about {raw:,} without refold",
                tokens=bill.tokens,
                requests=bill.requests,
                raw=bill.tokens_raw,
            ),
        )
    ]
    if bill.priced:
        rows.append(
            (
                "bill",
                tr(
                    "${dollars:,.4f} at list prices, about ${raw:,.4f} without refold",
                    dollars=bill.dollars,
                    raw=bill.dollars_raw,
                ),
            )
        )
        rows.append(("saved", tr("${dollars:,.4f} (estimated)", dollars=bill.dollars_saved)))
    return rows


def _list_decisions(decisions: Sequence[Told], *, with_session: bool) -> Table:
    """Return a table of the newest decisions with their reasons, the newest last."""
    columns = ["when", *(["session"] if with_session else []), "tokens", "decision"]
    table = make_table(*columns, numbers=("tokens",), wide=("decision",), wraps=True)
    for one in decisions:
        sizes = f"{one.tokens_before:,}" + (f" → {one.tokens_after:,}" if one.tokens_after != one.tokens_before else "")
        name = [clean_line(one.session_id, 12)] if with_session else []
        table.add_row(format_time(one.time), *name, sizes, clean_line(_explain(one), 1_000))
    return table


def _explain(decision: Told) -> str:
    """Return a decision and its reason as one sentence."""
    done = {"compressed": tr("folded: "), "skipped": tr("nothing done: "), "failed": tr("failed: ")}
    return done.get(decision.kind, "") + (say_reason(decision.reason) or tr("no reason recorded"))
