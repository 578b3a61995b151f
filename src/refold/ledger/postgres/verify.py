"""Checks a ledger: recomputes every hash, chained id, count and reference, and says what differs.

``repair`` rebuilds counts from the rest. What a person or a model said is never rebuilt: a finding about an original is
for the operator and a copy. Pages and indexes are the server's own to check (``pg_amcheck``).
"""

from __future__ import annotations

from collections.abc import Iterator

from refold.ledger.checks import DigestOf, check_edits, check_messages, check_runs
from refold.ledger.counts import COUNTS, COVERED, REPAIR_EDITS, REPAIR_SESSION
from refold.ledger.postgres.edit_rows import read_rows
from refold.ledger.postgres.message_rows import read_ids
from refold.ledger.postgres.sql import Db, Row, fetch_all, fetch_value, run
from refold.ledger.records import Finding
from refold.ledger.runs import count_runs
from refold.ledger.session_row import TABLES

_PAGE = 500


def verify_tables(db: Db) -> list[Finding]:
    """Check for rows that belong to nothing."""
    findings = []
    for table in TABLES:
        sql = f"SELECT count(*) FROM {table} WHERE NOT EXISTS (SELECT 1 FROM session WHERE key = {table}.session)"
        if lost := fetch_value(db, sql):
            findings.append(Finding("", f"{lost} rows of {table} belong to no session", is_derived=False))
    return findings


def verify_session(db: Db, session: int, name: str, digest: DigestOf | None) -> list[Finding]:
    """Check one session."""
    originals = [
        *check_messages(_list_messages(db, session), digest),
        *_check_path(db, session),
        *_check_edits(db, session),
    ]
    counts = [*_check_counts(db, session), *_check_covered(db, session)]
    return [Finding(name, what, is_derived=False) for what in originals] + [
        Finding(name, what, is_derived=True) for what in counts
    ]


def repair_counts(db: Db, session: int) -> None:
    """Rebuild what is derived of a session, which is locked: a statement sees what was stored before it began."""
    run(db, f"{REPAIR_SESSION} WHERE key = %s", (session,))
    run(db, f"{REPAIR_EDITS} WHERE session = %s", (session,))


def _list_messages(db: Db, session: int) -> Iterator[Row]:
    """Yield all messages, some at a time: a session may be larger than the memory."""
    sql = (
        "SELECT seq, id, parent, digest, body IS NULL AND checksum IS NULL, checksum, body FROM message "
        "WHERE session = %s AND seq > %s ORDER BY seq LIMIT %s"
    )
    after = -1
    while page := fetch_all(db, sql, (session, after, _PAGE)):
        yield from page
        after = page[-1][0]


def _check_path(db: Db, session: int) -> Iterator[str]:
    runs = [(first, last) for first, last in fetch_all(
        db, "SELECT first, last FROM path WHERE session = %s ORDER BY rank", (session,))]  # fmt: skip
    yield from check_runs(runs)
    sql = (
        "SELECT count(*) FROM path JOIN message ON message.session = path.session AND seq BETWEEN first AND last "
        "WHERE path.session = %s"
    )
    stored = fetch_value(db, sql, (session,))
    if stored != count_runs(runs):
        yield f"path: {count_runs(runs) - stored} of its messages are not stored"


def _check_edits(db: Db, session: int) -> Iterator[str]:
    rows = read_rows(db, session, active_only=False)
    last = max((span[1] for row in rows for span in row.spans), default=0)
    yield from check_edits(rows, read_ids(db, session, 1, last))
    sql = (
        "SELECT count(*) FROM edit WHERE session = %s AND batch IS NOT NULL "
        "AND NOT EXISTS (SELECT 1 FROM batch WHERE batch.key = edit.batch AND batch.session = edit.session)"
    )
    if lost := fetch_value(db, sql, (session,)):
        yield f"{lost} edits belong to a batch that is not stored"


def _check_counts(db: Db, session: int) -> Iterator[str]:
    for column, rule in COUNTS.items():
        [(stored, right)] = fetch_all(db, f"SELECT {column}, {rule} FROM session WHERE key = %s", (session,))
        if stored != right:
            yield f"{column} is {stored}, it should be {right}"


def _check_covered(db: Db, session: int) -> Iterator[str]:
    sql = f"SELECT id, covered, {COVERED} FROM edit WHERE session = %s AND covered <> {COVERED}"
    for edit_id, stored, right in fetch_all(db, sql, (session,)):
        yield f"edit {edit_id}: covered is {stored}, it should be {right}"
