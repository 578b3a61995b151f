"""``refold look``: what the agents on this machine did lately, what it cost, and what refold would have saved."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from refold.cli.app import app, format_examples
from refold.cli.options import AsJson
from refold.cli.output import make_console, make_table, note, print_line, show_progress, write_json, write_result
from refold.cli.words import clean_line, count_things, tr, use_language

if TYPE_CHECKING:
    from rich.table import Table

    from refold.look.report import LookReport

DAY_S = 86_400


@app.command(
    "look",
    epilog=format_examples("refold look", "refold look --days 30 --out report.html"),
)
def look_back(
    days: Annotated[int, typer.Option("--days", metavar="N", min=1, max=36_500, help="How far to look back.")] = 7,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Also write a page to share: figures only, no text.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what your agents did last week, what it cost, and the saving.

    Finds the histories of Claude Code, Codex, opencode, Qwen Code, pi and aider on this machine. The next time it reads
    only what is new. Nothing leaves the machine.
    """
    from refold.config import load_config
    from refold.config.load import copy_environment
    from refold.look.report import describe_look, sum_up, write_look_page
    from refold.look.run import look

    use_language(load_config().language)
    with show_progress(tr("reading histories")) as advance:
        studies, read = look(copy_environment(), time.time() - days * DAY_S, tell=advance)
    found = sum_up(studies)
    if out is not None:
        write_result(write_look_page(found, days), out)
    if as_json:
        write_json(describe_look(found, days))
        return
    if not studies:
        note("no session of the last {days} days found; 'refold look --days 30' looks further back", days=days)
        return
    _show(found, days, read)


def _show(found: LookReport, days: int, read: int) -> None:
    from refold.conversation.reason import shorten_number
    from refold.look.report import ADVICE, list_notes
    from refold.look.study import USUAL_MODEL

    console = make_console(err=False)
    sizes = {"tokens": shorten_number(found.tokens), "dollars": f"{found.dollars:,.2f}"}
    counts = {"sessions": count_things(found.sessions, "session"), "requests": count_things(found.requests, "request")}
    print_line(
        console, tr("{days} days: {sessions}, {requests}, {tokens} tokens, ${dollars}", days=days, **sizes, **counts)
    )
    for table in (_list_clients(found), _list_windows(found), *_list_full(found)):
        console.print()
        console.print(table)
    if found.repeated:
        twice = {"repeated": found.repeated, "reads": found.reads, "tokens": found.repeated_tokens}
        console.print()
        print_line(console, tr("read twice, unchanged: {repeated:,} of {reads:,} reads, {tokens:,} tokens", **twice))
    habits = make_table("habit", "cost", numbers=("cost",), wide=("habit",), wraps=True)
    for name, cost in found.habits:
        habits.add_row(tr(ADVICE[name]), f"${cost:,.2f}")
    console.print()
    console.print(habits)
    console.print()
    for line in list_notes(found):
        print_line(console, tr(line, like=USUAL_MODEL, models=clean_line(", ".join(found.unpriced), 200)))
    note("{read} read now; the rest was known", read=count_things(read, "file"))


def _list_clients(found: LookReport) -> Table:
    from refold.conversation.reason import shorten_number

    table = make_table("client", "sessions", "tokens", "bill", numbers=("sessions", "tokens", "bill"))
    for name, count, size, cost in found.clients:
        table.add_row(name, f"{count:,}", shorten_number(size), f"${cost:,.2f}")
    return table


def _list_windows(found: LookReport) -> Table:
    table = make_table("with refold", "bill", "saved", "folds", numbers=("bill", "saved", "folds"))
    for window in found.windows:
        saved = f"{1 - window.dollars / found.dollars:.0%}" if found.dollars else "-"
        table.add_row(f"{window.window // 1000}k", f"${window.dollars:,.2f}", saved, f"{window.folds:,}")
    return table


def _list_full(found: LookReport) -> list[Table]:
    from refold.look.report import OVERFLOWS_MAX

    if not found.overflowed:
        return []
    numbers = ("requests", "largest", "compactions", "lost")
    table = make_table("filled the window", "model", "requests", "largest", "compactions", "lost", numbers=numbers)
    for one in found.overflowed[:OVERFLOWS_MAX]:
        lost = tr("{lost} of {used}", lost=one.lost, used=one.used) if one.used else "-"
        model = clean_line(one.model, 40) or "-"
        table.add_row(one.client, model, f"{one.requests:,}", f"{one.peak:,}", f"{one.compactions}", lost)
    return [table]
