"""``refold log``: what happened to a session, and why."""

from __future__ import annotations

from itertools import islice

from rich.text import Text

from refold.cli.reading import write_json
from refold.cli.render import clean_line, make_console, make_table
from refold.cli.workspace import choose_session, open_workspace, tell_empty, tell_time, write_line
from refold.conversation.reason import read_reason
from refold.ledger.records import Event
from refold.manager.notices import describe_fields, read_all_events


def run(workspace: str, session: str | None, limit: int, *, as_json: bool) -> None:
    """Print a session's events, oldest first."""
    with open_workspace(workspace) as manager:
        name = choose_session(manager.ledger, session)
        if name is None:
            tell_empty(workspace, as_json=as_json)
            return
        events = list(islice(read_all_events(manager.ledger, name), limit))
    if as_json:
        write_json(
            [{"id": event.id, "kind": event.kind, "at": event.created_at, **describe_fields(event)} for event in events]
        )
        return
    if not events:
        write_line("nothing happened to this session yet but messages")
        return
    table = make_table("when", "what", "tokens", "why", wide=("why",), wraps=True)
    for event in events:
        table.add_row(
            tell_time(event.created_at), event.kind, _tell_tokens(event), Text(clean_line(_tell_why(event), 300))
        )
    make_console(err=False).print(table)


def _tell_tokens(event: Event) -> str:
    before, after = event.fields.get("tokens_before"), event.fields.get("tokens_after")
    return f"{before:,} → {after:,}" if isinstance(before, int) and isinstance(after, int) else "·"


def _tell_why(event: Event) -> str:
    stages = event.fields.get("stages")
    by = ", ".join(f"{stage} {-freed:+,}" for stage, freed in stages.items()) if isinstance(stages, dict) else ""
    reason = str(read_reason(event.fields.get("reason")))
    return f"{reason} ({by})" if by else reason
