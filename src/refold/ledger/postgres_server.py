"""The PostgreSQL server of a ledger: a small pool of connections, opened when first used; one transaction per call.

An idle connection that died is replaced. If a connection dies before the commit was sent, nothing has happened and the
call is repeated; if it dies later, a LedgerError says that the outcome is unknown. A forked process does not touch its
parent's connections. No error ever shows a password: messages of the server, which have none, are quoted; messages of
the driver about an address are not.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from refold.errors import ConfigError, LedgerError
from refold.ledger.place import LedgerPlace
from refold.ledger.sql.migrations import check_version, read_steps

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]

_ATTEMPTS_MAX = 5
WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_PATIENCE_S = 10.0  # How long to wait for a server that was reached before and may be restarting.
_PAUSE_S = 0.1
_INHERITED: list[Connection] = []  # Never released, so that a child never closes its parent's connections.
_MIGRATION_LOCK = 0x7266_6C64  # "rfld": one number for all schemas of a database; migrations are rare and short.
# Notice a server that vanished silently after a minute, not after two hours.
_DEFAULTS = {
    "application_name": "refold",
    "connect_timeout": "5",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
# By prefix of SQLSTATE, the longest match first: https://www.postgresql.org/docs/current/errcodes-appendix.html
_NEXT_STEP = {
    "08": "the connection to the server was lost; check that it runs and can be reached",
    "28": "the server refuses this user or password; check both in the address, and pg_hba.conf on the server",
    "3D000": "the server has no such database; create it, or name another in the address",
    "22021": "the database cannot hold this text; create one with the encoding UTF8",
    "22P05": "the database cannot hold this text; create one with the encoding UTF8",
    "25006": "the server is read-only, as a standby is; name the primary server, nothing was written",
    "40": "another process changed the same data at the same time; try again, nothing was written",
    "42501": "this user lacks the permission; grant it the schema and its tables, or let the owner open it once",
    "42P01": "a table of the ledger is missing; restore it from a backup",
    "42703": "a column of the ledger is missing; restore it from a backup",
    "53100": "the server's disk is full; free space there, nothing was written",
    "53200": "the server is out of memory; nothing was written",
    "53300": "the server has no connection left; raise its max_connections, or lower connections_max",
    "54": "one message is larger than the server can hold; nothing was written",
    "55P03": "another process kept the session locked for too long; try again",
    "57014": "the statement timed out; try again, or raise timeout_s",
    "57P": "the server is stopping or starting; try again",
    "58": "the server cannot read or write its disk; see its log",
    "XX": "the server's data are damaged; stop, and see its log",
}
# A server that refuses a connection states its reason only as text, mostly in English. Other texts are quoted.
_REFUSALS = {
    "password": _NEXT_STEP["28"],
    "authentication": _NEXT_STEP["28"],
    "pg_hba.conf": _NEXT_STEP["28"],
    "role ": _NEXT_STEP["28"],
    "database ": _NEXT_STEP["3D000"],
    "too many": _NEXT_STEP["53300"],
    "connection slots": _NEXT_STEP["53300"],
}
_STARTING = ("starting up", "not yet accepting", "shutting down", "recovery mode")
_LOST = ("08", "57P01", "57P02", "57P03", "57P05")
_CAUSES_MAX = 10
_PASSED = frozenset({"40001", "40P01"})  # An immediate retry is likely to succeed.


class LedgerServer:
    """A pool of connections that runs one transaction at a time on each."""

    def __init__(
        self, place: LedgerPlace, *, schema: str, connections_max: int, timeout_s: float, lock_timeout_s: float
    ) -> None:
        if connections_max < 1:
            raise ConfigError("connections_max is {connections_max}; give 1 or more", connections_max=connections_max)
        self.where = str(place)
        self.schema = schema
        self._address = read_address(place)
        self._settings = {
            "search_path": f"{quote_name(schema)}, pg_catalog",
            "statement_timeout": str(int(timeout_s * 1000)),
            "lock_timeout": str(int(lock_timeout_s * 1000)),
            # A process that was stopped during a call must not keep a session locked forever.
            "idle_in_transaction_session_timeout": str(int(timeout_s * 1000)),
        }
        self._connections_max = connections_max
        self._timeout_s = timeout_s
        self._was_reached = False
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._idle: list[Connection] = []
        self._free = threading.BoundedSemaphore(self._connections_max)
        self._finalizer = weakref.finalize(self, close_all, self._idle, self._pid)

    def close(self) -> None:
        """Close the idle connections. A later call opens others."""
        if self._pid == os.getpid():
            close_all(self._idle, self._pid)

    def run(self, work: Callable[[Connection], T], begin: str = "") -> T:
        """Run ``work`` in a transaction that ``begin`` opens; without it, a single statement outside of one."""
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            state = _State()
            try:
                with self._use() as db, _transaction(db, begin, state):
                    state.result = work(db)
            except psycopg.Error as error:
                was_lost = is_lost(error, state.db)
                is_unknown = was_lost and state.is_committing and begin == WRITE
                if attempt < _ATTEMPTS_MAX and (error.sqlstate in _PASSED or (was_lost and not is_unknown)):
                    continue
                if not is_unknown:
                    raise explain_error(error, self.where) from error
                raise LedgerError(
                    "{where}: the connection was lost while a change was being stored; it is not known whether "
                    "it was stored, read again",
                    where=self.where,
                ) from error
            return state.result
        raise AssertionError("the last attempt returns or raises")

    @contextlib.contextmanager
    def _use(self) -> Iterator[Connection]:
        """Yield a connection that is alive, as far as one can tell."""
        if self._pid != os.getpid():
            _INHERITED.extend(self._idle)
            self._finalizer.detach()
            self._reset()
        free, idle = self._free, self._idle
        if not free.acquire(timeout=self._timeout_s):
            raise LedgerError(
                "{where}: all {connections_max} connections were busy for {timeout_s:g} s; try again, "
                "or raise connections_max",
                where=self.where,
                connections_max=self._connections_max,
                timeout_s=self._timeout_s,
            )
        try:
            db = take_living(idle) or self._connect()
            try:
                yield db
            except psycopg.Error:
                # Statements prepared after the failed one do not exist, but the driver would keep using them.
                db.close()
                raise
            finally:
                if not db.closed and db.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
                    idle.append(db)
                else:
                    db.close()
        finally:
            free.release()

    def _connect(self) -> Connection:
        """Open a connection; wait for a server that was reached before."""
        give_up_at = time.monotonic() + _PATIENCE_S
        while True:
            try:
                db = psycopg.connect(self._address, autocommit=True)
            except psycopg.Error as error:
                if not is_away(error, was_reached=self._was_reached) or time.monotonic() >= give_up_at:
                    self._was_reached = False  # Later calls do not wait again until the server is back.
                    raise explain_refusal(error, self.where) from error
                time.sleep(_PAUSE_S)
            else:
                break
        try:
            self._set_up(db)
        except BaseException:
            db.close()
            raise
        self._was_reached = True
        return db

    def _set_up(self, db: Connection) -> None:
        encoding = db.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise LedgerError(
                "{where}: the database has the encoding {encoding}; create one with UTF8",
                where=self.where,
                encoding=encoding,
            )
        columns = ", ".join("set_config(%s, %s, false)" for _ in self._settings)
        values = [piece for setting in self._settings.items() for piece in setting]
        db.execute(f"SELECT {columns}", values)
        db.prepare_threshold = 2
        migrate(db, self.where, self.schema)


class _State:
    """The progress of a call."""

    def __init__(self) -> None:
        self.db: Connection | None = None
        self.is_committing = False
        self.result: object = None


@contextlib.contextmanager
def _transaction(db: Connection, begin: str, state: _State) -> Iterator[None]:
    """Pipeline the statements up to the commit: only answers that are read are waited for."""
    state.db = db
    if not begin:
        yield
        return
    failure: psycopg.Error | None = None
    try:
        with db.pipeline():
            try:
                db.execute(begin)
                yield
                state.is_committing = True
                db.execute("COMMIT")
            except psycopg.Error as error:
                # Let the pipeline end without the error; with a lost connection it would print to standard error.
                failure = error
    except psycopg.Error as error:
        failure = failure or error
    finally:
        if not db.closed and db.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            with contextlib.suppress(psycopg.Error):
                db.execute("ROLLBACK")
    if failure is not None:
        raise failure


def take_living(idle: list[Connection]) -> Connection | None:
    """Return a connection that is alive from the idle ones; close dead ones."""
    while True:
        try:
            db = idle.pop()
        except IndexError:
            return None
        if _is_living(db):
            return db
        db.close()


def _is_living(db: Connection) -> bool:
    """Return whether the server has not hung up: an idle connection has nothing to read."""
    if db.closed:
        return False
    with selectors.DefaultSelector() as selector, contextlib.suppress(psycopg.Error):
        selector.register(db.fileno(), selectors.EVENT_READ)
        if not selector.select(0):
            return True
        # The data may be a notice, such as one about changed settings.
        db.pgconn.consume_input()
        return not selector.select(0) and not db.closed
    return False


def close_all(idle: list[Connection], pid: int) -> None:
    """Close connections if this process opened them."""
    if pid == os.getpid():
        while idle:
            idle.pop().close()


def is_lost(error: psycopg.Error, db: Connection | None = None) -> bool:
    """Return whether the connection is lost, so that nothing uncommitted has happened."""
    if db is not None and db.broken:
        return True
    # Leaving the pipeline of a lost connection may raise another error; the cause is in its context.
    cause: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if isinstance(cause, psycopg.Error) and (cause.sqlstate or "").startswith(_LOST):
            return True
        cause = cause.__context__ if cause else None
    return False


def is_away(error: psycopg.Error, *, was_reached: bool) -> bool:
    """Return whether an unreachable server may come back soon: it is starting, or was reached before."""
    said = str(error)
    return any(word in said for word in _STARTING) or (was_reached and _find_refusal(said) is None)


def explain_refusal(error: psycopg.Error, where: str) -> LedgerError:
    """Return the LedgerError for a failed connection attempt."""
    said = str(error)
    step = (
        _find_refusal(said) or "the server cannot be reached; check that it runs, and the host and port in the address"
    )
    quoted = " ".join(said.removeprefix("connection failed: ").split())[:300]
    return LedgerError(f"{where}: {step} ({quoted})")


def _find_refusal(said: str) -> str | None:
    if "FATAL" not in said and "password" not in said:
        return None
    return next((step for word, step in _REFUSALS.items() if word in said), None)


def explain_error(error: psycopg.Error, where: str) -> LedgerError:
    """Return the LedgerError that tells the operator what to do."""
    code = error.sqlstate or ""
    step = next((_NEXT_STEP[code[:size]] for size in (5, 3, 2) if code[:size] in _NEXT_STEP), "")
    if not step:
        step = "the server cannot be reached or used" if isinstance(error, psycopg.OperationalError) else "it failed"
    return LedgerError(f"{where}: {step} ({_quote(error)})")


def _quote(error: psycopg.Error) -> str:
    said = error.diag.message_primary or str(error)
    return f"{type(error).__name__}: {' '.join(said.split())[:300]}"


def read_address(place: LedgerPlace) -> str:
    """Return the connection string for the driver, with our defaults."""
    try:
        given = conninfo_to_dict(place.reveal())
    except psycopg.Error:
        given = None
    if given is None:  # Raised outside of ``except``: the driver's message quotes the address.
        raise ConfigError(
            "ledger = {place} cannot be parsed as an address of PostgreSQL; check its parameters, "
            "and write @ : / ? # % in a password as %40 %3A …",
            place=place,
        )
    return make_conninfo("", **{**_DEFAULTS, **given, "client_encoding": "utf8"})


def quote_name(name: str) -> str:
    """Return a name quoted for a statement."""
    if not name or len(name.encode("utf-8", "replace")) > 63 or "\0" in name:
        raise ConfigError("the name of a schema must have 1 to 63 bytes and no NUL")
    return '"' + name.replace('"', '""') + '"'


def read_version(db: Connection, where: str, schema: str, newest: int) -> int:
    """Return the version of the tables, 0 if there are none; LedgerError if it is too new or not a ledger."""
    found = db.execute(
        "SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
        "WHERE nspname = %s AND relkind IN ('r', 'v') ORDER BY (relname = 'ledger_version') DESC LIMIT 1",
        (schema,),
    ).fetchone()
    if found is None:
        return 0
    if found[0] != "ledger_version":
        raise LedgerError(
            "{where}: the schema {schema!r} belongs to another program; choose another schema or database",
            where=where,
            schema=schema,
        )
    [(version,)] = db.execute("SELECT version FROM ledger_version").fetchall() or [(0,)]
    return check_version(int(version), newest, where)


def migrate(db: Connection, where: str, schema: str, steps: Sequence[str] | None = None) -> None:
    """Migrate the tables to the newest schema in one transaction. Concurrent processes wait for each other."""
    steps = read_steps("postgres") if steps is None else steps
    if read_version(db, where, schema, len(steps)) == len(steps):
        return
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
        # Another process may have migrated them while this one waited for the lock.
        version = read_version(db, where, schema, len(steps))
        if version == len(steps):
            return
        if version == 0:
            db.execute(f"CREATE SCHEMA IF NOT EXISTS {quote_name(schema)}")
            db.execute("CREATE TABLE ledger_version (version integer NOT NULL)")
            db.execute("INSERT INTO ledger_version VALUES (0)")
        for step in steps[version:]:
            db.execute(step)
        db.execute("UPDATE ledger_version SET version = %s", (len(steps),))
