"""Runs: a sequence of numbers, stored as the first and last of each consecutive stretch. Pure.

The ledger numbers a session's messages in the order of arrival. So a path of ten thousand messages is usually one run,
and so is what a fold covers; both are cheap to write, read and compare.

The stored rows of a path have ranks with gaps between them: an append extends the last row, a trim shortens the first,
an insertion takes a rank in between. Only when a gap is used up are all rows of the session ranked again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from refold.ledger.align import count_common

Span = tuple[int, int]  # First and last, both included.
ROOM = 1 << 32
RankedRow = tuple[int, int, int]  # Rank, first, last.


def find_runs(numbers: Iterable[int]) -> list[Span]:
    """Return the numbers as runs, in the given order."""
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
    """Return how many numbers the runs contain."""
    return sum(last - first + 1 for first, last in runs)


def join_runs(runs: Iterable[Span]) -> list[Span]:
    """Return the same numbers in the same order, with adjacent runs joined."""
    joined: list[Span] = []
    for first, last in runs:
        if joined and joined[-1][1] + 1 == first:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined


def cut_runs(runs: Iterable[Span], start: int, stop: int) -> Iterator[Span]:
    """Yield the runs of the numbers at places ``start`` to ``stop``."""
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
    """Return the runs with the numbers at each (start, stop) replaced. Changes are in order; places are old ones."""
    length = count_runs(runs)
    spliced: list[Span] = []
    at = 0
    for start, stop, new in changes:
        if not at <= start <= stop <= length:
            raise ValueError(f"splice {start}:{stop} is outside of a path of {length}, or overlaps the previous one")
        spliced.extend(cut_runs(runs, at, start))
        spliced.extend(new)
        at = stop
    spliced.extend(cut_runs(runs, at, length))
    return join_runs(spliced)


def has_overlap(runs: Iterable[Span]) -> bool:
    """Return whether any number occurs twice."""
    last_end = -1
    for first, last in sorted(runs):
        if first <= last_end:
            return True
        last_end = last
    return False


@dataclass(frozen=True, slots=True)
class RowChange:
    """The rows to remove, by rank, and the rows to insert or replace.

    ``spreads`` means that a gap is used up and all rows of the session must be ranked again.
    """

    removed: tuple[int, ...] = ()
    put: tuple[tuple[int, Span], ...] = ()
    spreads: bool = False


def plan_rows(rows: Sequence[RankedRow], new: Sequence[Span]) -> RowChange:
    """Return the change that makes the last rows of a path hold ``new`` and touches only rows that differ.

    ``rows`` begin with the row before the first change, if there is one.
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
    """Return ``count`` ranks between two, with gaps; an empty list if there is no room."""
    if right is None:
        start, step = 0 if left is None else left, ROOM
    elif left is None:
        start, step = right - ROOM * (count + 1), ROOM
    else:
        start, step = left, (right - left) // (count + 1)
    return [start + step * number for number in range(1, count + 1)] if step else []


def spread_ranks(spans: Sequence[Span]) -> list[tuple[int, Span]]:
    """Return all rows of a path with evenly spaced ranks."""
    return [(ROOM * number, span) for number, span in enumerate(spans, 1)]


def meets(runs: Sequence[Span], first: int, last: int) -> bool:
    """Return whether any number from first to last is in these runs, which are sorted and disjoint."""
    at = bisect_left(runs, first, key=lambda run: run[1])
    return at < len(runs) and runs[at][0] <= last


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Return runs, which are sorted by their first number, as disjoint runs."""
    merged: list[Span] = []
    for first, last in spans:
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def is_within(seq: int, spans: Sequence[Span]) -> bool:
    """Return whether a number is in these runs, which are sorted and disjoint."""
    at = bisect_right(spans, (seq, float("inf"))) - 1
    return at >= 0 and seq <= spans[at][1]
