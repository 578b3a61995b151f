"""The server behind a ledger: a few connections, opened when first used; one transaction per call.

A connection that died while nobody used it is replaced unseen. A call whose connection dies before its commit was sent
is made again, for nothing of it happened; one that dies later is a LedgerError that says so. A process that forks
leaves its parent's connections alone.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from refold.errors import ConfigError, LedgerError
from refold.ledger.place import LedgerPlace
from refold.ledger.postgres.errors import explain_error, explain_refusal, is_away, is_lost, is_passing
from refold.ledger.postgres.migrations import migrate
from refold.ledger.postgres.sql import Db

T = TypeVar("T")

_ATTEMPTS_MAX = 5
_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_PATIENCE_S = 10.0  # So long a server that was there may be away: it is restarted.
_PAUSE_S = 0.1
_INHERITED: list[Db] = []  # Kept for ever, so that no child closes what its parent opened.
# A server that vanished without a word is noticed after a minute, not after two hours.
_DEFAULTS = {
    "application_name": "refold",
    "connect_timeout": "5",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}


class LedgerServer:
    """Connects, waits, and runs one transaction at a time on each of its connections."""

    def __init__(
        self, place: LedgerPlace, *, schema: str, connections_max: int, timeout_s: float, lock_timeout_s: float
    ) -> None:
        if connections_max < 1:
            raise ConfigError(f"connections_max is {connections_max}; give 1 or more")
        self.where = str(place)
        self.schema = schema
        self._address = _read_address(place)
        self._settings = {
            "search_path": f"{_quote_name(schema)}, pg_catalog",
            "statement_timeout": str(int(timeout_s * 1000)),
            "lock_timeout": str(int(lock_timeout_s * 1000)),
            # A process that was stopped in the middle of a call does not keep a session locked for ever.
            "idle_in_transaction_session_timeout": str(int(timeout_s * 1000)),
        }
        self._connections_max = connections_max
        self._timeout_s = timeout_s
        self._was_reached = False
        self._start_anew()

    def _start_anew(self) -> None:
        self._pid = os.getpid()
        self._idle: list[Db] = []
        self._free = threading.BoundedSemaphore(self._connections_max)
        self._finalizer = weakref.finalize(self, _close_all, self._idle, self._pid)

    def change(self, work: Callable[[Db], T]) -> T:
        """Run ``work`` in a transaction and commit it, whole or not at all."""
        return self._run(work, _WRITE)

    def read(self, work: Callable[[Db], T]) -> T:
        """Run ``work`` on one moment of the record: for what takes several statements."""
        return self._run(work, _READ)

    def ask(self, work: Callable[[Db], T]) -> T:
        """Run ``work`` without a transaction: for one statement that reads, or one that allows no transaction."""
        return self._run(work, "")

    def close(self) -> None:
        """Close the connections that no thread is using now. A later call opens others."""
        if self._pid == os.getpid():
            _close_all(self._idle, self._pid)

    def _run(self, work: Callable[[Db], T], begin: str) -> T:
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            state = _State()
            try:
                with self._use() as db, _transaction(db, begin, state):
                    state.result = work(db)
            except psycopg.Error as error:
                was_lost = is_lost(error, state.db)
                is_unknown = was_lost and state.is_committing and begin == _WRITE
                if attempt < _ATTEMPTS_MAX and (is_passing(error) or (was_lost and not is_unknown)):
                    continue
                if not is_unknown:
                    raise explain_error(error, self.where) from error
                raise LedgerError(
                    f"{self.where}: the connection was lost while a change was being stored; "
                    "whether it was is not known, read again"
                ) from error
            return state.result
        raise AssertionError("the last attempt returns or raises")

    @contextlib.contextmanager
    def _use(self) -> Iterator[Db]:
        """Lend a connection that is alive, as far as anyone can tell."""
        if self._pid != os.getpid():
            _INHERITED.extend(self._idle)
            self._finalizer.detach()
            self._start_anew()
        free, idle = self._free, self._idle
        if not free.acquire(timeout=self._timeout_s):
            raise LedgerError(
                f"{self.where}: all {self._connections_max} connections were busy for {self._timeout_s:g} s; "
                "try again, or raise connections_max"
            )
        try:
            db = _take_living(idle) or self._connect()
            try:
                yield db
            finally:
                if _is_clean(db):
                    idle.append(db)
                else:
                    db.close()
        finally:
            free.release()

    def _connect(self) -> Db:
        """Open a connection; a server that was reached before is given some time to come back."""
        give_up_at = time.monotonic() + _PATIENCE_S
        while True:
            try:
                db = psycopg.connect(self._address, autocommit=True)
            except psycopg.Error as error:
                if not is_away(error, was_reached=self._was_reached) or time.monotonic() >= give_up_at:
                    self._was_reached = False  # Who comes next does not wait again, until it is back.
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

    def _set_up(self, db: Db) -> None:
        encoding = db.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise LedgerError(f"{self.where}: the database has the encoding {encoding}; make one with UTF8")
        columns = ", ".join("set_config(%s, %s, false)" for _ in self._settings)
        values = [piece for setting in self._settings.items() for piece in setting]
        db.execute(f"SELECT {columns}", values)
        db.prepare_threshold = 2
        migrate(db, self.where, self.schema)


class _State:
    """How far a call has come."""

    def __init__(self) -> None:
        self.db: Db | None = None
        self.is_committing = False
        self.result: object = None


@contextlib.contextmanager
def _transaction(db: Db, begin: str, state: _State) -> Iterator[None]:
    """Send what can be sent together in one go: what is not read is not waited for, up to the commit."""
    state.db = db
    if not begin:
        yield
        return
    try:
        with db.pipeline():
            db.execute(begin)
            yield
            state.is_committing = True
            db.execute("COMMIT")
    finally:
        if not db.closed and db.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            with contextlib.suppress(psycopg.Error):
                db.execute("ROLLBACK")


def _take_living(idle: list[Db]) -> Db | None:
    while True:
        try:
            db = idle.pop()
        except IndexError:
            return None
        if _is_living(db):
            return db
        db.close()


def _is_living(db: Db) -> bool:
    """Tell whether the server has hung up: then something can be read, though nothing was asked."""
    if db.closed:
        return False
    with selectors.DefaultSelector() as selector, contextlib.suppress(psycopg.Error):
        selector.register(db.fileno(), selectors.EVENT_READ)
        if not selector.select(0):
            return True
        # What is there to be read may be a notice, such as that of changed settings.
        db.pgconn.consume_input()
        return not selector.select(0) and not db.closed
    return False


def _is_clean(db: Db) -> bool:
    return not db.closed and db.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def _close_all(idle: list[Db], pid: int) -> None:
    if pid == os.getpid():
        while idle:
            idle.pop().close()


def _read_address(place: LedgerPlace) -> str:
    """Return the address as the driver takes it, with our defaults where it says nothing."""
    try:
        given = conninfo_to_dict(place.reveal())
    except psycopg.Error:
        given = None
    if given is None:  # Told apart from the driver's own words, which quote what it could not read.
        raise ConfigError(
            f"ledger = {place} cannot be read as an address of PostgreSQL; see its parameters, and write "
            "@ : / ? # % in a password as %40 %3A …"
        )
    return make_conninfo("", **{**_DEFAULTS, **given, "client_encoding": "utf8"})


def _quote_name(name: str) -> str:
    if not name or len(name.encode("utf-8", "replace")) > 63 or "\0" in name:
        raise ConfigError("a schema's name has 1 to 63 bytes and no NUL")
    return '"' + name.replace('"', '""') + '"'
