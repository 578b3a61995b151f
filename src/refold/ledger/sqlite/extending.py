"""The quick way to add messages: one transaction for all that one more request of a session brings.

It does less than ``append``: messages at the end of the path and nothing else. A session that another process changed
is left alone, and the caller goes the long way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import apsw

from refold.ledger.codec import dump_json
from refold.ledger.records import Extension, SessionRow, Splice, StoredMessage, extend_row, is_as_seen
from refold.ledger.session_row import Found
from refold.ledger.sqlite import log_rows, message_rows, session_rows
from refold.ledger.sqlite.path_rows import change_path
from refold.ledger.sqlite.sql import fetch_one

# A statement for each count is kept by the connection; so many is more than a request brings.
PLAIN_MAX = 32


def extend_session(db: apsw.Connection, extension: Extension) -> SessionRow | None:
    """Store one extension; return the session's row then, None if it is not as it was seen."""
    seen, messages = extension.seen, extension.messages
    found = session_rows.find_session(db, seen.id)
    if found is None or not is_as_seen(found.row, seen):
        return None
    key, row = found.key, found.row
    seq_last, added = _add_messages(db, found, messages)
    for usage in extension.usages:
        log_rows.add_usage(db, key, usage)
    row = replace(extend_row(row, extension), tokens=row.tokens + added)
    settings = dump_json(row.settings) if extension.settings else None
    db.execute(
        "UPDATE session SET seq_last = ?, message_count = ?, tokens = ?, path_version = ?, updated_at = ?, "
        "settings = coalesce(?, settings) WHERE key = ?",
        (seq_last, row.messages, row.tokens, row.path_version, row.updated_at, settings, key),
    )
    return row


def _add_messages(db: apsw.Connection, found: Found, messages: Sequence[StoredMessage]) -> tuple[int, int]:
    """Add messages and put them at the end of the path; return the newest number and the tokens on the path more."""
    if not messages:
        return found.seq_last, 0
    if len(messages) > PLAIN_MAX or not _is_plain(db, found, messages):
        # The path was cut back, or goes on with what it had before: numbers do not follow one another.
        seq_last = message_rows.add_messages(db, found.key, found.seq_last, messages)
        length = found.row.messages
        splice = Splice(length, length, tuple(message.id for message in messages))
        return seq_last, change_path(db, found.key, length, (splice,))[1]
    for seq, message in enumerate(messages, found.seq_last + 1):
        message_rows.add_message(db, found.key, seq, message)
    seq_last = found.seq_last + len(messages)
    sql = "UPDATE path SET last = ? WHERE session = ? AND last = ?"
    db.execute(sql, (seq_last, found.key, found.seq_last))
    return seq_last, sum(message.tokens for message in messages)


def _is_plain(db: apsw.Connection, found: Found, messages: Sequence[StoredMessage]) -> bool:
    """Tell whether all messages are new and the path ends with the newest one."""
    marks = ", ".join("?" * len(messages))
    sql = (
        "SELECT last, EXISTS (SELECT 1 FROM message WHERE message.session = path.session AND id IN "
        f"({marks})) FROM path WHERE session = ? ORDER BY rank DESC LIMIT 1"
    )
    found_path = fetch_one(db, sql, (*(bytes.fromhex(message.id) for message in messages), found.key))
    return found_path == (found.seq_last, 0)
