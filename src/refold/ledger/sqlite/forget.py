"""Erasing for good: the content of messages, and all that was made from them. Hashes stay, so the chain verifies.

What goes: raw bytes of the named messages and of every other one in the session with the same content; every edit that
covers one of them, active or not; edits made from those; the facts of both. What stays: ids, digests, counts, events.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from refold.conversation.handle import DIGITS
from refold.ledger.covering import add_descendants
from refold.ledger.sqlite.edit_rows import find_edits_over, read_rows


def forget_messages(db: apsw.Connection, session: int, ids: Sequence[str]) -> tuple[int, int]:
    """Erase; return how many messages had content, and how many edits went."""
    targets = _find_targets(db, session, ids)
    covering = find_edits_over(db, session, targets, active_only=False)
    gone = add_descendants(read_rows(db, session, active_only=False), covering)
    for row in gone:
        db.execute("DELETE FROM cover WHERE edit = ?", (row.key,))
        db.execute("DELETE FROM edit WHERE key = ?", (row.key,))
    for batch in {row.batch for row in gone if row.batch is not None}:
        db.execute("DELETE FROM fact WHERE session = ? AND batch = ?", (session, batch))
    for digest in {digest for digest, _ in targets.values()}:
        handle = f"m:{digest.hex()[:DIGITS]}"
        db.execute("DELETE FROM fact WHERE session = ? AND handle >= ? AND handle < ?", (session, handle, handle + "~"))
    count = 0
    for seq, (_, raw) in targets.items():
        if raw is not None:
            db.execute("DELETE FROM raw WHERE key = ?", (raw,))
            db.execute("UPDATE message SET raw = NULL, checksum = NULL WHERE session = ? AND seq = ?", (session, seq))
            count += 1
    return count, len(gone)


def _find_targets(db: apsw.Connection, session: int, ids: Sequence[str]) -> dict[int, tuple[bytes, int | None]]:
    """Return number, digest and key of the raw bytes of every message with the content of one of these."""
    targets: dict[int, tuple[bytes, int | None]] = {}
    for message_id in ids:
        sql = (
            "SELECT same.seq, same.digest, same.raw FROM message AS named CROSS JOIN message AS same "
            "ON same.session = named.session AND same.digest = named.digest WHERE named.session = ? AND named.id = ?"
        )
        for seq, digest, raw in db.execute(sql, (session, bytes.fromhex(message_id))):
            targets[seq] = (digest, raw)
    return targets
