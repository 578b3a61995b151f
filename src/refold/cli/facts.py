"""``refold facts``: preferences, decisions, todos and key information of a session, and what replaced what."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime

from refold.cli.reading import write_json
from refold.cli.recall import say_where
from refold.cli.render import clean_line, make_console, print_line
from refold.cli.workspace import choose_session, find_newest, open_workspace, tell_empty, write_line
from refold.conversation.handle import mark
from refold.recall.facts import KnownFact

_LINE_CHARS_MAX = 300


def run(session: str | None, workspace: str, *, everywhere: bool, with_history: bool, as_json: bool) -> None:
    """Print facts, one a line, grouped as they were said."""
    with open_workspace(workspace) as manager:
        name = choose_session(manager.ledger, session, everywhere=everywhere)
        if name is None and find_newest(manager.ledger) is None:
            tell_empty(workspace, as_json=as_json)
            return
        facts = manager.facts(name, with_history=with_history)
    if as_json:
        write_json([asdict(fact) for fact in facts])
        return
    if not facts:
        write_line(f"no facts are known{say_where(name)} yet")
    console = make_console(err=False)
    for fact in facts:
        for line in _write(fact).split("\n"):
            print_line(console, line)


def _write(fact: KnownFact) -> str:
    handles = " ".join(mark(handle) for handle in fact.handles[-3:])
    seen = f" (last said {datetime.fromtimestamp(fact.last_seen, UTC):%Y-%m-%d})" if fact.last_seen > 0 else ""
    line = f"{fact.kind}: {clean_line(fact.text, _LINE_CHARS_MAX)} {handles}{seen}"
    return line if fact.holds else f"{line}\n    replaced by: {clean_line(fact.superseded_by, _LINE_CHARS_MAX)}"
