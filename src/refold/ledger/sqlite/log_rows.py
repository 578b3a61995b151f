"""Rows that only grow: events, facts, usage; and the lease, the right to compress a session."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from operator import attrgetter

import apsw

from refold.conversation.edit import Fact
from refold.ledger.codec import decode_text, dump_json, encode_text, load_json
from refold.ledger.records import LEASE_S_MAX, Event, StoredFact, StoredUsage
from refold.ledger.sqlite.sql import fetch_one

_USAGE_COLUMNS = ", ".join(column.name for column in fields(StoredUsage))
_USAGE_MARKS = ", ".join("?" * (len(fields(StoredUsage)) + 1))
_read_figures = attrgetter(*(column.name for column in fields(StoredUsage)))


def add_events(db: apsw.Connection, session: int, events: Iterable[Event]) -> int:
    """Log events; return the id of the last."""
    for event in events:
        db.execute(
            "INSERT INTO event (session, kind, created_at, fields) VALUES (?, ?, ?, ?)",
            (session, encode_text(event.kind), event.created_at, dump_json(dict(event.fields))),
        )
    return db.last_insert_rowid()


def read_events(db: apsw.Connection, session: int | None, after: int, limit: int) -> list[Event]:
    """Return events of one session or all, oldest first."""
    which, values = ("event.session = ? AND ", (session,)) if session is not None else ("", ())
    sql = (
        "SELECT event.id, kind, event.created_at, fields, session.id FROM event CROSS JOIN session "
        f"ON session.key = event.session WHERE {which}event.id > ? ORDER BY event.id LIMIT ?"
    )
    return [
        Event(decode_text(kind), created_at, load_json(stored), event_id, decode_text(session_id))
        for event_id, kind, created_at, stored, session_id in db.execute(sql, (*values, after, limit))
    ]


def add_facts(db: apsw.Connection, session: int, batch: int, facts: Iterable[Fact], now: float) -> None:
    """Keep facts; one that is known keeps its first place."""
    for fact in facts:
        db.execute(
            "INSERT OR IGNORE INTO fact (session, batch, kind, text, handle, created_at) VALUES (?, ?, ?, ?, ?, ?)",
            (session, batch, fact.kind, encode_text(fact.text), encode_text(fact.handle), now),
        )


def read_facts(db: apsw.Connection, session: int | None, limit: int) -> list[StoredFact]:
    """Return facts of one session or all, oldest first."""
    which, values = ("WHERE fact.session = ? ", (session,)) if session is not None else ("", ())
    sql = (
        "SELECT kind, text, handle, session.id, coalesce(batch.id, ''), fact.created_at FROM fact "
        "CROSS JOIN session ON session.key = fact.session LEFT JOIN batch ON batch.key = fact.batch "
        f"{which}ORDER BY fact.key LIMIT ?"
    )
    return [
        StoredFact(
            Fact(kind, decode_text(text), decode_text(handle)), decode_text(session_id), decode_text(batch), created_at
        )
        for kind, text, handle, session_id, batch, created_at in db.execute(sql, (*values, limit))
    ]


def add_usage(db: apsw.Connection, session: int, usage: StoredUsage) -> None:
    """Keep what a provider reported."""
    created_at, model, *counts = _read_figures(usage)
    db.execute(
        f"INSERT INTO usage (session, {_USAGE_COLUMNS}) VALUES ({_USAGE_MARKS})",
        (session, created_at, encode_text(model), *counts),
    )


def read_usage(db: apsw.Connection, session: int, limit: int) -> list[StoredUsage]:
    """Return reported usage, newest first."""
    sql = f"SELECT {_USAGE_COLUMNS} FROM usage WHERE session = ? ORDER BY key DESC LIMIT ?"
    return [
        StoredUsage(created_at, decode_text(model), *counts)
        for created_at, model, *counts in db.execute(sql, (session, limit))
    ]


def take_lease(db: apsw.Connection, session: int, owner: str, expires_at: float, now: float) -> bool:
    """Take or prolong the lease; False while another owner's has not run out."""
    db.execute(
        "INSERT INTO lease VALUES (?, ?, ?) ON CONFLICT (session) DO UPDATE "
        "SET owner = excluded.owner, expires_at = excluded.expires_at "
        "WHERE owner = excluded.owner OR expires_at <= ? OR expires_at > ?",
        (session, encode_text(owner), expires_at, now, now + LEASE_S_MAX),
    )
    return bool(db.changes())


def holds_lease(db: apsw.Connection, session: int, owner: str, now: float) -> bool:
    """Tell whether this owner has the lease now."""
    sql = "SELECT 1 FROM lease WHERE session = ? AND owner = ? AND expires_at > ?"
    return fetch_one(db, sql, (session, encode_text(owner), now)) is not None


def is_leased(db: apsw.Connection, session: int, now: float) -> bool:
    """Tell whether any owner has the lease now."""
    sql = "SELECT 1 FROM lease WHERE session = ? AND expires_at > ? AND expires_at <= ?"
    return fetch_one(db, sql, (session, now, now + LEASE_S_MAX)) is not None


def drop_lease(db: apsw.Connection, session: int, owner: str) -> None:
    """Give the lease back, if it is this owner's."""
    db.execute("DELETE FROM lease WHERE session = ? AND owner = ?", (session, encode_text(owner)))
