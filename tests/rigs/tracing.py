"""Counts the source files and functions that a call goes through, in every thread that it starts."""

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import refold

SOURCE = str(Path(refold.__file__).parent) + "/"
# The pure core, which makes no calls outside itself.
CORE = ("conversation/", "formats/", "tokens/", "budget/", "stages/", "ladder/")


class Trace:
    """What was called: functions by file, each with how often."""

    def __init__(self) -> None:
        self.calls: dict[str, Counter[str]] = {}

    def note(self, frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(SOURCE):
            self.calls.setdefault(name.removeprefix(SOURCE), Counter())[frame.f_code.co_name] += 1

    @property
    def shell(self) -> list[str]:
        """The files outside the pure core and outside what only tests use."""
        return sorted(name for name in self.calls if not name.startswith((*CORE, "testing/")))

    def count(self, function: str) -> int:
        """How often functions of this name were called."""
        return sum(calls[function] for calls in self.calls.values())


@contextmanager
def traced(run_there: Callable[[Callable[[], Any]], object] | None = None) -> Iterator[Trace]:
    """Trace this thread, the threads that start meanwhile and, through ``run_there``, one that runs already."""
    trace = Trace()

    def switch(note: Any) -> None:
        threading.setprofile(note)
        sys.setprofile(note)
        if run_there is not None:
            run_there(lambda: sys.setprofile(note))

    switch(trace.note)
    try:
        yield trace
    finally:
        switch(None)
