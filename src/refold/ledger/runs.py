"""Runs: a row of numbers told as first and last of what follows one another. Pure.

The ledger numbers a session's messages as they arrive, so a path of ten thousand messages is mostly one run, and so
is what a fold covers. Storing runs makes both cheap to write, to read and to compare.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from refold.ledger.align import count_common

Span = tuple[int, int]  # First and last, both within.
ROOM = 1 << 32
RankedRow = tuple[int, int, int]  # Rank, first, last.


def find_runs(numbers: Iterable[int]) -> list[Span]:
    """Return the numbers, in their order, as runs."""
    runs: list[Span] = []
    first = last = -2
    for number in numbers:
        if number == last + 1:
            last = number
            continue
        if last >= first >= 0:
            runs.append((first, last))
        first = last = number
    if first >= 0:
        runs.append((first, last))
    return runs


def count_runs(runs: Iterable[Span]) -> int:
    """Return how many numbers the runs hold."""
    return sum(last - first + 1 for first, last in runs)


def join_runs(runs: Iterable[Span]) -> list[Span]:
    """Return the same numbers in the same order with neighbours joined."""
    joined: list[Span] = []
    for first, last in runs:
        if joined and joined[-1][1] + 1 == first:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined


def cut_runs(runs: Iterable[Span], start: int, stop: int) -> Iterator[Span]:
    """Yield the runs of the numbers at these places."""
    place = 0
    for first, last in runs:
        length = last - first + 1
        low, high = max(start - place, 0), min(stop - place, length)
        if low < high:
            yield first + low, first + high - 1
        place += length
        if place >= stop:
            return


def splice_runs(runs: Sequence[Span], changes: Iterable[tuple[int, int, Sequence[Span]]]) -> list[Span]:
    """Return the runs with the numbers at (start, stop) replaced by others; changes are in order, places as before."""
    length = count_runs(runs)
    spliced: list[Span] = []
    at = 0
    for start, stop, new in changes:
        if not at <= start <= stop <= length:
            raise ValueError(f"splice {start}:{stop} does not fit a path of {length}, or overlaps the one before")
        spliced.extend(cut_runs(runs, at, start))
        spliced.extend(new)
        at = stop
    spliced.extend(cut_runs(runs, at, length))
    return join_runs(spliced)


def has_overlap(runs: Iterable[Span]) -> bool:
    """Tell whether a number stands in two runs, or twice."""
    last_end = -1
    for first, last in sorted(runs):
        if first <= last_end:
            return True
        last_end = last
    return False


@dataclass(frozen=True, slots=True)
class RowChange:
    """Which rows go, by rank, and which are put, new or in the place of the one with that rank.

    ``spreads`` means that there is no room: all rows of the session are numbered anew.
    """

    removed: tuple[int, ...] = ()
    put: tuple[tuple[int, Span], ...] = ()
    spreads: bool = False


def plan_rows(rows: Sequence[RankedRow], new: Sequence[Span]) -> RowChange:
    """Return how the last rows of a path come to say ``new``, touching those in the middle that differ.

    ``rows`` begin with the one before the first change, if there is one.
    """
    old = [(first, last) for _, first, last in rows]
    head = count_common(old, new)
    tail = count_common(old[head:][::-1], new[head:][::-1])
    middle, wanted = rows[head : len(rows) - tail], new[head : len(new) - tail]
    ranks = [rank for rank, _, _ in middle[: len(wanted)]]
    missing = len(wanted) - len(ranks)
    if missing:
        left = rows[head + len(middle) - 1][0] if head + len(middle) else None
        right = rows[len(rows) - tail][0] if tail else None
        more = find_ranks(left, right, missing)
        if not more:
            return RowChange(spreads=True)
        ranks += more
    removed = tuple(rank for rank, _, _ in middle[len(wanted) :])
    return RowChange(removed, tuple(zip(ranks, wanted, strict=True)))


def find_ranks(left: int | None, right: int | None, count: int) -> list[int]:
    """Return so many ranks between two, with room between them; none if there is no room."""
    if right is None:
        start, step = 0 if left is None else left, ROOM
    elif left is None:
        start, step = right - ROOM * (count + 1), ROOM
    else:
        start, step = left, (right - left) // (count + 1)
    return [start + step * number for number in range(1, count + 1)] if step else []


def spread_ranks(spans: Sequence[Span]) -> list[tuple[int, Span]]:
    """Return all rows of a path with ranks that have room between them."""
    return [(ROOM * number, span) for number, span in enumerate(spans, 1)]


def meets(runs: Sequence[Span], first: int, last: int) -> bool:
    """Tell whether any number from first to last is in one of these runs, which are sorted and apart."""
    at = bisect_left(runs, first, key=lambda run: run[1])
    return at < len(runs) and runs[at][0] <= last


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Return runs that are sorted by their first, and may overlap, as runs that are apart."""
    merged: list[Span] = []
    for first, last in spans:
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def is_within(seq: int, spans: Sequence[Span]) -> bool:
    """Tell whether a number is in one of these runs, which are sorted and apart."""
    at = bisect_right(spans, (seq, float("inf"))) - 1
    return at >= 0 and seq <= spans[at][1]
