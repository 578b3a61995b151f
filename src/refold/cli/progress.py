"""Progress on standard error: a bar in a terminal, else a line every ten seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LINE_EVERY_S = 10.0

# How many of how many are done.
Advance = Callable[[int, int], None]


@contextmanager
def show_progress(doing: str) -> Iterator[Advance]:
    """Show how far a job is; ``doing`` says what it does ("replaying")."""
    if not sys.stderr.isatty():
        yield _make_lines(doing)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(doing, total=None)
        yield lambda done, whole: progress.update(task, completed=done, total=whole)


def _make_lines(doing: str) -> Advance:
    last = time.monotonic()

    def advance(done: int, whole: int) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_EVERY_S:
            last = time.monotonic()
            sys.stderr.write(f"{doing}: {done:,} of {whole:,}\n")
            sys.stderr.flush()

    return advance
