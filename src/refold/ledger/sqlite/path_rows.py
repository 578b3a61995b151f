"""The current path of a session: runs of message numbers, changed where it changes and nowhere else.

Rows have ranks with room between them. An append prolongs the last row; a trim cuts the first; an insertion takes a
rank in between. Only when there is no room left are all rows of the session numbered anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from refold.ledger.ledger import Splice
from refold.ledger.runs import Span, count_runs, cut_runs, find_runs, has_overlap, splice_runs
from refold.ledger.sqlite.message_rows import find_seqs, sum_tokens
from refold.ledger.sqlite.sql import fetch_all, fetch_value

_ROOM = 1 << 32
_Row = tuple[int, int, int]


def change_path(db: apsw.Connection, session: int, length: int, splices: Sequence[Splice]) -> tuple[int, int]:
    """Apply splices to a path of this length; return the new length and by how much its tokens changed."""
    if not splices:
        return length, 0
    rows, place = _read_tail(db, session, length, splices[0].start)
    old = [(first, last) for _, first, last in rows]
    changes = [
        (splice.start - place, splice.stop - place, find_runs(find_seqs(db, session, splice.ids))) for splice in splices
    ]
    new = splice_runs(old, changes)
    if has_overlap(new):
        raise ValueError("a message would stand twice on the path")
    removed = [span for start, stop, _ in changes for span in cut_runs(old, start, stop)]
    added = [span for _, _, spans in changes for span in spans]
    _write_rows(db, session, rows, new)
    tokens = sum_tokens(db, session, added) - sum_tokens(db, session, removed)
    return place + count_runs(new), tokens


def _read_tail(db: apsw.Connection, session: int, length: int, start: int) -> tuple[list[_Row], int]:
    """Return the rows from the one that holds ``start`` on, and the place where they begin."""
    rows: list[_Row] = []
    place = length
    for rank, first, last in db.execute(
        "SELECT rank, first, last FROM path WHERE session = ? ORDER BY rank DESC", (session,)
    ):
        rows.append((rank, first, last))
        place -= last - first + 1
        if place <= start:
            break
    return rows[::-1], place


def _write_rows(db: apsw.Connection, session: int, rows: list[_Row], new: list[Span]) -> None:
    """Make the rows say ``new``, touching those in the middle that differ."""
    old = [(first, last) for _, first, last in rows]
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    middle, wanted = rows[head : len(rows) - tail], new[head : len(new) - tail]
    for (rank, _, _), (first, last) in zip(middle, wanted, strict=False):
        db.execute("UPDATE path SET first = ?, last = ? WHERE session = ? AND rank = ?", (first, last, session, rank))
    for rank, _, _ in middle[len(wanted) :]:
        db.execute("DELETE FROM path WHERE session = ? AND rank = ?", (session, rank))
    more = wanted[len(middle) :]
    if more:
        right = rows[len(rows) - tail][0] if tail else None
        _insert_rows(db, session, more, right)


def _insert_rows(db: apsw.Connection, session: int, spans: list[Span], right: int | None) -> None:
    """Add rows before the one with rank ``right``, or at the end."""
    below = "SELECT max(rank) FROM path WHERE session = ? AND rank < ?"
    left = fetch_value(db, below, (session, (1 << 63) - 1 if right is None else right))
    if left is None:
        left = 0 if right is None else right - _ROOM * (len(spans) + 1)
    step = _ROOM if right is None else (right - left) // (len(spans) + 1)
    if right is not None and step == 0:
        _spread_rows(db, session, spans, right)
        return
    for number, (first, last) in enumerate(spans, 1):
        db.execute("INSERT INTO path VALUES (?, ?, ?, ?)", (session, left + step * number, first, last))


def _spread_rows(db: apsw.Connection, session: int, spans: list[Span], right: int) -> None:
    """Number all rows anew, with these before the one that had rank ``right``."""
    rows = fetch_all(db, "SELECT rank, first, last FROM path WHERE session = ? ORDER BY rank", (session,))
    before = [(first, last) for rank, first, last in rows if rank < right]
    after = [(first, last) for rank, first, last in rows if rank >= right]
    db.execute("DELETE FROM path WHERE session = ?", (session,))
    for number, (first, last) in enumerate([*before, *spans, *after], 1):
        db.execute("INSERT INTO path VALUES (?, ?, ?, ?)", (session, _ROOM * number, first, last))


def _common(left: Sequence[Span], right: Sequence[Span]) -> int:
    same = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        same += 1
    return same
