"""The ledger on SQLite: every call of the port is one transaction on one file.

This file says what belongs together; the statements stand with their tables. Nothing is kept between two calls, so
that two processes never differ about what is stored.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import apsw

from refold.conversation.edit import Edit
from refold.errors import LedgerError
from refold.ledger.records import (
    Batch,
    Event,
    Extension,
    Finding,
    MessagePath,
    SessionRow,
    Splice,
    StoredBatch,
    StoredEdit,
    StoredFact,
    StoredMessage,
    StoredUsage,
    WholeSession,
)
from refold.ledger.sqlite import edit_rows, log_rows, message_rows, session_rows
from refold.ledger.sqlite.extending import extend_session
from refold.ledger.sqlite.file import LedgerFile, Synchronous
from refold.ledger.sqlite.forget import forget_messages
from refold.ledger.sqlite.path_rows import change_path
from refold.ledger.sqlite.verify import repair_counts, verify_file, verify_session
from refold.ledger.sqlite.whole import put_whole, read_whole

T = TypeVar("T")


class SqliteLedger:
    """The durable record in one file, made when something is first written. Safe to share between threads.

    ``synchronous`` "normal" survives the death of the process, "full" that of the machine, for one flush per call.
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

    def open_session(self, session_id: str, now: float) -> SessionRow:
        """Return the session, made if it is not there yet."""
        row = self.read_session(session_id)
        if row is None:
            with self._file.write() as db:
                session_rows.make_session(db, session_id, now)
                row = session_rows.need_session(db, session_id).row
        return row

    def read_session(self, session_id: str) -> SessionRow | None:
        """Return the session, if it is there."""
        with self._file.read() as db:
            found = session_rows.find_session(db, session_id)
            return found.row if found else None

    def list_sessions(self, *, limit: int = 100, offset: int = 0, prefix: str = "") -> list[SessionRow]:
        """Return sessions, the last changed first; only those whose id begins so."""
        with self._file.read() as db:
            return session_rows.list_sessions(db, limit, offset, prefix)

    def update_session(self, session_id: str, changes: Mapping[str, object], now: float) -> None:
        """Set wire, model or, key by key, settings."""
        with self._file.write() as db:
            session_rows.update_session(db, session_rows.need_session(db, session_id), changes, now)

    def delete_session(self, session_id: str) -> bool:
        """Erase a session and all that belongs to it."""
        with self._file.write() as db:
            found = session_rows.find_session(db, session_id)
            if found is None:
                return False
            session_rows.delete_session(db, found.key)
        self._empty_log(f"session {session_id!r} is deleted")
        return True

    def read_whole(self, session_id: str) -> WholeSession | None:
        """Return all of a session as it is at one moment."""
        with self._file.read() as db:
            found = session_rows.find_session(db, session_id)
            return read_whole(db, found) if found else None

    def put_whole(self, whole: WholeSession, now: float) -> bool:
        """Store a session as it was told; False if its name is taken."""
        with self._file.write() as db:
            return put_whole(db, whole, now)

    def read_path(self, session_id: str) -> MessagePath:
        """Return the messages on the current path, with its version."""
        with self._file.read() as db:
            found = session_rows.find_session(db, session_id)
            return message_rows.read_path(db, found.key, found.row.path_version) if found else MessagePath()

    def append(
        self,
        session_id: str,
        messages: Sequence[StoredMessage],
        splices: Sequence[Splice],
        *,
        version: int,
        now: float,
        arrival: Sequence[Edit] = (),
        events: Sequence[Event] = (),
    ) -> int | None:
        """Add messages and change the path; None if the path is no longer the one the caller saw."""
        with self._file.write() as db:
            found = session_rows.need_session(db, session_id)
            if found.row.path_version != version:
                return None
            seq_last = message_rows.add_messages(db, found.key, found.seq_last, messages)
            length, tokens = change_path(db, found.key, found.row.messages, splices)
            added = edit_rows.add_arrival(db, found.key, arrival, now)
            log_rows.add_events(db, found.key, events)
            version += bool(splices)
            db.execute(
                "UPDATE session SET seq_last = ?, message_count = ?, tokens = tokens + ?, path_version = ?, "
                "edits_version = edits_version + ?, updated_at = ? WHERE key = ?",
                (seq_last, length, tokens, version, int(added > 0), now, found.key),
            )
        return version

    def extend(self, extensions: Sequence[Extension], *, may_wait: bool = False) -> list[SessionRow | None] | None:
        """Store what one more request of each session brings, in one transaction; see the port."""
        with self._file.write() if may_wait else self._file.write_now() as db:
            return None if db is None else [extend_session(db, one) for one in extensions]

    def read_messages(self, session_id: str, ids: Sequence[str] | None = None) -> list[StoredMessage]:
        """Return the messages with these ids, in that order; or all of the current path."""
        if ids is None:
            return self._read(session_id, message_rows.read_path_messages)
        return self._read(session_id, lambda db, key: message_rows.read_messages(db, key, ids))

    def list_messages(self, session_id: str, *, after: int = 0, limit: int = 1_000) -> list[StoredMessage]:
        """Return messages as they arrived, on the path or not."""
        return self._read(session_id, lambda db, key: message_rows.list_messages(db, key, after, limit))

    def find_messages(self, session_id: str, digest_prefix: str, *, limit: int = 100) -> list[StoredMessage]:
        """Return messages, on the path or not, whose digest begins so."""
        return self._read(session_id, lambda db, key: message_rows.find_messages(db, key, digest_prefix, limit))

    def commit(
        self, session_id: str, batch: Batch, *, now: float, events: Sequence[Event] = (), owner: str | None = None
    ) -> bool:
        """Store a compression whole; False, and nothing stored, if what it rests on has changed."""
        with self._file.write() as db:
            key = session_rows.need_session(db, session_id).key
            if owner is not None and not log_rows.holds_lease(db, key, owner, now):
                return False
            seqs = edit_rows.find_covered(db, key, batch.edits, frozenset(batch.forgotten))
            if seqs is None or edit_rows.find_edits_over(db, key, seqs.values()) != set(batch.expects):
                return False
            batch_key = edit_rows.add_batch(db, key, batch)
            if batch_key is None:
                return False
            edit_rows.add_edits(db, key, batch.edits, seqs, batch=batch_key, now=now)
            log_rows.add_facts(db, key, batch_key, batch.facts, now)
            log_rows.add_events(db, key, events)
            db.execute(
                "UPDATE session SET compression_count = compression_count + 1, edits_version = edits_version + 1, "
                "updated_at = ? WHERE key = ?",
                (now, key),
            )
        return True

    def switch_edits(self, session_id: str, ids: Sequence[str], *, on: bool, now: float, event: Event) -> int:
        """Switch edits on or off, with the event that says why; return how many were not so before."""
        with self._file.write() as db:
            key = session_rows.need_session(db, session_id).key
            changed = edit_rows.switch_edits(db, key, ids, on=on)
            log_rows.add_events(db, key, [event])
            session_rows.count_edit_change(db, key, has_changed=changed > 0, now=now)
        return changed

    def read_edits(self, session_id: str, *, active_only: bool = True) -> list[StoredEdit]:
        """Return edits in the order they were made."""
        return self._read(session_id, lambda db, key: edit_rows.read_edits(db, key, active_only=active_only))

    def read_batches(self, session_id: str) -> list[StoredBatch]:
        """Return compressions in the order they were committed."""
        return self._read(session_id, edit_rows.read_batches)

    def add_event(self, session_id: str, event: Event) -> int:
        """Log an event; return its id."""
        with self._file.write() as db:
            return log_rows.add_events(db, session_rows.need_session(db, session_id).key, [event])

    def read_events(self, session_id: str | None, *, after: int = 0, limit: int = 1_000) -> list[Event]:
        """Return events of one session or all, oldest first."""
        if session_id is None:
            with self._file.read() as db:
                return log_rows.read_events(db, None, after, limit)
        return self._read(session_id, lambda db, key: log_rows.read_events(db, key, after, limit))

    def read_facts(self, session_id: str | None, *, limit: int = 10_000) -> list[StoredFact]:
        """Return facts of one session or all, oldest first."""
        if session_id is None:
            with self._file.read() as db:
                return log_rows.read_facts(db, None, limit)
        return self._read(session_id, lambda db, key: log_rows.read_facts(db, key, limit))

    def add_usage(self, session_id: str, usage: StoredUsage) -> None:
        """Keep what a provider billed for a request."""
        with self._file.write() as db:
            log_rows.add_usage(db, session_rows.need_session(db, session_id).key, usage)

    def read_usage(self, session_id: str, *, limit: int = 1) -> list[StoredUsage]:
        """Return reported usage, newest first."""
        return self._read(session_id, lambda db, key: log_rows.read_usage(db, key, limit))

    def acquire_lease(self, session_id: str, owner: str, *, seconds: float, now: float) -> bool:
        """Take or prolong the right to compress a session; False while another owner's has not run out."""
        with self._file.write() as db:
            return log_rows.take_lease(db, session_rows.need_session(db, session_id).key, owner, now + seconds, now)

    def release_lease(self, session_id: str, owner: str) -> None:
        """Give the right back; another owner's is left alone."""
        with self._file.write() as db:
            found = session_rows.find_session(db, session_id)
            if found is not None:
                log_rows.drop_lease(db, found.key, owner)

    def is_leased(self, session_id: str, *, now: float) -> bool:
        """Tell whether anybody has the right to compress a session now."""
        with self._file.read() as db:
            found = session_rows.find_session(db, session_id)
            return found is not None and log_rows.is_leased(db, found.key, now)

    def verify(
        self,
        session_id: str | None = None,
        *,
        repair: bool = False,
        digest: Callable[[object], str] | None = None,
    ) -> list[Finding]:
        """Recompute all that can be recomputed; ``repair`` rebuilds what is derived, and says what it was."""
        with self._file.read() as db:
            findings = verify_file(db) if session_id is None else []
            for key, name in session_rows.list_keys(db):
                if session_id in (None, name):
                    findings += verify_session(db, key, name, digest)
        if repair and any(finding.is_derived for finding in findings):
            with self._file.write() as db:
                repair_counts(db)
        return findings

    def forget(self, session_id: str, ids: Sequence[str], now: float) -> int:
        """Erase the content of messages and of all that was made from them; return how many messages had some."""
        with self._file.write() as db:
            key = session_rows.need_session(db, session_id).key
            count, edits = forget_messages(db, key, ids)
            if count or edits:
                log_rows.add_events(db, key, [Event("forgotten", now, {"messages": count, "edits": edits})])
                session_rows.count_edit_change(db, key, has_changed=True, now=now)
        self._empty_log("the content is erased")
        return count

    def find_forgotten(self, session_id: str) -> list[str]:
        """Return the ids of the messages whose content was erased, as they arrived."""
        return self._read(session_id, message_rows.find_forgotten)

    def close(self) -> None:
        """Close what this process opened. A later call opens it again."""
        self._file.close()

    def _read(self, session_id: str, read: Callable[[apsw.Connection, int], list[T]]) -> list[T]:
        """Read of a session, all of one moment; nothing if it is not there."""
        with self._file.read() as db:
            found = session_rows.find_session(db, session_id)
            return read(db, found.key) if found else []

    def _empty_log(self, done: str) -> None:
        """Take the old pages out of the write-ahead log too, which keeps them until it is emptied."""
        if not self._file.empty_log():
            raise LedgerError(
                f"{done}, but {self._file.path}-wal still holds a copy, because another process is reading it; "
                "end that process and do the same again"
            )
