"""The port to the durable record: messages, edits, events, facts, usage. Every store keeps this contract.

One call is one transaction: it happens whole or not at all. Messages are only ever added; edits are switched on and
off; nothing but ``forget`` and ``delete_session`` erases. A session's id is any text and never a path. Times are
seconds since 1970, handed in by the caller.

Whoever changes a session says what it saw: ``append`` names the version of the path, ``commit`` the edits. If that is
no longer so, nothing is written, and the caller reads again. Both versions stand in ``SessionRow``, so that one cheap
read tells whether what a process holds in memory is still true.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from refold.conversation.edit import Edit
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


class Ledger(Protocol):
    """The durable record. Raises LedgerError for what the operator must mend; loses nothing.

    Reading a session that is not there gives nothing; changing one is a LedgerError that names it.
    """

    def open_session(self, session_id: str, now: float) -> SessionRow:
        """Return the session, made if it is not there yet."""
        ...

    def read_session(self, session_id: str) -> SessionRow | None: ...

    def list_sessions(self, *, limit: int = 100, offset: int = 0, prefix: str = "") -> list[SessionRow]:
        """Return sessions, the last changed first; only those whose id begins with ``prefix``, which is ASCII.

        With a prefix it costs O(sessions that begin so), whatever else there is.
        """
        ...

    def update_session(self, session_id: str, changes: Mapping[str, object], now: float) -> None:
        """Set ``wire``, ``model`` or, key by key, ``settings`` (a mapping; None takes a key away)."""
        ...

    def delete_session(self, session_id: str) -> bool:
        """Erase a session and all that belongs to it; False if it was not there."""
        ...

    def read_whole(self, session_id: str) -> WholeSession | None:
        """Return all of a session as it is at one moment; None if it is not there."""
        ...

    def put_whole(self, whole: WholeSession, now: float) -> bool:
        """Store a session as it was told, changed last ``now``; False, and nothing stored, if its name is taken.

        What is told must be sound: ids that follow from content, each once, and nothing that names what is not there.
        """
        ...

    def read_path(self, session_id: str) -> MessagePath:
        """Return the messages on the session's current path, in order, with its version."""
        ...

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
        """Add messages and change the path; return its new version, or None if it is no longer ``version``.

        A message that is known stays as it is. Splices are in order and do not overlap; ids in them are new or known.
        ``arrival`` are edits made when these messages came; one that is known stays as it is, switched off or on.
        Costs O(new messages + spliced), whatever the length of the session.
        """
        ...

    def read_messages(self, session_id: str, ids: Sequence[str] | None = None) -> list[StoredMessage]:
        """Return the messages with these ids, in that order, unknown ones left out; or all of the current path."""
        ...

    def list_messages(self, session_id: str, *, after: int = 0, limit: int = 1_000) -> list[StoredMessage]:
        """Return messages as they arrived, on the path or not, those with a greater ``seq`` than ``after``."""
        ...

    def find_messages(self, session_id: str, digest_prefix: str, *, limit: int = 100) -> list[StoredMessage]:
        """Return messages, on the path or not, whose digest begins so."""
        ...

    def commit(
        self, session_id: str, batch: Batch, *, now: float, events: Sequence[Event] = (), owner: str | None = None
    ) -> bool:
        """Store a compression whole; False, and nothing stored, if what it rests on has changed.

        That is: a message it covers is gone, or forgotten and the batch does not know; the edits active over what it
        covers are not those it expects; or ``owner`` is given and no longer holds the lease.
        """
        ...

    def switch_edits(self, session_id: str, ids: Sequence[str], *, on: bool, now: float, event: Event) -> int:
        """Switch edits on or off, with the event that says why; return how many were not so before."""
        ...

    def read_edits(self, session_id: str, *, active_only: bool = True) -> list[StoredEdit]:
        """Return edits in the order they were made."""
        ...

    def read_batches(self, session_id: str) -> list[StoredBatch]:
        """Return compressions in the order they were committed."""
        ...

    def add_event(self, session_id: str, event: Event) -> int:
        """Log an event; return its id."""
        ...

    def read_events(self, session_id: str | None, *, after: int = 0, limit: int = 1_000) -> list[Event]:
        """Return events with a greater id than ``after``, oldest first; of all sessions if none is named."""
        ...

    def read_facts(self, session_id: str | None, *, limit: int = 10_000) -> list[StoredFact]:
        """Return facts, oldest first; of all sessions if none is named. One that was found again stands once."""
        ...

    def add_usage(self, session_id: str, usage: StoredUsage) -> None: ...

    def read_usage(self, session_id: str, *, limit: int = 1) -> list[StoredUsage]:
        """Return reported usage, newest first."""
        ...

    def acquire_lease(self, session_id: str, owner: str, *, seconds: float, now: float) -> bool:
        """Take or prolong the right to compress a session; False while another owner's has not run out.

        ``seconds`` are at most LEASE_S_MAX: what would run longer was taken before a clock was set back, and is void.
        """
        ...

    def release_lease(self, session_id: str, owner: str) -> None:
        """Give the right back; another owner's is left alone."""
        ...

    def is_leased(self, session_id: str, *, now: float) -> bool:
        """Tell whether anybody has the right to compress a session now: then it is being compressed. A plain read."""
        ...

    def verify(
        self,
        session_id: str | None = None,
        *,
        repair: bool = False,
        digest: Callable[[object], str] | None = None,
    ) -> list[Finding]:
        """Recompute hashes, ids, counts and references of one session or all; ``repair`` rebuilds what is derived.

        ``digest`` recomputes the content hash of a provider's object, for those who know what was volatile in it.
        """
        ...

    def forget(self, session_id: str, ids: Sequence[str], now: float) -> int:
        """Erase the content of messages and of all that was made from them; return how many messages had some.

        Edits that cover them, edits made from those, and the facts of both go, and what events and reasons say in their
        words; all that these say if a message was forgotten before, for its words are not known any more. Hashes stay,
        so the chain verifies.
        The version of the edits changes, so that whoever holds the content in memory or in an index lets go of it.
        """
        ...

    def find_forgotten(self, session_id: str) -> list[str]:
        """Return the ids of the messages whose content was erased, as they arrived."""
        ...

    def close(self) -> None:
        """Close what this thread and process opened. A later call opens it again."""
        ...


class QuickLedger(Ledger, Protocol):
    """A ledger on this machine, whose calls take microseconds: it can be asked where nobody may wait."""

    def extend(self, extensions: Sequence[Extension], *, may_wait: bool = False) -> list[SessionRow | None] | None:
        """Store all of them in one transaction; return the rows then, None for a session that is not as it was seen.

        Of such a session nothing is stored; ``append``, ``add_usage`` and ``update_session`` do the same the long way.
        A message that is known stays as it is. None for all, unless it ``may_wait``, while another writer is at work.
        """
        ...
