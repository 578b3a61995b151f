"""The index: which passages of which messages hold a word. It follows the ledger by a watermark, session by session.

One batch of messages is one transaction, with the watermark in it: after a crash the next call goes on where the last
one ended. The index holds words and places, never a message's text: results are read from the ledger, so what is
forgotten there cannot come back from here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import apsw

from refold.errors import LedgerError
from refold.ledger.encode import decode_text, encode_text
from refold.ledger.ledger import Ledger, SessionRow
from refold.recall import erase
from refold.recall.dates import name_day
from refold.recall.file import IndexFile
from refold.recall.originals import Original, format_of, read_original
from refold.recall.passages import has_number, is_question, split_passages
from refold.recall.words import find_words

BATCH_MESSAGES = 200
# A word that stands in more passages than this says little: only its newest places are read.
PLACES_MAX = 20_000
NOTES_FROM = 1 << 31
SESSION_BITS = 32

QUESTION = 1
NUMBER = 2


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a session is indexed."""

    no: int
    seq: int = 0
    passages: int = 0
    words: int = 0
    edits_version: int = -1
    embedded: int = 0
    model: str = ""

    def key(self, place: int) -> int:
        """Return the row of a place in this session."""
        return self.no << SESSION_BITS | place

    @property
    def prefix(self) -> str:
        """What this session's words begin with."""
        return f"{self.no:x}|"


@dataclass(frozen=True, slots=True)
class PassageRow:
    """One passage: its message by ``seq``, where it stands in its text, and what ranking needs to know."""

    place: int
    seq: int
    start: int
    stop: int
    words: int
    flags: int


@dataclass(frozen=True, slots=True)
class Note:
    """A summary or a fact, with the handle of what it tells about."""

    place: int
    kind: str
    handle: str
    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """The message that passages belong to."""

    seq: int
    id: str
    digest: str
    role: str


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
        if not self.path.exists():
            return None
        with self.file.read() as db:
            return _find_mark(db, session_id)

    def catch_up(self, ledger: Ledger, row: SessionRow) -> int:
        """Index the messages that came since the last time; return how many. Costs O(new messages)."""
        form = format_of(row)
        added = 0
        mark = self.find_mark(row.id)
        if mark is None or not self._is_same(row):
            mark = self._begin(row)
        while ledger.list_messages(row.id, after=mark.seq, limit=1):
            with self.file.write() as db:
                mark = _find_mark(db, row.id) or Mark(_add_session(db, row))
                originals = [
                    read_original(stored, form)
                    for stored in ledger.list_messages(row.id, after=mark.seq, limit=BATCH_MESSAGES)
                ]
                if not originals:
                    break
                mark = _add_originals(db, mark, originals)
                added += len(originals)
        return added

    def find_places(self, mark: Mark, word: str) -> list[int]:
        """Return the places of a word in a session, in order; of a very common one the newest."""
        with self.file.read() as db:
            return find_places(db, mark, word)

    def purge_messages(self, session_id: str, ids: Sequence[str]) -> int:
        """Take messages out, with all notes of their session; return how many there were. Gone from the file too."""

        def purge(db: apsw.Connection, mark: Mark) -> int:
            count = erase.erase_messages(db, mark, ids)
            erase.erase_notes(db, mark)
            db.execute("UPDATE indexed SET edits_version = -1 WHERE no = ?", (mark.no,))
            return count

        return self._purge(session_id, purge)

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
                mark = _find_mark(db, session_id)
                count = purge(db, mark) if mark is not None else 0
        except LedgerError as error:
            if not isinstance(error.__cause__, apsw.CorruptError):
                raise
            # What must go has to go, also from an index that is damaged. All of it can be made again.
            self.clear()
            return 1
        self.file.empty_log()
        return count

    def replace_notes(self, session_id: str, notes: Iterable[tuple[str, str, str]], edits_version: int) -> None:
        """Set a session's notes, (kind, handle, text) each, as of a version of its edits."""
        with self.file.write() as db:
            mark = _find_mark(db, session_id)
            if mark is None:
                return
            erase.erase_notes(db, mark)
            for at, (kind, handle, text) in enumerate(notes):
                key = mark.key(NOTES_FROM + at)
                db.execute("INSERT INTO note VALUES (?, ?, ?, ?)", (key, kind, handle, encode_text(text)))
                _add_words(db, mark, key, find_words(text))
            db.execute("UPDATE indexed SET edits_version = ? WHERE no = ?", (edits_version, mark.no))

    def list_sessions(self) -> list[str]:
        """Return the sessions that are indexed."""
        if not self.path.exists():
            return []
        with self.file.read() as db:
            return [decode_text(found) for (found,) in db.execute("SELECT session_id FROM indexed ORDER BY no")]

    def close(self) -> None:
        """Close the file. A later call opens it again."""
        self.file.close()

    def _is_same(self, row: SessionRow) -> bool:
        """Tell whether the indexed session is this one, and not one of the same name that was deleted since."""
        with self.file.read() as db:
            sql = "SELECT created_at FROM indexed WHERE session_id = ?"
            return bool(db.execute(sql, (encode_text(row.id),)).get == row.created_at)

    def _begin(self, row: SessionRow) -> Mark:
        self.purge_session(row.id)
        with self.file.write() as db:
            return _find_mark(db, row.id) or Mark(_add_session(db, row))


def find_places(db: apsw.Connection, mark: Mark, word: str) -> list[int]:
    """Return the places of a word, see ``RecallIndex.find_places``."""
    # The word is quoted, and holds no quote: it is text, never an operator.
    sql = "SELECT rowid FROM word WHERE word MATCH ? ORDER BY rowid DESC LIMIT ?"
    base = mark.no << SESSION_BITS
    found = [key - base for (key,) in db.execute(sql, (f'"{mark.prefix}{word}"', PLACES_MAX))]
    found.reverse()
    return found


def read_passages(db: apsw.Connection, mark: Mark, low: int, high: int) -> Iterator[PassageRow]:
    """Yield the passages at places ``low`` to ``high``, without the latter."""
    sql = "SELECT key, seq, start, stop, words, flags FROM passage WHERE key >= ? AND key < ? ORDER BY key"
    for key, *rest in db.execute(sql, (mark.key(max(0, low)), mark.key(min(high, NOTES_FROM)))):
        yield PassageRow(key - (mark.no << SESSION_BITS), *rest)


def read_source(db: apsw.Connection, mark: Mark, seq: int) -> Source | None:
    """Return the message with this number."""
    found = db.execute("SELECT seq, id, digest, role FROM source WHERE no = ? AND seq = ?", (mark.no, seq)).fetchone()
    return Source(*found) if found else None


def read_sources(db: apsw.Connection, mark: Mark, seqs: Iterable[int]) -> dict[int, Source]:
    """Return the messages with these numbers."""
    found = ((seq, read_source(db, mark, seq)) for seq in seqs)
    return {seq: source for seq, source in found if source is not None}


def read_note(db: apsw.Connection, mark: Mark, place: int) -> Note | None:
    """Return the note at a place."""
    found = db.execute("SELECT kind, handle, text FROM note WHERE key = ?", (mark.key(place),)).fetchone()
    return Note(place, found[0], found[1], decode_text(found[2])) if found else None


def find_mark(db: apsw.Connection, session_id: str) -> Mark | None:
    """Return how far a session is indexed, read in the caller's transaction."""
    return _find_mark(db, session_id)


def split_original(original: Original) -> Iterator[tuple[int, int, list[str], int]]:
    """Yield each passage of an original: its start and stop, its words, its flags."""
    asks = is_question(original.text)
    beside = [*find_words(original.name), *name_day(original.created_at)]
    for passage in split_passages(original.text):
        text = original.text[passage.start : passage.stop]
        flags = (QUESTION if asks else 0) | (NUMBER if has_number(text) else 0)
        yield passage.start, passage.stop, [*find_words(text), *beside], flags
        beside = []


def _find_mark(db: apsw.Connection, session_id: str) -> Mark | None:
    sql = "SELECT no, seq, passages, words, edits_version, embedded, model FROM indexed WHERE session_id = ?"
    found = db.execute(sql, (encode_text(session_id),)).fetchone()
    return Mark(*found) if found else None


def _add_session(db: apsw.Connection, row: SessionRow) -> int:
    sql = "INSERT INTO indexed (session_id, created_at) VALUES (?, ?)"
    db.execute(sql, (encode_text(row.id), row.created_at))
    return db.last_insert_rowid()


def _add_originals(db: apsw.Connection, mark: Mark, originals: Sequence[Original]) -> Mark:
    place, words_all = mark.passages, mark.words
    for original in originals:
        first = place
        for start, stop, words, flags in split_original(original):
            key = mark.key(place)
            db.execute(
                "INSERT INTO passage VALUES (?, ?, ?, ?, ?, ?)", (key, original.seq, start, stop, len(words), flags)
            )
            _add_words(db, mark, key, words)
            place, words_all = place + 1, words_all + len(words)
        row = (mark.no, original.seq, original.id, original.digest, original.role, first, place - first)
        db.execute("INSERT INTO source VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    seq = originals[-1].seq
    sql = "UPDATE indexed SET seq = ?, passages = ?, words = ? WHERE no = ?"
    db.execute(sql, (seq, place, words_all, mark.no))
    return Mark(mark.no, seq, place, words_all, mark.edits_version, mark.embedded, mark.model)


def _add_words(db: apsw.Connection, mark: Mark, key: int, words: Iterable[str]) -> None:
    distinct = dict.fromkeys(words)
    if distinct:
        prefixed = mark.prefix + f" {mark.prefix}".join(distinct)
        db.execute("INSERT INTO word (rowid, words) VALUES (?, ?)", (key, prefixed))


__all__ = ["Mark", "Note", "PassageRow", "RecallIndex", "Source"]
