"""``refold log``: the events of a session, with their reasons."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from refold.cli.app import app
from refold.cli.input import AsJson, Limit, SessionOption, Workspace, choose_session, open_workspace, show_empty
from refold.cli.output import clean_line, format_time, make_console, make_table, write_json, write_line
from refold.cli.words import say_reason, tr, translate

if TYPE_CHECKING:
    from refold.ledger.records import Event


@app.command()
def log(session: SessionOption = None, limit: Limit = 200, workspace: Workspace = "", as_json: AsJson = False) -> None:
    """Show the events of a session, oldest first."""
    from rich.text import Text

    from refold.manager.notices import describe_fields, read_all_events

    with open_workspace(workspace) as manager:
        name = choose_session(manager.ledger, session)
        if name is None:
            show_empty(workspace, as_json=as_json)
            return
        events = list(islice(read_all_events(manager.ledger, name), limit))
    if as_json:
        write_json(
            [{"id": event.id, "kind": event.kind, "at": event.created_at, **describe_fields(event)} for event in events]
        )
        return
    if not events:
        write_line(tr("this session has messages but no events yet"))
        return
    table = make_table("when", "what", "tokens", "why", wide=("why",), wraps=True)
    for event in events:
        reason = Text(clean_line(_describe_reason(event), 300))
        table.add_row(format_time(event.created_at), translate(event.kind), _describe_tokens(event), reason)
    make_console(err=False).print(table)


def _describe_tokens(event: Event) -> str:
    before, after = event.fields.get("tokens_before"), event.fields.get("tokens_after")
    return f"{before:,} → {after:,}" if isinstance(before, int) and isinstance(after, int) else "·"


def _describe_reason(event: Event) -> str:
    from refold.conversation.reason import read_reason

    stages = event.fields.get("stages")
    by = ", ".join(f"{stage} {-freed:+,}" for stage, freed in stages.items()) if isinstance(stages, dict) else ""
    reason = say_reason(read_reason(event.fields.get("reason")))
    return f"{reason} ({by})" if by else reason
