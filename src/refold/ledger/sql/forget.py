"""Erasing the content of messages and everything made from it. Hashes stay, so the chain still verifies.

Erased are: the raw bytes of the named messages and of every message in the session with the same content; every edit
that covers one of them, active or not, and edits made from those; the facts of both; and the words of the messages in
events and in the reasons of batches. Ids, digests, counts and times stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from refold.conversation.message import DIGITS
from refold.conversation.reason import read_reason
from refold.ledger.codec import decode_reason, dump_json, encode_reason, load_json
from refold.ledger.scrub import Words
from refold.ledger.sql.database import Database
from refold.ledger.sql.edits import add_descendants, find_edits_over, read_rows
from refold.ledger.sql.messages import from_hex

# The tables that hold words of a conversation.
TABLES = ("message", "edit", "fact", "event", "batch", "session")

_Targets = dict[int, tuple[bytes, bool]]  # Number: digest, and whether there still is content.


def forget_messages(db: Database, session: int, ids: Sequence[str]) -> tuple[int, int]:
    """Erase messages; return how many still had content, and how many edits were deleted."""
    targets = _find_targets(db, session, ids)
    _scrub_notes(db, session, Words(_read_bodies(db, session, targets)))
    gone = delete_edits(db, session, find_edits_over(db, session, targets, active_only=False))
    for digest in sorted({digest for digest, _ in targets.values()}):
        handle = f"m:{digest.hex()[:DIGITS]}"
        sql = "DELETE FROM fact WHERE session = ? AND handle >= ? AND handle < ?"
        db.run(sql, (session, handle, f"{handle}~"))
    full = [seq for seq, (_, has_content) in targets.items() if has_content]
    db.delete_content(session, full)
    sql = f"UPDATE message SET {db.content} = NULL, checksum = NULL WHERE session = ? AND seq = ANY(?)"
    db.run_each(sql, (session,), full)
    return len(full), gone


def delete_edits(db: Database, session: int, ids: set[str]) -> int:
    """Delete edits, those made from them, and the facts of both; return how many edits there were."""
    gone = add_descendants(read_rows(db, session, active_only=False), ids)
    keys = [row.key for row in gone]
    db.run_each("DELETE FROM cover WHERE edit = ANY(?)", (), keys)
    db.run_each("DELETE FROM edit WHERE key = ANY(?)", (), keys)
    batches = sorted({row.batch for row in gone if row.batch is not None})
    db.run_each("DELETE FROM fact WHERE session = ? AND batch = ANY(?)", (session,), batches)
    return len(gone)


def _find_targets(db: Database, session: int, ids: Sequence[str]) -> _Targets:
    """Return every message with the content of one of these."""
    sql = (
        f"SELECT same.seq, same.digest, same.{db.content} IS NOT NULL FROM message AS named "
        "CROSS JOIN message AS same ON same.session = named.session AND same.digest = named.digest "
        "WHERE named.session = ? AND named.id = ANY(?)"
    )
    rows = db.run_each(sql, (session,), dict.fromkeys(map(from_hex, ids))).fetchall()
    return {seq: (digest, bool(has_content)) for seq, digest, has_content in rows}


def _read_bodies(db: Database, session: int, targets: _Targets) -> Iterator[bytes | None]:
    """Yield each content once; None for content that was erased before."""
    known = sorted((has_content, digest, seq) for seq, (digest, has_content) in targets.items())
    sql = f"SELECT body FROM message{db.join_body} WHERE session = ? AND seq = ?"
    for seq in {digest: seq for _, digest, seq in known}.values():
        yield db.fetch_value(sql, (session, seq))


def _scrub_notes(db: Database, session: int, words: Words) -> None:
    for event_id, stored in db.fetch_all("SELECT id, fields FROM event WHERE session = ?", (session,)):
        fields = load_json(stored)
        changed = words.take_out(fields)
        if changed is not fields:
            db.run("UPDATE event SET fields = ? WHERE id = ?", (dump_json(changed), event_id))
    for key, stored in db.fetch_all("SELECT key, reason FROM batch WHERE session = ?", (session,)):
        reason = decode_reason(db.decode(stored)).to_json()
        changed = words.take_out(reason)
        if changed is not reason:
            encoded = db.encode(encode_reason(read_reason(changed)))
            db.run("UPDATE batch SET reason = ? WHERE key = ?", (encoded, key))
