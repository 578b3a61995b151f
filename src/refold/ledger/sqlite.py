"""The ledger in one SQLite file, through apsw: what differs from the shared statements, and the quick way to append."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, TypeVar

import apsw

from refold.errors import LedgerError
from refold.ledger.codec import decode_text, dump_json, encode_edit, encode_text
from refold.ledger.records import Extension, Finding, SessionRow, StoredFact, StoredMessage, extend_row, is_as_seen
from refold.ledger.sql.database import Database, NewEdit, Rows, SqlAnswer
from refold.ledger.sql.ledger import Ledger
from refold.ledger.sql.messages import check_chain, extend_path, follows, write_content
from refold.ledger.sql.sessions import SELECT, StoredSession, add_usage, read_stored
from refold.ledger.sqlite_file import LedgerFile, Synchronous

T = TypeVar("T")
# The connection caches one prepared statement per count. Requests rarely bring more messages than this.
_PLAIN_MAX = 32
_SELECT_END = SELECT.replace(
    " FROM session",
    ", (SELECT last FROM path WHERE path.session = session.key ORDER BY rank DESC LIMIT 1), "
    "(SELECT message.id FROM path JOIN message ON message.session = path.session AND seq = last "
    "WHERE path.session = session.key ORDER BY rank DESC LIMIT 1), {} FROM session WHERE id = ?",
)
_MESSAGE_MARKS = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


@cache
def _select_end(count: int) -> str:
    marks = ", ".join("?" * count)
    known = f"EXISTS (SELECT 1 FROM message WHERE message.session = session.key AND message.id IN ({marks}))"
    return _SELECT_END.format(known)


class SqliteLedger(Ledger):
    """The durable record in one file, made when something is first written. Safe to share between threads.

    With ``synchronous="normal"`` a change survives a crash of the process; with "full" also a power failure, at the
    cost of one flush per call.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Synchronous = "normal",
        busy_timeout_s: float = 10.0,
        bytes_max: int | None = None,
        vfs: str | None = None,
    ) -> None:
        self._file = LedgerFile(
            path, synchronous=synchronous, busy_timeout_s=busy_timeout_s, bytes_max=bytes_max, vfs=vfs
        )

    def extend(self, extensions: Sequence[Extension], *, may_wait: bool = False) -> list[SessionRow | None] | None:
        with self._file.write() if may_wait else self._file.write_now() as connection:
            if connection is None:
                return None
            db = SqliteDatabase(connection)
            return [_extend_session(db, one) for one in extensions]

    def close(self) -> None:
        self._file.close()

    def _change(self, work: Callable[[Database], T]) -> T:
        with self._file.write() as connection:
            return work(SqliteDatabase(connection))

    def _read(self, work: Callable[[Database], T]) -> T:
        with self._file.read() as connection:
            return work(SqliteDatabase(connection))

    def _wipe(self) -> None:
        """Empty the write-ahead log, which keeps old pages until then."""
        if not self._file.empty_log():
            raise LedgerError(
                "the content is deleted, but another process is reading {path}-wal, which still holds a "
                "copy; stop that process and repeat the command",
                path=self._file.path,
            )

    def _verify_database(self, db: Database) -> list[Finding]:
        """Check pages and indexes too, and content that belongs to no message."""
        findings = [
            Finding("", f"database: {line}", is_derived="index" in line)
            for (line,) in db.fetch_all("PRAGMA integrity_check(100)")
            if line != "ok"
        ]
        if self._file.beside("-lost").exists():
            what = "the write-ahead log was missing when the file was opened: its newest changes may be lost"
            findings.append(Finding("", f"{what} (confirm with --repair)", is_derived=True))
        sql = "SELECT count(*) FROM raw WHERE key NOT IN (SELECT raw FROM message WHERE raw IS NOT NULL)"
        if lost := db.fetch_value(sql):
            findings.append(Finding("", f"{lost} raw contents belong to no message", is_derived=False))
        return findings + super()._verify_database(db)

    def _repair(self, names: Iterable[str]) -> None:
        with self._file.write() as connection:
            connection.execute("REINDEX")
        self._file.beside("-lost").unlink(missing_ok=True)
        super()._repair(names)


class SqliteDatabase(Database):
    """A connection to the file. The content of messages is in the table ``raw``."""

    __slots__ = ("connection",)
    lock = ""  # A transaction that writes has the whole file to itself.
    content = "raw"
    join_body = " LEFT JOIN raw ON raw.key = message.raw"
    has_setting = "instr(settings, ?) > 0"
    encode = staticmethod(encode_text)
    decode = staticmethod(decode_text)

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection

    def run(self, sql: str, values: Sequence[Any] = ()) -> SqlAnswer:
        return Rows(self.connection.execute(sql, values).fetchall())

    def run_each(self, sql: str, values: Sequence[Any], keys: Iterable[Any]) -> SqlAnswer:
        """Run a statement once for each key: SQLite has no arrays, and no round trips either."""
        one = sql.replace("= ANY(?)", "= ?")
        execute = self.connection.execute
        return Rows([row for key in keys for row in execute(one, (*values, key)).fetchall()])

    def insert_messages(self, session: int, numbered: Sequence[tuple[int, StoredMessage]]) -> None:
        """Insert messages a few at a time, each with its row in ``raw``."""
        execute = self.connection.execute
        for at in range(0, len(numbered), _PLAIN_MAX):
            piece = numbered[at : at + _PLAIN_MAX]
            contents = [write_content(message) for _, message in piece]
            bodies = [body for body, _ in contents if body is not None]
            raw = 0
            if bodies:
                execute("INSERT INTO raw (body) VALUES " + ", ".join(["(?)"] * len(bodies)), bodies)
                # The rows of one statement have consecutive keys.
                raw = self.connection.last_insert_rowid() - len(bodies)
            values: list[Any] = []
            for (seq, message), (body, checksum) in zip(piece, contents, strict=True):
                raw += body is not None
                ids = (bytes.fromhex(message.id), bytes.fromhex(message.parent), bytes.fromhex(message.digest))
                key = None if body is None else raw
                values += (session, seq, *ids, message.role, message.tokens, message.created_at, key, checksum)
            execute("INSERT INTO message VALUES " + ", ".join([_MESSAGE_MARKS] * len(piece)), values)

    def insert_edits(self, session: int, edits: Sequence[NewEdit]) -> None:
        for stored, batch, spans in edits:
            edit = stored.edit
            what = (session, self.encode(edit.id), edit.kind, edit.level, batch)
            self.connection.execute(
                "INSERT INTO edit (session, id, kind, level, batch, is_active, covered, created_at, payload) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*what, int(stored.is_active), len(edit.covers), stored.created_at, encode_edit(edit)),
            )
            key = self.connection.last_insert_rowid()
            for place, (first, last) in enumerate(spans):
                self.connection.execute("INSERT INTO cover VALUES (?, ?, ?, ?, ?)", (key, place, session, first, last))

    def insert_fact(self, session: int, fact: StoredFact, *, batch: int) -> None:
        """Insert a fact; the index on its text finds one that is there already."""
        kind, text, handle = fact.fact.kind, self.encode(fact.fact.text), self.encode(fact.fact.handle)
        self.connection.execute(
            "INSERT OR IGNORE INTO fact (session, batch, kind, text, handle, created_at) VALUES (?, ?, ?, ?, ?, ?)",
            (session, batch, kind, text, handle, fact.created_at),
        )

    def delete_content(self, session: int, seqs: Sequence[int] | None = None) -> None:
        which = "(SELECT raw FROM message WHERE session = ?"
        if seqs is None:
            self.connection.execute(f"DELETE FROM raw WHERE key IN {which})", (session,))
        else:
            self.run_each(f"DELETE FROM raw WHERE key IN {which} AND seq = ANY(?))", (session,), seqs)


def _extend_session(db: SqliteDatabase, extension: Extension) -> SessionRow | None:
    """Store one extension; return the session's new row, or None if the session has changed since it was read."""
    messages = extension.messages
    # Beside the session: where its path ends, with which message, and whether it has one of the new ones.
    ids = [bytes.fromhex(message.id) for message in messages[:_PLAIN_MAX]]
    read = db.connection.execute(_select_end(len(ids)), (*ids, db.encode(extension.seen.id))).fetchone()
    found = read_stored(db, read[:-3]) if read else None
    if read is None or found is None or not is_as_seen(found.row, extension.seen):
        return None
    last, tail, is_known = read[-3:]
    if not follows(messages, tail):
        return None
    is_plain = len(messages) <= _PLAIN_MAX and (last, is_known) == (found.seq_last, 0)
    seq_last, tokens = _extend_path(db, found, messages, is_plain=is_plain)
    for usage in extension.usages:
        add_usage(db, found.key, usage)
    row = extend_row(found.row, extension, tokens)
    settings = dump_json(row.settings) if extension.settings else None
    db.connection.execute(
        "UPDATE session SET seq_last = ?, message_count = ?, tokens = ?, path_version = ?, updated_at = ?, "
        "settings = coalesce(?, settings) WHERE key = ?",
        (seq_last, row.messages, row.tokens, row.path_version, row.updated_at, settings, found.key),
    )
    return row


def _extend_path(
    db: SqliteDatabase, found: StoredSession, messages: Sequence[StoredMessage], *, is_plain: bool
) -> tuple[int, int]:
    """Add messages at the end of the path; return its newest number and the tokens added. ``is_plain``: all are new."""
    if not messages:
        return found.seq_last, 0
    check_chain(messages)
    if is_plain:
        db.insert_messages(found.key, list(enumerate(messages, found.seq_last + 1)))
        seq_last = found.seq_last + len(messages)
        sql = "UPDATE path SET last = ? WHERE session = ? AND last = ?"
        db.connection.execute(sql, (seq_last, found.key, found.seq_last))
        return seq_last, sum(message.tokens for message in messages)
    return extend_path(db, found, messages)
