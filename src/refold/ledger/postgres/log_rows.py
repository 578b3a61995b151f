"""Rows that only grow: events, facts, usage; and the lease, the right to compress a session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, fields
from hashlib import blake2b

from refold.conversation.edit import Fact
from refold.ledger.codec import decode_column, dump_json, encode_column, load_json
from refold.ledger.postgres.sql import Db, fetch_all, fetch_one, fetch_value, run
from refold.ledger.records import LEASE_S_MAX, Event, StoredFact, StoredUsage

_USAGE_COLUMNS = ", ".join(column.name for column in fields(StoredUsage))
EVENTS_LOCK = 0x7266_6C65  # "rfle"


def add_events(db: Db, session: int, events: Sequence[Event]) -> int:
    """Log events; return the id of the last, 0 if there are none."""
    if not events:
        return 0
    # Numbers are taken and committed in one order, else who follows the log would miss the one that came late.
    run(db, "SELECT pg_advisory_xact_lock(%s, hashtext(current_schema()))", (EVENTS_LOCK,))
    sql = (
        "INSERT INTO event (session, kind, created_at, fields) "
        "SELECT %s, * FROM unnest(%s::text[], %b::double precision[], %b::bytea[]) RETURNING id"
    )
    kinds = [encode_column(event.kind) for event in events]
    times = [float(event.created_at) for event in events]
    rows = run(db, sql, (session, kinds, times, [dump_json(dict(event.fields)) for event in events]))
    return max(int(event_id) for (event_id,) in rows.fetchall())


def read_events(db: Db, session: int | None, after: int, limit: int) -> list[Event]:
    """Return events of one session or all, oldest first."""
    which, values = ("event.session = %s AND ", (session,)) if session is not None else ("", ())
    sql = (
        "SELECT event.id, kind, event.created_at, fields, session.id FROM event JOIN session "
        f"ON session.key = event.session WHERE {which}event.id > %s ORDER BY event.id LIMIT %s"
    )
    return [
        Event(decode_column(kind), created_at, load_json(stored), event_id, decode_column(session_id))
        for event_id, kind, created_at, stored, session_id in fetch_all(db, sql, (*values, after, limit))
    ]


def add_facts(db: Db, session: int, batch: int, facts: Iterable[Fact], now: float) -> None:
    """Keep facts; one that is known keeps its first place."""
    for fact in facts:
        text = encode_column(fact.text)
        digest = blake2b(f"{fact.kind}\0{text}".encode(), digest_size=16).digest()
        run(
            db,
            "INSERT INTO fact (session, batch, kind, text, digest, handle, created_at) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (session, digest) DO NOTHING",
            (session, batch, fact.kind, text, digest, encode_column(fact.handle), now),
        )


def read_facts(db: Db, session: int | None, limit: int) -> list[StoredFact]:
    """Return facts of one session or all, oldest first."""
    which, values = ("WHERE fact.session = %s ", (session,)) if session is not None else ("", ())
    sql = (
        "SELECT kind, text, handle, session.id, coalesce(batch.id, ''), fact.created_at FROM fact "
        "JOIN session ON session.key = fact.session LEFT JOIN batch ON batch.key = fact.batch "
        f"{which}ORDER BY fact.key LIMIT %s"
    )
    return [
        StoredFact(
            Fact(kind, decode_column(text), decode_column(handle)),
            decode_column(session_id),
            decode_column(batch),
            created_at,
        )
        for kind, text, handle, session_id, batch, created_at in fetch_all(db, sql, (*values, limit))
    ]


def add_usage(db: Db, session: int, usage: StoredUsage) -> None:
    """Keep what a provider reported."""
    created_at, model, *counts = astuple(usage)
    marks = ", ".join(["%s"] * (len(counts) + 3))
    sql = f"INSERT INTO usage (session, {_USAGE_COLUMNS}) VALUES ({marks})"
    run(db, sql, (session, created_at, encode_column(model), *counts))


def read_usage(db: Db, session: int, limit: int) -> list[StoredUsage]:
    """Return reported usage, newest first."""
    sql = f"SELECT {_USAGE_COLUMNS} FROM usage WHERE session = %s ORDER BY key DESC LIMIT %s"
    return [
        StoredUsage(created_at, decode_column(model), *counts)
        for created_at, model, *counts in fetch_all(db, sql, (session, limit))
    ]


def take_lease(db: Db, session: int, owner: str, expires_at: float, now: float) -> bool:
    """Take or prolong the lease; False while another owner's has not run out."""
    sql = (
        "INSERT INTO lease (session, owner, expires_at) VALUES (%s, %s, %s) ON CONFLICT (session) DO UPDATE "
        "SET owner = excluded.owner, expires_at = excluded.expires_at "
        "WHERE lease.owner = excluded.owner OR lease.expires_at <= %s OR lease.expires_at > %s RETURNING session"
    )
    return fetch_value(db, sql, (session, encode_column(owner), expires_at, now, now + LEASE_S_MAX)) is not None


def holds_lease(db: Db, session: int, owner: str, now: float) -> bool:
    """Tell whether this owner has the lease now."""
    sql = "SELECT 1 FROM lease WHERE session = %s AND owner = %s AND expires_at > %s"
    return fetch_one(db, sql, (session, encode_column(owner), now)) is not None


def is_leased(db: Db, session: int, now: float) -> bool:
    """Tell whether any owner has the lease now."""
    sql = "SELECT 1 FROM lease WHERE session = %s AND expires_at > %s AND expires_at <= %s"
    return fetch_one(db, sql, (session, now, now + LEASE_S_MAX)) is not None


def drop_lease(db: Db, session: int, owner: str) -> None:
    """Give the lease back, if it is this owner's."""
    run(db, "DELETE FROM lease WHERE session = %s AND owner = %s", (session, encode_column(owner)))
