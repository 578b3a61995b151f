"""Rows of sessions: found by id, locked before they are changed, deleted with all their rows.

A transaction that changes anything of a session locks its row first and nothing before it. So changes of one session
follow one another, and two processes cannot deadlock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from refold.errors import LedgerError
from refold.ledger.codec import dump_json, load_json
from refold.ledger.records import SessionRow, change_row, check_id, end_prefix
from refold.ledger.sql.database import Database, SqlAnswer

SELECT = (
    "SELECT key, id, created_at, updated_at, wire, model, message_count, tokens, compression_count, path_version, "
    "edits_version, settings, seq_last FROM session"
)
# The key of a session by its id, for statements that are sent before the session itself was read.
KEY = "(SELECT key FROM session WHERE session.id = ?)"
# Every table with rows of a session, in the column ``session``.
TABLES = ("path", "cover", "edit", "batch", "fact", "event", "usage", "lease", "message")


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session with what only the store needs: its key and the number of its newest message."""

    key: int
    seq_last: int
    row: SessionRow


def find_session(db: Database, session_id: str) -> StoredSession | None:
    """Return the session with this id, if there is one."""
    row = db.fetch_one(f"{SELECT} WHERE id = ?", (db.encode(session_id),))
    return _read_session(db, row) if row else None


def ask_locked(db: Database, session_id: str) -> SqlAnswer:
    """Ask for a session, locked until the transaction ends; ``read_locked`` reads the answer."""
    return db.run(f"{SELECT} WHERE id = ?{db.lock}", (db.encode(session_id),))


def read_locked(db: Database, answer: SqlAnswer, session_id: str) -> StoredSession:
    """Return the session that ``ask_locked`` asked for; LedgerError if there is none."""
    row = answer.fetchone()
    if row is None:
        raise LedgerError(f"session {session_id!r} is not in the ledger; it was never opened, or it was deleted")
    return _read_session(db, row)


def need_session(db: Database, session_id: str) -> StoredSession:
    """Return the session with this id, locked; LedgerError if there is none."""
    return read_locked(db, ask_locked(db, session_id), session_id)


def lock_session(db: Database, session_id: str) -> StoredSession | None:
    """Return the session with this id, locked, if there is one."""
    row = ask_locked(db, session_id).fetchone()
    return _read_session(db, row) if row else None


def make_session(db: Database, session_id: str, now: float) -> bool:
    """Add a session; False if the id is taken."""
    check_id(session_id)
    sql = "INSERT INTO session (id, created_at, updated_at) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING RETURNING key"
    return db.fetch_one(sql, (db.encode(session_id), now, now)) is not None


def list_sessions(db: Database, *, limit: int, offset: int, prefix: str = "") -> list[SessionRow]:
    """Return sessions whose id begins with the prefix, the last changed first."""
    if prefix:
        # The plus keeps SQLite from scanning all sessions by their time: the index on the id finds these few.
        sql = f"{SELECT} WHERE id >= ? AND id < ? ORDER BY +updated_at DESC, key DESC LIMIT ? OFFSET ?"
        rows = db.fetch_all(sql, (prefix, end_prefix(prefix), limit, offset))
    else:
        rows = db.fetch_all(f"{SELECT} ORDER BY updated_at DESC, key DESC LIMIT ? OFFSET ?", (limit, offset))
    return [_read_session(db, row).row for row in rows]


def measure(db: Database, prefix: str) -> int:
    """Return how many bytes of messages the sessions have whose id begins with the prefix."""
    which, values = ("WHERE session.id >= ? AND session.id < ?", (prefix, end_prefix(prefix))) if prefix else ("", ())
    joined = f"session JOIN message ON message.session = session.key{db.join_body}"
    return int(db.fetch_value(f"SELECT coalesce(sum(length(body)), 0) FROM {joined} {which}", values))


def list_keys(db: Database) -> list[tuple[int, str]]:
    """Return the key and the id of every session."""
    return [(key, db.decode(session_id)) for key, session_id in db.fetch_all("SELECT key, id FROM session")]


def update_session(db: Database, found: StoredSession, changes: Mapping[str, object], now: float) -> None:
    """Set wire and model; merge settings key by key."""
    row = change_row(found.row, changes)
    db.run(
        "UPDATE session SET wire = ?, model = ?, settings = ?, updated_at = ? WHERE key = ?",
        (db.encode(row.wire), db.encode(row.model), dump_json(row.settings), now, found.key),
    )


def mark_changed(db: Database, session: int, *, edits: bool, now: float) -> None:
    """Record that a session changed, and whether its edits did."""
    sql = "UPDATE session SET edits_version = edits_version + ?, updated_at = ? WHERE key = ?"
    db.run(sql, (int(edits), now, session))


def delete_session(db: Database, session: int) -> None:
    """Delete all rows of a session."""
    db.delete_content(session)
    for table in TABLES:
        db.run(f"DELETE FROM {table} WHERE session = ?", (session,))
    db.run("DELETE FROM session WHERE key = ?", (session,))


def _read_session(db: Database, row: Sequence[Any]) -> StoredSession:
    key, session_id, created_at, updated_at, wire, model, *counts, settings, seq_last = row
    messages, tokens, compressions, path_version, edits_version = counts
    shown = SessionRow(
        id=db.decode(session_id),
        created_at=created_at,
        updated_at=updated_at,
        wire=db.decode(wire),
        model=db.decode(model),
        messages=messages,
        tokens=tokens,
        compression_count=compressions,
        path_version=path_version,
        edits_version=edits_version,
        settings=load_json(settings if isinstance(settings, bytes) else settings.encode()),
    )
    return StoredSession(key, seq_last, shown)
