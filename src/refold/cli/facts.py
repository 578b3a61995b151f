"""``refold facts``: preferences, decisions, todos and key information collected from sessions."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from refold.cli.app import app
from refold.cli.input import (
    AsJson,
    Everywhere,
    SessionOption,
    Workspace,
    choose_session,
    find_newest,
    open_workspace,
    show_empty,
)
from refold.cli.output import clean_line, make_console, name_scope, print_line, write_json, write_line
from refold.cli.words import tr, translate

if TYPE_CHECKING:
    from refold.recall.facts import KnownFact

_LINE_CHARS_MAX = 300


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
        write_line(tr("no facts are known{name_scope} yet", name_scope=name_scope(name)))
    console = make_console(err=False)
    for fact in known:
        for line in _format(fact).split("\n"):
            print_line(console, line)


def _format(fact: KnownFact) -> str:
    from refold.conversation.message import mark

    handles = " ".join(mark(handle) for handle in fact.handles[-3:])
    said = f"{datetime.fromtimestamp(fact.last_seen, UTC):%Y-%m-%d}"
    seen = tr(" (last said {date})", date=said) if fact.last_seen > 0 else ""
    line = f"{translate(fact.kind)}: {clean_line(fact.text, _LINE_CHARS_MAX)} {handles}{seen}"
    replaced = tr("    replaced by: {fact}", fact=clean_line(fact.superseded_by, _LINE_CHARS_MAX))
    return line if fact.holds else f"{line}\n{replaced}"
