"""``refold expand``: page through the exact original behind a handle."""

from __future__ import annotations

from dataclasses import asdict

import typer

from refold.cli.reading import write_json
from refold.cli.workspace import need_session, open_workspace


def run(handle: str, session: str | None, offset: int, limit: int | None, workspace: str, *, as_json: bool) -> None:
    """Print a page of an original as it is; where the next page begins goes to standard error."""
    with open_workspace(workspace) as manager:
        name = need_session(manager.ledger, session, workspace)
        page = manager.recalling.expand(name, handle, offset, limit)
    text = page.text.encode("utf-8", "replace").decode()
    if as_json:
        write_json({**asdict(page), "text": text, "next_offset": page.next_offset})
        return
    if offset and offset >= page.total:
        typer.echo(f"there are {page.total:,} characters; --offset {offset} is behind the last one", err=True)
        return
    typer.echo(text)
    if page.next_offset is not None:
        shown = f"characters {page.offset}–{page.next_offset} of {page.total}"
        typer.echo(f"{shown}; go on with --offset {page.next_offset}", err=True)
