"""Rows of edits and batches: committed together, switched on and off, never changed.

What an edit covers is stored as runs of message numbers, in order, so that a fold over ten thousand messages is one
row, and which edits lie over a message is one range of an index.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import apsw

from refold.conversation.edit import Edit
from refold.ledger.codec import decode_text, encode_edit, encode_reason, encode_text
from refold.ledger.covering import EditRow, group_spans, make_batches, make_edits, meets, read_edit_row
from refold.ledger.records import Batch, StoredBatch, StoredEdit
from refold.ledger.runs import find_runs
from refold.ledger.sqlite.message_rows import read_ids
from refold.ledger.sqlite.sql import fetch_all, fetch_one


def find_covered(
    db: apsw.Connection, session: int, edits: Iterable[Edit], forgotten: Container[str] = ()
) -> dict[str, int] | None:
    """Return the number of every message these edits cover; None if one is gone, or forgotten and not among those."""
    seqs: dict[str, int] = {}
    for message_id in dict.fromkeys(message_id for edit in edits for message_id in edit.covers):
        sql = "SELECT seq, raw IS NULL FROM message WHERE session = ? AND id = ?"
        row = fetch_one(db, sql, (session, bytes.fromhex(message_id)))
        if row is None or (row[1] and message_id not in forgotten):
            return None
        seqs[message_id] = row[0]
    return seqs


def find_edits_over(db: apsw.Connection, session: int, seqs: Iterable[int], *, active_only: bool = True) -> set[str]:
    """Return the ids of the edits that cover any of these messages."""
    wanted = sorted(set(seqs))
    if not wanted:
        return set()
    runs = find_runs(wanted)
    sql = (
        "SELECT edit.id, first, last FROM cover JOIN edit ON edit.key = cover.edit "
        "WHERE cover.session = ? AND last >= ? AND first <= ? AND is_active >= ?"
    )
    found: set[str] = set()
    for edit_id, first, last in db.execute(sql, (session, wanted[0], wanted[-1], int(active_only))):
        if meets(runs, first, last):
            found.add(decode_text(edit_id))
    return found


def add_batch(db: apsw.Connection, session: int, batch: Batch | StoredBatch) -> int | None:
    """Add the row of a batch; None if it is there already."""
    values = (
        session,
        encode_text(batch.id),
        encode_text(encode_reason(batch.reason)),
        batch.tokens_before,
        batch.tokens_after,
    )
    db.execute(
        "INSERT OR IGNORE INTO batch (session, id, reason, tokens_before, tokens_after, created_at) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (*values, batch.created_at),
    )
    return db.last_insert_rowid() if db.changes() else None


def add_edits(
    db: apsw.Connection, session: int, edits: Iterable[Edit], seqs: dict[str, int], *, batch: int | None, now: float
) -> int:
    """Add edits, in force; return how many. A known one is left alone on arrival, and switched on by a batch."""
    added = 0
    for edit in edits:
        known = fetch_one(db, "SELECT key FROM edit WHERE session = ? AND id = ?", (session, encode_text(edit.id)))
        if known is not None:
            if batch is not None:
                sql = "UPDATE edit SET is_active = 1, batch = ?, payload = ?, created_at = ? WHERE key = ?"
                db.execute(sql, (batch, encode_edit(edit), now, known[0]))
                added += 1
            continue
        add_edit(db, session, StoredEdit(edit, "", True, now), seqs, batch)
        added += 1
    return added


def add_arrival(db: apsw.Connection, session: int, edits: Iterable[Edit], now: float) -> int:
    """Add edits made on arrival; return how many. One of a message that was forgotten must not bring its text back."""
    added = 0
    for edit in edits:
        seqs = find_covered(db, session, [edit])
        if seqs is not None:
            added += add_edits(db, session, [edit], seqs, batch=None, now=now)
    return added


def add_edit(db: apsw.Connection, session: int, stored: StoredEdit, seqs: Mapping[str, int], batch: int | None) -> None:
    """Add one edit that is not known, with its runs."""
    edit = stored.edit
    db.execute(
        "INSERT INTO edit (session, id, kind, level, batch, is_active, covered, created_at, payload) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            session,
            encode_text(edit.id),
            edit.kind,
            edit.level,
            batch,
            int(stored.is_active),
            len(edit.covers),
            stored.created_at,
            encode_edit(edit),
        ),
    )
    key = db.last_insert_rowid()
    for place, (first, last) in enumerate(find_runs(seqs[message_id] for message_id in edit.covers)):
        db.execute("INSERT INTO cover VALUES (?, ?, ?, ?, ?)", (key, place, session, first, last))


def switch_edits(db: apsw.Connection, session: int, ids: Iterable[str], *, on: bool) -> int:
    """Switch edits on or off; return how many were not so before."""
    changed = 0
    for edit_id in ids:
        sql = "UPDATE edit SET is_active = ? WHERE session = ? AND id = ? AND is_active <> ?"
        db.execute(sql, (int(on), session, encode_text(edit_id), int(on)))
        changed += db.changes()
    return changed


def read_rows(db: apsw.Connection, session: int, *, active_only: bool) -> list[EditRow]:
    """Return the rows of a session's edits, in the order they were made."""
    covers = db.execute(
        "SELECT cover.edit, first, last FROM edit CROSS JOIN cover ON cover.edit = edit.key "
        "WHERE edit.session = ? AND is_active >= ? ORDER BY cover.edit, place",
        (session, int(active_only)),
    )
    spans = group_spans(covers)
    sql = (
        "SELECT edit.key, edit.id, edit.batch, coalesce(batch.id, ''), is_active, covered, edit.created_at, payload "
        "FROM edit LEFT JOIN batch ON batch.key = edit.batch WHERE edit.session = ? AND is_active >= ? "
        "ORDER BY edit.created_at, edit.key"
    )
    return [read_edit_row(row, spans, decode_text) for row in db.execute(sql, (session, int(active_only)))]


def read_edits(db: apsw.Connection, session: int, *, active_only: bool) -> list[StoredEdit]:
    """Return a session's edits, in the order they were made."""
    rows = read_rows(db, session, active_only=active_only)
    return make_edits(rows, lambda low, high: read_ids(db, session, low, high))


def read_batches(db: apsw.Connection, session: int) -> list[StoredBatch]:
    """Return a session's batches, in the order they were committed."""
    sql = "SELECT batch, id, is_active FROM edit WHERE session = ? AND batch IS NOT NULL ORDER BY key"
    edits = fetch_all(db, sql, (session,))
    sql = "SELECT key, id, reason, tokens_before, tokens_after, created_at FROM batch WHERE session = ? ORDER BY key"
    return make_batches(db.execute(sql, (session,)), edits, decode_text)
