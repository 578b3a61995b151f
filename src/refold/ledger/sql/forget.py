"""Erasing the content of messages and everything made from it. Hashes stay, so the chain still verifies.

Erased are: the raw bytes of the messages and of all with the same content; every edit that covers one of them, and
edits made from those; the facts of both; and the messages' words in events and reasons. refold writes events, reasons
and titles itself, but they may quote messages: a text that shares a word with the forgotten ones is replaced as a
whole, because losing a note is better than keeping a secret. Figures, times, ids and file names stay, so that bills and
logs still add up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from refold.conversation.message import DIGITS
from refold.conversation.reason import CATALOGUE, read_reason
from refold.ledger.codec import decode_reason, dump_json, encode_reason, load_json
from refold.ledger.records import add_descendants
from refold.ledger.sql.database import Database
from refold.ledger.sql.edits import find_edits_over, read_rows
from refold.ledger.sql.messages import from_hex
from refold.patterns import lazy_regex

GONE = "[forgotten]"
_WORD = lazy_regex(r"[^\W_]{3,}")
_CJK = lazy_regex("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]+")
# Fields that hold names, ids and hashes, and never a sentence.
_NAMES = frozenset(
    {
        "model", "strength", "stages", "memory", "edits", "edit", "files", "handles", "batch", "by", "changes", "role",
        "type", "id", "call_id", "tool_call_id",
    }
)  # fmt: skip
# Words that our own sentences use. They reveal nothing about a message that uses them too.
_OURS = frozenset(
    {
        "the", "and", "for", "was", "not", "were", "are", "has", "had", "that", "this", "with", "from", "than", "then",
        "been", "below", "above", "over", "under", "after", "before", "into", "message", "messages", "token", "tokens",
        "window", "budget", "view", "room", "user", "newest", "last", "first", "more", "less", "left", "nothing",
        "added", "taken", "back", "compressed", "compression", "compressions", "summary", "summaries", "fold", "folded",
        "hard", "soft", "warn", "trigger", "reached", "limit", "model", "request", "provider", "session", "rounds",
        "ratio", "person", "asked", "which", "could", "compress", "compressing", "another", "process", "does", "fit",
        "cache", "cold", "cut", "off", "answer", "finish", "reason", "length", "recall", "refused", "long", "tuned",
        "failed",
    }
)  # fmt: skip


class Words:
    """The words of the texts to forget. If one of the texts is already erased, every word counts."""

    def __init__(self, bodies: Iterable[bytes | None]) -> None:
        self._is_all = False
        known: set[str] = set()
        for body in bodies:
            if body is None:
                self._is_all = True
            else:
                known.update(*map(_split, _list_texts(load_json(body))))
        self._known = known
        self._sorted = sorted(known)

    def are_in(self, text: str) -> bool:
        """Return whether a text has one of the words; its last word may be cut short."""
        if self._is_all:
            return bool(text)
        words = _split(text)
        return not self._known.isdisjoint(words) or any(self._begins(word) for word in words[-1:])

    def _begins(self, word: str) -> bool:
        at = bisect_left(self._sorted, word)
        return at < len(self._sorted) and self._sorted[at].startswith(word)

    def take_out(self, value: Any) -> Any:
        """Return a JSON value with every text that has one of the words replaced; the same object if there is none."""
        if isinstance(value, str):
            return GONE if value != GONE and self.are_in(value) else value
        if isinstance(value, Mapping):
            changed: Any = {key: held if key in _NAMES else self.take_out(held) for key, held in value.items()}
            if isinstance(value.get("values"), Mapping) and str(value.get("code")) in CATALOGUE:
                changed["code"] = value["code"]  # A reason: the code is ours, only the values may quote.
        elif isinstance(value, list):
            changed = [self.take_out(held) for held in value]
        else:
            return value
        return value if changed == value else changed


def _split(text: str) -> list[str]:
    folded = text.casefold()
    # Chinese has no spaces: any two consecutive characters count as a word.
    pairs = [run[at : at + 2] for run in _CJK.findall(folded) for at in range(max(1, len(run) - 1))]
    return pairs + [word for word in _WORD.findall(folded) if word not in _OURS]


def _list_texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, held in value.items():
            if key not in _NAMES:
                yield from _list_texts(held)
    elif isinstance(value, list):
        for held in value:
            yield from _list_texts(held)


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
    rows = read_rows(db, session, active_only=False)
    chosen = add_descendants(ids, {row.id: load_json(row.payload)["made_from"] for row in rows})
    gone = [row for row in rows if row.id in chosen]
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
