"""Erasing for good: the content of messages, and all that was made from them. Hashes stay, so the chain verifies.

What goes: raw bytes of the named messages and of every other one in the session with the same content; every edit that
covers one of them, active or not; edits made from those; the facts of both; whatever events and reasons of compressions
say in their words. What stays: ids, digests, counts, times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import apsw

from refold.conversation.handle import DIGITS
from refold.conversation.reason import read_reason
from refold.ledger.codec import decode_reason, decode_text, dump_json, encode_reason, load_json
from refold.ledger.covering import add_descendants
from refold.ledger.scrub import Words
from refold.ledger.sqlite.edit_rows import find_edits_over, read_rows
from refold.ledger.sqlite.sql import fetch_all, fetch_value


def forget_messages(db: apsw.Connection, session: int, ids: Sequence[str]) -> tuple[int, int]:
    """Erase; return how many messages had content, and how many edits went."""
    targets = _find_targets(db, session, ids)
    _scrub_notes(db, session, Words(_read_bodies(db, targets)))
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


def _read_bodies(db: apsw.Connection, targets: dict[int, tuple[bytes, int | None]]) -> Iterator[bytes | None]:
    """Yield what is to be erased; None for what was before."""
    for raw in dict(sorted(targets.values(), key=lambda target: target[1] is not None)).values():
        yield None if raw is None else fetch_value(db, "SELECT body FROM raw WHERE key = ?", (raw,))


def _scrub_notes(db: apsw.Connection, session: int, words: Words) -> None:
    events = fetch_all(db, "SELECT id, fields FROM event WHERE session = ?", (session,))
    for event_id, stored in events:
        fields = load_json(stored)
        changed = words.take_out(fields)
        if changed is not fields:
            db.execute("UPDATE event SET fields = ? WHERE id = ?", (dump_json(changed), event_id))
    for key, reason in fetch_all(db, "SELECT key, reason FROM batch WHERE session = ?", (session,)):
        told = decode_reason(decode_text(reason)).to_json()
        changed = words.take_out(told)
        if changed is not told:
            db.execute("UPDATE batch SET reason = ? WHERE key = ?", (encode_reason(read_reason(changed)), key))
