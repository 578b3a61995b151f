"""The values of the durable record: messages, paths, edits, batches, facts, events, usage, sessions.

Every store writes them and reads them back equal. Times are seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from refold.conversation.message import Format, Role, frozen
from refold.conversation.reason import Reason
from refold.conversation.view import Edit, Fact
from refold.errors import FormatError
from refold.formats import make_format

SESSION_ID_MAX = 256
# The longest lease. One with more time left was taken before the clock was set back, and is void.
LEASE_S_MAX = 900.0


@frozen
class StoredMessage:
    """A message as the ledger keeps it: ``raw`` are the JSON bytes of the provider's object.

    The store sets ``seq``: it numbers a session's messages in the order of arrival, from 1. ``is_compressed`` is true
    while a fold in force replaces the message. A forgotten message keeps its place and hashes; its ``raw`` is empty.
    """

    id: str
    parent: str
    digest: str
    role: Role
    raw: bytes
    tokens: int = 0
    created_at: float = 0.0
    is_compressed: bool = False
    is_forgotten: bool = False
    seq: int = 0


@dataclass(frozen=True, slots=True)
class MessagePath:
    """The messages of a session's current path, in order, and the version of that path."""

    ids: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    version: int = 0


@dataclass(frozen=True, slots=True)
class Splice:
    """A change of the path: ``ids`` replace the messages from ``start`` to ``stop``, counted before any change."""

    start: int
    stop: int
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """One compression: edits, facts and summary that are committed together, with the state they are based on.

    ``expects`` are the ids of the edits that were active over the covered messages; if they differ now, the batch is
    refused. ``forgotten`` are the covered messages whose content had been erased before.
    """

    id: str
    edits: tuple[Edit, ...]
    reason: Reason
    facts: tuple[Fact, ...] = ()
    expects: tuple[str, ...] = ()
    tokens_before: int = 0
    tokens_after: int = 0
    created_at: float = 0.0
    forgotten: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredEdit:
    """An edit with its batch (empty for one made on arrival) and whether it is in force."""

    edit: Edit
    batch_id: str
    is_active: bool
    created_at: float


@dataclass(frozen=True, slots=True)
class ContextSummary:
    """A summary with the turns it covers. ``timestamp`` is in milliseconds since 1970.

    ``is_active``: not undone; ``is_in_force``: nor taken in by a newer summary.
    """

    timestamp: int
    turn_range: tuple[int, int]
    content: str
    key_points: tuple[str, ...] = ()
    id: str = ""
    handle: str = ""
    is_active: bool = True
    is_in_force: bool = True

    def to_dict(self) -> dict[str, object]:
        """Return the summary as it is in ``summaries.json``."""
        return {
            "timestamp": self.timestamp,
            "turnRange": list(self.turn_range),
            "content": self.content,
            "keyPoints": list(self.key_points),
            "id": self.id,
            "inForce": self.is_in_force,
        }


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A committed batch; it is active while any of its edits is."""

    id: str
    reason: Reason
    tokens_before: int
    tokens_after: int
    created_at: float
    edits: tuple[str, ...]
    is_active: bool


@dataclass(frozen=True, slots=True)
class StoredFact:
    """A fact with the session and the batch it comes from."""

    fact: Fact
    session_id: str
    batch_id: str
    created_at: float


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a session's log, by ``kind``; ``forget`` removes what its ``fields``, plain JSON, quote."""

    kind: str
    created_at: float
    fields: Mapping[str, object] = field(default_factory=dict)
    id: int = 0
    session_id: str = ""


@frozen
class StoredUsage:
    """The usage a provider reported for one request, our own count, and the state of the session at that time."""

    created_at: float
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    counted_tokens: int = 0
    path_length: int = 0
    edits_version: int = 0


@frozen
class SessionRow:
    """A session as lists show it. ``verify`` can rebuild the counts from the other tables.

    ``messages`` and ``tokens`` are those of the current path; ``compression_count`` counts committed batches.
    """

    id: str
    created_at: float
    updated_at: float
    wire: str = ""
    model: str = ""
    messages: int = 0
    tokens: int = 0
    compression_count: int = 0
    path_version: int = 0
    edits_version: int = 0
    settings: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference that ``verify`` found; ``repair`` can rebuild it if it is derived."""

    session_id: str
    what: str
    is_derived: bool


@frozen
class Extension:
    """One more request of a session as it was ``seen``: new messages, usage of the previous one, changed settings."""

    seen: SessionRow
    messages: Sequence[StoredMessage]
    now: float
    usages: Sequence[StoredUsage] = ()
    settings: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WholeSession:
    """A snapshot of a whole session, for export and import.

    Messages, events, facts and usage are in the order of arrival, edits and batches in the order they were made. Leases
    are left out, because they mean nothing elsewhere; counts follow from the rest.
    """

    row: SessionRow
    messages: tuple[StoredMessage, ...] = ()
    path: tuple[str, ...] = ()
    edits: tuple[StoredEdit, ...] = ()
    batches: tuple[StoredBatch, ...] = ()
    facts: tuple[StoredFact, ...] = ()
    events: tuple[Event, ...] = ()
    usages: tuple[StoredUsage, ...] = ()


def add_descendants(ids: Iterable[str], made_from: Mapping[str, Collection[str]]) -> set[str]:
    """Return these edits and all that were made from them; ``made_from`` has the sources of every edit, by id."""
    found = set(ids)
    while more := {one for one, sources in made_from.items() if one not in found and not found.isdisjoint(sources)}:
        found |= more
    return found


def check_id(session_id: str) -> None:
    """Raise FormatError if a session id is empty or too long. Any other text is valid."""
    if not 1 <= len(session_id) <= SESSION_ID_MAX:
        raise FormatError(
            "a session id has 1 to {session_id_max} characters, this one has {count}",
            session_id_max=SESSION_ID_MAX,
            count=len(session_id),
        )


def merge_settings(settings: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """Return settings with some of them changed; None removes one."""
    merged = {**settings, **changes}
    return {name: value for name, value in merged.items() if value is not None} if None in merged.values() else merged


def extend_row(row: SessionRow, extension: Extension, tokens: int | None = None) -> SessionRow:
    """Return the row after one more request, which adds ``tokens`` to the path, by default those of its messages."""
    messages = extension.messages
    if tokens is None:
        tokens = sum(message.tokens for message in messages)
    return SessionRow(
        row.id,
        row.created_at,
        extension.now,
        row.wire,
        row.model,
        row.messages + len(messages),
        row.tokens + tokens,
        row.compression_count,
        row.path_version + bool(messages),
        row.edits_version,
        merge_settings(row.settings, extension.settings) if extension.settings else row.settings,
    )


def format_of(row: SessionRow) -> Format:
    """Return the wire format of a session; OpenAI chat for a session that has none yet."""
    return make_format(row.wire or "openai-chat")


SWITCH = "auto"  # False in a session whose automatic compression was switched off.
_read_state = attrgetter("path_version", "edits_version", "wire", "model")


def is_as_seen(row: SessionRow, seen: SessionRow) -> bool:
    """Return whether messages, edits, format, model and the switch are unchanged since ``seen`` was read."""
    is_switched = row.settings.get(SWITCH) != seen.settings.get(SWITCH)
    return not is_switched and _read_state(row) == _read_state(seen)
