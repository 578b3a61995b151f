"""``refold sessions``: list the sessions of a workspace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from refold.cli.app import app
from refold.cli.input import AsJson, Limit, Workspace, open_workspace, show_empty
from refold.cli.output import clean_line, format_time, make_console, make_table, write_json

if TYPE_CHECKING:
    from refold.ledger.records import SessionRow

TITLE_CHARS = 40
OTHER_COLUMNS_WIDTH = 130  # What the columns beside the id need at most.


@app.command()
def sessions(limit: Limit = 100, workspace: Workspace = "", as_json: AsJson = False) -> None:
    """List the sessions of a workspace, the last changed first."""
    from rich.cells import cell_len
    from rich.text import Text

    from refold.manager.status import read_client, read_title

    with open_workspace(workspace) as manager:
        rows = manager.ledger.list_sessions(limit=limit)
        titles = {row.id: read_title(manager.ledger, row) for row in rows}
    if not rows:
        show_empty(workspace, as_json=as_json)
        return
    if as_json:
        write_json([_describe(row, titles[row.id]) for row in rows])
        return
    columns = ("session", "client", "first words", "messages", "tokens", "compressions", "model", "changed")
    table = make_table(*columns, numbers=("messages", "tokens", "compressions"), wide=("session",))
    for row, is_below in _put_below(rows):
        table.add_row(
            Text(f"↳ {clean_line(row.id, 500)}" if is_below else clean_line(row.id, 500)),
            Text(clean_line(read_client(row), 16) or "·"),
            Text(clean_line(titles[row.id], TITLE_CHARS) or "·"),
            f"{row.messages:,}",
            f"{row.tokens:,}",
            f"{row.compression_count:,}" if row.compression_count else "·",
            Text(clean_line(row.model, 20) or "·"),
            format_time(row.updated_at),
        )
    console = make_console(err=False)
    if not console.is_terminal:  # Programs read ids too: a pipe never gets a shortened one.
        console.width = max(console.width, max(cell_len(row.id) for row in rows) + OTHER_COLUMNS_WIDTH)
    console.print(table)


def _describe(row: SessionRow, title: str) -> dict[str, object]:
    """Return a session as JSON, without the answers that its settings hold for clients."""
    from refold.manager.session import RESPONSES
    from refold.manager.status import read_client

    settings = {name: value for name, value in row.settings.items() if name != RESPONSES}
    return {**asdict(row), "settings": settings, "title": title, "client": read_client(row)}


def _read_parent(row: SessionRow) -> str:
    """Return the session that the gateway recorded as a session's parent."""
    from refold.llm.choose import GATEWAY

    made = row.settings.get(GATEWAY)
    return str(made.get("parent", "")) if isinstance(made, dict) else ""


def _put_below(rows: Sequence[SessionRow]) -> list[tuple[SessionRow, bool]]:
    """Return the sessions with each child listed below its parent, and whether each is a child."""
    ids = {row.id for row in rows}
    roots: list[SessionRow] = []
    below: dict[str, list[SessionRow]] = {}
    for row in rows:
        parent = _read_parent(row)
        if parent in ids and parent != row.id:
            below.setdefault(parent, []).append(row)
        else:
            roots.append(row)
    return [pair for root in roots for pair in ((root, False), *((row, True) for row in below.get(root.id, ())))]
