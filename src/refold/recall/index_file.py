"""The file of the index: its tables, its rows, and one transaction per change.

The index is derived: deleting it loses nothing, and a damaged one is replaced. It is a separate file, so that indexing
never delays an append, and works the same for a ledger on another machine. A file with another layout, or made with
another definition of a word, is cleared. A place is the number of a passage in its session; the key of a row is the
session's number and the place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import apsw

from refold.errors import LedgerError
from refold.ledger.codec import encode_text
from refold.ledger.sqlite_file import LedgerFile, OpenedFile, identify_file, is_damaged, transaction

APPLICATION_ID = 0x7266_6C69  # "rfli"
# One number for the layout, the cuts and what counts as a word: when one changes, what is stored no longer fits.
LAYOUT = 5

# The words of a session begin with its number: a query reads only the lists of its own session.
# detail=none: which passage holds a word is all that is kept. secure-delete: what is taken out is gone from the file.
_SCHEMA = """
CREATE TABLE indexed (
    no INTEGER PRIMARY KEY,
    session_id ANY NOT NULL UNIQUE,
    created_at REAL NOT NULL,
    seq INTEGER NOT NULL DEFAULT 0,
    passages INTEGER NOT NULL DEFAULT 0,
    weight INTEGER NOT NULL DEFAULT 0,
    edits_version INTEGER NOT NULL DEFAULT -1,
    embedded INTEGER NOT NULL DEFAULT 0,
    model TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE TABLE source (
    no INTEGER NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL, digest TEXT NOT NULL, role TEXT NOT NULL,
    first INTEGER NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY (no, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX source_id ON source (no, id);
CREATE TABLE passage (
    key INTEGER PRIMARY KEY, seq INTEGER NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL,
    weight INTEGER NOT NULL, flags INTEGER NOT NULL
) STRICT;
CREATE TABLE vector (key INTEGER PRIMARY KEY, value BLOB NOT NULL) STRICT;
CREATE VIRTUAL TABLE word USING fts5 (
    words, content = '', columnsize = 0, detail = none, tokenize = "ascii tokenchars '|_./:@+#%~-'"
);
CREATE VIRTUAL TABLE word_list USING fts5vocab (word, instance);
INSERT INTO word (word, rank) VALUES ('secure-delete', 1);
"""


class IndexReplaced(LedgerError):
    """The index was damaged, and an empty one has taken its place. The caller may ask again."""


class IndexFile(LedgerFile):
    """Opens the index as the ledger opens its file; a damaged one is replaced by an empty one."""

    notes_log = False

    @contextlib.contextmanager
    def write(self) -> Iterator[apsw.Connection]:
        with self._replacing(), super().write() as db:
            yield db

    @contextlib.contextmanager
    def read(self) -> Iterator[apsw.Connection]:
        with self._replacing(), super().read() as db:
            yield db

    @contextlib.contextmanager
    def _replacing(self) -> Iterator[None]:
        """Remove the file if it is damaged, so that the next call makes a new one; raise IndexReplaced then."""
        try:
            yield
        except LedgerError as error:
            if not is_damaged(error):
                raise
            with contextlib.suppress(LedgerError):
                self.close()
            for suffix in ("", "-wal", "-shm"):
                self.beside(suffix).unlink(missing_ok=True)
            raise IndexReplaced(f"{self.path} was damaged and is made again from the ledger") from error

    def _find_opened(self) -> OpenedFile:
        opened = getattr(self._own, "opened", None)
        if opened is not None and not opened.is_closed and opened.file_id != identify_file(self.path):
            opened.close()  # Another process has replaced the file.
        return super()._find_opened()

    def _set_up(self, connection: apsw.Connection) -> None:
        connection.set_busy_timeout(int(self._busy_timeout_s * 1000))
        self._use_log(connection)
        connection.pragma("synchronous", "normal")
        connection.pragma("secure_delete", True)
        make_tables(connection, str(self.path))

    def _open_empty(self) -> apsw.Connection:
        connection = apsw.Connection(":memory:")
        make_tables(connection, ":memory:")
        return connection


def make_tables(connection: apsw.Connection, where: str) -> None:
    """Make the tables of an empty file; clear a file of another layout; refuse a file that is not an index."""
    application, layout = int(connection.pragma("application_id")), int(connection.pragma("user_version"))
    if (application, layout) == (APPLICATION_ID, LAYOUT):
        return
    with transaction(connection, "BEGIN IMMEDIATE"):
        # Another process may have done it while this one waited for the lock.
        application, layout = int(connection.pragma("application_id")), int(connection.pragma("user_version"))
        if (application, layout) == (APPLICATION_ID, LAYOUT):
            return
        if application == APPLICATION_ID:
            for name in ("word_list", "word", "vector", "note", "passage", "source", "indexed"):
                connection.execute(f"DROP TABLE IF EXISTS {name}")
        elif connection.execute("SELECT EXISTS (SELECT 1 FROM sqlite_schema)").get:
            raise LedgerError("{where} is not an index of refold; choose another file for it", where=where)
        connection.execute(_SCHEMA)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", LAYOUT)


# A word in more passages than this says little: only its newest places are read.
PLACES_MAX = 5_000
SESSION_BITS = 32


@dataclass(frozen=True, slots=True)
class Mark:
    """The watermark of a session: how far it is indexed."""

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
        """The prefix of this session's words."""
        return f"{self.no:x}|"

    def add_prefix(self, words: Iterable[str]) -> str:
        """Return distinct words as the index stores them."""
        return " ".join(f"{self.prefix}{word}" for word in dict.fromkeys(words))


@dataclass(frozen=True, slots=True)
class PassageRow:
    """One passage: its message by ``seq``, its position in the text, and what ranking needs."""

    place: int
    seq: int
    start: int
    stop: int
    weight: int
    flags: int


@dataclass(frozen=True, slots=True)
class IndexedMessage:
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
    return int(db.execute("SELECT count(*) FROM word WHERE word MATCH ?", (f'"{mark.prefix}{word}"',)).get)


def read_passages(db: apsw.Connection, mark: Mark, low: int, high: int) -> Iterator[PassageRow]:
    """Yield the passages at places ``low`` to ``high``, without the latter."""
    sql = "SELECT key, seq, start, stop, weight, flags FROM passage WHERE key >= ? AND key < ? ORDER BY key"
    for key, *rest in db.execute(sql, (mark.key(max(0, low)), mark.key(high))):
        yield PassageRow(key - (mark.no << SESSION_BITS), *rest)


def read_source(db: apsw.Connection, mark: Mark, seq: int) -> IndexedMessage | None:
    found = db.execute("SELECT seq, id, digest, role FROM source WHERE no = ? AND seq = ?", (mark.no, seq)).fetchone()
    return IndexedMessage(*found) if found else None
