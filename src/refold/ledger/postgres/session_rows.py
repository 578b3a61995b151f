"""Rows of sessions: found by any text, locked before they are changed, erased.

Whoever changes anything of a session locks its row first and nothing before it, so that changes of one session follow
one another and no two processes ever wait for each other in a circle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import psycopg

from refold.errors import FormatError, LedgerError
from refold.ledger.encode import dump_json, load_json
from refold.ledger.ledger import SESSION_ID_MAX, SessionRow, end_prefix
from refold.ledger.postgres.sql import Db, Row, fetch_all, fetch_one, run
from refold.ledger.postgres.text import decode_column, encode_column

_SELECT = (
    "SELECT key, id, created_at, updated_at, wire, model, message_count, tokens, compression_count, path_version, "
    "edits_version, settings, seq_last FROM session"
)
# The key of a session by its id, for statements that are sent before the session itself was read.
KEY = "(SELECT key FROM session WHERE session.id = %s)"
# Tables that hold rows of a session.
TABLES = ("path", "cover", "edit", "batch", "fact", "event", "usage", "lease", "message")


@dataclass(frozen=True, slots=True)
class Found:
    """A session with what only the store needs: its key and the number of its newest message."""

    key: int
    seq_last: int
    row: SessionRow


def find_session(db: Db, session_id: str) -> Found | None:
    """Return the session with this id."""
    stored = fetch_one(db, f"{_SELECT} WHERE id = %s", (encode_column(session_id),))
    return _read_found(stored) if stored else None


def ask_lock(db: Db, session_id: str) -> psycopg.Cursor[Row]:
    """Ask for a session with nobody else changing it before this transaction ends; ``read_lock`` reads the answer."""
    return run(db, f"{_SELECT} WHERE id = %s FOR UPDATE", (encode_column(session_id),))


def read_lock(told: psycopg.Cursor[Row], session_id: str) -> Found:
    """Return the session that was asked for, locked; LedgerError if it is not there (any more)."""
    stored = told.fetchone()
    if stored is None:
        raise LedgerError(f"session {session_id!r} is not in the ledger; it was never opened, or it was deleted")
    return _read_found(stored)


def need_session(db: Db, session_id: str) -> Found:
    """Return the session with this id, locked; LedgerError if it is not there (any more)."""
    return read_lock(ask_lock(db, session_id), session_id)


def lock_session(db: Db, session_id: str) -> Found | None:
    """Return the session with this id, locked, if it is there."""
    stored = ask_lock(db, session_id).fetchone()
    return _read_found(stored) if stored else None


def make_session(db: Db, session_id: str, now: float) -> None:
    """Add a session unless it is there."""
    if not 1 <= len(session_id) <= SESSION_ID_MAX:
        raise FormatError(f"a session id has 1 to {SESSION_ID_MAX} characters, this one has {len(session_id)}")
    sql = "INSERT INTO session (id, created_at, updated_at) VALUES (%s, %s, %s) ON CONFLICT (id) DO NOTHING"
    run(db, sql, (encode_column(session_id), now, now))


def list_sessions(db: Db, limit: int, offset: int, prefix: str = "") -> list[SessionRow]:
    """Return sessions, the last changed first; only those whose id begins so."""
    which, values = ("WHERE id >= %s AND id < %s ", (prefix, end_prefix(prefix))) if prefix else ("", ())
    sql = f"{_SELECT} {which}ORDER BY updated_at DESC, key DESC LIMIT %s OFFSET %s"
    return [_read_found(row).row for row in fetch_all(db, sql, (*values, limit, offset))]


def list_keys(db: Db) -> list[tuple[int, str]]:
    """Return the key and the id of every session."""
    return [(key, decode_column(session_id)) for key, session_id in fetch_all(db, "SELECT key, id FROM session")]


def update_session(db: Db, found: Found, changes: Mapping[str, object], now: float) -> None:
    """Set wire and model; merge settings key by key."""
    unknown = set(changes) - {"wire", "model", "settings"}
    if unknown:
        raise ValueError(f"a session has no {', '.join(sorted(unknown))}; it has wire, model and settings")
    settings: dict[str, object] = dict(found.row.settings)
    patch = changes.get("settings", {})
    if not isinstance(patch, Mapping):
        raise ValueError("settings is a mapping of the keys that change")
    settings.update(patch)
    kept = {name: value for name, value in settings.items() if value is not None}
    wire, model = changes.get("wire", found.row.wire), changes.get("model", found.row.model)
    run(
        db,
        "UPDATE session SET wire = %s, model = %s, settings = %s, updated_at = %s WHERE key = %s",
        (encode_column(str(wire)), encode_column(str(model)), dump_json(kept), now, found.key),
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


def _read_found(row: Row) -> Found:
    key, session_id, created_at, updated_at, wire, model, messages, tokens, compressions, path, edits, settings, seq = (
        row
    )
    shown = SessionRow(
        id=decode_column(session_id),
        created_at=created_at,
        updated_at=updated_at,
        wire=decode_column(wire),
        model=decode_column(model),
        messages=messages,
        tokens=tokens,
        compression_count=compressions,
        path_version=path,
        edits_version=edits,
        settings=load_json(settings),
    )
    return Found(key, seq, shown)
