"""The durable record: messages, edits, events, facts, usage. A store supplies transactions and a ``Database``.

Each call is one transaction: it happens whole or not at all. Messages are only ever added, edits are switched on and
off, and only ``forget`` and ``delete_session`` erase anything. A session id is any text and never a path. Times are
seconds since 1970, passed in by the caller. A change names the state it is based on: ``append`` the version of the
path, ``commit`` the active edits. If that state is no longer current, nothing is written and the caller reads again.

Nothing is kept between two calls, so two processes cannot disagree about what is stored. Statements whose answers are
not needed yet are sent together: on PostgreSQL most changes take two round trips.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from refold.conversation.view import Edit
from refold.ledger.codec import dump_json
from refold.ledger.records import (
    LEASE_S_MAX,
    Batch,
    ContextSummary,
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
from refold.ledger.sql import edits as edit_rows
from refold.ledger.sql import messages as message_rows
from refold.ledger.sql import sessions as session_rows
from refold.ledger.sql.database import Database
from refold.ledger.sql.forget import delete_edits, forget_messages
from refold.ledger.sql.sessions import StoredSession
from refold.ledger.verify import DigestOf, repair_session, verify_session, verify_tables

T = TypeVar("T")
_ALL = 1 << 62
_PAGE = 1_000


class Ledger(ABC):
    """The durable record. Raises LedgerError for problems that the operator must fix, and never loses data.

    Reading a session that does not exist returns nothing; changing one raises SessionNotFound.
    """

    @abstractmethod
    def _change(self, work: Callable[[Database], T]) -> T:
        """Run ``work`` in a transaction and commit it, whole or not at all. It may run again if that fails."""

    @abstractmethod
    def _read(self, work: Callable[[Database], T]) -> T:
        """Run ``work``, which reads in several statements, on one snapshot."""

    def _ask(self, work: Callable[[Database], T]) -> T:
        """Run ``work``, which reads in a single statement."""
        return self._read(work)

    @abstractmethod
    def _wipe(self) -> None:
        """Remove deleted content from the storage below the tables."""

    def _allow_long(self, db: Database) -> None:  # noqa: B027 - only one store has such a limit
        """Lift the time limit of statements for this transaction."""

    @abstractmethod
    def extend(self, extensions: Sequence[Extension], *, may_wait: bool = False) -> list[SessionRow | None] | None:
        """Store all extensions in one transaction; return the new rows, with None for a session that has changed.

        Nothing of such a session is stored; use ``append``, ``add_usage`` and ``update_session`` instead. Known
        messages stay as they are. An event loop may call this without ``may_wait``: it then returns None, with nothing
        stored, if it would have to wait for another writer or for a server.
        """

    @abstractmethod
    def close(self) -> None:
        """Close what this thread and process opened. A later call opens it again."""

    def open_session(self, session_id: str, now: float) -> SessionRow:
        """Return the session; it is made if there is none."""

        def make(db: Database) -> SessionRow:
            session_rows.make_session(db, session_id, now)
            return session_rows.need_session(db, session_id).row

        return self._change(make)

    def read_session(self, session_id: str) -> SessionRow | None:
        found = self._ask(lambda db: session_rows.find_session(db, session_id))
        return found.row if found else None

    def list_sessions(
        self, *, limit: int = 100, offset: int = 0, prefix: str = "", holding: bytes = b""
    ) -> list[SessionRow]:
        """Return sessions whose id begins with an ASCII ``prefix``, the last changed first, at a cost per match.

        ``holding``: of these only the ones whose settings, as JSON, hold these bytes; the others are not read.
        """
        return self._ask(
            lambda db: session_rows.list_sessions(db, limit=limit, offset=offset, prefix=prefix, holding=holding)
        )

    def measure(self, prefix: str = "") -> int:
        """Return how many bytes of messages the sessions have whose id begins with ``prefix``."""
        return self._ask(lambda db: session_rows.measure(db, prefix))

    def update_session(self, session_id: str, changes: Mapping[str, object], now: float) -> None:
        """Set ``wire``, ``model`` or, key by key, ``settings`` (a mapping; None removes a key)."""
        self._change_of(session_id, lambda db, found: session_rows.update_session(db, found, changes, now))

    def change_setting(self, session_id: str, name: str, change: Callable[[Any], object], now: float) -> bool:
        """Replace a setting by what ``change`` makes of it, in one transaction; False if there is no such session.

        ``change`` gets None where there is no such setting. It may be called again if the transaction fails.
        """

        def replace(db: Database, found: StoredSession) -> None:
            changes = {"settings": {name: change(found.row.settings.get(name))}}
            session_rows.update_session(db, found, changes, now)

        return self._change_known(session_id, replace)

    def delete_session(self, session_id: str) -> bool:
        """Delete a session and everything that belongs to it; False if there is none."""
        is_gone = self._change_known(session_id, lambda db, found: session_rows.delete_session(db, found.key))
        if is_gone:
            self._wipe()
        return is_gone

    def read_whole(self, session_id: str) -> WholeSession | None:
        """Return all of a session in one snapshot; None if there is none."""

        def read(db: Database) -> WholeSession | None:
            found = session_rows.find_session(db, session_id)
            return _read_whole(db, found) if found else None

        return self._read(read)

    def put_whole(self, whole: WholeSession, now: float) -> bool:
        """Store a whole session with ``now`` as its last change; False, and nothing stored, if its id is taken.

        The caller must have validated it: ids follow from content, each is unique, and every reference resolves.
        """
        message_rows.check_chain(whole.messages)
        return self._change(lambda db: _put_whole(db, whole, now))

    def read_path(self, session_id: str) -> MessagePath:
        """Return the messages on the session's current path, in order, with its version."""
        return self._ask(lambda db: message_rows.read_path(db, session_id))

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
        """Add messages and change the path; return its new version, or None if it is no longer at ``version``.

        Known messages stay as they are. Splices are in order and do not overlap; their ids are new or known.
        ``arrival`` are edits made for these messages on arrival; known ones stay as they are, active or not.
        The cost is O(new messages + spliced), whatever the length of the session.
        """
        message_rows.check_chain(messages)
        ids = [message.id for message in messages]
        ids += [message_id for splice in splices for message_id in splice.ids]
        ids += edit_rows.list_covered(arrival)

        def add(db: Database) -> int | None:
            locked = session_rows.ask_locked(db, session_id)
            # Statements run in order, so these two see the session once it is locked.
            stored, tail = message_rows.ask_known(db, session_id, ids), message_rows.ask_tail(db, session_id)
            found = session_rows.read_locked(db, locked, session_id)
            if found.row.path_version != version:
                return None
            known = message_rows.read_known(stored)
            new = message_rows.add_messages(db, found, messages, known)
            length, more = message_rows.change_path(db, found, splices, known=known, new=new, tail=tail)
            added = edit_rows.add_arrival(db, found.key, arrival, known=known, now=now)
            session_rows.add_events(db, found.key, events)
            new_version = version + bool(splices)
            db.run(
                "UPDATE session SET seq_last = ?, message_count = ?, tokens = tokens + ?, path_version = ?, "
                "edits_version = edits_version + ?, updated_at = ? WHERE key = ?",
                (found.seq_last + len(new), length, more, new_version, int(added > 0), now, found.key),
            )
            return new_version

        return self._change(add)

    def read_messages(self, session_id: str, ids: Sequence[str] | None = None) -> list[StoredMessage]:
        """Return the messages with these ids, in that order and without unknown ones; or the whole current path."""
        if ids is None:
            return self._read_of(session_id, message_rows.read_path_messages)
        return self._read_of(session_id, lambda db, key: message_rows.read_messages(db, key, ids))

    def list_messages(self, session_id: str, *, after: int = 0, limit: int = 1_000) -> list[StoredMessage]:
        """Return messages with a ``seq`` above ``after`` in the order of arrival, on the path or not."""
        return self._read_of(session_id, lambda db, key: message_rows.list_messages(db, key, after=after, limit=limit))

    def find_messages(self, session_id: str, digest_prefix: str, *, limit: int = 100) -> list[StoredMessage]:
        """Return messages, on the path or not, whose digest begins with these hex digits."""
        return self._read_of(session_id, lambda db, key: message_rows.find_messages(db, key, digest_prefix, limit))

    def find_forgotten(self, session_id: str) -> list[str]:
        """Return the ids of the messages whose content was erased, in the order of arrival."""
        return self._read_of(session_id, message_rows.find_forgotten)

    def commit(
        self, session_id: str, batch: Batch, *, now: float, events: Sequence[Event] = (), owner: str | None = None
    ) -> bool:
        """Store a batch whole; False, and nothing stored, if what it was based on has changed.

        That is the case if a covered message is missing, or was forgotten without the batch knowing; if the active
        edits over the covered messages are not those it expects; or if ``owner`` is given and has lost the lease.
        """
        return self._change(lambda db: edit_rows.commit(db, session_id, batch, now=now, events=events, owner=owner))

    def switch_edits(self, session_id: str, ids: Sequence[str], *, on: bool, now: float, event: Event) -> int:
        """Switch edits on or off and log the event that says why; return how many changed."""

        def switch(db: Database, found: StoredSession) -> int:
            changed = edit_rows.switch_edits(db, found.key, ids, on=on)
            session_rows.add_events(db, found.key, [event])
            session_rows.mark_changed(db, found.key, edits=changed > 0, now=now)
            return changed

        return self._change_of(session_id, switch)

    def read_edits(self, session_id: str, *, active_only: bool = True) -> list[StoredEdit]:
        """Return edits in the order they were made."""
        return self._read_of(session_id, lambda db, key: edit_rows.read_edits(db, key, active_only=active_only))

    def read_summaries(self, session_id: str, limit: int = _ALL) -> list[ContextSummary]:
        """Return the newest summaries of a session, undone and replaced ones too, the newest first."""
        return self._read_of(session_id, lambda db, key: edit_rows.read_summaries(db, key, limit))

    def read_batches(self, session_id: str) -> list[StoredBatch]:
        """Return batches in the order they were committed."""
        return self._read_of(session_id, edit_rows.read_batches)

    def add_event(self, session_id: str, event: Event) -> int:
        """Log an event; return its id."""
        return self._change_of(session_id, lambda db, found: session_rows.add_events(db, found.key, [event]))

    def read_events(self, session_id: str | None, *, after: int = 0, limit: int = 1_000) -> list[Event]:
        """Return events with an id above ``after``, oldest first; of all sessions if the id is None."""
        return self._read_of(session_id, lambda db, key: session_rows.read_events(db, key, after=after, limit=limit))

    def read_newest_events(self, session_id: str | None, *, limit: int = 1) -> list[Event]:
        """Return the last events, newest first; of all sessions if the id is None."""
        return self._read_of(
            session_id, lambda db, key: session_rows.read_events(db, key, limit=limit, is_newest_first=True)
        )

    def read_facts(self, session_id: str | None, *, limit: int = 10_000) -> list[StoredFact]:
        """Return facts, oldest first; of all sessions if the id is None. A fact found twice is listed once."""
        return self._read_of(session_id, lambda db, key: session_rows.read_facts(db, key, limit=limit))

    def add_usage(self, session_id: str, usage: StoredUsage) -> None:
        self._change_of(session_id, lambda db, found: session_rows.add_usage(db, found.key, usage))

    def read_usage(self, session_id: str, *, limit: int = 1) -> list[StoredUsage]:
        """Return reported usage, newest first."""
        return self._read_of(session_id, lambda db, key: session_rows.read_usage(db, key, limit=limit))

    def check_write(self) -> None:
        """Write something that leaves no trace; raise LedgerError if the store cannot be written now."""

        self._change(session_rows.probe)

    def acquire_lease(self, session_id: str, owner: str, *, seconds: float, now: float) -> bool:
        """Take or extend the lease, the right to compress a session; False while another owner's has not expired.

        ``seconds`` is at most LEASE_S_MAX. A stored lease with more time left was taken before the clock was set back;
        it is void.
        """
        times = (now + seconds, now, now + LEASE_S_MAX)
        return self._change_of(session_id, lambda db, found: session_rows.take_lease(db, found.key, owner, times))

    def release_lease(self, session_id: str, owner: str) -> None:
        """Release the lease if this owner has it."""
        sql = "DELETE FROM lease WHERE session = ? AND owner = ?"
        self._change_known(session_id, lambda db, found: db.run(sql, (found.key, db.encode(owner))))

    def is_leased(self, session_id: str, *, now: float) -> bool:
        """Return whether any owner has the lease now, which means that the session is being compressed."""
        sql = f"SELECT 1 FROM lease WHERE session = {session_rows.KEY} AND expires_at > ? AND expires_at <= ?"
        return self._ask(lambda db: db.fetch_one(sql, (db.encode(session_id), now, now + LEASE_S_MAX))) is not None

    def verify(
        self, session_id: str | None = None, *, repair: bool = False, digest: DigestOf | None = None
    ) -> list[Finding]:
        """Recompute hashes, ids, counts and references of one session or all; ``repair`` rebuilds what is derived.

        ``digest`` recomputes the content hash of a provider's object.
        """

        def check(db: Database) -> list[Finding]:
            self._allow_long(db)
            findings = self._verify_database(db) if session_id is None else []
            for key, name in session_rows.list_keys(db):
                if session_id in (None, name):
                    findings += verify_session(db, key, name, digest)
            return findings

        findings = self._read(check)
        if repair and any(finding.is_derived for finding in findings):
            self._repair({finding.session_id for finding in findings if finding.is_derived})
        return findings

    def _verify_database(self, db: Database) -> list[Finding]:
        return verify_tables(db)

    def _repair(self, names: Iterable[str]) -> None:
        # One transaction each: a process that works on one of them waits for that one only.
        for name in sorted(names):
            self._change_known(name, lambda db, found: repair_session(db, found.key))

    def forget(self, session_id: str, ids: Sequence[str], now: float) -> int:
        """Erase the content of messages and everything made from it, and log that; return how many had content.

        This deletes the edits that cover the messages, edits made from those, and the facts of both, and it removes the
        words of the messages from events and reasons. If a message was forgotten before, its words are unknown, so all
        sentences of the session's events and reasons go. Hashes stay, so the chain still verifies. The version of the
        edits changes, so that every process drops the content from its memory and its index.
        """
        return self._erase(session_id, now, lambda db, key: forget_messages(db, key, ids))[0]

    def erase_edits(self, session_id: str, ids: Sequence[str], now: float) -> int:
        """Delete edits and what was made from them, and log that; return how many went. The covered messages stay."""
        return self._erase(session_id, now, lambda db, key: (0, delete_edits(db, key, set(ids))))[1]

    def _erase(self, session_id: str, now: float, erase: Callable[[Database, int], tuple[int, int]]) -> tuple[int, int]:
        """Erase content of a session and log it; ``erase`` returns how many messages and edits went."""

        def change(db: Database, found: StoredSession) -> tuple[int, int]:
            messages, edits = erase(db, found.key)
            if messages or edits:
                event = Event("forgotten", now, {"messages": messages, "edits": edits})
                session_rows.add_events(db, found.key, [event])
                session_rows.mark_changed(db, found.key, edits=True, now=now)
            return messages, edits

        erased = self._change_of(session_id, change)
        self._wipe()
        return erased

    def _change_of(self, session_id: str, work: Callable[[Database, StoredSession], T]) -> T:
        """Change one session, which is locked; SessionNotFound if there is none."""
        return self._change(lambda db: work(db, session_rows.need_session(db, session_id)))

    def _change_known(self, session_id: str, work: Callable[[Database, StoredSession], object]) -> bool:
        """Change one session, which is locked; False if there is none."""

        def change(db: Database) -> bool:
            found = session_rows.lock_session(db, session_id)
            if found is not None:
                work(db, found)
            return found is not None

        return self._change(change)

    def _read_of(self, session_id: str | None, read: Callable[[Database, Any], list[T]]) -> list[T]:
        """Read of one session by its key, in one snapshot, or of all with None; nothing if there is no such session."""
        if session_id is None:
            return self._ask(lambda db: read(db, None))

        def look(db: Database) -> list[T]:
            found = session_rows.find_session(db, session_id)
            return read(db, found.key) if found else []

        return self._read(look)


def _read_whole(db: Database, found: StoredSession) -> WholeSession:
    key = found.key
    return WholeSession(
        row=found.row,
        messages=tuple(message_rows.list_messages(db, key, after=0, limit=_ALL)),
        path=message_rows.read_path(db, found.row.id).ids,
        edits=tuple(edit_rows.read_edits(db, key, active_only=False)),
        batches=tuple(edit_rows.read_batches(db, key)),
        facts=tuple(session_rows.read_facts(db, key, limit=_ALL)),
        events=tuple(session_rows.read_events(db, key, after=0, limit=_ALL)),
        usages=tuple(reversed(session_rows.read_usage(db, key, limit=_ALL))),
    )


def _put_whole(db: Database, whole: WholeSession, now: float) -> bool:
    row = whole.row
    if not session_rows.make_session(db, row.id, row.created_at):
        return False
    found = session_rows.need_session(db, row.id)
    key = found.key
    known: dict[str, message_rows.KnownMessage] = {}
    new = message_rows.add_messages(db, found, whole.messages, known)
    splices = [Splice(0, 0, whole.path)] if whole.path else []
    tail = message_rows.ask_tail(db, row.id)
    length, tokens = message_rows.change_path(db, found, splices, known=known, new=new, tail=tail)
    batches = {batch.id: edit_rows.add_batch(db, key, batch) for batch in whole.batches}
    seqs = {message_id: one.seq for message_id, one in known.items()}
    batch_of = {**batches, "": None}
    db.insert_edits(key, [edit_rows.make_new(stored, seqs, batch_of[stored.batch_id]) for stored in whole.edits])
    for fact in whole.facts:
        db.insert_fact(key, fact, batch=batches[fact.batch_id] or 0)
    session_rows.add_events(db, key, whole.events)
    for usage in whole.usages:
        session_rows.add_usage(db, key, usage)
    values = (now, db.encode(row.wire), db.encode(row.model), dump_json(dict(row.settings)))
    counts = (len(new), row.path_version, row.edits_version, length, tokens, len(batches))
    db.run(
        "UPDATE session SET updated_at = ?, wire = ?, model = ?, settings = ?, seq_last = ?, path_version = ?, "
        "edits_version = ?, message_count = ?, tokens = ?, compression_count = ? WHERE key = ?",
        (*values, *counts, key),
    )
    return True


def list_all_sessions(ledger: Ledger, prefix: str = "", *, page_rows: int = _PAGE) -> Iterator[SessionRow]:
    """Yield every session whose id begins with ``prefix``, the last changed first; read as far as it is iterated."""
    offset = 0
    while page := ledger.list_sessions(limit=page_rows, offset=offset, prefix=prefix):
        yield from page
        offset += len(page)


def read_all_events(ledger: Ledger, session_id: str | None) -> Iterator[Event]:
    """Yield every event of a session or of all, oldest first."""
    after = 0
    while page := ledger.read_events(session_id, after=after, limit=_PAGE):
        yield from page
        after = page[-1].id
