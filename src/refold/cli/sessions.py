"""``refold sessions``: which sessions a workspace has."""

from __future__ import annotations

from dataclasses import asdict

from rich.cells import cell_len
from rich.text import Text

from refold.cli.reading import write_json
from refold.cli.render import clean_line, make_console, make_table
from refold.cli.workspace import open_workspace, tell_empty, tell_time

OTHERS_COLUMNS = 70  # What the columns beside the id take at most.


def run(workspace: str, limit: int, *, as_json: bool) -> None:
    """Print the sessions, the last changed first."""
    with open_workspace(workspace) as manager:
        rows = manager.ledger.list_sessions(limit=limit)
    if not rows:
        tell_empty(workspace, as_json=as_json)
        return
    if as_json:
        write_json([{**asdict(row), "settings": dict(row.settings)} for row in rows])
        return
    table = make_table(
        "session",
        "messages",
        "tokens",
        "folds",
        "model",
        "changed",
        numbers=("messages", "tokens", "folds"),
        wide=("session",),
    )
    for row in rows:
        table.add_row(
            Text(clean_line(row.id, 500)),
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
