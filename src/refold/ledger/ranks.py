"""Rows of a path and their ranks: what changes in them when the path does, the same in every store. Pure.

Rows have ranks with room between them. An append prolongs the last row; a trim cuts the first; an insertion takes a
rank in between. Only when there is no room left are all rows of the session numbered anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from refold.ledger.align import count_common
from refold.ledger.runs import Span

ROOM = 1 << 32
RankedRow = tuple[int, int, int]  # Rank, first, last.


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
