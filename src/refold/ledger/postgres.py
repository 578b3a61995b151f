"""The ledger on a PostgreSQL server, through psycopg, for many processes and machines: what differs from SQLite."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeVar

from refold.errors import LedgerError
from refold.ledger.codec import dump_json, encode_edit
from refold.ledger.place import LedgerPlace
from refold.ledger.postgres_server import READ, WRITE, Connection, LedgerServer
from refold.ledger.records import Extension, SessionRow, StoredFact, StoredMessage, extend_row, is_as_seen
from refold.ledger.sql.database import Database, NewEdit, Rows, SqlAnswer, SqlRow
from refold.ledger.sql.forget import TABLES
from refold.ledger.sql.ledger import Ledger
from refold.ledger.sql.messages import check_chain, extend_path, follows, write_content
from refold.ledger.sql.sessions import SELECT, USAGE_COLUMNS, StoredSession, read_stored, write_usage

T = TypeVar("T")
_ODD = re.compile("[\\\\\0\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(\\|0|u[0-9a-f]{4})")
_PIECE_ROWS = 1_000
_PIECE_BYTES = 8_000_000
_EVENTS_LOCK = 0x7266_6C65  # "rfle"
_INSERT_MESSAGES = (
    "INSERT INTO message (session, seq, id, parent, digest, role, tokens, created_at, body, checksum) "
    "SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::bytea[], %b::bytea[], %b::bytea[], %s::text[], "
    "%b::bigint[], %b::double precision[], %b::bytea[], %b::bytea[])"
)
# The statements of ``extend``: each serves all sessions of the call.
_LOCK_SESSIONS = f"{SELECT} WHERE id = ANY(%s::text[]) FOR UPDATE SKIP LOCKED"
_FIND_ENDS = (
    "SELECT key, path.last, message.id FROM session, LATERAL (SELECT last FROM path WHERE path.session = session.key "
    "ORDER BY rank DESC LIMIT 1) AS path, message "
    "WHERE session.id = ANY(%s::text[]) AND message.session = session.key AND message.seq = path.last"
)
_FIND_KNOWN = (
    "SELECT DISTINCT message.session FROM unnest(%s::text[], %b::bytea[]) AS new (session_id, id) "
    "JOIN session ON session.id = new.session_id JOIN message ON message.session = session.key AND message.id = new.id"
)
_EXTEND_PATHS = (
    "UPDATE path SET last = new.last FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[]) AS new (session, old, last) "
    "WHERE path.session = new.session AND path.last = new.old"
)
_INSERT_USAGES = (
    f"INSERT INTO usage (session, {USAGE_COLUMNS}) SELECT * FROM unnest(%b::bigint[], %b::double precision[], "
    "%s::text[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[])"
)
_EXTEND_SESSIONS = (
    "UPDATE session SET seq_last = new.seq_last, message_count = new.message_count, tokens = new.tokens, "
    "path_version = new.path_version, updated_at = new.updated_at, settings = new.settings "
    "FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::double precision[], "
    "%b::bytea[]) AS new (key, seq_last, message_count, tokens, path_version, updated_at, settings) "
    "WHERE session.key = new.key"
)
# The runs of an edit find its key by its id.
_INSERT_EDITS = (
    "WITH added AS (INSERT INTO edit (session, id, kind, level, batch, is_active, covered, created_at, payload) "
    "SELECT * FROM unnest(%b::bigint[], %s::text[], %s::text[], %b::bigint[], %b::bigint[], %b::boolean[], "
    "%b::bigint[], %b::double precision[], %b::bytea[]) RETURNING key, id) "
    "INSERT INTO cover (edit, place, session, first, last) SELECT added.key, place, run.session, first, last "
    "FROM unnest(%s::text[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[]) "
    "AS run (id, place, session, first, last) JOIN added ON added.id = run.id"
)


class PostgresLedger(Ledger):
    """The durable record in one schema of a database, made when first used. Safe to share between threads.

    How durable a finished call is, the server's ``synchronous_commit`` decides. ``timeout_s`` limits a statement,
    ``lock_timeout_s`` the wait for another process.
    """

    def __init__(
        self,
        place: LedgerPlace | str,
        *,
        schema: str = "refold",
        connections_max: int = 8,
        timeout_s: float = 60.0,
        lock_timeout_s: float = 10.0,
    ) -> None:
        self.place = LedgerPlace(place)
        self._server = LedgerServer(
            self.place,
            schema=schema,
            connections_max=connections_max,
            timeout_s=timeout_s,
            lock_timeout_s=lock_timeout_s,
        )

    def __repr__(self) -> str:
        return f"PostgresLedger({str(self.place)!r})"

    def extend(self, extensions: Sequence[Extension], *, may_wait: bool = False) -> list[SessionRow | None] | None:
        """Store what one more request of each session adds, in two round trips."""
        if not may_wait:
            return None  # A server may take its time: an event loop must not wait for it.
        return self._server.run(lambda connection: _Extender(PostgresDatabase(connection), extensions).store(), WRITE)

    def close(self) -> None:
        self._server.close()

    def _change(self, work: Callable[[Database], T]) -> T:
        return self._server.run(lambda connection: work(PostgresDatabase(connection)), WRITE)

    def _read(self, work: Callable[[Database], T]) -> T:
        return self._server.run(lambda connection: work(PostgresDatabase(connection)), READ)

    def _ask(self, work: Callable[[Database], T]) -> T:
        return self._server.run(lambda connection: work(PostgresDatabase(connection)))

    def _wipe(self) -> None:
        """Vacuum the tables, which keep deleted rows until then."""
        # If the server cannot do it now, its autovacuum does it later; the call itself has succeeded.
        with suppress(LedgerError):
            for table in TABLES:
                self._server.run(lambda connection, table=table: connection.execute(f"VACUUM {table}"))  # type: ignore[misc]

    def _allow_long(self, db: Database) -> None:
        db.run("SET LOCAL statement_timeout = 0")


def encode_column(text: str) -> str:
    """Return text for a column of PostgreSQL: NUL, lone surrogates and backslashes are escaped, the rest is as is."""
    return _ODD.sub(_escape, text)


def decode_column(stored: str) -> str:
    """Return the text that ``encode_column`` was given."""
    return _ESCAPE.sub(_unescape, stored) if "\\" in stored else stored


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if character == "\\":
        return "\\\\"
    return "\\0" if character == "\0" else f"\\u{ord(character):04x}"


def _unescape(found: re.Match[str]) -> str:
    code = found[1]
    if code == "\\":
        return "\\"
    return "\0" if code == "0" else chr(int(code[1:], 16))


class PostgresDatabase(Database):
    """A connection to the server. Rows come in PostgreSQL's binary format, so that bytes stay bytes."""

    __slots__ = ("connection",)
    lock = " FOR UPDATE"
    content = "body"
    join_body = ""
    has_setting = "position(? IN settings) > 0"
    encode = staticmethod(encode_column)
    decode = staticmethod(decode_column)

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def run(self, sql: str, values: Sequence[Any] = ()) -> SqlAnswer:
        return self._execute(_translate(sql), values)

    def run_each(self, sql: str, values: Sequence[Any], keys: Iterable[Any]) -> SqlAnswer:
        array = list(keys)
        return self._execute(_translate(sql), (*values, array)) if array else Rows([])

    def _execute(self, sql: str, values: Sequence[Any]) -> SqlAnswer:
        # Every statement is a constant of ours; input is always passed as a value.
        return self.connection.execute(sql, values or None, binary=True)

    def insert_messages(self, session: int, numbered: Sequence[tuple[int, StoredMessage]]) -> None:
        self.insert_many([(session, seq, message) for seq, message in numbered])

    def insert_many(self, numbered: Sequence[tuple[int, int, StoredMessage]]) -> None:
        """Insert messages of several sessions, many in one statement."""
        for piece in _cut(numbered):
            self.write_rows(_INSERT_MESSAGES, [_write_message(*one) for one in piece])

    def write_rows(self, sql: str, rows: Sequence[SqlRow]) -> None:
        """Run a statement that takes its rows as one array for each column."""
        if rows:
            self._execute(sql, [list(column) for column in zip(*rows, strict=True)])

    def insert_edits(self, session: int, edits: Sequence[NewEdit]) -> None:
        """Insert edits and their runs in one statement, without waiting for the edits' keys."""
        rows, runs = [], []
        for stored, batch, spans in edits:
            edit, key = stored.edit, encode_column(stored.edit.id)
            what = (session, key, encode_column(edit.kind), edit.level, batch)
            rows.append((*what, stored.is_active, len(edit.covers), stored.created_at, encode_edit(edit)))
            runs += [(key, place, session, first, last) for place, (first, last) in enumerate(spans)]
        if rows:
            columns = (*zip(*rows, strict=True), *(zip(*runs, strict=True) if runs else [()] * 5))
            self._execute(_INSERT_EDITS, [list(column) for column in columns])

    def insert_fact(self, session: int, fact: StoredFact, *, batch: int) -> None:
        """Insert a fact; a text may be longer than an index holds, so its digest finds one that is there already."""
        kind, text, handle = fact.fact.kind, encode_column(fact.fact.text), encode_column(fact.fact.handle)
        digest = blake2b(f"{kind}\0{text}".encode(), digest_size=16).digest()
        self._execute(
            "INSERT INTO fact (session, batch, kind, text, digest, handle, created_at) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (session, digest) DO NOTHING",
            (session, batch, kind, text, digest, handle, fact.created_at),
        )

    def lock_events(self) -> None:
        """Let one transaction at a time take ids; a reader that follows the log would miss an id committed late."""
        self._execute("SELECT pg_advisory_xact_lock(%s, hashtext(current_schema()))", (_EVENTS_LOCK,))


@lru_cache(maxsize=512)
def _translate(sql: str) -> str:
    """Return a shared statement in PostgreSQL's spelling. SQLite reads the tables of a CROSS JOIN in their order."""
    return sql.replace("ANY(?)", "ANY(%b)").replace("?", "%s").replace("CROSS JOIN", "JOIN")


def _write_message(session: int, seq: int, message: StoredMessage) -> SqlRow:
    ids = (bytes.fromhex(message.id), bytes.fromhex(message.parent), bytes.fromhex(message.digest))
    role = encode_column(message.role)
    return (session, seq, *ids, role, message.tokens, message.created_at, *write_content(message))


def _cut(numbered: Sequence[tuple[int, int, StoredMessage]]) -> Iterator[list[tuple[int, int, StoredMessage]]]:
    """Yield pieces that one statement can hold, by rows and bytes; each has at least one row."""
    piece: list[tuple[int, int, StoredMessage]] = []
    size = 0
    for session, seq, message in numbered:
        if piece and (len(piece) >= _PIECE_ROWS or size + len(message.raw) > _PIECE_BYTES):
            yield piece
            piece, size = [], 0
        piece.append((session, seq, message))
        size += len(message.raw)
    if piece:
        yield piece


class _Extender:
    """One call of ``extend``: reads all its sessions in one round trip and writes them in another.

    A session that another transaction has locked counts as changed: one session must not hold up the others.
    """

    def __init__(self, db: PostgresDatabase, extensions: Sequence[Extension]) -> None:
        self._db = db
        self._extensions = extensions
        self._found: dict[str, StoredSession] = {}
        self._changed: dict[int, StoredSession] = {}
        # By key: where the path of a session ended if that is its newest message, so that new ones simply follow it.
        self._ends: dict[int, int] = {}
        self._tails: dict[int, bytes] = {}
        self._messages: list[tuple[int, int, StoredMessage]] = []
        self._usages: list[SqlRow] = []

    def store(self) -> list[SessionRow | None]:
        """Return the new row of each session, None for one that has changed since it was seen."""
        self._read()
        rows = [self._extend(one) for one in self._extensions]
        self._write()
        return rows

    def _read(self) -> None:
        db, wanted = self._db, self._extensions
        names = [encode_column(name) for name in dict.fromkeys(one.seen.id for one in wanted)]
        new = [(encode_column(one.seen.id), bytes.fromhex(message.id)) for one in wanted for message in one.messages]
        locked = db.run(_LOCK_SESSIONS, (names,))
        ends: SqlAnswer = db.run(_FIND_ENDS, (names,)) if new else Rows([])
        known: SqlAnswer = db.run(_FIND_KNOWN, list(map(list, zip(*new, strict=True)))) if new else Rows([])
        found = [read_stored(db, row) for row in locked.fetchall()]
        self._found = {one.row.id: one for one in found}
        is_known = {session for (session,) in known.fetchall()}
        last = {key: (end, tail) for key, end, tail in ends.fetchall()}
        self._tails = {key: tail for key, (_, tail) in last.items()}
        plain = {key: end for key, (end, _) in last.items() if key not in is_known}
        self._ends = {one.key: one.seq_last for one in found if plain.get(one.key) == one.seq_last}

    def _extend(self, extension: Extension) -> SessionRow | None:
        found = self._found.get(extension.seen.id)
        if found is None or not is_as_seen(found.row, extension.seen):
            return None
        messages = extension.messages
        if not follows(messages, self._tails.get(found.key)):
            return None
        check_chain(messages)
        seq_last, tokens = found.seq_last + len(messages), sum(message.tokens for message in messages)
        if messages and found.key in self._ends:
            self._messages += [(found.key, seq, one) for seq, one in enumerate(messages, found.seq_last + 1)]
        elif messages:
            seq_last, tokens = extend_path(self._db, found, messages)
        if messages:
            self._tails[found.key] = bytes.fromhex(messages[-1].id)
        self._usages += [write_usage(self._db, found.key, usage) for usage in extension.usages]
        row = extend_row(found.row, extension, tokens)
        self._found[row.id] = self._changed[found.key] = StoredSession(found.key, seq_last, row)
        return row

    def _write(self) -> None:
        db, changed = self._db, self._changed.values()
        db.insert_many(self._messages)
        moved = [(one.key, self._ends[one.key], one.seq_last) for one in changed if one.key in self._ends]
        db.write_rows(_EXTEND_PATHS, [row for row in moved if row[1] < row[2]])
        db.write_rows(_INSERT_USAGES, self._usages)
        db.write_rows(_EXTEND_SESSIONS, [_write_extended(one) for one in changed])


def _write_extended(session: StoredSession) -> SqlRow:
    row = session.row
    counts = (session.seq_last, row.messages, row.tokens, row.path_version)
    return (session.key, *counts, row.updated_at, dump_json(row.settings))
