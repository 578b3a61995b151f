"""``refold recall``, ``expand``, ``facts`` and ``memory``: search, originals, facts and daily pages."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from refold.cli.app import app, format_examples
from refold.cli.input import choose_session, find_newest, need_session, open_workspace, show_empty
from refold.cli.options import AsJson, Everywhere, SessionOption, Workspace
from refold.cli.output import make_console, note, print_line, say, write_json
from refold.cli.words import clean_line, name_scope, strip_controls, tr
from refold.errors import FormatError, HandleUnknown

if TYPE_CHECKING:
    from rich.text import Text

    from refold.manager import ContextCompressionManager
    from refold.recall.facts import KnownFact
    from refold.recall.search import Recalled

SESSIONS_MAX = 1_000
_LINE_CHARS_MAX = 300


@app.command(
    epilog=format_examples('refold recall "which port"', "refold recall ERR-4711 --all", "refold expand m:4f2a91c3")
)
def recall(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words to search for, or an exact value.")],
    session: SessionOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, max=200, help="Maximum results.")] = 10,
    everywhere: Everywhere = False,
    workspace: Workspace = "",
    as_json: AsJson = False,
) -> None:
    """Search everything that was said, by words, meaning or value.

    Results are exact originals, each with its handle.
    """
    if not query.strip():
        raise typer.BadParameter(tr("the query is empty; give words or a value"), param_hint="QUERY")
    with open_workspace(workspace) as manager:
        name = choose_session(manager.ledger, session, everywhere=everywhere)
        if name is None and find_newest(manager.ledger) is None:
            show_empty(workspace, as_json=as_json)
            return
        found = manager.recalling.recall(name, query, limit)
    if as_json:
        write_json([asdict(one) for one in found])
        return
    if not found:
        elsewhere = "" if everywhere else tr("; --all searches every session of the workspace")
        say("nothing was found{scope}; try other words{elsewhere}", scope=name_scope(name), elsewhere=elsewhere)
    console = make_console(err=False)
    for one in found:
        console.print(_format_result(one, with_session=everywhere), soft_wrap=True)


def _format_result(one: Recalled, *, with_session: bool) -> Text:
    from rich.text import Text

    from refold.conversation.message import mark

    part = "" if one.is_whole else tr(", characters {start}–{stop}", start=one.start, stop=one.stop)
    where = tr(" in {session}", session=clean_line(one.session_id, 80)) if with_session else ""
    details = (
        tr(" {role}{where}{part}, score {score:.2f}", role=one.role, where=where, part=part, score=one.score),
        "dim",
    )
    return Text.assemble((mark(one.handle), "bold cyan"), details, f"\n{strip_controls(one.text).rstrip()}\n")


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
    for row in manager.ledger.list_sessions(limit=SESSIONS_MAX):
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
    line = f"{tr(fact.kind)}: {clean_line(fact.text, _LINE_CHARS_MAX)} {handles}{seen}"
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
        raise FormatError("there is no page of {date}; {known}", date=date, known=known)
    if as_json:
        write_json({"date": chosen, "dates": dates, "page": page})
    elif page is None:
        say("no pages yet: the first compression of a session writes one")
    else:
        sys.stdout.buffer.write(page.encode("utf-8", "backslashreplace"))
