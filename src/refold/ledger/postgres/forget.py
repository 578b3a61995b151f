"""Erasing for good: the content of messages, and all that was made from them. Hashes stay, so the chain verifies.

What goes: raw bytes of the named messages and of every other one in the session with the same content; every edit that
covers one of them, active or not; edits made from those; the facts of both; whatever events and reasons of compressions
say in their words. What stays: ids, digests, counts, times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from refold.conversation.handle import DIGITS
from refold.conversation.reason import read_reason
from refold.ledger.codec import decode_column, decode_reason, dump_json, encode_reason, load_json
from refold.ledger.covering import add_descendants
from refold.ledger.postgres.edit_rows import find_edits_over, read_rows
from refold.ledger.postgres.sql import Db, fetch_all, fetch_value, run
from refold.ledger.scrub import Words

# Whatever holds words of a conversation.
TABLES = ("message", "edit", "fact", "event", "batch", "session")


def forget_messages(db: Db, session: int, ids: Sequence[str]) -> tuple[int, int]:
    """Erase; return how many messages had content, and how many edits went."""
    targets = _find_targets(db, session, ids)
    _scrub_notes(db, session, Words(_read_bodies(db, session, targets)))
    covering = find_edits_over(db, session, targets, active_only=False)
    gone = add_descendants(read_rows(db, session, active_only=False), covering)
    keys = [row.key for row in gone]
    run(db, "DELETE FROM cover WHERE edit = ANY(%b::bigint[])", (keys,))
    run(db, "DELETE FROM edit WHERE key = ANY(%b::bigint[])", (keys,))
    batches = sorted({row.batch for row in gone if row.batch is not None})
    run(db, "DELETE FROM fact WHERE session = %s AND batch = ANY(%b::bigint[])", (session, batches))
    for digest in sorted({digest for digest, _ in targets.values()}):
        handle = f"m:{digest.hex()[:DIGITS]}"
        sql = "DELETE FROM fact WHERE session = %s AND handle >= %s AND handle < %s"
        run(db, sql, (session, handle, handle + "~"))
    full = [seq for seq, (_, has_content) in targets.items() if has_content]
    sql = "UPDATE message SET body = NULL, checksum = NULL WHERE session = %s AND seq = ANY(%b::bigint[])"
    run(db, sql, (session, full))
    return len(full), len(gone)


def _find_targets(db: Db, session: int, ids: Sequence[str]) -> dict[int, tuple[bytes, bool]]:
    """Return number, digest and whether it has content of every message with the content of one of these."""
    sql = (
        "SELECT same.seq, same.digest, same.body IS NOT NULL FROM message AS named JOIN message AS same "
        "ON same.session = named.session AND same.digest = named.digest "
        "WHERE named.session = %s AND named.id = ANY(%b::bytea[])"
    )
    rows = fetch_all(db, sql, (session, [bytes.fromhex(message_id) for message_id in ids]))
    return {seq: (digest, has_content) for seq, digest, has_content in rows}


def _read_bodies(db: Db, session: int, targets: dict[int, tuple[bytes, bool]]) -> Iterator[bytes | None]:
    """Yield what is to be erased; None for what was before."""
    known = sorted((has_content, digest, seq) for seq, (digest, has_content) in targets.items())
    for seq in {digest: seq for _, digest, seq in known}.values():
        yield fetch_value(db, "SELECT body FROM message WHERE session = %s AND seq = %s", (session, seq))


def _scrub_notes(db: Db, session: int, words: Words) -> None:
    for event_id, stored in fetch_all(db, "SELECT id, fields FROM event WHERE session = %s", (session,)):
        fields = load_json(stored)
        changed = words.take_out(fields)
        if changed is not fields:
            run(db, "UPDATE event SET fields = %s WHERE id = %s", (dump_json(changed), event_id))
    for key, reason in fetch_all(db, "SELECT key, reason FROM batch WHERE session = %s", (session,)):
        told = decode_reason(decode_column(reason)).to_json()
        changed = words.take_out(told)
        if changed is not told:
            run(db, "UPDATE batch SET reason = %s WHERE key = %s", (encode_reason(read_reason(changed)), key))
