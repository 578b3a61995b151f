"""Rows of edits and batches: committed together, switched on and off, never changed.

What an edit covers is stored as runs of message numbers, in order, so that a fold over ten thousand messages is one
row, and which edits lie over a message is one range of an index.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from refold.conversation.edit import Edit
from refold.ledger.codec import decode_column, encode_column, encode_edit, encode_reason
from refold.ledger.covering import EditRow, group_spans, make_batches, make_edits, meets, read_edit_row
from refold.ledger.postgres.message_rows import Known, read_ids
from refold.ledger.postgres.sql import Db, fetch_all, fetch_value, run
from refold.ledger.records import Batch, StoredBatch, StoredEdit
from refold.ledger.runs import find_runs


def list_covered(edits: Iterable[Edit]) -> list[str]:
    """Return the ids of all messages that these edits cover, each once."""
    return list(dict.fromkeys(message_id for edit in edits for message_id in edit.covers))


def find_covered(
    edits: Iterable[Edit], known: Mapping[str, Known], forgotten: Container[str] = ()
) -> dict[str, int] | None:
    """Return the number of every message these edits cover; None if one is gone, or forgotten and not among those."""
    seqs: dict[str, int] = {}
    for message_id in list_covered(edits):
        if message_id not in known or (known[message_id].is_forgotten and message_id not in forgotten):
            return None
        seqs[message_id] = known[message_id].seq
    return seqs


def find_edits_over(db: Db, session: int, seqs: Iterable[int], *, active_only: bool = True) -> set[str]:
    """Return the ids of the edits that cover any of these messages."""
    wanted = sorted(set(seqs))
    if not wanted:
        return set()
    runs = find_runs(wanted)
    sql = (
        "SELECT edit.id, first, last FROM cover JOIN edit ON edit.key = cover.edit "
        "WHERE cover.session = %s AND last >= %s AND first <= %s AND (is_active OR NOT %s)"
    )
    rows = fetch_all(db, sql, (session, wanted[0], wanted[-1], active_only))
    return {decode_column(edit_id) for edit_id, first, last in rows if meets(runs, first, last)}


def add_batch(db: Db, session: int, batch: Batch | StoredBatch) -> int | None:
    """Add the row of a batch; return its key, None if it is there already."""
    key = fetch_value(
        db,
        "INSERT INTO batch (session, id, reason, tokens_before, tokens_after, created_at) "
        "VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (session, id) DO NOTHING RETURNING key",
        (
            session,
            encode_column(batch.id),
            encode_column(encode_reason(batch.reason)),
            batch.tokens_before,
            batch.tokens_after,
            batch.created_at,
        ),
    )
    return None if key is None else int(key)


def add_edits(
    db: Db, session: int, edits: Sequence[Edit], seqs: Mapping[str, int], *, batch: int | None, now: float
) -> int:
    """Add edits, in force; return how many. A known one is left alone on arrival, and switched on by a batch."""
    if not edits:
        return 0
    ids = [encode_column(edit.id) for edit in edits]
    rows = fetch_all(db, "SELECT id, key FROM edit WHERE session = %s AND id = ANY(%s)", (session, ids))
    known: dict[str, int] = dict(rows)
    added = 0
    for edit, edit_id in zip(edits, ids, strict=True):
        if edit_id in known:
            if batch is not None:
                sql = "UPDATE edit SET is_active = true, batch = %s, payload = %s, created_at = %s WHERE key = %s"
                run(db, sql, (batch, encode_edit(edit), now, known[edit_id]))
                added += 1
            continue
        add_edit(db, session, StoredEdit(edit, "", True, now), seqs, batch)
        known[edit_id] = -1  # Its key is the server's; an edit that stands twice in one batch is not added again.
        added += 1
    return added


def add_arrival(db: Db, session: int, edits: Iterable[Edit], known: Mapping[str, Known], now: float) -> int:
    """Add edits made on arrival; return how many. One of a message that was forgotten must not bring its text back."""
    added = 0
    for edit in edits:
        seqs = find_covered([edit], known)
        if seqs is not None:
            added += add_edits(db, session, [edit], seqs, batch=None, now=now)
    return added


def add_edit(db: Db, session: int, stored: StoredEdit, seqs: Mapping[str, int], batch: int | None) -> None:
    """Add one edit that is not known, with its runs, in one statement whose answer nobody waits for."""
    edit = stored.edit
    runs = find_runs(seqs[message_id] for message_id in edit.covers)
    run(
        db,
        "WITH added AS (INSERT INTO edit (session, id, kind, level, batch, is_active, covered, created_at, payload) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING key) "
        "INSERT INTO cover (edit, place, session, first, last) "
        "SELECT added.key, place, %s, first, last FROM added, unnest(%b::bigint[], %b::bigint[], %b::bigint[]) "
        "AS run (place, first, last)",
        (
            session,
            encode_column(edit.id),
            encode_column(edit.kind),
            edit.level,
            batch,
            stored.is_active,
            len(edit.covers),
            stored.created_at,
            encode_edit(edit),
            session,
            list(range(len(runs))),
            [first for first, _ in runs],
            [last for _, last in runs],
        ),
    )


def switch_edits(db: Db, session: int, ids: Iterable[str], *, on: bool) -> int:
    """Switch edits on or off; return how many were not so before."""
    sql = "UPDATE edit SET is_active = %s WHERE session = %s AND id = ANY(%s) AND is_active <> %s RETURNING 1"
    return len(fetch_all(db, sql, (on, session, [encode_column(edit_id) for edit_id in ids], on)))


def read_rows(db: Db, session: int, *, active_only: bool) -> list[EditRow]:
    """Return the rows of a session's edits, in the order they were made."""
    covers = run(
        db,
        "SELECT cover.edit, first, last FROM edit JOIN cover ON cover.edit = edit.key AND cover.session = edit.session "
        "WHERE edit.session = %s AND (is_active OR NOT %s) ORDER BY cover.edit, place",
        (session, active_only),
    )
    edits = run(
        db,
        "SELECT edit.key, edit.id, edit.batch, coalesce(batch.id, ''), is_active, covered, edit.created_at, payload "
        "FROM edit LEFT JOIN batch ON batch.key = edit.batch WHERE edit.session = %s AND (is_active OR NOT %s) "
        "ORDER BY edit.created_at, edit.key",
        (session, active_only),
    )
    spans = group_spans(covers.fetchall())
    return [read_edit_row(row, spans, decode_column) for row in edits.fetchall()]


def read_edits(db: Db, session: int, *, active_only: bool) -> list[StoredEdit]:
    """Return a session's edits, in the order they were made."""
    rows = read_rows(db, session, active_only=active_only)
    return make_edits(rows, lambda low, high: read_ids(db, session, low, high))


def read_batches(db: Db, session: int) -> list[StoredBatch]:
    """Return a session's batches, in the order they were committed."""
    edits = run(
        db,
        "SELECT batch, id, is_active FROM edit WHERE session = %s AND batch IS NOT NULL ORDER BY key",
        (session,),
    )
    batches = run(
        db,
        "SELECT key, id, reason, tokens_before, tokens_after, created_at FROM batch WHERE session = %s ORDER BY key",
        (session,),
    )
    return make_batches(batches.fetchall(), edits.fetchall(), decode_column)
