"""Rows of sessions: found by any text, made, changed, erased."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import apsw

from refold.errors import FormatError, LedgerError
from refold.ledger.encode import decode_text, dump_json, encode_text, load_json
from refold.ledger.ledger import SESSION_ID_MAX, SessionRow, end_prefix
from refold.ledger.sqlite.sql import fetch_one

_COLUMNS = (
    "key, id, created_at, updated_at, wire, model, message_count, tokens, compression_count, path_version, "
    "edits_version, settings, seq_last"
)
_SELECT = f"SELECT {_COLUMNS} FROM session"
# Tables that hold rows of a session, by the name of the column that says so.
TABLES = ("path", "cover", "edit", "batch", "fact", "event", "usage", "lease", "message")


@dataclass(frozen=True, slots=True)
class Found:
    """A session with what only the store needs: its key and the number of its newest message."""

    key: int
    seq_last: int
    row: SessionRow


def find_session(db: apsw.Connection, session_id: str) -> Found | None:
    """Return the session with this id."""
    stored = fetch_one(db, f"{_SELECT} WHERE id = ?", (encode_text(session_id),))
    return _read_found(stored) if stored else None


def need_session(db: apsw.Connection, session_id: str) -> Found:
    """Return the session with this id; LedgerError if it is not there (any more)."""
    found = find_session(db, session_id)
    if found is None:
        raise LedgerError(f"session {session_id!r} is not in the ledger; it was never opened, or it was deleted")
    return found


def is_as_seen(row: SessionRow, seen: SessionRow) -> bool:
    """Tell whether messages, edits, format and model are those that somebody saw."""
    return (row.path_version, row.edits_version, row.wire, row.model) == (
        seen.path_version,
        seen.edits_version,
        seen.wire,
        seen.model,
    )


def make_session(db: apsw.Connection, session_id: str, now: float) -> None:
    """Add a session unless it is there."""
    if not 1 <= len(session_id) <= SESSION_ID_MAX:
        raise FormatError(f"a session id has 1 to {SESSION_ID_MAX} characters, this one has {len(session_id)}")
    db.execute(
        "INSERT OR IGNORE INTO session (id, created_at, updated_at) VALUES (?, ?, ?)",
        (encode_text(session_id), now, now),
    )


def list_sessions(db: apsw.Connection, limit: int, offset: int, prefix: str = "") -> list[SessionRow]:
    """Return sessions, the last changed first; only those whose id begins so."""
    if prefix:
        # The plus keeps SQLite from walking all sessions by their time: the ids find those that are wanted.
        sql = f"{_SELECT} WHERE id >= ? AND id < ? ORDER BY +updated_at DESC, key DESC LIMIT ? OFFSET ?"
        rows = db.execute(sql, (prefix, end_prefix(prefix), limit, offset))
    else:
        rows = db.execute(f"{_SELECT} ORDER BY updated_at DESC, key DESC LIMIT ? OFFSET ?", (limit, offset))
    return [_read_found(row).row for row in rows]


def list_keys(db: apsw.Connection) -> list[tuple[int, str]]:
    """Return the key and the id of every session."""
    return [(key, decode_text(session_id)) for key, session_id in db.execute("SELECT key, id FROM session")]


def update_session(db: apsw.Connection, found: Found, changes: Mapping[str, object], now: float) -> None:
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
    db.execute(
        "UPDATE session SET wire = ?, model = ?, settings = ?, updated_at = ? WHERE key = ?",
        (encode_text(str(wire)), encode_text(str(model)), dump_json(kept), now, found.key),
    )


def delete_session(db: apsw.Connection, key: int) -> None:
    """Erase all rows of a session."""
    db.execute("DELETE FROM raw WHERE key IN (SELECT raw FROM message WHERE session = ?)", (key,))
    for table in TABLES:
        db.execute(f"DELETE FROM {table} WHERE session = ?", (key,))
    db.execute("DELETE FROM session WHERE key = ?", (key,))


def _read_found(row: tuple[Any, ...]) -> Found:
    key, session_id, created_at, updated_at, wire, model, messages, tokens, compressions, path, edits, settings, seq = (
        row
    )
    shown = SessionRow(
        id=decode_text(session_id),
        created_at=created_at,
        updated_at=updated_at,
        wire=decode_text(wire),
        model=decode_text(model),
        messages=messages,
        tokens=tokens,
        compression_count=compressions,
        path_version=path,
        edits_version=edits,
        settings=load_json(settings if isinstance(settings, bytes) else settings.encode()),
    )
    return Found(key, seq, shown)
