"""The current path of a session: runs of message numbers, changed where it changes and nowhere else (see ``ranks``).

What changes is computed from the rows at the end of the path, and written in two statements at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psycopg

from refold.ledger.codec import encode_column
from refold.ledger.postgres.message_rows import Known, sum_tokens
from refold.ledger.postgres.session_rows import KEY
from refold.ledger.postgres.sql import Db, Row, fetch_all, run
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
from refold.ledger.session_row import Found

_PAGE = 64
_RANK_MAX = (1 << 63) - 1
_TAIL = "SELECT rank, first, last FROM path WHERE session = {} AND rank < %s ORDER BY rank DESC LIMIT %s"


def ask_tail(db: Db, session_id: str) -> psycopg.Cursor[Row]:
    """Ask for the last rows of a session's path; ``change_path`` reads the answer."""
    return run(db, _TAIL.format(KEY), (encode_column(session_id), _RANK_MAX, _PAGE))


def change_path(
    db: Db,
    found: Found,
    splices: Sequence[Splice],
    known: Mapping[str, Known],
    tokens: Mapping[str, int],
    tail: psycopg.Cursor[Row],
) -> tuple[int, int]:
    """Apply splices to the path of a session; return its new length and by how much its tokens changed.

    ``known`` has the numbers of all messages in the splices, ``tokens`` the tokens of those that are new.
    """
    if not splices:
        return found.row.messages, 0
    rows, place = _read_tail(db, found, splices[0].start, tail)
    old = [(first, last) for _, first, last in rows]
    changes = [
        (splice.start - place, splice.stop - place, find_runs(_need_seqs(splice.ids, known))) for splice in splices
    ]
    new = splice_runs(old, changes)
    if has_overlap(new):
        raise ValueError("a message would stand twice on the path")
    removed = [span for start, stop, _ in changes for span in cut_runs(old, start, stop)]
    ids = [message_id for splice in splices for message_id in splice.ids]
    again = find_runs(sorted(known[message_id].seq for message_id in ids if message_id not in tokens))
    more = sum(tokens.get(message_id, 0) for message_id in ids) + sum_tokens(db, found.key, again)
    less = sum_tokens(db, found.key, removed)
    _write_rows(db, found.key, rows, new)
    return place + count_runs(new), more - less


def _need_seqs(ids: Sequence[str], known: Mapping[str, Known]) -> list[int]:
    for message_id in ids:
        if message_id not in known:
            raise ValueError(f"message {message_id!r} is not in this session")
    return [known[message_id].seq for message_id in ids]


def _read_tail(db: Db, found: Found, start: int, tail: psycopg.Cursor[Row]) -> tuple[list[RankedRow], int]:
    """Return the rows from the one before place ``start`` on, and the place where they begin."""
    rows: list[RankedRow] = []
    place = found.row.messages
    page = tail.fetchall()
    while True:
        for rank, first, last in page:
            rows.append((rank, first, last))
            place -= last - first + 1
            if place < start:
                return rows[::-1], place
        if len(page) < _PAGE:
            return rows[::-1], place
        page = fetch_all(db, _TAIL.format("%s"), (found.key, rows[-1][0], _PAGE))


def _write_rows(db: Db, session: int, rows: list[RankedRow], new: list[Span]) -> None:
    """Make the rows, which are the last of the path, say ``new``."""
    change = plan_rows(rows, new)
    if not change.spreads:
        _remove(db, session, list(change.removed))
        _put(db, session, change.put)
        return
    sql = "SELECT first, last FROM path WHERE session = %s AND rank < %s ORDER BY rank"
    before = [(first, last) for first, last in fetch_all(db, sql, (session, rows[0][0]))]
    run(db, "DELETE FROM path WHERE session = %s", (session,))
    _put(db, session, spread_ranks([*before, *new]))


def _remove(db: Db, session: int, ranks: list[int]) -> None:
    if ranks:
        run(db, "DELETE FROM path WHERE session = %s AND rank = ANY(%b::bigint[])", (session, ranks))


def _put(db: Db, session: int, ranked: Sequence[tuple[int, Span]]) -> None:
    if ranked:
        sql = (
            "INSERT INTO path (session, rank, first, last) "
            "SELECT %s, * FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[]) "
            "ON CONFLICT (session, rank) DO UPDATE SET first = excluded.first, last = excluded.last"
        )
        firsts, lasts = [span[0] for _, span in ranked], [span[1] for _, span in ranked]
        run(db, sql, (session, [rank for rank, _ in ranked], firsts, lasts))
