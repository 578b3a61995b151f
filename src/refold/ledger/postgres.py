"""The ledger on a PostgreSQL server, through psycopg, for many processes and machines: what differs from SQLite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeVar

from refold.errors import LedgerError
from refold.ledger.codec import decode_column, encode_column, encode_edit
from refold.ledger.port import LedgerPlace
from refold.ledger.postgres_server import Connection, LedgerServer
from refold.ledger.records import StoredEdit, StoredFact, StoredMessage
from refold.ledger.sql.database import Database, Rows, Span, SqlAnswer, SqlRow
from refold.ledger.sql.forget import TABLES
from refold.ledger.sql.ledger import SqlLedger
from refold.ledger.sql.messages import write_content

__all__ = ["PostgresLedger"]

T = TypeVar("T")
_PIECE_ROWS = 1_000
_PIECE_BYTES = 8_000_000
_EVENTS_LOCK = 0x7266_6C65  # "rfle"
_INSERT_MESSAGES = (
    "INSERT INTO message (session, seq, id, parent, digest, role, tokens, created_at, body, checksum) "
    "SELECT %s, * FROM unnest(%b::bigint[], %b::bytea[], %b::bytea[], %b::bytea[], %s::text[], %b::bigint[], "
    "%b::double precision[], %b::bytea[], %b::bytea[])"
)
_INSERT_EDIT = (
    "WITH added AS (INSERT INTO edit (session, id, kind, level, batch, is_active, covered, created_at, payload) "
    "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING key) "
    "INSERT INTO cover (edit, place, session, first, last) "
    "SELECT added.key, place, %s, first, last FROM added, unnest(%b::bigint[], %b::bigint[], %b::bigint[]) "
    "AS run (place, first, last)"
)


class PostgresLedger(SqlLedger):
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

    def close(self) -> None:
        """Close what this process opened. A later call opens it again."""
        self._server.close()

    def _change(self, work: Callable[[Database], T]) -> T:
        return self._server.change(lambda connection: work(PostgresDatabase(connection)))

    def _read(self, work: Callable[[Database], T]) -> T:
        return self._server.read(lambda connection: work(PostgresDatabase(connection)))

    def _ask(self, work: Callable[[Database], T]) -> T:
        return self._server.ask(lambda connection: work(PostgresDatabase(connection)))

    def _wipe(self) -> None:
        """Vacuum the tables, which keep deleted rows until then."""
        # If the server cannot do it now, its autovacuum does it later; the call itself has succeeded.
        with suppress(LedgerError):
            for table in TABLES:
                self._server.ask(lambda connection, table=table: connection.execute(f"VACUUM {table}"))  # type: ignore[misc]

    def _allow_long(self, db: Database) -> None:
        db.run("SET LOCAL statement_timeout = 0")


class PostgresDatabase(Database):
    """A connection to the server. Rows come in PostgreSQL's binary format, so that bytes stay bytes."""

    __slots__ = ("connection",)
    lock = " FOR UPDATE"
    content = "body"
    join_body = ""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def run(self, sql: str, values: Sequence[Any] = ()) -> SqlAnswer:
        """Queue a statement; it is sent with the next one whose answer is read."""
        return self._execute(_translate(sql), values)

    def run_each(self, sql: str, values: Sequence[Any], keys: Iterable[Any]) -> SqlAnswer:
        """Run a statement once for all keys, as an array."""
        array = list(keys)
        return self._execute(_translate(sql), (*values, array)) if array else Rows([])

    def _execute(self, sql: str, values: Sequence[Any]) -> SqlAnswer:
        # Every statement is a constant of ours; what comes from outside is always a value.
        return self.connection.execute(sql, values or None, binary=True)

    def encode(self, text: str) -> str:
        """Return text with NUL and lone surrogates escaped."""
        return encode_column(text)

    def decode(self, stored: Any) -> str:
        """Return the string that ``encode`` was given."""
        return decode_column(stored)

    def insert_messages(self, session: int, numbered: Sequence[tuple[int, StoredMessage]]) -> None:
        """Insert messages, many in one statement."""
        for piece in _cut(numbered):
            rows = [_write_message(seq, message) for seq, message in piece]
            self._execute(_INSERT_MESSAGES, (session, *map(list, zip(*rows, strict=True))))

    def insert_edit(self, session: int, stored: StoredEdit, *, batch: int | None, spans: Sequence[Span]) -> None:
        """Insert an edit and its runs in one statement, without waiting for the edit's key."""
        edit = stored.edit
        what = (session, encode_column(edit.id), encode_column(edit.kind), edit.level, batch)
        rest = (stored.is_active, len(edit.covers), stored.created_at, encode_edit(edit))
        runs = (list(range(len(spans))), [first for first, _ in spans], [last for _, last in spans])
        self._execute(_INSERT_EDIT, (*what, *rest, session, *runs))

    def insert_fact(self, session: int, fact: StoredFact, *, batch: int) -> None:
        """Insert a fact; a text may be longer than an index holds, so its digest finds one that is there already."""
        kind, text, handle = fact.fact.kind, encode_column(fact.fact.text), encode_column(fact.fact.handle)
        digest = blake2b(f"{kind}\0{text}".encode(), digest_size=16).digest()
        self._execute(
            "INSERT INTO fact (session, batch, kind, text, digest, handle, created_at) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (session, digest) DO NOTHING",
            (session, batch, kind, text, digest, handle, fact.created_at),
        )

    def delete_content(self, session: int, seqs: Sequence[int] | None = None) -> None:
        """Do nothing: the content is in the row of its message."""

    def lock_events(self) -> None:
        """Let one transaction at a time take ids; a reader that follows the log would miss an id committed late."""
        self._execute("SELECT pg_advisory_xact_lock(%s, hashtext(current_schema()))", (_EVENTS_LOCK,))


@lru_cache(maxsize=512)
def _translate(sql: str) -> str:
    """Return a shared statement in PostgreSQL's spelling. SQLite reads the tables of a CROSS JOIN in their order."""
    return sql.replace("ANY(?)", "ANY(%b)").replace("?", "%s").replace("CROSS JOIN", "JOIN")


def _write_message(seq: int, message: StoredMessage) -> SqlRow:
    ids = (bytes.fromhex(message.id), bytes.fromhex(message.parent), bytes.fromhex(message.digest))
    role = encode_column(message.role)
    return (seq, *ids, role, message.tokens, message.created_at, *write_content(message))


def _cut(numbered: Sequence[tuple[int, StoredMessage]]) -> Iterator[list[tuple[int, StoredMessage]]]:
    """Yield pieces that one statement can hold, by rows and bytes; each has at least one row."""
    piece: list[tuple[int, StoredMessage]] = []
    size = 0
    for seq, message in numbered:
        if piece and (len(piece) >= _PIECE_ROWS or size + len(message.raw) > _PIECE_BYTES):
            yield piece
            piece, size = [], 0
        piece.append((seq, message))
        size += len(message.raw)
    if piece:
        yield piece
