"""Rows of messages and of a session's path.

A message is added once and numbered in the order of arrival. The path is a list of runs of these numbers; a change
rewrites only the rows that differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from refold.conversation.message import chain_id
from refold.ledger.codec import checksum
from refold.ledger.records import MessagePath, Splice, StoredMessage
from refold.ledger.sql.database import (
    Database,
    RankedRow,
    Span,
    SqlAnswer,
    count_runs,
    cut_runs,
    find_runs,
    has_overlap,
    is_within,
    merge_spans,
    plan_rows,
    splice_runs,
)
from refold.ledger.sql.sessions import KEY, StoredSession

_COLUMNS = "seq, message.id, parent, digest, role, tokens, message.created_at, body"
_DIGEST_HEX = 32
_PAGE = 64
_TAIL = f"SELECT rank, first, last FROM path WHERE session = {{}} ORDER BY rank DESC LIMIT {_PAGE}"


class KnownMessage(NamedTuple):
    """A stored message: its number, and whether its content was erased."""

    seq: int
    is_forgotten: bool


def ask_known(db: Database, session_id: str, ids: Iterable[str]) -> SqlAnswer:
    """Ask which of these messages are stored; ``read_known`` reads the answer."""
    sql = f"SELECT id, seq, {db.content} IS NULL FROM message WHERE session = {KEY} AND id = ANY(?)"
    return db.run_each(sql, (db.encode(session_id),), dict.fromkeys(map(from_hex, ids)))


def read_known(answer: SqlAnswer) -> dict[str, KnownMessage]:
    """Return the stored messages that ``ask_known`` asked for, by id."""
    return {message_id.hex(): KnownMessage(seq, bool(gone)) for message_id, seq, gone in answer.fetchall()}


def add_messages(
    db: Database, found: StoredSession, messages: Iterable[StoredMessage], known: dict[str, KnownMessage]
) -> list[StoredMessage]:
    """Add the messages that are not in ``known``, there too; return them."""
    seq = found.seq_last
    new: list[tuple[int, StoredMessage]] = []
    for message in messages:
        if message.id not in known:
            seq += 1
            known[message.id] = KnownMessage(seq, message.is_forgotten)
            new.append((seq, message))
    if new:
        db.insert_messages(found.key, new)
    return [message for _, message in new]


def extend_path(db: Database, found: StoredSession, messages: Sequence[StoredMessage]) -> tuple[int, int]:
    """Add messages at the end of a path that was cut back, or that had some of them before: numbers may have gaps.

    Return the newest message's number and the tokens added to the path.
    """
    ids = tuple(message.id for message in messages)
    known, tail = read_known(ask_known(db, found.row.id, ids)), ask_tail(db, found.row.id)
    new = add_messages(db, found, messages, known)
    splice = Splice(found.row.messages, found.row.messages, ids)
    _, tokens = change_path(db, found, (splice,), known=known, new=new, tail=tail)
    return found.seq_last + len(new), tokens


def follows(messages: Sequence[StoredMessage], tail: bytes | None) -> bool:
    """Return whether messages follow the last one of a path; two writers may count to the same version."""
    return not messages or from_hex(messages[0].parent) == (tail or b"")


def check_chain(messages: Iterable[StoredMessage]) -> None:
    """Raise ValueError if a message's id does not follow from its parent and its digest."""
    for message in messages:
        if message.id != chain_id(message.parent, message.digest):
            raise ValueError(f"message {message.id!r} is not chained to its parent and its digest")


def write_content(message: StoredMessage) -> tuple[bytes | None, bytes | None]:
    """Return body and checksum as they are stored; both are None for a forgotten message."""
    if message.is_forgotten:
        return None, None
    return message.raw, checksum(bytes.fromhex(message.digest), message.raw)


def read_ids(db: Database, session: int, first: int, last: int) -> list[str]:
    """Return the ids of the messages with these numbers, in order."""
    sql = "SELECT id FROM message WHERE session = ? AND seq BETWEEN ? AND ? ORDER BY seq"
    return [message_id.hex() for (message_id,) in db.fetch_all(sql, (session, first, last))]


def read_path(db: Database, session_id: str) -> MessagePath:
    """Return ids and digests of a session's path, and its version, in one statement."""
    # A session without messages still has a version: hence the outer joins.
    sql = (
        "SELECT path_version, message.id, digest FROM session LEFT JOIN path ON path.session = session.key "
        "LEFT JOIN message ON message.session = path.session AND seq BETWEEN first AND last "
        "WHERE session.id = ? ORDER BY rank, seq"
    )
    rows = db.fetch_all(sql, (db.encode(session_id),))
    if not rows:
        return MessagePath()
    ids = tuple([row[1].hex() for row in rows if row[1] is not None])
    return MessagePath(ids, tuple([row[2].hex() for row in rows if row[2] is not None]), rows[0][0])


def read_path_messages(db: Database, session: int) -> list[StoredMessage]:
    sql = (
        f"SELECT {_COLUMNS} FROM path CROSS JOIN message ON message.session = path.session "
        f"AND seq BETWEEN first AND last{db.join_body} WHERE path.session = ? ORDER BY rank, seq"
    )
    return _read_messages(db, session, db.run(sql, (session,)))


def read_messages(db: Database, session: int, ids: Sequence[str]) -> list[StoredMessage]:
    """Return the messages with these ids, in that order."""
    sql = f"SELECT {_COLUMNS} FROM message{db.join_body} WHERE session = ? AND message.id = ANY(?)"
    answer = db.run_each(sql, (session,), dict.fromkeys(map(from_hex, ids)))
    found = {message.id: message for message in _read_messages(db, session, answer)}
    return [found[message_id] for message_id in ids if message_id in found]


def list_messages(db: Database, session: int, *, after: int, limit: int) -> list[StoredMessage]:
    """Return messages in the order of arrival."""
    sql = f"SELECT {_COLUMNS} FROM message{db.join_body} WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?"
    return _read_messages(db, session, db.run(sql, (session, after, limit)))


def find_messages(db: Database, session: int, prefix: str, limit: int) -> list[StoredMessage]:
    """Return messages whose digest begins with these hex digits."""
    low, high = from_hex(prefix.ljust(_DIGEST_HEX, "0")), from_hex(prefix.ljust(_DIGEST_HEX, "f"))
    if not low or not high:
        return []
    sql = (
        f"SELECT {_COLUMNS} FROM message{db.join_body} WHERE session = ? AND digest BETWEEN ? AND ? "
        "ORDER BY digest, seq LIMIT ?"
    )
    return _read_messages(db, session, db.run(sql, (session, low, high, limit)))


def find_forgotten(db: Database, session: int) -> list[str]:
    """Return the ids of the messages whose content was erased."""
    sql = f"SELECT id FROM message WHERE session = ? AND {db.content} IS NULL ORDER BY seq"
    return [message_id.hex() for (message_id,) in db.fetch_all(sql, (session,))]


def from_hex(text: str) -> bytes:
    """Return an id as bytes; empty bytes, which match no message, if it is not hex."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def _read_messages(db: Database, session: int, answer: SqlAnswer) -> list[StoredMessage]:
    """Return messages from rows of ``_COLUMNS``; those under a fold in force are marked as compressed."""
    sql = (
        "SELECT cover.first, cover.last FROM fold_in_force AS fold JOIN cover ON cover.edit = fold.key "
        "WHERE fold.session = ? ORDER BY cover.first"
    )
    folds = db.run(sql, (session,))
    rows = answer.fetchall()
    folded = merge_spans((first, last) for first, last in folds.fetchall())
    return [_read_message(db, row, folded) for row in rows]


def _read_message(db: Database, row: Sequence[Any], folded: Sequence[Span]) -> StoredMessage:
    seq, message_id, parent, digest, role, tokens, created_at, body = row
    return StoredMessage(
        id=message_id.hex(),
        parent=parent.hex(),
        digest=digest.hex(),
        role=db.decode(role),  # type: ignore[arg-type]
        raw=body or b"",
        tokens=tokens,
        created_at=created_at,
        is_compressed=is_within(seq, folded),
        is_forgotten=body is None,
        seq=seq,
    )


def ask_tail(db: Database, session_id: str) -> SqlAnswer:
    """Ask for the last rows of a session's path; ``change_path`` reads the answer."""
    return db.run(_TAIL.format(KEY), (db.encode(session_id),))


def change_path(
    db: Database,
    found: StoredSession,
    splices: Sequence[Splice],
    *,
    known: Mapping[str, KnownMessage],
    new: Iterable[StoredMessage],
    tail: SqlAnswer,
) -> tuple[int, int]:
    """Apply splices to the path of a session; return its new length and the change of its tokens.

    ``known`` has the numbers of all messages in the splices; ``new`` are those that were just added.
    """
    if not splices:
        return found.row.messages, 0
    rows, place = _read_tail(db, found, splices[0].start, tail)
    old = [(first, last) for _, first, last in rows]
    changes = [
        (splice.start - place, splice.stop - place, find_runs(_need_seqs(splice.ids, known))) for splice in splices
    ]
    runs = splice_runs(old, changes)
    if has_overlap(runs):
        raise ValueError("a message would be on the path twice")
    removed = [span for start, stop, _ in changes for span in cut_runs(old, start, stop)]
    tokens = {message.id: message.tokens for message in new}
    ids = [message_id for splice in splices for message_id in splice.ids]
    again = find_runs(sorted(known[message_id].seq for message_id in ids if message_id not in tokens))
    more = sum(tokens.get(message_id, 0) for message_id in ids) + _sum_tokens(db, found.key, again)
    less = _sum_tokens(db, found.key, removed)
    _write_rows(db, found.key, rows, runs)
    return place + count_runs(runs), more - less


def _need_seqs(ids: Sequence[str], known: Mapping[str, KnownMessage]) -> list[int]:
    for message_id in ids:
        if message_id not in known:
            raise ValueError(f"message {message_id!r} is not in this session")
    return [known[message_id].seq for message_id in ids]


def _read_tail(db: Database, found: StoredSession, start: int, tail: SqlAnswer) -> tuple[list[RankedRow], int]:
    """Return the rows from the one before place ``start`` on, and the place where they begin."""
    rows: list[RankedRow] = []
    place = found.row.messages
    page = tail.fetchall()
    while True:
        for rank, first, last in page:
            rows.append((rank, first, last))
            place -= last - first + 1
            if place < start:
                return rows[::-1], place
        if len(page) < _PAGE:
            return rows[::-1], place
        page = db.fetch_all(_TAIL.format("? AND rank < ?"), (found.key, rows[-1][0]))


def _sum_tokens(db: Database, session: int, spans: Iterable[Span]) -> int:
    sql = "SELECT CAST(coalesce(sum(tokens), 0) AS bigint) FROM message WHERE session = ? AND seq BETWEEN ? AND ?"
    answers = [db.run(sql, (session, first, last)) for first, last in spans]
    return sum(int(row[0]) for answer in answers for row in answer.fetchall())


def _write_rows(db: Database, session: int, rows: list[RankedRow], runs: list[Span]) -> None:
    """Replace the last rows of the path so that they hold ``runs``."""
    removed, put = plan_rows(rows, runs)
    db.run_each("DELETE FROM path WHERE session = ? AND rank = ANY(?)", (session,), removed)
    sql = (
        "INSERT INTO path (session, rank, first, last) VALUES (?, ?, ?, ?) ON CONFLICT (session, rank) "
        "DO UPDATE SET first = excluded.first, last = excluded.last"
    )
    for rank, (first, last) in put:
        db.run(sql, (session, rank, first, last))
