"""The port to the durable record: messages, edits, events, facts, usage. Every store keeps this contract.

One call is one transaction: it happens whole or not at all. Messages are only ever added; edits are switched on and
off; nothing but ``forget`` and ``delete_session`` erases. A session's id is any text and never a path. Times are
seconds since 1970, handed in by the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from refold.conversation.edit import Edit, Fact
from refold.conversation.message import Role


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as the ledger keeps it: ``raw`` are the JSON bytes of the provider's object."""

    id: str
    parent: str
    digest: str
    role: Role
    raw: bytes
    tokens: int = 0
    created_at: float = 0.0
    is_compressed: bool = False
    summary_of: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """One compression: edits, facts and summary that are committed together, with what it looked at.

    ``expects`` are the ids of the edits that were active over what it covers; if they differ now, it is refused.
    """

    id: str
    edits: tuple[Edit, ...]
    reason: str
    facts: tuple[Fact, ...] = ()
    expects: tuple[str, ...] = ()
    tokens_before: int = 0
    tokens_after: int = 0
    created_at: float = 0.0


@dataclass(frozen=True, slots=True)
class StoredEdit:
    """An edit with its batch and whether it is in force."""

    edit: Edit
    batch_id: str
    is_active: bool
    created_at: float


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a session: compressed, offloaded, skipped, failed, undone, observed ..."""

    kind: str
    created_at: float
    fields: Mapping[str, object] = field(default_factory=dict)
    id: int = 0


@dataclass(frozen=True, slots=True)
class SessionRow:
    """What the list of sessions shows. All counts can be rebuilt from the rest by ``verify``."""

    id: str
    created_at: float
    updated_at: float
    wire: str = ""
    model: str = ""
    messages: int = 0
    tokens: int = 0
    compression_count: int = 0
    settings: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that ``verify`` found to differ; ``is_derived`` says that ``repair`` can rebuild it."""

    session_id: str
    what: str
    is_derived: bool


class Ledger(Protocol):
    """The durable record. Raises LedgerError for what the operator must mend; loses nothing."""

    def open_session(self, session_id: str, now: float) -> SessionRow: ...
    def read_session(self, session_id: str) -> SessionRow | None: ...
    def list_sessions(self, *, limit: int = 100, offset: int = 0) -> list[SessionRow]: ...
    def update_session(self, session_id: str, changes: Mapping[str, object], now: float) -> None: ...
    def delete_session(self, session_id: str) -> None: ...

    def read_path(self, session_id: str) -> list[tuple[str, str]]:
        """Return (id, digest) of the messages on the session's current path, in order."""
        ...

    def append(
        self, session_id: str, messages: Sequence[StoredMessage], path: Sequence[str], keep: int, now: float
    ) -> None:
        """Add new messages; the current path becomes its first ``keep`` ids followed by ``path``. O(new)."""
        ...

    def read_messages(self, session_id: str, ids: Sequence[str] | None = None) -> list[StoredMessage]:
        """Return messages by id in that order, or all of the current path."""
        ...

    def find_messages(self, session_id: str, digest_prefix: str) -> list[StoredMessage]:
        """Return messages, on the path or not, whose digest begins so."""
        ...

    def commit(self, session_id: str, batch: Batch, events: Sequence[Event], now: float) -> bool:
        """Store a compression whole; False if the edits over what it covers are not those it expects."""
        ...

    def switch_edits(self, session_id: str, ids: Sequence[str], *, on: bool, event: Event, now: float) -> None: ...
    def read_edits(self, session_id: str, *, active_only: bool = True) -> list[StoredEdit]: ...

    def add_event(self, session_id: str, event: Event) -> None: ...
    def read_events(self, session_id: str | None, *, after: int = 0, limit: int = 1_000) -> list[Event]: ...
    def read_facts(self, session_id: str | None) -> list[Fact]: ...

    def acquire_lease(self, session_id: str, owner: str, *, seconds: float, now: float) -> bool:
        """Take the right to compress a session; False while another owner's lease has not run out."""
        ...

    def release_lease(self, session_id: str, owner: str) -> None: ...

    def verify(self, *, repair: bool = False) -> list[Finding]: ...
    def forget(self, session_id: str, ids: Sequence[str], now: float) -> int:
        """Purge the content of messages and of all that was made from them; return how many."""
        ...

    def close(self) -> None: ...
