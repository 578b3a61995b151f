"""Rows of messages: added once, found by id, by digest, by the order they came."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import apsw

from refold.ledger.covering import merge_spans
from refold.ledger.message_row import check_chain, find_digests, from_hex, read_message, write_content
from refold.ledger.records import MessagePath, StoredMessage
from refold.ledger.runs import Span
from refold.ledger.sqlite.sql import fetch_all, fetch_one, fetch_value

_SELECT = (
    "SELECT seq, message.id, parent, digest, role, tokens, created_at, body FROM message "
    "LEFT JOIN raw ON raw.key = message.raw WHERE session = ?"
)


def add_messages(db: apsw.Connection, session: int, seq_last: int, messages: Iterable[StoredMessage]) -> int:
    """Add those messages that are not known; return the number of the newest."""
    for message in messages:
        if find_seq(db, session, bytes.fromhex(message.id)) is None:
            seq_last += 1
            add_message(db, session, seq_last, message)
    return seq_last


def add_message(db: apsw.Connection, session: int, seq: int, message: StoredMessage) -> None:
    """Add a message that is not known under this number."""
    check_chain([message])
    body, checksum = write_content(message)
    if body is not None:
        db.execute("INSERT INTO raw (body) VALUES (?)", (body,))
    db.execute(
        "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            session,
            seq,
            bytes.fromhex(message.id),
            bytes.fromhex(message.parent),
            bytes.fromhex(message.digest),
            message.role,
            message.tokens,
            message.created_at,
            None if body is None else db.last_insert_rowid(),
            checksum,
        ),
    )


def find_seq(db: apsw.Connection, session: int, message_id: bytes) -> int | None:
    """Return the number of the message with this id."""
    row = fetch_one(db, "SELECT seq FROM message WHERE session = ? AND id = ?", (session, message_id))
    return None if row is None else int(row[0])


def find_seqs(db: apsw.Connection, session: int, ids: Iterable[str]) -> list[int]:
    """Return the numbers of these messages, in that order; ValueError for one that is not there."""
    found: list[int] = []
    for message_id in ids:
        seq = find_seq(db, session, bytes.fromhex(message_id))
        if seq is None:
            raise ValueError(f"message {message_id!r} is not in this session")
        found.append(seq)
    return found


def sum_tokens(db: apsw.Connection, session: int, spans: Iterable[Span]) -> int:
    """Return the tokens of the messages in these runs."""
    sql = "SELECT coalesce(sum(tokens), 0) FROM message WHERE session = ? AND seq BETWEEN ? AND ?"
    return sum(int(fetch_value(db, sql, (session, first, last))) for first, last in spans)


def read_ids(db: apsw.Connection, session: int, first: int, last: int) -> list[str]:
    """Return the ids of the messages with these numbers, in order."""
    sql = "SELECT id FROM message WHERE session = ? AND seq BETWEEN ? AND ? ORDER BY seq"
    return [message_id.hex() for (message_id,) in db.execute(sql, (session, first, last))]


def read_path(db: apsw.Connection, session: int, version: int) -> MessagePath:
    """Return ids and digests of the session's path."""
    sql = (
        "SELECT id, digest FROM path CROSS JOIN message ON message.session = path.session "
        "AND seq BETWEEN first AND last WHERE path.session = ? ORDER BY rank, seq"
    )
    rows = fetch_all(db, sql, (session,))
    return MessagePath(tuple([row[0].hex() for row in rows]), tuple([row[1].hex() for row in rows]), version)


def read_path_messages(db: apsw.Connection, session: int) -> list[StoredMessage]:
    """Return the messages of the session's path."""
    folded = read_folded(db, session)
    runs = fetch_all(db, "SELECT first, last FROM path WHERE session = ? ORDER BY rank", (session,))
    sql = f"{_SELECT} AND seq BETWEEN ? AND ? ORDER BY seq"
    return [read_message(row, folded) for first, last in runs for row in db.execute(sql, (session, first, last))]


def read_messages(db: apsw.Connection, session: int, ids: Sequence[str]) -> list[StoredMessage]:
    """Return the messages with these ids, in that order."""
    folded = read_folded(db, session)
    sql = f"{_SELECT} AND message.id = ?"
    rows = (fetch_one(db, sql, (session, from_hex(message_id))) for message_id in ids)
    return [read_message(row, folded) for row in rows if row is not None]


def list_messages(db: apsw.Connection, session: int, after: int, limit: int) -> list[StoredMessage]:
    """Return messages in the order they came."""
    folded = read_folded(db, session)
    sql = f"{_SELECT} AND seq > ? ORDER BY seq LIMIT ?"
    return [read_message(row, folded) for row in db.execute(sql, (session, after, limit))]


def find_messages(db: apsw.Connection, session: int, prefix: str, limit: int) -> list[StoredMessage]:
    """Return messages whose digest begins with these hex digits."""
    digests = find_digests(prefix)
    if digests is None:
        return []
    folded = read_folded(db, session)
    sql = f"{_SELECT} AND digest BETWEEN ? AND ? ORDER BY digest, seq LIMIT ?"
    return [read_message(row, folded) for row in db.execute(sql, (session, *digests, limit))]


def find_forgotten(db: apsw.Connection, session: int) -> list[str]:
    """Return the ids of the messages whose content was erased."""
    sql = "SELECT id FROM message WHERE session = ? AND raw IS NULL ORDER BY seq"
    return [message_id.hex() for (message_id,) in db.execute(sql, (session,))]


def read_folded(db: apsw.Connection, session: int) -> list[Span]:
    """Return the runs of messages that a fold in force stands for, sorted and apart."""
    sql = (
        "SELECT cover.first, cover.last FROM fold_in_force AS fold JOIN cover ON cover.edit = fold.key "
        "WHERE fold.session = ? ORDER BY cover.first"
    )
    return merge_spans(db.execute(sql, (session,)))
