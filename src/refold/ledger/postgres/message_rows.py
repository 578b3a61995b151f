"""Rows of messages: added once, found by id, by digest, by the order they came. Many rows are one statement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import psycopg

from refold.ledger.codec import decode_column, encode_column
from refold.ledger.covering import merge_spans
from refold.ledger.message_row import find_digests, from_hex, read_message, write_content
from refold.ledger.postgres.session_rows import KEY
from refold.ledger.postgres.sql import Db, Row, fetch_all, run
from refold.ledger.records import MessagePath, StoredMessage
from refold.ledger.runs import Span

_PIECE_ROWS = 1_000
_PIECE_BYTES = 8_000_000
_COLUMNS = "seq, message.id, parent, digest, role, tokens, message.created_at, body"
_INSERT = (
    "INSERT INTO message (session, seq, id, parent, digest, role, tokens, created_at, body, checksum) "
    "SELECT %s, * FROM unnest(%b::bigint[], %b::bytea[], %b::bytea[], %b::bytea[], %s::text[], %b::bigint[], "
    "%b::double precision[], %b::bytea[], %b::bytea[])"
)


class Known(NamedTuple):
    """A stored message: its number, and whether its content was erased."""

    seq: int
    is_forgotten: bool


def ask_seqs(db: Db, session_id: str, ids: Iterable[str]) -> psycopg.Cursor[Row]:
    """Ask which of these messages are stored, with their numbers; ``read_seqs`` reads the answer."""
    wanted = list({from_hex(message_id) for message_id in ids})
    sql = f"SELECT id, seq, body IS NULL FROM message WHERE session = {KEY} AND id = ANY(%b::bytea[])"
    return run(db, sql, (encode_column(session_id), wanted))


def read_seqs(told: psycopg.Cursor[Row]) -> dict[str, Known]:
    """Return the number of each message that is stored, and whether it was forgotten."""
    return {message_id.hex(): Known(seq, is_forgotten) for message_id, seq, is_forgotten in told.fetchall()}


def add_messages(
    db: Db, session: int, seq_last: int, messages: Iterable[StoredMessage], known: dict[str, Known]
) -> list[StoredMessage]:
    """Add those messages that are not known yet, and to ``known``; return them."""
    new: list[tuple[int, StoredMessage]] = []
    for message in messages:
        if message.id not in known:
            seq_last += 1
            known[message.id] = Known(seq_last, message.is_forgotten)
            new.append((seq_last, message))
    for piece in _cut(new):
        rows = [_write(seq, message) for seq, message in piece]
        run(db, _INSERT, (session, *map(list, zip(*rows, strict=True))))
    return [message for _, message in new]


def _write(seq: int, message: StoredMessage) -> Row:
    return (
        seq,
        bytes.fromhex(message.id),
        bytes.fromhex(message.parent),
        bytes.fromhex(message.digest),
        encode_column(message.role),
        message.tokens,
        message.created_at,
        *write_content(message),
    )


def _cut(new: list[tuple[int, StoredMessage]]) -> Iterator[list[tuple[int, StoredMessage]]]:
    """Yield pieces that a statement holds: so many rows, so many bytes, one row at least."""
    piece: list[tuple[int, StoredMessage]] = []
    size = 0
    for seq, message in new:
        if piece and (len(piece) >= _PIECE_ROWS or size + len(message.raw) > _PIECE_BYTES):
            yield piece
            piece, size = [], 0
        piece.append((seq, message))
        size += len(message.raw)
    if piece:
        yield piece


def sum_tokens(db: Db, session: int, spans: Iterable[Span]) -> int:
    """Return the tokens of the messages in these runs."""
    runs = list(spans)
    if not runs:
        return 0
    sql = (
        "SELECT coalesce(sum(tokens), 0)::bigint FROM unnest(%b::bigint[], %b::bigint[]) AS run (first, last) "
        "JOIN message ON message.session = %s AND seq BETWEEN run.first AND run.last"
    )
    values = ([first for first, _ in runs], [last for _, last in runs], session)
    return int(fetch_all(db, sql, values)[0][0])


def read_ids(db: Db, session: int, first: int, last: int) -> list[str]:
    """Return the ids of the messages with these numbers, in order."""
    sql = "SELECT id FROM message WHERE session = %s AND seq BETWEEN %s AND %s ORDER BY seq"
    return [message_id.hex() for (message_id,) in fetch_all(db, sql, (session, first, last))]


def read_path(db: Db, session_id: str) -> MessagePath:
    """Return ids and digests of a session's path, and its version: one statement, so one moment."""
    # A session without messages still has a version: hence the outer joins.
    sql = (
        "SELECT path_version, message.id, digest FROM session LEFT JOIN path ON path.session = session.key "
        "LEFT JOIN message ON message.session = path.session AND seq BETWEEN first AND last "
        "WHERE session.id = %s ORDER BY rank, seq"
    )
    rows = fetch_all(db, sql, (encode_column(session_id),))
    if not rows:
        return MessagePath()
    rows_told = [row for row in rows if row[1] is not None]
    ids = tuple([row[1].hex() for row in rows_told])
    return MessagePath(ids, tuple([row[2].hex() for row in rows_told]), rows[0][0])


def read_path_messages(db: Db, session: int) -> list[StoredMessage]:
    """Return the messages of the session's path."""
    sql = (
        f"SELECT {_COLUMNS} FROM path JOIN message ON message.session = path.session AND seq BETWEEN first AND last "
        "WHERE path.session = %s ORDER BY rank, seq"
    )
    return _read_all(db, session, sql, (session,))


def read_messages(db: Db, session: int, ids: Sequence[str]) -> list[StoredMessage]:
    """Return the messages with these ids, in that order."""
    sql = f"SELECT {_COLUMNS} FROM message WHERE session = %s AND id = ANY(%b)"
    wanted = list({from_hex(message_id) for message_id in ids})
    found = {message.id: message for message in _read_all(db, session, sql, (session, wanted))} if wanted else {}
    return [found[message_id] for message_id in ids if message_id in found]


def list_messages(db: Db, session: int, after: int, limit: int) -> list[StoredMessage]:
    """Return messages in the order they came."""
    sql = f"SELECT {_COLUMNS} FROM message WHERE session = %s AND seq > %s ORDER BY seq LIMIT %s"
    return _read_all(db, session, sql, (session, after, limit))


def find_messages(db: Db, session: int, prefix: str, limit: int) -> list[StoredMessage]:
    """Return messages whose digest begins with these hex digits."""
    digests = find_digests(prefix)
    if digests is None:
        return []
    sql = (
        f"SELECT {_COLUMNS} FROM message WHERE session = %s AND digest BETWEEN %s AND %s ORDER BY digest, seq LIMIT %s"
    )
    return _read_all(db, session, sql, (session, *digests, limit))


def find_forgotten(db: Db, session: int) -> list[str]:
    """Return the ids of the messages whose content was erased."""
    sql = "SELECT id FROM message WHERE session = %s AND body IS NULL ORDER BY seq"
    return [message_id.hex() for (message_id,) in fetch_all(db, sql, (session,))]


def read_folded(db: Db, session: int) -> list[Span]:
    """Return the runs of messages that a fold in force stands for, sorted and apart."""
    sql = (
        "SELECT cover.first, cover.last FROM fold_in_force AS fold JOIN cover ON cover.edit = fold.key "
        "WHERE fold.session = %s ORDER BY cover.first"
    )
    return merge_spans((first, last) for first, last in fetch_all(db, sql, (session,)))


def _read_all(db: Db, session: int, sql: str, values: Sequence[object]) -> list[StoredMessage]:
    told = run(db, sql, values)
    folded = read_folded(db, session)
    return [read_message(row, folded, decode_column) for row in told.fetchall()]
