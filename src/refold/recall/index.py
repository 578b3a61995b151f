"""The index: which passages of which messages hold a word. It follows the ledger by a watermark, session by session.

A batch of messages is one transaction, with the watermark in it: after a crash the next call continues where the last
one ended. The index holds words and places, never a message's text: results are read from the ledger, so that forgotten
text cannot come back from here. Erased words are gone from the file, not only from the answers.

``verify_index`` compares the index with the ledger word by word. All of it is derived, so a session that differs is
indexed again.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import apsw

from refold.ledger.codec import decode_text, encode_text
from refold.ledger.records import Finding, SessionRow, format_of
from refold.ledger.sql.ledger import Ledger
from refold.recall.index_file import SESSION_BITS, IndexFile, IndexReplaced, Mark, find_mark, read_source
from refold.recall.originals import (
    Original,
    find_units,
    has_number,
    is_question,
    measure_weight,
    read_original,
    split_passages,
)
from refold.recall.words import find_words, name_day

# Above this many passages, rewriting the whole index once is cheaper than removing each passage.
_CUT_MAX = 500


def erase_messages(db: apsw.Connection, mark: Mark, ids: Sequence[str]) -> int:
    """Erase the passages, words and vectors of messages; return how many of them were indexed."""
    keys: list[int] = []
    count = 0
    for message_id in ids:
        sql = "SELECT first, count FROM source WHERE no = ? AND id = ?"
        found = db.execute(sql, (mark.no, message_id)).fetchone()
        if found is not None:
            keys.extend(range(mark.key(found[0]), mark.key(found[0]) + found[1]))
            db.execute("UPDATE source SET count = 0 WHERE no = ? AND id = ?", (mark.no, message_id))
            count += 1
    _erase_words(db, mark, set(keys))
    for table in ("passage", "vector"):
        db.executemany(f"DELETE FROM {table} WHERE key = ?", ((key,) for key in keys))
    return count


def erase_session(db: apsw.Connection, mark: Mark) -> None:
    low, high = mark.key(0), mark.key(0) + (1 << SESSION_BITS)
    _erase_words(db, mark, None)
    for table in ("passage", "vector"):
        db.execute(f"DELETE FROM {table} WHERE key >= ? AND key < ?", (low, high))
    db.execute("DELETE FROM source WHERE no = ?", (mark.no,))
    db.execute("DELETE FROM indexed WHERE no = ?", (mark.no,))


def _erase_words(db: apsw.Connection, mark: Mark, keys: set[int] | None) -> None:
    """Erase the words at these rows, or all of the session's."""
    if keys is not None and not keys:
        return
    found = collect_words(db, mark, keys)
    cuts = len(found) <= _CUT_MAX
    if not cuts:
        db.execute("INSERT INTO word (word, rank) VALUES ('secure-delete', 0)")
    sql = "INSERT INTO word (word, rowid, words) VALUES ('delete', ?, ?)"
    db.executemany(sql, ((key, " ".join(words)) for key, words in found.items()))
    if not cuts:
        db.execute("INSERT INTO word (word) VALUES ('optimize')")
        db.execute("INSERT INTO word (word, rank) VALUES ('secure-delete', 1)")


def collect_words(db: apsw.Connection, mark: Mark, keys: Iterable[int] | None = None) -> dict[int, list[str]]:
    """Return the words of a session as the index has them, with their prefix, by row."""
    wanted = None if keys is None else set(keys)
    found: defaultdict[int, list[str]] = defaultdict(list)
    # '}' is what follows '|'.
    sql = "SELECT term, doc FROM word_list WHERE term >= ? AND term < ?"
    for word, key in db.execute(sql, (mark.prefix, f"{mark.no:x}}}")):
        if wanted is None or key in wanted:
            found[key].append(word)
    return found


BATCH_MESSAGES = 200
QUESTION = 1
NUMBER = 2


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """The progress of indexing: the session's watermark, the number of added messages, and whether none is left."""

    mark: Mark
    added: int
    is_done: bool = True


@dataclass(frozen=True, slots=True)
class Piece:
    """One passage of an original. ``beside`` are words besides its text: the message's name and its day."""

    start: int
    stop: int
    weight: int
    flags: int
    text: str
    beside: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """All words under which the passage is found."""
        return [*find_words(self.text), *self.beside]


_Pieces = list[tuple[Piece, list[str]]]


class RecallIndex:
    """The words of every session, in a separate file. Safe to share between threads and processes."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.file = IndexFile(path)

    def find_mark(self, session_id: str) -> Mark | None:
        """Return how far a session is indexed; None if it is not."""
        with self.file.read() as db:
            return find_mark(db, session_id)

    def catch_up(
        self,
        ledger: Ledger,
        row: SessionRow,
        messages_max: int | None = None,
        *,
        pause_s: float = 0.0,
    ) -> CaughtUp:
        """Index what came since the last time, about ``messages_max`` at most, pausing after each message: O(new)."""
        form = format_of(row)
        added = 0
        mark = self.find_mark(row.id)
        if mark is not None and self.is_another(ledger, row, mark):
            # An earlier session of the same name was deleted: its words are not this one's.
            self.purge_session(row.id)
            mark = None
        while True:
            messages = ledger.list_messages(row.id, after=mark.seq if mark else 0, limit=BATCH_MESSAGES)
            if mark is not None and not messages:
                return CaughtUp(mark, added)
            # Words are collected before the lock is taken. If another process was faster, it did the same work.
            pieces: list[tuple[Original, _Pieces]] = []
            for stored in messages:
                original = read_original(stored, form)
                pieces.append((original, _collect(original)))
                if pause_s:
                    time.sleep(pause_s)
            with self.file.write() as db:
                now = find_mark(db, row.id)
                if now is None:
                    sql = "INSERT INTO indexed (session_id, created_at) VALUES (?, ?)"
                    db.execute(sql, (encode_text(row.id), row.created_at))
                    now = Mark(db.last_insert_rowid(), row.created_at)
                if now.seq == (mark.seq if mark else 0) and pieces:
                    now = _add_originals(db, now, pieces)
                    added += len(pieces)
            mark = now
            if len(messages) < BATCH_MESSAGES and mark.seq >= (messages[-1].seq if messages else 0):
                return CaughtUp(mark, added)
            if messages_max is not None and added >= messages_max:
                return CaughtUp(mark, added, is_done=False)

    def is_another(self, ledger: Ledger, row: SessionRow, mark: Mark) -> bool:
        """Return whether a session is not the one that was indexed under its name.

        An imported session keeps its creation time but has its own version of edits. If the versions differ, the id of
        the last indexed message decides, because it depends on all messages before it.
        """
        if mark.created_at != row.created_at:
            return True
        if mark.edits_version == row.edits_version or not mark.seq:
            return False
        with self.file.read() as db:
            indexed = read_source(db, mark, mark.seq)
        stored = ledger.list_messages(row.id, after=mark.seq - 1, limit=1)
        return indexed is None or not stored or (stored[0].seq, stored[0].id) != (indexed.seq, indexed.id)

    def purge_messages(self, session_id: str, ids: Sequence[str]) -> int:
        """Remove messages from the file too; return how many there were."""
        return self._purge(session_id, lambda db, mark: erase_messages(db, mark, ids))

    def find_indexed(self, session_id: str, ids: Sequence[str]) -> list[str]:
        """Return those of these messages that are indexed."""
        if not ids:
            return []
        with self.file.read() as db:
            mark = find_mark(db, session_id)
            sql = "SELECT 1 FROM source WHERE no = ? AND id = ? AND count > 0"
            return [one for one in ids if mark is not None and db.execute(sql, (mark.no, one)).fetchone()]

    def purge_session(self, session_id: str) -> bool:
        """Remove a whole session; False if it was not there."""

        def purge(db: apsw.Connection, mark: Mark) -> int:
            erase_session(db, mark)
            return 1

        return bool(self._purge(session_id, purge))

    def _purge(self, session_id: str, purge: Callable[[apsw.Connection, Mark], int]) -> int:
        if not self.file.path.exists():
            return 0
        try:
            with self.file.write() as db:
                mark = find_mark(db, session_id)
                count = purge(db, mark) if mark is not None else 0
        except IndexReplaced:
            return 1  # The whole index was damaged and is gone.
        self.file.empty_log()
        return count

    def mark_version(self, session_id: str, edits_version: int) -> None:
        """Note the version of a session's edits up to which the index follows it."""
        with self.file.write() as db:
            db.execute(
                "UPDATE indexed SET edits_version = ? WHERE session_id = ?", (edits_version, encode_text(session_id))
            )

    def list_sessions(self) -> list[str]:
        with self.file.read() as db:
            return [decode_text(found) for (found,) in db.execute("SELECT session_id FROM indexed ORDER BY no")]

    def close(self) -> None:
        """Close the file. A later call opens it again."""
        self.file.close()


def split_original(original: Original) -> Iterator[Piece]:
    """Yield each passage of an original."""
    asks = is_question(original.text)
    day = name_day(original.created_at)
    beside = (*find_words(original.name), *day) if original.name else day
    for passage in split_passages(original.lay_out(), units=find_units(original)):
        text = original.read(passage.start, passage.stop)
        flags = (QUESTION if asks else 0) | (NUMBER if has_number(text) else 0)
        yield Piece(passage.start, passage.stop, measure_weight(text), flags, text, beside)
        beside = ()


def _collect(original: Original) -> _Pieces:
    return [(piece, list(dict.fromkeys(piece.words))) for piece in split_original(original)]


def _add_originals(db: apsw.Connection, mark: Mark, originals: Sequence[tuple[Original, _Pieces]]) -> Mark:
    place, weight = mark.passages, mark.weight
    for original, pieces in originals:
        first = place
        for piece, words in pieces:
            key = mark.key(place)
            row = (key, original.seq, piece.start, piece.stop, piece.weight, piece.flags)
            db.execute("INSERT INTO passage VALUES (?, ?, ?, ?, ?, ?)", row)
            _add_words(db, mark, key, words)
            place, weight = place + 1, weight + piece.weight
        source = (mark.no, original.seq, original.id, original.digest, original.role, first, place - first)
        db.execute("INSERT INTO source VALUES (?, ?, ?, ?, ?, ?, ?)", source)
    seq = originals[-1][0].seq
    sql = "UPDATE indexed SET seq = ?, passages = ?, weight = ? WHERE no = ?"
    db.execute(sql, (seq, place, weight, mark.no))
    return replace(mark, seq=seq, passages=place, weight=weight)


def _add_words(db: apsw.Connection, mark: Mark, key: int, words: Iterable[str]) -> None:
    if prefixed := mark.add_prefix(words):
        db.execute("INSERT INTO word (rowid, words) VALUES (?, ?)", (key, prefixed))


_PAGE = 1_000
_FINDINGS_MAX = 20


def verify_index(index: RecallIndex, ledger: Ledger, session_id: str | None, *, repair: bool = False) -> list[Finding]:
    """Return the differences; a session that is not indexed yet, or not to its end, is not one."""
    names = index.list_sessions() if session_id is None else [session_id]
    findings: list[Finding] = []
    for name in names:
        row = ledger.read_session(name)
        found = _verify_session(index, ledger, name, row)
        findings += [Finding(name, what, True) for what in found[:_FINDINGS_MAX]]
        if found and repair:
            index.purge_session(name)
            if row is not None:
                index.catch_up(ledger, row)
    return findings


def _verify_session(index: RecallIndex, ledger: Ledger, name: str, row: SessionRow | None) -> list[str]:
    with index.file.read() as db:
        mark = find_mark(db, name)
        if mark is None:
            return []
        if row is None:
            return ["the index holds a session that the ledger does not have"]
        kept = collect_words(db, mark)
        sources = {
            one[0]: one[1:] for one in db.execute("SELECT seq, id, first, count FROM source WHERE no = ?", (mark.no,))
        }
    return _compare(ledger, row, mark, {key: set(words) for key, words in kept.items()}, sources=sources)


def _compare(
    ledger: Ledger, row: SessionRow, mark: Mark, kept: dict[int, set[str]], *, sources: dict[int, tuple[str, int, int]]
) -> list[str]:
    form = format_of(row)
    found: list[str] = []
    seq = 0
    while messages := [one for one in ledger.list_messages(row.id, after=seq, limit=_PAGE) if one.seq <= mark.seq]:
        for stored in messages:
            seq = stored.seq
            message_id, first, count = sources.pop(seq, ("", 0, 0))
            original = read_original(stored, form)
            expected = [piece.words for piece in split_original(original)]
            if message_id != stored.id and expected:
                found.append(f"message {stored.id} is not in the index")
                continue
            if count != len(expected):
                what = "is indexed, though forgotten" if stored.is_forgotten else "has other passages in the index"
                found.append(f"message {stored.id} {what}")
            for at in range(count):
                has = kept.pop(mark.key(first + at), set())
                if at < len(expected) and has != {f"{mark.prefix}{word}" for word in expected[at]}:
                    found.append(f"the words of passage {at} of message {stored.id} differ")
    found += [f"the index holds message {source[0]}, which the ledger does not have" for source in sources.values()]
    found += [f"the index holds words at place {key - mark.key(0)} that belong to nothing" for key in kept]
    return found
