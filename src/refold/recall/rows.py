"""The rows of the index as search reads them, each in the caller's transaction. Nothing here writes.

A place numbers a session's passages in order; the key of its row is the session's number and the place. Notes, that is
summaries and facts, have places of their own, far behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import apsw

from refold.ledger.codec import decode_text, encode_text

# A word that stands in more passages than this says little: only its newest places are read.
PLACES_MAX = 5_000
NOTES_FROM = 1 << 31
SESSION_BITS = 32


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a session is indexed."""

    no: int
    created_at: float = 0.0
    seq: int = 0
    passages: int = 0
    weight: int = 0
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

    def add_prefix(self, words: Iterable[str]) -> str:
        """Return distinct words as the index stores them."""
        return " ".join(f"{self.prefix}{word}" for word in dict.fromkeys(words))


@dataclass(frozen=True, slots=True)
class PassageRow:
    """One passage: its message by ``seq``, where it stands in its text, and what ranking needs to know."""

    place: int
    seq: int
    start: int
    stop: int
    weight: int
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


def find_mark(db: apsw.Connection, session_id: str) -> Mark | None:
    """Return how far a session is indexed; None if it is not."""
    sql = (
        "SELECT no, created_at, seq, passages, weight, edits_version, embedded, model FROM indexed WHERE session_id = ?"
    )
    found = db.execute(sql, (encode_text(session_id),)).fetchone()
    return Mark(*found) if found else None


def find_places(db: apsw.Connection, mark: Mark, word: str) -> list[int]:
    """Return the places of a word in a session, in order; of a very common one the newest."""
    # The word is quoted, and holds no quote: it is text, never an operator.
    sql = "SELECT rowid FROM word WHERE word MATCH ? ORDER BY rowid DESC LIMIT ?"
    base = mark.no << SESSION_BITS
    found = [key - base for (key,) in db.execute(sql, (f'"{mark.prefix}{word}"', PLACES_MAX))]
    found.reverse()
    return found


def count_places(db: apsw.Connection, mark: Mark, word: str) -> int:
    """Return how many places a word has in a session."""
    return int(db.execute("SELECT count(*) FROM word WHERE word MATCH ?", (f'"{mark.prefix}{word}"',)).get)


def read_passages(db: apsw.Connection, mark: Mark, low: int, high: int) -> Iterator[PassageRow]:
    """Yield the passages at places ``low`` to ``high``, without the latter."""
    sql = "SELECT key, seq, start, stop, weight, flags FROM passage WHERE key >= ? AND key < ? ORDER BY key"
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


def read_notes(db: apsw.Connection, mark: Mark) -> list[tuple[int, tuple[str, str, str]]]:
    """Return a session's notes, each with the key of its row, as (kind, handle, text)."""
    sql = "SELECT key, kind, handle, text FROM note WHERE key >= ? AND key < ? ORDER BY key"
    found = db.execute(sql, (mark.key(NOTES_FROM), mark.key(0) + (1 << SESSION_BITS)))
    return [(key, (kind, handle, decode_text(text))) for key, kind, handle, text in found]
