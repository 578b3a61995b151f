"""``refold sessions``: which sessions a workspace has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rich.cells import cell_len
from rich.text import Text

from refold.cli.reading import write_json
from refold.cli.render import clean_line, make_console, make_table
from refold.cli.workspace import open_workspace, tell_empty, tell_time
from refold.ledger.records import SessionRow
from refold.llm.conversation_model import GATEWAY
from refold.manager.status import read_title

TITLE_CHARS = 40
OTHERS_COLUMNS = 130  # What the columns beside the id take at most.


def run(workspace: str, limit: int, *, as_json: bool) -> None:
    """Print the sessions, the last changed first."""
    with open_workspace(workspace) as manager:
        rows = manager.ledger.list_sessions(limit=limit)
        titles = {row.id: read_title(manager.ledger, row) for row in rows}
    if not rows:
        tell_empty(workspace, as_json=as_json)
        return
    if as_json:
        write_json([{**asdict(row), "settings": dict(row.settings), "title": titles[row.id]} for row in rows])
        return
    table = make_table(
        "session",
        "client",
        "first words",
        "messages",
        "tokens",
        "folds",
        "model",
        "changed",
        numbers=("messages", "tokens", "folds"),
        wide=("session",),
    )
    for row, is_below in _put_below(rows):
        table.add_row(
            Text(f"↳ {clean_line(row.id, 500)}" if is_below else clean_line(row.id, 500)),
            Text(clean_line(_read_origin(row, "client"), 16) or "·"),
            Text(clean_line(titles[row.id], TITLE_CHARS) or "·"),
            f"{row.messages:,}",
            f"{row.tokens:,}",
            f"{row.compression_count:,}" if row.compression_count else "·",
            Text(clean_line(row.model, 20) or "·"),
            tell_time(row.updated_at),
        )
    console = make_console(err=False)
    if not console.is_terminal:  # Programs read ids too: they are never cut in a pipe.
        console.width = max(console.width, max(cell_len(row.id) for row in rows) + OTHERS_COLUMNS)
    console.print(table)


def _read_origin(row: SessionRow, name: str) -> str:
    """Return what the gateway knows of a session's client: its name, or the session that it was begun from."""
    made = row.settings.get(GATEWAY)
    return str(made.get(name, "")) if isinstance(made, dict) else ""


def _put_below(rows: Sequence[SessionRow]) -> list[tuple[SessionRow, bool]]:
    """Return the sessions with those that were begun from another one below it, and whether each is such a one."""
    ids = {row.id for row in rows}
    roots: list[SessionRow] = []
    below: dict[str, list[SessionRow]] = {}
    for row in rows:
        parent = _read_origin(row, "parent")
        if parent in ids and parent != row.id:
            below.setdefault(parent, []).append(row)
        else:
            roots.append(row)
    return [pair for root in roots for pair in ((root, False), *((row, True) for row in below.get(root.id, ())))]
