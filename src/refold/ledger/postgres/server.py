"""The server behind a ledger: a few connections, opened when first used; one transaction per call.

A connection that died while nobody used it is replaced unseen. A call whose connection dies before its commit was sent
is made again, for nothing of it happened; one that dies later is a LedgerError that says so. A process that forks
leaves its parent's connections alone.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import TypeVar

import psycopg

from refold.errors import ConfigError, LedgerError
from refold.ledger.place import LedgerPlace
from refold.ledger.postgres.address import quote_name, read_address
from refold.ledger.postgres.errors import explain_error, explain_refusal, is_away, is_lost, is_passing
from refold.ledger.postgres.living import close_all, is_clean, take_living
from refold.ledger.postgres.migrations import migrate
from refold.ledger.postgres.sql import Db

T = TypeVar("T")

_ATTEMPTS_MAX = 5
_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_PATIENCE_S = 10.0  # So long a server that was there may be away: it is restarted.
_PAUSE_S = 0.1
_INHERITED: list[Db] = []  # Kept for ever, so that no child closes what its parent opened.


class LedgerServer:
    """Connects, waits, and runs one transaction at a time on each of its connections."""

    def __init__(
        self, place: LedgerPlace, *, schema: str, connections_max: int, timeout_s: float, lock_timeout_s: float
    ) -> None:
        if connections_max < 1:
            raise ConfigError(f"connections_max is {connections_max}; give 1 or more")
        self.where = str(place)
        self.schema = schema
        self._address = read_address(place)
        self._settings = {
            "search_path": f"{quote_name(schema)}, pg_catalog",
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
        self._finalizer = weakref.finalize(self, close_all, self._idle, self._pid)

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
            close_all(self._idle, self._pid)

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
            db = take_living(idle) or self._connect()
            try:
                yield db
            finally:
                if is_clean(db):
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
    failure: psycopg.Error | None = None
    try:
        with db.pipeline():
            try:
                db.execute(begin)
                yield
                state.is_committing = True
                db.execute("COMMIT")
            except psycopg.Error as error:
                # The pipeline ends without it: where the connection is gone, it would complain on standard error.
                failure = error
    except psycopg.Error as error:
        failure = failure or error
    finally:
        if not db.closed and db.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            with contextlib.suppress(psycopg.Error):
                db.execute("ROLLBACK")
    if failure is not None:
        raise failure
