"""Rows of sessions: found by any text, made, changed, erased."""

from __future__ import annotations

from collections.abc import Mapping

import apsw

from refold.ledger.codec import decode_text, dump_json, encode_text
from refold.ledger.records import SessionRow, change_row, check_id, end_prefix
from refold.ledger.session_row import SELECT, TABLES, Found, explain_missing, read_found
from refold.ledger.sqlite.sql import fetch_one


def find_session(db: apsw.Connection, session_id: str) -> Found | None:
    """Return the session with this id."""
    stored = fetch_one(db, f"{SELECT} WHERE id = ?", (encode_text(session_id),))
    return read_found(stored, decode_text) if stored else None


def need_session(db: apsw.Connection, session_id: str) -> Found:
    """Return the session with this id; LedgerError if it is not there (any more)."""
    found = find_session(db, session_id)
    if found is None:
        raise explain_missing(session_id)
    return found


def make_session(db: apsw.Connection, session_id: str, now: float) -> None:
    """Add a session unless it is there."""
    check_id(session_id)
    db.execute(
        "INSERT OR IGNORE INTO session (id, created_at, updated_at) VALUES (?, ?, ?)",
        (encode_text(session_id), now, now),
    )


def list_sessions(db: apsw.Connection, limit: int, offset: int, prefix: str = "") -> list[SessionRow]:
    """Return sessions, the last changed first; only those whose id begins so."""
    if prefix:
        # The plus keeps SQLite from walking all sessions by their time: the ids find those that are wanted.
        sql = f"{SELECT} WHERE id >= ? AND id < ? ORDER BY +updated_at DESC, key DESC LIMIT ? OFFSET ?"
        rows = db.execute(sql, (prefix, end_prefix(prefix), limit, offset))
    else:
        rows = db.execute(f"{SELECT} ORDER BY updated_at DESC, key DESC LIMIT ? OFFSET ?", (limit, offset))
    return [read_found(row, decode_text).row for row in rows]


def list_keys(db: apsw.Connection) -> list[tuple[int, str]]:
    """Return the key and the id of every session."""
    return [(key, decode_text(session_id)) for key, session_id in db.execute("SELECT key, id FROM session")]


def update_session(db: apsw.Connection, found: Found, changes: Mapping[str, object], now: float) -> None:
    """Set wire and model; merge settings key by key."""
    changed = change_row(found.row, changes)
    db.execute(
        "UPDATE session SET wire = ?, model = ?, settings = ?, updated_at = ? WHERE key = ?",
        (encode_text(changed.wire), encode_text(changed.model), dump_json(changed.settings), now, found.key),
    )


def count_edit_change(db: apsw.Connection, session: int, *, has_changed: bool, now: float) -> None:
    """Note that a session changed, and whether its edits did."""
    sql = "UPDATE session SET edits_version = edits_version + ?, updated_at = ? WHERE key = ?"
    db.execute(sql, (int(has_changed), now, session))


def delete_session(db: apsw.Connection, key: int) -> None:
    """Erase all rows of a session."""
    db.execute("DELETE FROM raw WHERE key IN (SELECT raw FROM message WHERE session = ?)", (key,))
    for table in TABLES:
        db.execute(f"DELETE FROM {table} WHERE session = ?", (key,))
    db.execute("DELETE FROM session WHERE key = ?", (key,))
