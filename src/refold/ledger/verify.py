"""Verification: recompute every hash, chained id, count and reference of a ledger, and report what differs.

``repair`` rebuilds counts from the rest. Originals are never rebuilt: a finding about one is for the operator and a
backup. The pages and indexes of a database are checked by the store itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from refold.conversation.message import chain_id
from refold.errors import RefoldError
from refold.ledger.codec import checksum, decode_edit, load_json
from refold.ledger.records import Finding
from refold.ledger.sql.database import Database, Span, SqlRow, count_runs, has_overlap
from refold.ledger.sql.edits import EditRow, read_rows
from refold.ledger.sql.messages import read_ids
from refold.ledger.sql.sessions import TABLES

DigestOf = Callable[[object], str]

_PAGE = 500
# Every count in the row of a session, and how it follows from the other tables.
_COUNTS = {
    "message_count": (
        "(SELECT CAST(coalesce(sum(last - first + 1), 0) AS bigint) FROM path WHERE path.session = session.key)"
    ),
    "tokens": (
        "(SELECT CAST(coalesce(sum(message.tokens), 0) AS bigint) FROM path JOIN message "
        "ON message.session = path.session AND seq BETWEEN first AND last WHERE path.session = session.key)"
    ),
    "compression_count": "(SELECT count(*) FROM batch WHERE batch.session = session.key)",
    "seq_last": "(SELECT coalesce(max(seq), 0) FROM message WHERE message.session = session.key)",
}
# The number of messages that an edit covers.
_COVERED = "(SELECT CAST(coalesce(sum(last - first + 1), 0) AS bigint) FROM cover WHERE cover.edit = edit.key)"


def verify_tables(db: Database) -> list[Finding]:
    """Find rows that belong to no session."""
    findings = []
    for table in TABLES:
        sql = f"SELECT count(*) FROM {table} WHERE NOT EXISTS (SELECT 1 FROM session WHERE key = {table}.session)"
        if lost := db.fetch_value(sql):
            findings.append(Finding("", f"{lost} rows of {table} belong to no session", is_derived=False))
    return findings


def verify_session(db: Database, session: int, name: str, digest: DigestOf | None) -> list[Finding]:
    """Check one session. ``digest`` recomputes the content hash of a provider's object."""
    originals = [
        *check_messages(_list_messages(db, session), digest),
        *_check_path(db, session),
        *_check_edits(db, session),
    ]
    counts = [*_check_counts(db, session), *_check_covered(db, session)]
    return [Finding(name, what, is_derived=False) for what in originals] + [
        Finding(name, what, is_derived=True) for what in counts
    ]


def repair_session(db: Database, session: int) -> None:
    """Rebuild the counts of a session, which must be locked."""
    columns = ", ".join(f"{column} = {rule}" for column, rule in _COUNTS.items())
    db.run(f"UPDATE session SET {columns} WHERE key = ?", (session,))
    db.run(f"UPDATE edit SET covered = {_COVERED} WHERE session = ?", (session,))


def _list_messages(db: Database, session: int) -> Iterator[SqlRow]:
    """Yield all messages, a page at a time: a session may be larger than memory."""
    sql = (
        f"SELECT seq, message.id, parent, digest, message.{db.content} IS NULL AND checksum IS NULL, checksum, body "
        f"FROM message{db.join_body} WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?"
    )
    after = -1
    while page := db.fetch_all(sql, (session, after, _PAGE)):
        yield from page
        after = page[-1][0]


def check_messages(rows: Iterable[Sequence[Any]], digest_of: DigestOf | None) -> Iterator[str]:
    """Check all messages of a session in order: seq, id, parent, digest, whether forgotten, checksum, body."""
    seen: set[bytes] = {b""}
    expected = 0
    for seq, message_id, parent, digest, is_forgotten, stored_sum, body in rows:
        expected += 1
        where = f"message {seq} ({message_id.hex()[:8]})"
        if seq != expected:
            yield f"{where}: a message is missing before it"
            expected = seq
        if chain_id(parent.hex(), digest.hex()) != message_id.hex():
            yield f"{where}: its id does not follow from its parent and its digest"
        if parent not in seen:
            yield f"{where}: its parent is not stored before it"
        seen.add(message_id)
        if not is_forgotten:
            yield from (f"{where}: {what}" for what in check_raw(digest, body, stored_sum, digest_of))


def check_raw(digest: bytes, body: bytes | None, stored_sum: bytes, digest_of: DigestOf | None) -> Iterator[str]:
    """Check the content of one message against its digest and its checksum."""
    if body is None:
        yield "its content is missing"
        return
    if checksum(digest, body) != stored_sum:
        yield "its content is not what was stored"
        return
    if digest_of is None:
        return
    try:
        is_same = digest_of(load_json(body)) == digest.hex()
    except (ValueError, RefoldError) as error:
        yield f"its content cannot be read ({error})"
    else:
        if not is_same:
            yield "its digest is not that of its content"


def _check_path(db: Database, session: int) -> Iterator[str]:
    rows = db.fetch_all("SELECT first, last FROM path WHERE session = ? ORDER BY rank", (session,))
    runs: list[Span] = [(first, last) for first, last in rows]
    if any(first > last for first, last in runs):
        yield "path: a run ends before it begins"
    if has_overlap(runs):
        yield "path: a message is on it twice"
    sql = (
        "SELECT count(*) FROM path CROSS JOIN message ON message.session = path.session "
        "AND seq BETWEEN first AND last WHERE path.session = ?"
    )
    stored = db.fetch_value(sql, (session,))
    if stored != count_runs(runs):
        yield f"path: {count_runs(runs) - stored} of its messages are not stored"


def _check_edits(db: Database, session: int) -> Iterator[str]:
    rows = read_rows(db, session, active_only=False)
    ids = read_ids(db, session, 1, max((span[1] for row in rows for span in row.spans), default=0))
    for row in rows:
        yield from (f"edit {row.id}: {what}" for what in check_edit(row, ids))
    sql = (
        "SELECT count(*) FROM edit WHERE session = ? AND batch IS NOT NULL "
        "AND NOT EXISTS (SELECT 1 FROM batch WHERE batch.key = edit.batch AND batch.session = edit.session)"
    )
    if lost := db.fetch_value(sql, (session,)):
        yield f"{lost} edits belong to a batch that is not stored"


def check_edit(row: EditRow, ids: Sequence[str]) -> Iterator[str]:
    """Check one edit against the ids of the session's messages."""
    if not row.spans or row.spans[0][0] < 1 or max(span[1] for span in row.spans) > len(ids):
        yield "it covers messages that are not stored"
        return
    try:
        edit = decode_edit(row.payload, row.list_covers(ids, 1))
    except (ValueError, TypeError, KeyError) as error:
        yield f"it cannot be read ({error})"
        return
    if edit.id != row.id:
        yield "its id does not follow from its content"


def _check_counts(db: Database, session: int) -> Iterator[str]:
    for column, rule in _COUNTS.items():
        [(stored, right)] = db.fetch_all(f"SELECT {column}, {rule} FROM session WHERE key = ?", (session,))
        if stored != right:
            yield f"{column} is {stored}, it should be {right}"


def _check_covered(db: Database, session: int) -> Iterator[str]:
    sql = f"SELECT id, covered, {_COVERED} FROM edit WHERE session = ? AND covered <> {_COVERED}"
    for edit_id, stored, right in db.fetch_all(sql, (session,)):
        yield f"edit {db.decode(edit_id)}: covered is {stored}, it should be {right}"
