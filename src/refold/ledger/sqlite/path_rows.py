"""The current path of a session: runs of message numbers, changed where it changes and nowhere else (see ``ranks``)."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from refold.ledger.records import Splice
from refold.ledger.runs import (
    RankedRow,
    Span,
    count_runs,
    cut_runs,
    find_runs,
    has_overlap,
    plan_rows,
    splice_runs,
    spread_ranks,
)
from refold.ledger.sqlite.message_rows import find_seqs, sum_tokens
from refold.ledger.sqlite.sql import fetch_all


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


def _read_tail(db: apsw.Connection, session: int, length: int, start: int) -> tuple[list[RankedRow], int]:
    """Return the rows from the one before place ``start`` on, and the place where they begin."""
    rows: list[RankedRow] = []
    place = length
    for rank, first, last in db.execute(
        "SELECT rank, first, last FROM path WHERE session = ? ORDER BY rank DESC", (session,)
    ):
        rows.append((rank, first, last))
        place -= last - first + 1
        if place < start:
            break
    return rows[::-1], place


def _write_rows(db: apsw.Connection, session: int, rows: list[RankedRow], new: list[Span]) -> None:
    """Make the rows, which are the last of the path, say ``new``."""
    change = plan_rows(rows, new)
    put = change.put
    if change.spreads:
        sql = "SELECT first, last FROM path WHERE session = ? AND rank < ? ORDER BY rank"
        put = tuple(spread_ranks([*fetch_all(db, sql, (session, rows[0][0])), *new]))
        db.execute("DELETE FROM path WHERE session = ?", (session,))
    for rank in change.removed:
        db.execute("DELETE FROM path WHERE session = ? AND rank = ?", (session, rank))
    sql = (
        "INSERT INTO path VALUES (?, ?, ?, ?) ON CONFLICT (session, rank) "
        "DO UPDATE SET first = excluded.first, last = excluded.last"
    )
    for rank, (first, last) in put:
        db.execute(sql, (session, rank, first, last))
