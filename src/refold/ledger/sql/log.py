"""Rows that are only ever added: events, facts, usage; and the lease, the right to compress a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from operator import attrgetter

from refold.conversation.view import Fact
from refold.ledger.codec import dump_json, load_json
from refold.ledger.records import LEASE_S_MAX, Event, StoredFact, StoredUsage
from refold.ledger.sql.database import Database, SqlRow

_USAGE_NAMES = [column.name for column in fields(StoredUsage)]
_USAGE_COLUMNS = ", ".join(_USAGE_NAMES)
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


def read_events(db: Database, session: int | None, *, after: int, limit: int) -> list[Event]:
    """Return events of one session or all, oldest first."""
    which, values = ("event.session = ? AND ", (session,)) if session is not None else ("", ())
    sql = f"{_EVENTS}{which}event.id > ? ORDER BY event.id LIMIT ?"
    return [_read_event(db, row) for row in db.fetch_all(sql, (*values, after, limit))]


def read_newest_events(db: Database, session: int | None, *, limit: int) -> list[Event]:
    """Return events of one session or all, newest first."""
    which, values = ("event.session = ? AND ", (session,)) if session is not None else ("", ())
    sql = f"{_EVENTS}{which}event.id > 0 ORDER BY event.id DESC LIMIT ?"
    return [_read_event(db, row) for row in db.fetch_all(sql, (*values, limit))]


def _read_event(db: Database, row: SqlRow) -> Event:
    event_id, kind, created_at, stored, session_id = row
    return Event(db.decode(kind), created_at, load_json(stored), event_id, db.decode(session_id))


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
    created_at, model, *counts = _read_figures(usage)
    sql = f"INSERT INTO usage (session, {_USAGE_COLUMNS}) VALUES ({_USAGE_MARKS})"
    db.run(sql, (session, created_at, db.encode(model), *counts))


def read_usage(db: Database, session: int, *, limit: int) -> list[StoredUsage]:
    """Return reported usage, newest first."""
    sql = f"SELECT {_USAGE_COLUMNS} FROM usage WHERE session = ? ORDER BY key DESC LIMIT ?"
    rows = db.fetch_all(sql, (session, limit))
    return [StoredUsage(created_at, db.decode(model), *counts) for created_at, model, *counts in rows]


def write_probe(db: Database) -> None:
    """Write a row and delete it in one transaction that is committed: a rolled-back one may never reach the disk."""
    sql = "INSERT INTO lease (session, owner, expires_at) VALUES (-1, ?, 0) ON CONFLICT DO NOTHING"
    db.run(sql, (db.encode("probe"),))
    db.run("DELETE FROM lease WHERE session = -1")


def take_lease(db: Database, session: int, owner: str, *, seconds: float, now: float) -> bool:
    """Take or extend the lease; False while another owner's has not expired."""
    sql = (
        "INSERT INTO lease (session, owner, expires_at) VALUES (?, ?, ?) ON CONFLICT (session) DO UPDATE "
        "SET owner = excluded.owner, expires_at = excluded.expires_at "
        "WHERE lease.owner = excluded.owner OR lease.expires_at <= ? OR lease.expires_at > ? RETURNING session"
    )
    return db.fetch_one(sql, (session, db.encode(owner), now + seconds, now, now + LEASE_S_MAX)) is not None


def holds_lease(db: Database, session: int, owner: str, now: float) -> bool:
    """Return whether this owner has the lease now."""
    sql = "SELECT 1 FROM lease WHERE session = ? AND owner = ? AND expires_at > ?"
    return db.fetch_one(sql, (session, db.encode(owner), now)) is not None


def is_leased(db: Database, session: int, now: float) -> bool:
    """Return whether any owner has the lease now."""
    sql = "SELECT 1 FROM lease WHERE session = ? AND expires_at > ? AND expires_at <= ?"
    return db.fetch_one(sql, (session, now, now + LEASE_S_MAX)) is not None


def drop_lease(db: Database, session: int, owner: str) -> None:
    """Release the lease if this owner has it."""
    db.run("DELETE FROM lease WHERE session = ? AND owner = ?", (session, db.encode(owner)))
