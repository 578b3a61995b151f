"""Rows of sessions, and rows that are only ever added to one: events, facts, usage.

A transaction that changes anything of a session locks its row first and nothing before it. So changes of one session
follow one another, and two processes cannot deadlock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

from refold.conversation.message import frozen
from refold.conversation.view import Fact
from refold.errors import SessionNotFound
from refold.ledger.codec import dump_json, load_json
from refold.ledger.records import (
    Event,
    SessionRow,
    StoredFact,
    StoredUsage,
    check_id,
    merge_settings,
)
from refold.ledger.sql.database import Database, SqlAnswer, SqlRow

SELECT = (
    "SELECT key, id, created_at, updated_at, wire, model, message_count, tokens, compression_count, path_version, "
    "edits_version, settings, seq_last FROM session"
)
# The key of a session by its id, for statements that are sent before the session itself was read.
KEY = "(SELECT key FROM session WHERE session.id = ?)"
# Every table with rows of a session, in the column ``session``.
TABLES = ("path", "cover", "edit", "batch", "fact", "event", "usage", "lease", "message")


@frozen
class StoredSession:
    """A session with what only the store needs: its key and the number of its newest message."""

    key: int
    seq_last: int
    row: SessionRow


def find_session(db: Database, session_id: str) -> StoredSession | None:
    row = db.fetch_one(f"{SELECT} WHERE id = ?", (db.encode(session_id),))
    return read_stored(db, row) if row else None


def ask_locked(db: Database, session_id: str) -> SqlAnswer:
    """Ask for a session, locked until the transaction ends; ``read_locked`` reads the answer."""
    return db.run(f"{SELECT} WHERE id = ?{db.lock}", (db.encode(session_id),))


def read_locked(db: Database, answer: SqlAnswer, session_id: str) -> StoredSession:
    """Return the session that ``ask_locked`` asked for; SessionNotFound if there is none."""
    row = answer.fetchone()
    if row is None:
        raise SessionNotFound(session_id)
    return read_stored(db, row)


def need_session(db: Database, session_id: str) -> StoredSession:
    """Return the session with this id, locked; SessionNotFound if there is none."""
    return read_locked(db, ask_locked(db, session_id), session_id)


def lock_session(db: Database, session_id: str) -> StoredSession | None:
    """Return the session with this id, locked, if there is one."""
    row = ask_locked(db, session_id).fetchone()
    return read_stored(db, row) if row else None


def make_session(db: Database, session_id: str, now: float) -> bool:
    """Add a session; False if the id is taken."""
    check_id(session_id)
    sql = "INSERT INTO session (id, created_at, updated_at) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING RETURNING key"
    return db.fetch_one(sql, (db.encode(session_id), now, now)) is not None


def _end_prefix(prefix: str) -> str:
    """Return the smallest text, compared by bytes, that is greater than every text with this ASCII prefix."""
    if not prefix.isascii() or not prefix.isprintable() or prefix.endswith("~"):
        raise ValueError(f"the prefix {prefix[:40]!r} must be printable ASCII and must not end with '~'")
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def list_sessions(db: Database, *, limit: int, offset: int, prefix: str = "", holding: bytes = b"") -> list[SessionRow]:
    """Return sessions by the beginning of their id, the last changed first; those whose settings hold some bytes."""
    chosen = " ORDER BY updated_at DESC, key DESC LIMIT ? OFFSET ?"
    values: tuple[Any, ...] = (limit, offset)
    if prefix:
        # The plus keeps SQLite from scanning all sessions by their time: the index on the id finds these few.
        chosen = " WHERE id >= ? AND id < ? ORDER BY +updated_at DESC, key DESC LIMIT ? OFFSET ?"
        values = (prefix, _end_prefix(prefix), *values)
    if not holding:
        rows = db.fetch_all(f"{SELECT}{chosen}", values)
    else:
        sql = f"{SELECT} WHERE key IN (SELECT key FROM session{chosen}) AND {db.has_setting} ORDER BY updated_at DESC"
        rows = db.fetch_all(sql, (*values, holding))
    return [read_stored(db, row).row for row in rows]


def measure(db: Database, prefix: str) -> int:
    """Return how many bytes of messages the sessions have whose id begins with the prefix."""
    which, values = ("WHERE session.id >= ? AND session.id < ?", (prefix, _end_prefix(prefix))) if prefix else ("", ())
    joined = f"session JOIN message ON message.session = session.key{db.join_body}"
    return int(db.fetch_value(f"SELECT coalesce(sum(length(body)), 0) FROM {joined} {which}", values))


def list_keys(db: Database) -> list[tuple[int, str]]:
    """Return the key and the id of every session."""
    return [(key, db.decode(session_id)) for key, session_id in db.fetch_all("SELECT key, id FROM session")]


def _change_row(row: SessionRow, changes: Mapping[str, object]) -> SessionRow:
    """Return the row with wire and model set, and settings merged key by key; None removes a setting."""
    unknown = set(changes) - {"wire", "model", "settings"}
    if unknown:
        raise ValueError(f"a session has no {', '.join(sorted(unknown))}; it has wire, model and settings")
    patch = changes.get("settings", {})
    if not isinstance(patch, Mapping):
        raise ValueError("settings must be a mapping of the keys that change")
    kept = merge_settings(row.settings, patch)
    wire, model = changes.get("wire", row.wire), changes.get("model", row.model)
    return replace(row, wire=str(wire), model=str(model), settings=kept)


def update_session(db: Database, found: StoredSession, changes: Mapping[str, object], now: float) -> None:
    """Set wire and model; merge settings key by key."""
    row = _change_row(found.row, changes)
    db.run(
        "UPDATE session SET wire = ?, model = ?, settings = ?, updated_at = ? WHERE key = ?",
        (db.encode(row.wire), db.encode(row.model), dump_json(row.settings), now, found.key),
    )


def mark_changed(db: Database, session: int, *, edits: bool, now: float) -> None:
    """Record that a session changed, and whether its edits did."""
    sql = "UPDATE session SET edits_version = edits_version + ?, updated_at = ? WHERE key = ?"
    db.run(sql, (int(edits), now, session))


def delete_session(db: Database, session: int) -> None:
    db.delete_content(session)
    for table in TABLES:
        db.run(f"DELETE FROM {table} WHERE session = ?", (session,))
    db.run("DELETE FROM session WHERE key = ?", (session,))


def probe(db: Database) -> None:
    """Write rows of no session, and delete them. They are committed: what is rolled back may never reach the disk."""
    sql = "INSERT INTO lease (session, owner, expires_at) VALUES (-1, ?, 0) ON CONFLICT DO NOTHING"
    db.run(sql, (db.encode("probe"),))
    sql = (
        "INSERT INTO message (session, seq, id, parent, digest, role, tokens, created_at) "
        "VALUES (-1, 0, ?, ?, ?, 'probe', 0, 0) ON CONFLICT DO NOTHING"
    )
    db.run(sql, (b"", b"", b""))
    db.run("DELETE FROM message WHERE session = -1")
    db.run("DELETE FROM lease WHERE session = -1")


def take_lease(db: Database, session: int, owner: str, times: tuple[float, float, float]) -> bool:
    """Take or extend a lease until the first of these times; one that ends by the second or after the third is void."""
    sql = (
        "INSERT INTO lease (session, owner, expires_at) VALUES (?, ?, ?) ON CONFLICT (session) DO UPDATE "
        "SET owner = excluded.owner, expires_at = excluded.expires_at "
        "WHERE lease.owner = excluded.owner OR lease.expires_at <= ? OR lease.expires_at > ? RETURNING session"
    )
    return db.fetch_one(sql, (session, db.encode(owner), *times)) is not None


def read_stored(db: Database, row: Sequence[Any]) -> StoredSession:
    """Return a session from a row of ``SELECT``."""
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


_USAGE_NAMES = [column.name for column in fields(StoredUsage)]
USAGE_COLUMNS = ", ".join(_USAGE_NAMES)
_USAGE_MARKS = ", ".join("?" * (len(_USAGE_NAMES) + 1))
_read_figures = attrgetter(*_USAGE_NAMES)
_EVENTS = (
    "SELECT event.id, kind, event.created_at, fields, session.id FROM event CROSS JOIN session "
    "ON session.key = event.session WHERE "
)


def add_events(db: Database, session: int, events: Sequence[Event]) -> int:
    """Log events; return the id of the last one, 0 without events."""
    if not events:
        return 0
    db.lock_events()
    sql = "INSERT INTO event (session, kind, created_at, fields) VALUES (?, ?, ?, ?) RETURNING id"
    answers = [
        db.run(sql, (session, db.encode(event.kind), event.created_at, dump_json(dict(event.fields))))
        for event in events
    ]
    return max(int(row[0]) for row in answers[-1].fetchall())


def read_events(
    db: Database, session: int | None, *, after: int = 0, limit: int, is_newest_first: bool = False
) -> list[Event]:
    """Return events of one session or all, oldest or newest first."""
    which, values = ("event.session = ? AND ", (session,)) if session is not None else ("", ())
    sql = f"{_EVENTS}{which}event.id > ? ORDER BY event.id{' DESC' if is_newest_first else ''} LIMIT ?"
    return [
        Event(db.decode(kind), created_at, load_json(stored), event_id, db.decode(session_id))
        for event_id, kind, created_at, stored, session_id in db.fetch_all(sql, (*values, after, limit))
    ]


def read_facts(db: Database, session: int | None, *, limit: int) -> list[StoredFact]:
    """Return facts of one session or all, oldest first."""
    which, values = ("WHERE fact.session = ? ", (session,)) if session is not None else ("", ())
    sql = (
        "SELECT kind, text, handle, session.id, coalesce(batch.id, ''), fact.created_at FROM fact "
        "CROSS JOIN session ON session.key = fact.session LEFT JOIN batch ON batch.key = fact.batch "
        f"{which}ORDER BY fact.key LIMIT ?"
    )
    return [
        StoredFact(Fact(kind, db.decode(text), db.decode(handle)), db.decode(session_id), db.decode(batch), created_at)
        for kind, text, handle, session_id, batch, created_at in db.fetch_all(sql, (*values, limit))
    ]


def add_usage(db: Database, session: int, usage: StoredUsage) -> None:
    """Store the usage that a provider reported."""
    db.run(f"INSERT INTO usage (session, {USAGE_COLUMNS}) VALUES ({_USAGE_MARKS})", write_usage(db, session, usage))


def write_usage(db: Database, session: int, usage: StoredUsage) -> SqlRow:
    """Return the row of a reported usage: the session, then ``USAGE_COLUMNS``."""
    created_at, model, *counts = _read_figures(usage)
    return (session, created_at, db.encode(model), *counts)


def read_usage(db: Database, session: int, *, limit: int) -> list[StoredUsage]:
    """Return reported usage, newest first."""
    sql = f"SELECT {USAGE_COLUMNS} FROM usage WHERE session = ? ORDER BY key DESC LIMIT ?"
    rows = db.fetch_all(sql, (session, limit))
    return [StoredUsage(created_at, db.decode(model), *counts) for created_at, model, *counts in rows]
