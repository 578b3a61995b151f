"""The file of the index: its tables, and one transaction per change. It is derived: deleting it loses nothing.

It stands beside the ledger's file, so that indexing never holds up an append, and works the same beside a ledger on
another machine. A file with another layout or another way to cut words is made anew.
"""

from __future__ import annotations

import apsw

from refold.errors import LedgerError
from refold.ledger.sqlite_file import LedgerFile

APPLICATION_ID = 0x7266_6C69  # "rfli"
# One number for the layout and for what counts as a word: when either changes, what is stored no longer fits.
LAYOUT = 2

# The words of a session begin with its number: a query reads the lists of its own session and no other's.
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
CREATE TABLE note (
    key INTEGER PRIMARY KEY, kind TEXT NOT NULL, handle TEXT NOT NULL, text ANY NOT NULL
) STRICT;
CREATE TABLE vector (key INTEGER PRIMARY KEY, value BLOB NOT NULL) STRICT;
CREATE VIRTUAL TABLE word USING fts5 (
    words, content = '', columnsize = 0, detail = none, tokenize = "ascii tokenchars '|_./:@+#%~-'"
);
CREATE VIRTUAL TABLE word_list USING fts5vocab (word, instance);
INSERT INTO word (word, rank) VALUES ('secure-delete', 1);
"""


class IndexFile(LedgerFile):
    """Opens the index as the ledger opens its file, with tables of its own."""

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
    """Make the tables of an empty file; clear one of another layout; refuse a file that is no index."""
    application, layout = int(connection.pragma("application_id")), int(connection.pragma("user_version"))
    if (application, layout) == (APPLICATION_ID, LAYOUT):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have done it while this one waited for the lock.
        application, layout = int(connection.pragma("application_id")), int(connection.pragma("user_version"))
        if (application, layout) != (APPLICATION_ID, LAYOUT):
            if application == APPLICATION_ID:
                for name in ("word_list", "word", "vector", "note", "passage", "source", "indexed"):
                    connection.execute(f"DROP TABLE IF EXISTS {name}")
            elif connection.execute("SELECT EXISTS (SELECT 1 FROM sqlite_schema)").get:
                raise LedgerError(f"{where} is not an index of refold; name another file for it")
            connection.execute(_SCHEMA)
            connection.pragma("application_id", APPLICATION_ID)
            connection.pragma("user_version", LAYOUT)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
