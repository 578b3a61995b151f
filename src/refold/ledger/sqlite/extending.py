"""The quick way to add messages: one transaction for all that one more request of a session brings.

It does less than ``append``: new messages at the end of the path and nothing else. What does not fit that, a message
that is known already, a path or edits that another process changed, is left alone, and the caller goes the long way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import apsw

from refold.ledger.encode import dump_json
from refold.ledger.ledger import SessionRow, StoredMessage, Usage
from refold.ledger.sqlite import log_rows, message_rows
from refold.ledger.sqlite.session_rows import Found


def extend_path(
    db: apsw.Connection,
    found: Found,
    messages: Sequence[StoredMessage],
    *,
    now: float,
    usages: Sequence[Usage],
    settings: Mapping[str, object],
) -> SessionRow | None:
    """Add messages at the end of the path, with usage and settings; return the row as it is then, None if it is not
    that plain: then nothing was written."""
    key, row = found.key, found.row
    seq_last = found.seq_last + len(messages)
    if messages:
        ids = [bytes.fromhex(message.id) for message in messages]
        if any(message_rows.find_seq(db, key, one) is not None for one in ids):
            return None
        if not _prolong_path(db, found, seq_last):
            return None
        for seq, message in enumerate(messages, found.seq_last + 1):
            message_rows.add_message(db, key, seq, message)
    for usage in usages:
        log_rows.add_usage(db, key, usage)
    kept = {name: value for name, value in {**row.settings, **settings}.items() if value is not None}
    row = replace(
        row,
        messages=row.messages + len(messages),
        tokens=row.tokens + sum(message.tokens for message in messages),
        path_version=row.path_version + bool(messages),
        settings=kept,
        updated_at=now,
    )
    db.execute(
        "UPDATE session SET seq_last = ?, message_count = ?, tokens = ?, path_version = ?, updated_at = ? "
        "WHERE key = ?",
        (seq_last, row.messages, row.tokens, row.path_version, now, key),
    )
    if settings:
        db.execute("UPDATE session SET settings = ? WHERE key = ?", (dump_json(kept), key))
    return row


def _prolong_path(db: apsw.Connection, found: Found, seq_last: int) -> bool:
    """Make the path's last row end with this message; False if it does not end with the newest one now."""
    db.execute(
        "UPDATE path SET last = ? WHERE session = ? AND last = ? "
        "AND rank = (SELECT max(rank) FROM path WHERE session = ?)",
        (seq_last, found.key, found.seq_last, found.key),
    )
    return db.changes() == 1
