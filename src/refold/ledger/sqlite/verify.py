"""Checks a ledger: recomputes every hash, chained id, count and reference, and says what differs.

``repair`` rebuilds counts and indexes from the rest. What a person or a model said is never rebuilt: a finding about
an original is for the operator and a copy.
"""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from refold.ledger.checks import DigestOf, check_edits, check_messages, check_runs
from refold.ledger.counts import COUNTS, COVERED, REPAIR_EDITS, REPAIR_SESSION
from refold.ledger.records import Finding
from refold.ledger.runs import count_runs
from refold.ledger.session_row import TABLES
from refold.ledger.sqlite.edit_rows import read_rows
from refold.ledger.sqlite.message_rows import read_ids
from refold.ledger.sqlite.sql import fetch_all, fetch_value


def verify_file(db: apsw.Connection) -> list[Finding]:
    """Check pages, indexes, and rows that belong to nothing."""
    findings = [
        Finding("", f"database: {line}", is_derived="index" in line)
        for (line,) in db.execute("PRAGMA integrity_check(100)")
        if line != "ok"
    ]
    for table in TABLES:
        sql = f"SELECT count(*) FROM {table} WHERE session NOT IN (SELECT key FROM session)"
        if lost := fetch_value(db, sql):
            findings.append(Finding("", f"{lost} rows of {table} belong to no session", is_derived=False))
    sql = "SELECT count(*) FROM raw WHERE key NOT IN (SELECT raw FROM message WHERE raw IS NOT NULL)"
    if lost := fetch_value(db, sql):
        findings.append(Finding("", f"{lost} raw contents belong to no message", is_derived=False))
    return findings


def verify_session(db: apsw.Connection, session: int, name: str, digest: DigestOf | None) -> list[Finding]:
    """Check one session."""
    originals = [*_check_messages(db, session, digest), *_check_path(db, session), *_check_edits(db, session)]
    counts = [*_check_counts(db, session), *_check_covered(db, session)]
    return [Finding(name, what, is_derived=False) for what in originals] + [
        Finding(name, what, is_derived=True) for what in counts
    ]


def repair_counts(db: apsw.Connection) -> None:
    """Rebuild what is derived, for all sessions: counts and indexes."""
    db.execute(REPAIR_SESSION)
    db.execute(REPAIR_EDITS)
    db.execute("REINDEX")


def _check_messages(db: apsw.Connection, session: int, digest_of: DigestOf | None) -> Iterator[str]:
    sql = (
        "SELECT seq, message.id, parent, digest, raw IS NULL, checksum, body FROM message "
        "LEFT JOIN raw ON raw.key = message.raw WHERE session = ? ORDER BY seq"
    )
    return check_messages(db.execute(sql, (session,)), digest_of)


def _check_path(db: apsw.Connection, session: int) -> Iterator[str]:
    runs = fetch_all(db, "SELECT first, last FROM path WHERE session = ? ORDER BY rank", (session,))
    yield from check_runs(runs)
    sql = "SELECT count(*) FROM message WHERE session = ? AND seq BETWEEN ? AND ?"
    stored = sum(fetch_value(db, sql, (session, first, last)) for first, last in runs)
    if stored != count_runs(runs):
        yield f"path: {count_runs(runs) - stored} of its messages are not stored"


def _check_edits(db: apsw.Connection, session: int) -> Iterator[str]:
    rows = read_rows(db, session, active_only=False)
    last = max((span[1] for row in rows for span in row.spans), default=0)
    ids = read_ids(db, session, 1, last)
    yield from check_edits(rows, ids)
    sql = (
        "SELECT count(*) FROM edit WHERE session = ? AND batch IS NOT NULL "
        "AND batch NOT IN (SELECT key FROM batch WHERE session = ?)"
    )
    if lost := fetch_value(db, sql, (session, session)):
        yield f"{lost} edits belong to a batch that is not stored"


def _check_counts(db: apsw.Connection, session: int) -> Iterator[str]:
    for column, rule in COUNTS.items():
        sql = f"SELECT {column}, {rule} FROM session WHERE key = ?"
        [(stored, right)] = fetch_all(db, sql, (session,))
        if stored != right:
            yield f"{column} is {stored}, it should be {right}"


def _check_covered(db: apsw.Connection, session: int) -> Iterator[str]:
    sql = f"SELECT id, covered, {COVERED} AS counted FROM edit WHERE session = ? AND covered <> counted"
    for edit_id, stored, right in db.execute(sql, (session,)):
        yield f"edit {edit_id}: covered is {stored}, it should be {right}"
