"""What every reader of session files shares: a numbered row, a broken one, and times as seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

YEAR_S = 31_557_600.0
_MILLISECONDS_FROM = 1e11


@dataclass(frozen=True, slots=True)
class Row:
    """One JSON object of a file, with the number of its line."""

    line: int
    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Broken:
    """A line that could not be read, and why; line 0 stands for the whole file."""

    line: int
    why: str


def read_time(value: object) -> float | None:
    """Return a timestamp in seconds: ISO text, seconds or milliseconds; None if it is none of them."""
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value).timestamp()
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value / 1000.0 if value > _MILLISECONDS_FROM else float(value)


def settle_times(times: list[float | None]) -> tuple[float, ...]:
    """Return times for all messages, each missing one as late as the one before it; none at all if none is known."""
    known = [time for time in times if time is not None]
    if not known:
        return ()
    settled: list[float] = []
    last = known[0]
    for time in times:
        last = max(last, time) if time is not None else last
        settled.append(last)
    return tuple(settled)
