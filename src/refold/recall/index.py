"""The index: which passages of which messages hold a word. It follows the ledger by a watermark, session by session.

One batch of messages is one transaction, with the watermark in it: after a crash the next call goes on where the last
one ended. The index holds words and places, never a message's text: results are read from the ledger, so what is
forgotten there cannot come back from here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import apsw

from refold.errors import LedgerError
from refold.ledger.codec import decode_text, encode_text
from refold.ledger.port import Ledger
from refold.ledger.records import SessionRow, format_of
from refold.recall import erase
from refold.recall.dates import name_day
from refold.recall.file import IndexFile
from refold.recall.originals import Original, read_original
from refold.recall.passages import has_number, is_question, measure_weight, split_passages
from refold.recall.rows import NOTES_FROM, Mark, find_mark, read_notes, read_source
from refold.recall.words import find_words

BATCH_MESSAGES = 200
QUESTION = 1
NUMBER = 2


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """How far a session is indexed now, how many messages were added for that, and whether that is all of it."""

    mark: Mark
    added: int
    is_done: bool = True


@dataclass(frozen=True, slots=True)
class Piece:
    """One passage of an original. ``beside`` are words that are not in its text: those of its name and its day."""

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
    """The words of every session, in one file of its own. Safe to share between threads and processes."""

    def __init__(self, path: str | os.PathLike[str], *, busy_timeout_s: float = 10.0) -> None:
        self.file = IndexFile(path, busy_timeout_s=busy_timeout_s)

    @property
    def path(self) -> Path:
        """Where the index is kept."""
        return self.file.path

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
        pause: Callable[[_Pieces], _Pieces] = lambda pieces: pieces,
    ) -> CaughtUp:
        """Index the messages that came since the last time, oldest first, about ``messages_max`` at most: O(new).

        ``pause`` is called with the pieces of each message, so that work in the background can yield to other threads.
        """
        form = format_of(row)
        added = 0
        mark = self.find_mark(row.id)
        if mark is not None and self.is_another(ledger, row, mark):
            # A session of the same name was deleted since: its words are not this one's.
            self.purge_session(row.id)
            mark = None
        while True:
            messages = ledger.list_messages(row.id, after=mark.seq if mark else 0, limit=BATCH_MESSAGES)
            if mark is not None and not messages:
                return CaughtUp(mark, added)
            # Words are collected before the lock is taken. If another process was faster, it did the same work.
            pieces = [(original, pause(_collect(original))) for original in (read_original(m, form) for m in messages)]
            with self.file.write() as db:
                now = find_mark(db, row.id) or Mark(_add_session(db, row), row.created_at)
                if now.seq == (mark.seq if mark else 0) and pieces:
                    now = _add_originals(db, now, pieces)
                    added += len(pieces)
            mark = now
            if len(messages) < BATCH_MESSAGES and mark.seq >= (messages[-1].seq if messages else 0):
                return CaughtUp(mark, added)
            if messages_max is not None and added >= messages_max:
                return CaughtUp(mark, added, is_done=False)

    def is_another(self, ledger: Ledger, row: SessionRow, mark: Mark) -> bool:
        """Tell whether a session is not the one that was indexed under its name.

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
        """Take messages out, with all notes of their session; return how many there were. Gone from the file too."""

        def purge(db: apsw.Connection, mark: Mark) -> int:
            count = erase.erase_messages(db, mark, ids)
            erase.erase_notes(db, mark, [key for key, _ in read_notes(db, mark)])
            db.execute("UPDATE indexed SET edits_version = -1 WHERE no = ?", (mark.no,))
            return count

        return self._purge(session_id, purge)

    def find_indexed(self, session_id: str, ids: Sequence[str]) -> list[str]:
        """Return those of these messages whose words are here."""
        if not ids:
            return []
        with self.file.read() as db:
            mark = find_mark(db, session_id)
            sql = "SELECT 1 FROM source WHERE no = ? AND id = ? AND count > 0"
            return [one for one in ids if mark is not None and db.execute(sql, (mark.no, one)).fetchone()]

    def purge_session(self, session_id: str) -> bool:
        """Take a whole session out; False if it was not there."""

        def purge(db: apsw.Connection, mark: Mark) -> int:
            erase.erase_session(db, mark)
            return 1

        return bool(self._purge(session_id, purge))

    def clear(self) -> None:
        """Take everything out. Sessions are indexed anew when somebody asks."""
        with self.file.write() as db:
            erase.erase_all(db)
        self.file.empty_log()

    def _purge(self, session_id: str, purge: Callable[[apsw.Connection, Mark], int]) -> int:
        if not self.path.exists():
            return 0
        try:
            with self.file.write() as db:
                mark = find_mark(db, session_id)
                count = purge(db, mark) if mark is not None else 0
        except LedgerError as error:
            if not isinstance(error.__cause__, apsw.CorruptError):
                raise
            # What must go has to go, also from an index that is damaged. All of it can be made again.
            self.clear()
            return 1
        self.file.empty_log()
        return count

    def update_notes(self, session_id: str, notes: Iterable[tuple[str, str, str]], edits_version: int) -> int:
        """Make a session's notes, (kind, handle, text) each, those of a version of its edits.

        Only notes that came or went are written; return how many those were.
        """
        with self.file.write() as db:
            mark = find_mark(db, session_id)
            if mark is None:
                return 0
            wanted = dict.fromkeys(notes)
            stored = dict(read_notes(db, mark))
            gone = [key for key, note in stored.items() if note not in wanted]
            new = [note for note in wanted if note not in set(stored.values())]
            erase.erase_notes(db, mark, gone)
            key = max(stored, default=mark.key(NOTES_FROM) - 1)
            for kind, handle, text in new:
                key += 1
                db.execute("INSERT INTO note VALUES (?, ?, ?, ?)", (key, kind, handle, encode_text(text)))
                _add_words(db, mark, key, find_words(text))
            db.execute("UPDATE indexed SET edits_version = ? WHERE no = ?", (edits_version, mark.no))
            return len(gone) + len(new)

    def list_sessions(self) -> list[str]:
        """Return the sessions that are indexed."""
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
    for passage in split_passages(original.text):
        text = original.text[passage.start : passage.stop]
        flags = (QUESTION if asks else 0) | (NUMBER if has_number(text) else 0)
        yield Piece(passage.start, passage.stop, measure_weight(text), flags, text, beside)
        beside = ()


def _add_session(db: apsw.Connection, row: SessionRow) -> int:
    sql = "INSERT INTO indexed (session_id, created_at) VALUES (?, ?)"
    db.execute(sql, (encode_text(row.id), row.created_at))
    return db.last_insert_rowid()


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
