"""The SQLite file of a ledger: opened when first used, one connection per thread and process, one transaction per call.

SQLite's errors become LedgerErrors that say what to do. Connections are closed before a fork, because the child does
not inherit file locks and SQLite would not notice. A connection that is busy at that moment is neither used nor closed
in the child.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from json import JSONDecodeError
from pathlib import Path
from typing import Literal, get_args

import apsw

from refold.errors import ConfigError, LedgerError
from refold.ledger.sql.migrations import check_version, read_steps

APPLICATION_ID = 0x7266_6C64  # "rfld", so that no other program's file is mistaken for a ledger.
Synchronous = Literal["off", "normal", "full", "extra"]

_log = logging.getLogger("refold.ledger")
_LOG_BYTES_MAX = 64 * 1024 * 1024
_LOG_PAGES = 1_000  # Pages in the log before a checkpoint, as in SQLite's default.
_QUICK_WAIT_MS = 3  # Most writers finish within this time; handing the work to a thread costs more.
_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
_INHERITED: list[object] = []  # Never released, so that a child never closes its parent's connections.
_FILES: weakref.WeakSet[LedgerFile] = weakref.WeakSet()
_FORK_WAIT_S = 1.0
_EMPTY = threading.local()
_OWN_FOLDER = ".refold"
_DAMAGED = "the file is damaged; stop, and run 'refold verify --repair', which copies what can be read to a new file"
_NEXT_STEP: tuple[tuple[type[apsw.Error], str], ...] = (
    (apsw.FullError, "the disk is full or the limit is reached; free space or raise the limit, nothing was written"),
    (apsw.ReadOnlyError, "the file is read-only; make it and its folder writable, nothing was written"),
    (apsw.PermissionsError, "the file may not be read or written; check its owner and mode"),
    (apsw.BusyError, "another process kept it locked for too long; try again, or raise the busy timeout"),
    (apsw.NotADBError, "it is not a database; choose another file, or restore it from a backup"),
    (apsw.CorruptError, _DAMAGED),
    (apsw.CantOpenError, "it cannot be opened; check that its folder exists and may be written"),
    (apsw.TooBigError, "one message is larger than a database can hold (1 GB); nothing was written"),
    (apsw.IOError, "reading or writing the disk failed; nothing was written by this call, check the disk"),
)


class OpenedFile:
    """A connection with the process that opened it, and a lock while it is in use."""

    def __init__(self, connection: apsw.Connection, file_id: tuple[int, int]) -> None:
        self.connection = connection
        self.file_id = file_id
        self.pid = os.getpid()
        self.in_use = threading.RLock()  # Reentrant: nested use in one thread is an error of SQLite, not a deadlock.
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True
        self.connection.close()


class _Thread:
    """Lives as long as the thread that has a connection."""


class LedgerFile:
    """Opens, locks and closes one database file.

    While a process has a connection, and so the write-ahead log exists, the process's marker is beside the file
    (``-open-PID``). If a process has ended without removing its marker and the log is missing, the log was lost, and
    with it the newest changes. A note (``-lost``) then stays until ``verify`` has reported it. A process creates its
    marker after the log and removes it before the log, so that it may be killed at any point without a false alarm.
    """

    notes_log = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Synchronous = "normal",
        busy_timeout_s: float = 10.0,
        bytes_max: int | None = None,
        vfs: str | None = None,
    ) -> None:
        if synchronous not in get_args(Synchronous):
            raise ConfigError(
                "synchronous is {synchronous!r}; use one of {listed}",
                synchronous=synchronous,
                listed=", ".join(get_args(Synchronous)),
            )
        self.path = Path(path).absolute()
        self._synchronous = synchronous
        self._busy_timeout_s = busy_timeout_s
        self._bytes_max = bytes_max
        self._vfs = vfs
        self._own = threading.local()
        self._opened: set[OpenedFile] = set()
        self._quick: OpenedFile | None = None
        self._helper: threading.Thread | None = None
        self._marked_by = 0
        self._finalizer: weakref.finalize[[Path], LedgerFile] | None = None
        if not _FILES:
            _watch_process()
        _FILES.add(self)

    @contextlib.contextmanager
    def write(self) -> Iterator[apsw.Connection]:
        """Yield a connection in a transaction that is the only writer; commit unless an error is raised."""
        with self._explain(), self._use() as connection, transaction(connection, "BEGIN IMMEDIATE"):
            yield connection

    @contextlib.contextmanager
    def write_now(self) -> Iterator[apsw.Connection | None]:
        """Yield the same for callers that may not wait; None while another writes.

        These callers share a connection. Opening the file and moving its log may wait, so a thread does both.
        """
        opened = self._quick
        if self._synchronous not in ("off", "normal"):
            yield None  # Every commit waits for the disk.
        elif opened is None or opened.is_closed or opened.pid != os.getpid():
            self._start_helper(self._open_quick)
            yield None
        else:
            with self._explain(), opened.in_use:
                self._check_place(opened)
                try:
                    opened.connection.execute("BEGIN IMMEDIATE")
                except apsw.BusyError:
                    yield None
                    return
                with transaction(opened.connection):
                    yield opened.connection

    def _open_quick(self) -> None:
        with contextlib.suppress(LedgerError), self._explain():
            connection = self._open()
            connection.set_wal_hook(self._watch_log)
            connection.set_busy_timeout(_QUICK_WAIT_MS)
            self._quick = OpenedFile(connection, identify_file(self.path))
            self._opened.add(self._quick)

    def _start_helper(self, work: Callable[[], None]) -> None:
        """Run something in a thread, unless one is at work already."""
        if self._helper is None or not self._helper.is_alive():
            helper = threading.Thread(target=work, name="refold-log", daemon=True)
            # Without a thread a later call tries again.
            with contextlib.suppress(RuntimeError):
                helper.start()
                self._helper = helper

    def _watch_log(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        if pages >= _LOG_PAGES:
            self._start_helper(self._move_log)
        return apsw.SQLITE_OK

    def _move_log(self) -> None:
        """Checkpoint the log: most of it while others write, the rest while they wait for a moment."""
        with contextlib.suppress(LedgerError), self._explain(), self._use() as connection:
            for mode in (apsw.SQLITE_CHECKPOINT_PASSIVE, apsw.SQLITE_CHECKPOINT_RESTART):
                with contextlib.suppress(apsw.BusyError):
                    connection.wal_checkpoint(mode=mode)

    @contextlib.contextmanager
    def read(self) -> Iterator[apsw.Connection]:
        """Yield a connection that sees one snapshot. A missing file reads as an empty ledger."""
        if not hasattr(self._own, "opened") and not self.path.exists():
            yield self._open_empty()
            return
        with self._explain(), self._use() as connection, transaction(connection, "BEGIN"):
            yield connection

    def empty_log(self) -> bool:
        """Checkpoint the whole log and truncate it; False if a reader prevents that."""
        with self._explain(), self._use() as connection:
            try:
                is_blocked, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").get
            except apsw.BusyError:
                return False
            return not is_blocked

    def close(self) -> None:
        """Close every connection that this process opened."""
        helper = self._helper
        if helper is not None and helper is not threading.current_thread() and helper.is_alive():
            helper.join(self._busy_timeout_s)
        with self._without_markers(), self._explain():
            for opened in list(self._opened):
                if opened.pid == os.getpid():
                    with opened.in_use:
                        opened.close()
        self._opened.clear()
        self._own = threading.local()

    def close_idle(self) -> None:
        """Close the connections that no thread is using now; they are opened again when needed."""
        with self._without_markers():
            for opened in list(self._opened):
                if opened.in_use.acquire(timeout=_FORK_WAIT_S):
                    if not opened.connection.in_transaction:
                        opened.close()
                        self._opened.discard(opened)
                    opened.in_use.release()

    @contextlib.contextmanager
    def _use(self) -> Iterator[apsw.Connection]:
        while True:
            opened = self._find_opened()
            with opened.in_use:
                if not opened.is_closed:
                    yield opened.connection
                    return

    def _find_opened(self) -> OpenedFile:
        """Return this thread's connection, opened if it has none."""
        opened: OpenedFile | None = getattr(self._own, "opened", None)
        if opened is not None and opened.pid != os.getpid():
            _INHERITED.extend(self._opened)
            self._opened = set()
            opened = None
        if opened is None or opened.is_closed:
            opened = OpenedFile(self._open(), identify_file(self.path))
            # Another thread may close the file meanwhile, which replaces ``_own``.
            own, thread = self._own, _Thread()
            own.opened, own.thread = opened, thread
            self._opened.add(opened)
            # A connection also closes when its thread ends.
            weakref.finalize(thread, _end_connection, weakref.ref(self), opened).atexit = False
        else:
            self._check_place(opened)
        return opened

    def _check_place(self, opened: OpenedFile) -> None:
        if opened.file_id != identify_file(self.path):
            raise LedgerError(
                "{path} was moved or deleted while it was open; put it back, or restart the program", path=self.path
            )

    def beside(self, suffix: str) -> Path:
        """Return the path of a file that belongs to this one."""
        return self.path.with_name(f"{self.path.name}{suffix}")

    def _report_lost_log(self) -> None:
        """Note the loss if a process that has ended left its marker, and there is no log."""
        with contextlib.suppress(OSError):
            stale = self._list_stale()
            if stale and not self.beside("-wal").exists() and self.path.stat().st_size:
                self.beside("-lost").touch(mode=0o600)
                _log.warning(
                    "%s: the write-ahead log is missing, although a process was using it when it ended: the newest "
                    "changes may be lost. 'refold verify' reports this until 'refold verify --repair' confirms it",
                    self.path,
                )
            for marker in stale:
                marker.unlink(missing_ok=True)

    def _mark(self) -> None:
        """Leave this process's marker, now that the log exists."""
        with contextlib.suppress(OSError):
            if self.beside("-wal").exists():
                self.beside(f"-open-{os.getpid()}").touch(mode=0o600)
        # Garbage collection closes the file too and removes its log properly, so the marker has to go with it.
        if self._finalizer is None:
            self._finalizer = weakref.finalize(self, _remove_marker, self.path)
        self._marked_by = os.getpid()

    @contextlib.contextmanager
    def _without_markers(self) -> Iterator[None]:
        """Remove this process's marker, and, once it has closed the log, those of processes that ended before."""
        is_marked, self._marked_by = self._marked_by == os.getpid(), 0
        has_log = is_marked and self.beside("-wal").exists()
        _remove_marker(self.path)
        yield
        with contextlib.suppress(OSError):
            for marker in self._list_stale() if has_log else ():
                marker.unlink(missing_ok=True)

    def _list_stale(self) -> list[Path]:
        """Return the markers that processes left behind; one that ended meanwhile has removed its own."""
        marked = ((file, file.name.removeprefix(f"{self.path.name}-open-")) for file in self.path.parent.iterdir())
        ended = (file for file, pid in marked if pid != file.name and pid.isdigit() and not _is_running(int(pid)))
        return list(filter(Path.exists, ended))

    def _open(self) -> apsw.Connection:
        self._make_file()
        is_new = self.notes_log and self._marked_by != os.getpid()
        if is_new:
            self._report_lost_log()
        connection = apsw.Connection(str(self.path), flags=_FLAGS, vfs=self._vfs)
        try:
            self._set_up(connection)
            if is_new:
                self._mark()
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_up(self, connection: apsw.Connection) -> None:
        connection.set_busy_timeout(int(self._busy_timeout_s * 1000))
        # First, so that a file of another program is never changed.
        read_version(connection, str(self.path), len(read_steps("sqlite")))
        self._use_log(connection)
        connection.pragma("synchronous", self._synchronous)
        connection.pragma("journal_size_limit", _LOG_BYTES_MAX)
        # Overwrite deleted content instead of only unlinking it. Only forget and delete remove much.
        connection.pragma("secure_delete", True)
        connection.pragma("trusted_schema", False)
        migrate(connection, str(self.path))
        if self._bytes_max is not None:
            connection.pragma("max_page_count", max(1, self._bytes_max // int(connection.pragma("page_size"))))

    def _open_empty(self) -> apsw.Connection:
        # One for each thread: making the tables takes longer than most reads.
        connection: apsw.Connection | None = getattr(_EMPTY, "connection", None)
        if connection is None:
            connection = _EMPTY.connection = apsw.Connection(":memory:")
            migrate(connection, ":memory:")
        return connection

    def _use_log(self, connection: apsw.Connection) -> None:
        """Switch to the write-ahead log. SQLite does not wait for another process that does the same, so wait here."""
        give_up_at = time.monotonic() + self._busy_timeout_s
        while True:
            try:
                connection.pragma("journal_mode", "wal")
            except apsw.BusyError:
                if time.monotonic() >= give_up_at:
                    raise
                time.sleep(0.01)
            else:
                return

    def _make_file(self) -> None:
        """Create the file, readable by its owner only; SQLite gives its log the same mode.

        A folder of our own keeps itself out of git: conversations are committed by accident otherwise.
        """
        folder = self.path.parent
        if not folder.is_dir():
            try:
                folder.mkdir(mode=0o700, exist_ok=True)  # Another process may create it at the same time.
            except OSError as error:
                raise LedgerError(
                    "the folder {folder} is missing and cannot be created ({why}); create it, or choose another",
                    folder=folder,
                    why=error.strerror,
                ) from error
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            if not self.path.is_file():
                raise LedgerError(
                    "{path} cannot be created ({why}); choose another file", path=self.path, why=error.strerror
                ) from error
        if folder.name == _OWN_FOLDER:
            with contextlib.suppress(OSError):
                handle = os.open(folder / ".gitignore", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
                with os.fdopen(handle, "w") as file:
                    file.write("*\n")

    @contextlib.contextmanager
    def _explain(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            step = next((step for kind, step in _NEXT_STEP if isinstance(error, kind)), "see the cause below")
            raise LedgerError(f"{self.path}: {step} ({type(error).__name__}: {error})") from error
        except (UnicodeDecodeError, JSONDecodeError) as error:
            # Values are validated before they are stored, so the file itself is damaged.
            raise LedgerError(f"{self.path}: {_DAMAGED} ({error})") from error


def is_damaged(error: BaseException) -> bool:
    """Return whether an error says that a file is damaged, rather than locked, missing or full."""
    return isinstance(error.__cause__, (apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError, JSONDecodeError))


def _is_running(pid: int) -> bool:
    if os.name == "nt":
        return True  # There is no way to ask that does not end the process.
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


def identify_file(path: Path) -> tuple[int, int]:
    """Return device and inode of a file; zeros if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return (0, 0)
    return status.st_dev, status.st_ino


def _end_connection(owner: weakref.ref[LedgerFile], opened: OpenedFile) -> None:
    """Close the connection of a thread that has ended; the last connection of a process checkpoints the log."""
    if opened.pid != os.getpid():
        return
    file = owner()
    unmarked = file._without_markers() if file and file._opened == {opened} else contextlib.nullcontext()
    with opened.in_use, contextlib.suppress(apsw.Error), unmarked:
        opened.close()
    if file is not None:
        file._opened.discard(opened)


def _remove_marker(path: Path) -> None:
    """Remove the marker of this process; a forked one has its own, or none."""
    with contextlib.suppress(OSError):
        path.with_name(f"{path.name}-open-{os.getpid()}").unlink(missing_ok=True)


def _watch_process() -> None:
    """Close connections before a fork, and when the process ends."""

    def close_idle() -> None:
        for file in list(_FILES):
            file.close_idle()

    def close_all() -> None:
        for file in list(_FILES):
            file.notes_log = False  # A background thread may open it again: nobody would remove that marker.
            with contextlib.suppress(LedgerError):
                file.close()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=close_idle)
    atexit.register(close_all)


@contextlib.contextmanager
def transaction(connection: apsw.Connection, begin: str = "") -> Iterator[None]:
    """Begin a transaction, or take over the open one; commit it unless an error is raised."""
    if begin:
        connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    finally:
        # Also after KeyboardInterrupt or a failed commit. On a full disk SQLite may have rolled back already.
        if connection.in_transaction:
            with contextlib.suppress(apsw.Error):
                connection.execute("ROLLBACK")


def read_version(connection: apsw.Connection, where: str, newest: int) -> int:
    """Return the schema version of a file, 0 for an empty one; LedgerError if it is too new or not a ledger."""
    # One statement, so one snapshot: another process may be creating the tables right now.
    version, application, tables = connection.execute(
        "SELECT user_version, application_id, (SELECT count(*) FROM sqlite_schema) "
        "FROM pragma_user_version, pragma_application_id"
    ).get
    if application != APPLICATION_ID and (application or version or tables):
        raise LedgerError("{where} is a database of another program, not a ledger; choose another file", where=where)
    return check_version(version, newest, where)


def migrate(connection: apsw.Connection, where: str, steps: Sequence[str] | None = None) -> None:
    """Migrate a file to the newest schema in one transaction."""
    steps = read_steps("sqlite") if steps is None else steps
    if read_version(connection, where, len(steps)) == len(steps):
        return
    with transaction(connection, "BEGIN IMMEDIATE"):
        # Another process may have migrated it while this one waited for the lock.
        for step in steps[read_version(connection, where, len(steps)) :]:
            connection.execute(step)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", len(steps))
