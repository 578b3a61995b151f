"""The content of a workspace's sessions: the commands ``sessions``, ``log``, ``stats``, ``recall``, ``expand``,
``facts`` and ``memory``.

They print sessions, events, what compressions did, search results, originals, facts and daily pages.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from refold.cli.app import app, format_examples
from refold.cli.input import choose_session, find_newest, need_session, open_workspace, show_empty
from refold.cli.options import AsJson, Everywhere, Limit, SessionFilter, SessionOption, Workspace
from refold.cli.output import make_console, make_table, note, print_line, say, show_pairs, write_json, write_line
from refold.cli.words import (
    clean_line,
    count_things,
    describe_change,
    describe_share,
    find_language,
    format_time,
    name_scope,
    say_reason,
    strip_controls,
    tr,
)
from refold.errors import FormatError, HandleUnknown
from refold.sentences import describe_steps

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from refold.ledger.records import Event, SessionRow
    from refold.manager import ContextCompressionManager
    from refold.manager.status import LoggedDecision
    from refold.manager.usage import Bill, FoldEffect, SessionFigures
    from refold.recall.facts import KnownFact
    from refold.recall.search import Recalled


TITLE_CHARS = 40
OTHER_COLUMNS_WIDTH = 130  # The maximum width of the columns beside the id.
SESSIONS_MAX = 200
# How often --follow looks for new events, in seconds.
FOLLOW_S = 1.0
_SEARCHED_MAX = 1_000
_LINE_CHARS_MAX = 300

# Names of the codes of reasons in a table; see conversation/because.py.
REASONS = {
    "fold.hard": "over the limit",
    "fold.soft": "soft limit reached",
    "trigger.rounds": "message limit reached",
    "trigger.messages": "message limit reached",
    "trigger.tokens": "token limit reached",
    "trigger.turns": "turn limit reached",
    "trigger.reported": "the provider reported a nearly full window",
    "trigger.overflow": "the provider rejected a request as too long",
    "trigger.cut_off": "an answer was cut off",
    "trigger.manual": "requested manually",
    "trigger.tool": "requested by a tool",
    "economic.cliff": "before a higher price per token",
    "economic.cold": "the cache had expired",
    "economic.pays": "to save money",
    "economic.saves": "to save money",
    "auto.overridden": "had to run although automatic compression is off",
}


@app.command()
def sessions(limit: Limit = 100, workspace: Workspace = "", as_json: AsJson = False) -> None:
    """List the sessions of a workspace, the last changed first."""
    from rich.cells import cell_len

    from refold.manager.status import put_below, read_client, read_title

    with open_workspace(workspace) as manager:
        rows = manager.ledger.list_sessions(limit=limit)
        titles = {row.id: read_title(manager.ledger, row) for row in rows}
    if not rows:
        show_empty(workspace, as_json=as_json)
        return
    if as_json:
        write_json([_describe_row(row, titles[row.id]) for row in rows])
        return
    columns = ("session", "client", "first words", "messages", "tokens", "compressions", "model", "changed")
    table = make_table(*columns, numbers=("messages", "tokens", "compressions"), wide=("session",))
    for row, is_below in put_below(rows):
        table.add_row(
            ("↳ " if is_below else "") + clean_line(row.id, 500),
            clean_line(read_client(row), 16) or "·",
            _cut_title(titles[row.id]),
            f"{row.messages:,}",
            f"{row.tokens:,}",
            f"{row.compression_count:,}" if row.compression_count else "·",
            clean_line(row.model, 20) or "·",
            format_time(row.updated_at),
        )
    console = make_console(err=False)
    if not console.is_terminal:  # Programs read ids too: a pipe never gets a shortened one.
        console.width = max(console.width, max(cell_len(row.id) for row in rows) + OTHER_COLUMNS_WIDTH)
    console.print(table)


def _cut_title(title: str) -> Text:
    """Return a title that fits its column; a Chinese character takes two places."""
    from rich.text import Text

    cut = Text(clean_line(title, TITLE_CHARS) or "·")
    cut.truncate(TITLE_CHARS, overflow="ellipsis")
    return cut


def _describe_row(row: SessionRow, title: str) -> dict[str, object]:
    """Return a session as JSON, without the answers that its settings hold for clients."""
    from refold.manager.session_state import RESPONSES
    from refold.manager.status import read_client

    settings = {name: value for name, value in row.settings.items() if name != RESPONSES}
    return {**asdict(row), "settings": settings, "title": title, "client": read_client(row)}


@app.command(epilog=format_examples("refold log", "refold log --follow"))
def log(
    session: SessionOption = None,
    limit: Limit = 200,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print compressions of all sessions as they come.")
    ] = False,
    workspace: Workspace = "",
    as_json: AsJson = False,
) -> None:
    """Show the events of a session, oldest first."""
    if follow:
        _follow(workspace, session)
    from refold.cli.doctor import advise_larger_window, describe_small_window
    from refold.ledger.sql.ledger import read_all_events
    from refold.manager.notices import describe_fields

    with open_workspace(workspace) as manager:
        name = choose_session(manager.ledger, session)
        if name is None:
            show_empty(workspace, as_json=as_json)
            return
        events = list(islice(read_all_events(manager.ledger, name), limit))
        effects = _find_effects(events, manager.figures(name))
        row = manager.ledger.read_session(name)
        small = describe_small_window(manager, row) if row is not None and not as_json else ""
    if as_json:
        write_json(
            [
                {"id": event.id, "kind": event.kind, "at": event.created_at, **describe_fields(event)}
                | ({"effect": asdict(effects[event.id])} if event.id in effects else {})
                for event in events
            ]
        )
        return
    if not events:
        say("this session has messages but no events yet")
        return
    table = make_table("when", "what", "tokens", "why", wide=("why",), wraps=True)
    for event in events:
        before, after = event.fields.get("tokens_before"), event.fields.get("tokens_after")
        tokens = f"{before:,} → {after:,}" if isinstance(before, int) and isinstance(after, int) else "·"
        reason = clean_line(_describe_reason(event), 300)
        reason += _describe_effect(effects[event.id]) if event.id in effects else ""
        table.add_row(format_time(event.created_at), tr(event.kind), tokens, reason)
    make_console(err=False).print(table)
    if small:
        note("{found}; {advice}", found=small, advice=advise_larger_window())


def _find_effects(events: Sequence[Event], figures: SessionFigures) -> dict[int, FoldEffect]:
    """Return what each compression did to the requests after it, by the event's id."""
    from refold.manager.usage import find_effect

    folds = [event for event in events if event.kind == "compressed"]
    ends = [*(event.created_at for event in folds[1:]), math.inf]
    found = ((event.id, find_effect(figures, event.created_at, end)) for event, end in zip(folds, ends, strict=False))
    return {number: effect for number, effect in found if effect is not None}


def _describe_effect(effect: FoldEffect) -> str:
    said = tr("cache: {one.uncached:,} of {one.tokens:,} tokens of the next request were not in it", one=effect)
    if effect.dollars_saved is None:
        return f"; {said}"
    saved = tr(
        "{requests} until the next one saved ${dollars:,.2f}",
        requests=count_things(effect.requests, "request"),
        dollars=effect.dollars_saved,
    ).replace("$-", "-$")
    return f"; {said}; {saved}"


def _follow(workspace: str, session: str | None) -> NoReturn:
    """Print a line for each compression from now on, until Ctrl-C: for a second terminal beside an agent."""
    from refold.ledger.sql.ledger import read_all_events

    since = time.time()
    note("following {workspace}; Ctrl-C ends it", workspace=Path(workspace).resolve())
    with open_workspace(workspace) as manager:
        while True:
            rows = [row for row in manager.ledger.list_sessions(limit=20) if row.updated_at >= since]
            found = [
                (event, row.id)
                for row in rows
                if session in (None, row.id)
                for event in read_all_events(manager.ledger, row.id)
                if event.created_at > since and "tokens_after" in event.fields
            ]
            for event, name in sorted(found, key=lambda one: one[0].created_at):
                since = max(since, event.created_at)
                change = describe_change(
                    int(str(event.fields["tokens_before"])), int(str(event.fields["tokens_after"]))
                )
                when = datetime.fromtimestamp(event.created_at).strftime("%H:%M:%S")
                write_line(f"{when} {name} {tr(event.kind)} {change}; {_describe_reason(event)}")
            sys.stdout.flush()
            time.sleep(FOLLOW_S)


def _describe_reason(event: Event) -> str:
    from refold.conversation.reason import read_reason
    from refold.manager.notices import list_folds

    stages = event.fields.get("stages")
    by = describe_steps(stages.items() if isinstance(stages, dict) else (), find_language())
    reason = say_reason(read_reason(event.fields.get("reason")))
    folds = [
        tr("⟨{one.handle}⟩: {one.messages:,} messages, {one.tokens_before:,} → {one.tokens_after:,} tokens", one=one)
        for one in list_folds(event)
    ]
    return "; ".join([f"{reason} ({by})" if by else reason, *folds])


@app.command()
def stats(session: SessionFilter = None, workspace: Workspace = "", as_json: AsJson = False) -> None:
    """Show what compressions did: how often, why, by which stage."""
    from refold.manager.usage import Bill

    with open_workspace(workspace) as manager:
        if session is not None:
            choose_session(manager.ledger, session)  # Raises if there is no such session.
        found = manager.statistics(session)
        rows = manager.ledger.list_sessions(limit=SESSIONS_MAX)
        parts = [manager.figures(name) for name in ([session] if session else [row.id for row in rows])]
    bill, folded = sum((part.bill for part in parts), Bill()), sum(part.folded_away for part in parts)
    if as_json:
        dollars = {**asdict(bill), "dollars_saved": bill.dollars_saved}  # At list prices.
        write_json({**found.to_dict(), "folded_away": folded, "bill": dollars})
        return
    if not rows:
        show_empty(workspace, as_json=False)
        return
    console = make_console(err=False)
    made = tr("{one.compressions:,} ({one.manual:,} by hand, {one.undone:,} undone)", one=found)
    pairs = [("compressions", made)]
    away = tr("{count:,} tokens", count=folded)
    if found.compressions:
        share = describe_share(found.tokens_before, found.tokens_after)
        pairs.append(("tokens", f"{found.tokens_before:,} → {found.tokens_after:,}  {share}"))
    elif folded:
        away = tr("{count:,} tokens, by shortening outputs on arrival", count=folded)
    pairs += [("folded away", away), *_list_bill(bill)]
    if found.archived:
        size = tr("{count:,} messages", count=found.archived)
        if found.archived_tokens:
            size = tr("{one.archived:,} messages, {one.archived_tokens:,} tokens", one=found)
        pairs.append(("archived", size))
    if found.waited:
        pairs.append(("postponed", tr("{count:,} that would not have paid off yet", count=found.waited)))
    if found.skipped or found.failed or found.warned:
        other = tr("{one.skipped:,} skipped, {one.failed:,} failed, {one.warned:,} warnings", one=found)
        pairs.append(("other", other))
    show_pairs(console, pairs)
    for title, figures in (("stage", found.by_stage), ("reason", found.by_reason)):
        if figures:
            unit = "tokens freed" if title == "stage" else "times"
            table = make_table(title, unit, numbers=(unit,), wide=(title,), wraps=True)
            for name, figure in figures.items():
                words = tr(REASONS[name]) if name in REASONS else clean_line(name, 1_000)
                table.add_row(words, f"{figure:,}")
            console.print()
            console.print(table)
    if found.decisions:
        console.print()
        console.print(_list_decisions(found.decisions, with_session=session is None and found.sessions > 1))


def _list_bill(bill: Bill) -> list[tuple[str, str]]:
    """Return what providers reported and what it cost; empty if no provider reported usage."""
    if not bill.requests:
        return []
    sent = tr(
        "{bill.tokens:,} tokens in {bill.requests:,} requests, about {bill.tokens_raw:,} without refold", bill=bill
    )
    if not bill.priced:
        return [("sent", sent)]
    cost = tr("${bill.dollars:,.4f} at list prices, about ${bill.dollars_raw:,.4f} without refold", bill=bill)
    saved = tr("${dollars:,.4f} (estimated)", dollars=bill.dollars_saved)
    notes = tr("${dollars:,.4f}, which is in what was saved", dollars=bill.dollars_summaries)
    rows = [("notes by a model", notes)] if bill.dollars_summaries else []
    return [("sent", sent), ("bill", cost), *rows, ("saved", saved)]


def _list_decisions(decisions: Sequence[LoggedDecision], *, with_session: bool) -> Table:
    """Return a table of the newest decisions with their reasons, the newest last."""
    done = {"compressed": tr("folded: "), "skipped": tr("nothing done: "), "failed": tr("failed: ")}
    columns = ["when", *(["session"] if with_session else []), "tokens", "decision"]
    table = make_table(*columns, numbers=("tokens",), wide=("decision",), wraps=True)
    for one in decisions:
        sizes = f"{one.tokens_before:,}" + (f" → {one.tokens_after:,}" if one.tokens_after != one.tokens_before else "")
        name = [clean_line(one.session_id, 12)] if with_session else []
        words = done.get(one.kind, "") + (say_reason(one.reason) or tr("no reason recorded"))
        table.add_row(format_time(one.time), *name, sizes, clean_line(words, 1_000))
    return table


@app.command(
    epilog=format_examples(
        'refold recall "which port"', "refold recall ERR-4711 --session work --only", "refold expand m:4f2a91c3"
    )
)
def recall(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words to search for, or an exact value.")],
    session: SessionOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, max=200, help="Maximum results.")] = 10,
    everywhere: Everywhere = False,
    only: Annotated[bool, typer.Option("--only", help="One session without those that it continues.")] = False,
    workspace: Workspace = "",
    as_json: AsJson = False,
) -> None:
    """Search everything that was said, by words, meaning or value.

    Without a session, all of them are searched; a session is searched with those that it continues.
    Results are exact originals, each with its handle.
    """
    if not query.strip():
        raise typer.BadParameter(tr("the query is empty; give words or a value"), param_hint="QUERY")
    with open_workspace(workspace) as manager:
        name = choose_session(manager.ledger, session, everywhere=everywhere or (session is None and not only))
        if name is None and find_newest(manager.ledger) is None:
            show_empty(workspace, as_json=as_json)
            return
        name = None if everywhere else name
        found = manager.recalling.recall(name, query, limit, only=only)
        rows = manager.ledger.list_sessions(limit=_SEARCHED_MAX) if name is None else []
        ready = manager.recalling.count_ready(rows)
    if ready < len(rows):
        note(
            "{ready} of {total} sessions are indexed so far; search again for the others", ready=ready, total=len(rows)
        )
    if as_json:
        write_json([asdict(one) for one in found])
        return
    if not found:
        elsewhere = "" if name is None else tr("; --all searches every session of the workspace")
        say("nothing was found{scope}; try other words{elsewhere}", scope=name_scope(name), elsewhere=elsewhere)
    console = make_console(err=False)
    for one in found:
        console.print(_format_result(one, with_session=one.session_id != name), soft_wrap=True)


def _format_result(one: Recalled, *, with_session: bool) -> Text:
    from rich.text import Text

    from refold.conversation.message import mark

    part = "" if one.is_whole else tr(", characters {start}–{stop}", start=one.start, stop=one.stop)
    where = tr(" in {session}", session=clean_line(one.session_id, 80)) if with_session else ""
    details = (
        tr(" {role}{where}{part}, score {score:.2f}", role=one.role, where=where, part=part, score=one.score),
        "dim",
    )
    lines: list[str | tuple[str, str]] = []
    for said in one.said:
        head = details if said.handle == one.handle else (f" {said.role}", "dim")
        lines += [(mark(said.handle), "bold cyan"), head, f"\n{strip_controls(said.text).rstrip()}\n"]
    return Text.assemble(*lines)


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
        note(
            "--offset {offset} is past the end; the original has {total:,} characters", offset=offset, total=page.total
        )
        return
    # A pipe gets the exact original; a terminal would obey control sequences in it.
    typer.echo(strip_controls(text) if sys.stdout.isatty() else text, color=True)
    if page.next_offset is not None:
        shown = tr("characters {start}–{stop} of {total}", start=page.offset, stop=page.next_offset, total=page.total)
        note("{shown}; continue with --offset {next_offset}", shown=shown, next_offset=page.next_offset)


def _find_session(manager: ContextCompressionManager, newest: str, handle: str) -> str:
    """Return the first session that has the handle, the newest one first; print its id if it is another one."""
    for row in manager.ledger.list_sessions(limit=_SEARCHED_MAX):
        with contextlib.suppress(HandleUnknown):
            manager.recalling.expand(row.id, handle, 0, 0)
            if row.id != newest:
                note("found in session {id}", id=clean_line(row.id, 200))
            return row.id
    return newest  # Expanding there raises HandleUnknown.


@app.command()
def facts(
    session: SessionOption = None,
    everywhere: Everywhere = False,
    with_history: Annotated[bool, typer.Option("--history", help="Include superseded facts.")] = False,
    workspace: Workspace = "",
    as_json: AsJson = False,
) -> None:
    """List preferences, decisions, todos and key information."""
    with open_workspace(workspace) as manager:
        name = choose_session(manager.ledger, session, everywhere=everywhere)
        if name is None and find_newest(manager.ledger) is None:
            show_empty(workspace, as_json=as_json)
            return
        known = manager.facts(name, with_history=with_history)
    if as_json:
        write_json([asdict(fact) for fact in known])
        return
    if not known:
        say("no facts are known{scope} yet", scope=name_scope(name))
    console = make_console(err=False)
    for fact in known:
        for line in _format_fact(fact).split("\n"):
            print_line(console, line)


def _format_fact(fact: KnownFact) -> str:
    from refold.conversation.message import mark

    handles = " ".join(mark(handle) for handle in fact.handles[-3:])
    said = f"{datetime.fromtimestamp(fact.last_seen, UTC):%Y-%m-%d}"
    seen = tr(" (last said {date})", date=said) if fact.last_seen > 0 else ""
    line = f"{tr(fact.kind)}{tr(': ')}{clean_line(fact.text, _LINE_CHARS_MAX)} {handles}{seen}"
    replaced = tr("    replaced by: {fact}", fact=clean_line(fact.superseded_by, _LINE_CHARS_MAX))
    return line if fact.holds else f"{line}\n{replaced}"


@app.command()
def memory(
    date: Annotated[str | None, typer.Argument(metavar="DATE", help="YYYY-MM-DD; default: the newest page.")] = None,
    workspace: Workspace = "",
    as_json: AsJson = False,
) -> None:
    """Print the memory page of a day."""
    with open_workspace(workspace) as manager:
        dates = manager.md_sync.list_dates()
        chosen = date or (dates[-1] if dates else None)
        page = manager.md_sync.read(chosen) if chosen else None
    if date is not None and page is None:
        known = tr("the newest are {dates}", dates=", ".join(dates[-5:])) if dates else tr("there are no pages yet")
        raise FormatError("there is no page for {date}; {known}", date=date, known=known)
    if as_json:
        write_json({"date": chosen, "dates": dates, "page": page})
    elif page is None:
        say("no pages yet: the first compression of a session writes one")
    else:
        sys.stdout.buffer.write(page.encode("utf-8", "backslashreplace"))
