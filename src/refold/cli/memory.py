"""``refold memory``: the daily pages, as they are written."""

from __future__ import annotations

import sys

from refold.cli.reading import write_json
from refold.cli.workspace import open_workspace, write_line
from refold.errors import FormatError


def run(workspace: str, date: str | None, *, as_json: bool) -> None:
    """Print the page of a date, or the newest one."""
    with open_workspace(workspace) as manager:
        dates = manager.md_sync.list_dates()
        chosen = date or (dates[-1] if dates else None)
        page = manager.md_sync.read(chosen) if chosen else None
    if date is not None and page is None:
        known = f"there are {', '.join(dates[-5:])}" if dates else "there are none yet"
        raise FormatError(f"there is no page of {date}; {known}")
    if as_json:
        write_json({"date": chosen, "dates": dates, "page": page})
    elif page is None:
        write_line("no pages yet: the first compression of a session writes one")
    else:
        sys.stdout.buffer.write(page.encode("utf-8", "backslashreplace"))
