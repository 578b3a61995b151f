"""The ledger on PostgreSQL: every call of the port is one transaction on one server.

This file says what belongs together; the statements stand with their tables. Nothing is kept between two calls, so
that two processes never differ about what is stored. Statements are queued until an answer is needed: most changes
take two journeys to the server, whatever they consist of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from refold.conversation.edit import Edit
from refold.errors import LedgerError
from refold.ledger.message_row import check_chain
from refold.ledger.place import LedgerPlace
from refold.ledger.postgres import edit_rows, forget, log_rows, message_rows, session_rows
from refold.ledger.postgres.path_rows import ask_tail, change_path
from refold.ledger.postgres.server import LedgerServer
from refold.ledger.postgres.sql import Db, run
from refold.ledger.postgres.verify import repair_counts, verify_session, verify_tables
from refold.ledger.postgres.whole import put_whole, read_whole
from refold.ledger.records import (
    Batch,
    Event,
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

T = TypeVar("T")


class PostgresLedger:
    """The durable record in one schema of a database, made when first used. Safe to share between threads.

    What a call has returned for survives the death of the process and of the server, as the server's own
    ``synchronous_commit`` says. ``timeout_s`` bounds a statement, ``lock_timeout_s`` the wait for another process.
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

    def open_session(self, session_id: str, now: float) -> SessionRow:
        """Return the session, made if it is not there yet."""

        def make(db: Db) -> SessionRow:
            session_rows.make_session(db, session_id, now)
            return session_rows.need_session(db, session_id).row

        return self.read_session(session_id) or self._server.change(make)

    def read_session(self, session_id: str) -> SessionRow | None:
        """Return the session, if it is there."""
        found = self._server.ask(lambda db: session_rows.find_session(db, session_id))
        return found.row if found else None

    def list_sessions(self, *, limit: int = 100, offset: int = 0, prefix: str = "") -> list[SessionRow]:
        """Return sessions, the last changed first."""
        return self._server.ask(lambda db: session_rows.list_sessions(db, limit, offset, prefix))

    def update_session(self, session_id: str, changes: Mapping[str, object], now: float) -> None:
        """Set wire, model or, key by key, settings."""
        self._server.change(
            lambda db: session_rows.update_session(db, session_rows.need_session(db, session_id), changes, now)
        )

    def delete_session(self, session_id: str) -> bool:
        """Erase a session and all that belongs to it."""

        def delete(db: Db) -> bool:
            found = session_rows.lock_session(db, session_id)
            if found is not None:
                session_rows.delete_session(db, found.key)
            return found is not None

        is_gone = self._server.change(delete)
        if is_gone:
            self._give_back_space()
        return is_gone

    def read_whole(self, session_id: str) -> WholeSession | None:
        """Return all of a session as it is at one moment."""

        def read(db: Db) -> WholeSession | None:
            found = session_rows.find_session(db, session_id)
            return read_whole(db, found) if found else None

        return self._server.read(read)

    def put_whole(self, whole: WholeSession, now: float) -> bool:
        """Store a session as it was told; False if its name is taken."""
        return self._server.change(lambda db: put_whole(db, whole, now))

    def read_path(self, session_id: str) -> MessagePath:
        """Return the messages on the current path, with its version."""
        return self._server.ask(lambda db: message_rows.read_path(db, session_id))

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
        check_chain(messages)
        ids = [message.id for message in messages]
        ids += [message_id for splice in splices for message_id in splice.ids]
        ids += edit_rows.list_covered(arrival)

        def add(db: Db) -> int | None:
            locked = session_rows.ask_lock(db, session_id)
            # The server works in order, so these see the session as it is once it is locked.
            stored, tail = message_rows.ask_seqs(db, session_id, ids), ask_tail(db, session_id)
            found = session_rows.read_lock(locked, session_id)
            if found.row.path_version != version:
                return None
            known = message_rows.read_seqs(stored)
            new = message_rows.add_messages(db, found.key, found.seq_last, messages, known)
            tokens = {message.id: message.tokens for message in new}
            length, more = change_path(db, found, splices, known, tokens, tail)
            added = edit_rows.add_arrival(db, found.key, arrival, known, now)
            log_rows.add_events(db, found.key, events)
            new_version = version + bool(splices)
            run(
                db,
                "UPDATE session SET seq_last = %s, message_count = %s, tokens = tokens + %s, path_version = %s, "
                "edits_version = edits_version + %s, updated_at = %s WHERE key = %s",
                (found.seq_last + len(new), length, more, new_version, int(added > 0), now, found.key),
            )
            return new_version

        return self._server.change(add)

    def read_messages(self, session_id: str, ids: Sequence[str] | None = None) -> list[StoredMessage]:
        """Return the messages with these ids, in that order; or all of the current path."""

        def read(db: Db, key: int) -> list[StoredMessage]:
            if ids is None:
                return message_rows.read_path_messages(db, key)
            return message_rows.read_messages(db, key, ids)

        return self._read(session_id, read)

    def list_messages(self, session_id: str, *, after: int = 0, limit: int = 1_000) -> list[StoredMessage]:
        """Return messages as they arrived, on the path or not."""
        return self._read(session_id, lambda db, key: message_rows.list_messages(db, key, after, limit))

    def find_messages(self, session_id: str, digest_prefix: str, *, limit: int = 100) -> list[StoredMessage]:
        """Return messages, on the path or not, whose digest begins so."""
        return self._read(session_id, lambda db, key: message_rows.find_messages(db, key, digest_prefix, limit))

    def find_forgotten(self, session_id: str) -> list[str]:
        """Return the ids of the messages whose content was erased, as they arrived."""
        return self._read(session_id, message_rows.find_forgotten)

    def commit(
        self, session_id: str, batch: Batch, *, now: float, events: Sequence[Event] = (), owner: str | None = None
    ) -> bool:
        """Store a compression whole; False, and nothing stored, if what it rests on has changed."""

        def store(db: Db) -> bool:
            locked = session_rows.ask_lock(db, session_id)
            stored = message_rows.ask_seqs(db, session_id, edit_rows.list_covered(batch.edits))
            key = session_rows.read_lock(locked, session_id).key
            if owner is not None and not log_rows.holds_lease(db, key, owner, now):
                return False
            seqs = edit_rows.find_covered(batch.edits, message_rows.read_seqs(stored), frozenset(batch.forgotten))
            if seqs is None or edit_rows.find_edits_over(db, key, seqs.values()) != set(batch.expects):
                return False
            batch_key = edit_rows.add_batch(db, key, batch)
            if batch_key is None:
                return False
            edit_rows.add_edits(db, key, batch.edits, seqs, batch=batch_key, now=now)
            log_rows.add_facts(db, key, batch_key, batch.facts, now)
            log_rows.add_events(db, key, events)
            run(
                db,
                "UPDATE session SET compression_count = compression_count + 1, edits_version = edits_version + 1, "
                "updated_at = %s WHERE key = %s",
                (now, key),
            )
            return True

        return self._server.change(store)

    def switch_edits(self, session_id: str, ids: Sequence[str], *, on: bool, now: float, event: Event) -> int:
        """Switch edits on or off, with the event that says why; return how many were not so before."""

        def switch(db: Db) -> int:
            key = session_rows.need_session(db, session_id).key
            changed = edit_rows.switch_edits(db, key, ids, on=on)
            log_rows.add_events(db, key, [event])
            session_rows.count_edit_change(db, key, has_changed=changed > 0, now=now)
            return changed

        return self._server.change(switch)

    def read_edits(self, session_id: str, *, active_only: bool = True) -> list[StoredEdit]:
        """Return edits in the order they were made."""
        return self._read(session_id, lambda db, key: edit_rows.read_edits(db, key, active_only=active_only))

    def read_batches(self, session_id: str) -> list[StoredBatch]:
        """Return compressions in the order they were committed."""
        return self._read(session_id, edit_rows.read_batches)

    def add_event(self, session_id: str, event: Event) -> int:
        """Log an event; return its id."""
        return self._server.change(
            lambda db: log_rows.add_events(db, session_rows.need_session(db, session_id).key, [event])
        )

    def read_events(self, session_id: str | None, *, after: int = 0, limit: int = 1_000) -> list[Event]:
        """Return events of one session or all, oldest first."""
        if session_id is None:
            return self._server.ask(lambda db: log_rows.read_events(db, None, after, limit))
        return self._read(session_id, lambda db, key: log_rows.read_events(db, key, after, limit))

    def read_facts(self, session_id: str | None, *, limit: int = 10_000) -> list[StoredFact]:
        """Return facts of one session or all, oldest first."""
        if session_id is None:
            return self._server.ask(lambda db: log_rows.read_facts(db, None, limit))
        return self._read(session_id, lambda db, key: log_rows.read_facts(db, key, limit))

    def add_usage(self, session_id: str, usage: StoredUsage) -> None:
        """Keep what a provider billed for a request."""
        self._server.change(lambda db: log_rows.add_usage(db, session_rows.need_session(db, session_id).key, usage))

    def read_usage(self, session_id: str, *, limit: int = 1) -> list[StoredUsage]:
        """Return reported usage, newest first."""
        return self._read(session_id, lambda db, key: log_rows.read_usage(db, key, limit))

    def acquire_lease(self, session_id: str, owner: str, *, seconds: float, now: float) -> bool:
        """Take or prolong the right to compress a session; False while another owner's has not run out."""
        return self._server.change(
            lambda db: log_rows.take_lease(db, session_rows.need_session(db, session_id).key, owner, now + seconds, now)
        )

    def release_lease(self, session_id: str, owner: str) -> None:
        """Give the right back; another owner's is left alone."""

        def release(db: Db) -> None:
            found = session_rows.lock_session(db, session_id)
            if found is not None:
                log_rows.drop_lease(db, found.key, owner)

        self._server.change(release)

    def is_leased(self, session_id: str, *, now: float) -> bool:
        """Tell whether anybody has the right to compress a session now."""

        def look(db: Db) -> bool:
            found = session_rows.find_session(db, session_id)
            return found is not None and log_rows.is_leased(db, found.key, now)

        return self._server.read(look)

    def verify(
        self,
        session_id: str | None = None,
        *,
        repair: bool = False,
        digest: Callable[[object], str] | None = None,
    ) -> list[Finding]:
        """Recompute all that can be recomputed; ``repair`` rebuilds what is derived, and says what it was."""

        def check(db: Db) -> list[Finding]:
            run(db, "SET LOCAL statement_timeout = 0")
            findings = verify_tables(db) if session_id is None else []
            for key, name in session_rows.list_keys(db):
                if session_id in (None, name):
                    findings += verify_session(db, key, name, digest)
            return findings

        findings = self._server.read(check)
        # One after the other: whoever works on one of them waits for that one only.
        for name in sorted({finding.session_id for finding in findings if finding.is_derived}) if repair else ():
            self._server.change(lambda db, name=name: self._repair(db, name))  # type: ignore[misc]
        return findings

    def forget(self, session_id: str, ids: Sequence[str], now: float) -> int:
        """Erase the content of messages and of all that was made from them; return how many messages had some."""

        def erase(db: Db) -> int:
            key = session_rows.need_session(db, session_id).key
            count, edits = forget.forget_messages(db, key, ids)
            if count or edits:
                log_rows.add_events(db, key, [Event("forgotten", now, {"messages": count, "edits": edits})])
                session_rows.count_edit_change(db, key, has_changed=True, now=now)
            return count

        count = self._server.change(erase)
        self._give_back_space()
        return count

    def close(self) -> None:
        """Close what this process opened. A later call opens it again."""
        self._server.close()

    def _read(self, session_id: str, read: Callable[[Db, int], list[T]]) -> list[T]:
        """Read of a session, all of one moment; nothing if it is not there."""

        def look(db: Db) -> list[T]:
            found = session_rows.find_session(db, session_id)
            return read(db, found.key) if found else []

        return self._server.read(look)

    def _repair(self, db: Db, session_id: str) -> None:
        found = session_rows.lock_session(db, session_id)
        if found is not None:
            repair_counts(db, found.key)

    def _give_back_space(self) -> None:
        """Take what was erased out of the pages too: the server keeps old rows there until it is told, or has time."""
        # Whatever keeps it from doing so now, its own cleaning does it later; what was asked for is done.
        with suppress(LedgerError):
            for table in forget.TABLES:
                self._server.ask(lambda db, table=table: run(db, f"VACUUM {table}"))  # type: ignore[misc]
