"""``refold expand``: page through the exact original behind a handle."""

from __future__ import annotations

from dataclasses import asdict

import typer

from refold.cli.recall import choose_session, open_recall, write_json


def run(handle: str, session: str | None, offset: int, limit: int | None, workspace: str, *, as_json: bool) -> None:
    """Print a page of an original as it is; where the next page begins goes to standard error."""
    recall = open_recall(workspace)
    try:
        page = recall.expand(choose_session(recall, session), handle, offset, limit)
    finally:
        recall.close()
        recall.ledger.close()
    text = page.text.encode("utf-8", "replace").decode()
    if as_json:
        write_json({**asdict(page), "text": text, "next_offset": page.next_offset})
        return
    typer.echo(text)
    if page.next_offset is not None:
        shown = f"characters {page.offset}–{page.next_offset} of {page.total}"
        typer.echo(f"{shown}; go on with --offset {page.next_offset}", err=True)
