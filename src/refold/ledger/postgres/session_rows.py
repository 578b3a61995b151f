"""Rows of sessions: found by any text, locked before they are changed, erased.

Whoever changes anything of a session locks its row first and nothing before it, so that changes of one session follow
one another and no two processes ever wait for each other in a circle.
"""

from __future__ import annotations

from collections.abc import Mapping

import psycopg

from refold.ledger.codec import decode_column, dump_json, encode_column
from refold.ledger.postgres.sql import Db, Row, fetch_all, fetch_one, run
from refold.ledger.records import SessionRow, change_row, check_id, end_prefix
from refold.ledger.session_row import SELECT, TABLES, Found, explain_missing, read_found

# The key of a session by its id, for statements that are sent before the session itself was read.
KEY = "(SELECT key FROM session WHERE session.id = %s)"


def find_session(db: Db, session_id: str) -> Found | None:
    """Return the session with this id."""
    stored = fetch_one(db, f"{SELECT} WHERE id = %s", (encode_column(session_id),))
    return read_found(stored, decode_column) if stored else None


def ask_lock(db: Db, session_id: str) -> psycopg.Cursor[Row]:
    """Ask for a session with nobody else changing it before this transaction ends; ``read_lock`` reads the answer."""
    return run(db, f"{SELECT} WHERE id = %s FOR UPDATE", (encode_column(session_id),))


def read_lock(told: psycopg.Cursor[Row], session_id: str) -> Found:
    """Return the session that was asked for, locked; LedgerError if it is not there (any more)."""
    stored = told.fetchone()
    if stored is None:
        raise explain_missing(session_id)
    return read_found(stored, decode_column)


def need_session(db: Db, session_id: str) -> Found:
    """Return the session with this id, locked; LedgerError if it is not there (any more)."""
    return read_lock(ask_lock(db, session_id), session_id)


def lock_session(db: Db, session_id: str) -> Found | None:
    """Return the session with this id, locked, if it is there."""
    stored = ask_lock(db, session_id).fetchone()
    return read_found(stored, decode_column) if stored else None


def make_session(db: Db, session_id: str, now: float) -> bool:
    """Add a session unless it is there; tell whether it was not."""
    check_id(session_id)
    sql = (
        "INSERT INTO session (id, created_at, updated_at) VALUES (%s, %s, %s) ON CONFLICT (id) DO NOTHING RETURNING key"
    )
    return fetch_one(db, sql, (encode_column(session_id), now, now)) is not None


def list_sessions(db: Db, limit: int, offset: int, prefix: str = "") -> list[SessionRow]:
    """Return sessions, the last changed first; only those whose id begins so."""
    which, values = ("WHERE id >= %s AND id < %s ", (prefix, end_prefix(prefix))) if prefix else ("", ())
    sql = f"{SELECT} {which}ORDER BY updated_at DESC, key DESC LIMIT %s OFFSET %s"
    return [read_found(row, decode_column).row for row in fetch_all(db, sql, (*values, limit, offset))]


def list_keys(db: Db) -> list[tuple[int, str]]:
    """Return the key and the id of every session."""
    return [(key, decode_column(session_id)) for key, session_id in fetch_all(db, "SELECT key, id FROM session")]


def update_session(db: Db, found: Found, changes: Mapping[str, object], now: float) -> None:
    """Set wire and model; merge settings key by key."""
    changed = change_row(found.row, changes)
    run(
        db,
        "UPDATE session SET wire = %s, model = %s, settings = %s, updated_at = %s WHERE key = %s",
        (encode_column(changed.wire), encode_column(changed.model), dump_json(changed.settings), now, found.key),
    )


def count_edit_change(db: Db, session: int, *, has_changed: bool, now: float) -> None:
    """Note that a session changed, and whether its edits did."""
    sql = "UPDATE session SET edits_version = edits_version + %s, updated_at = %s WHERE key = %s"
    run(db, sql, (int(has_changed), now, session))


def delete_session(db: Db, key: int) -> None:
    """Erase all rows of a session."""
    for table in TABLES:
        run(db, f"DELETE FROM {table} WHERE session = %s", (key,))
    run(db, "DELETE FROM session WHERE key = %s", (key,))
