"""``refold memory``: print a daily memory page."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from refold.cli.app import app
from refold.cli.input import AsJson, Workspace, open_workspace
from refold.cli.output import write_json, write_line
from refold.cli.words import tr
from refold.errors import FormatError


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
        raise FormatError(tr("there is no page of {date}; {known}", date=date, known=known))
    if as_json:
        write_json({"date": chosen, "dates": dates, "page": page})
    elif page is None:
        write_line(tr("no pages yet: the first compression of a session writes one"))
    else:
        sys.stdout.buffer.write(page.encode("utf-8", "backslashreplace"))
