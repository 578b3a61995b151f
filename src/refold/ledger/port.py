"""The port to the durable record: messages, edits, events, facts, usage; and where a ledger is kept.

Every store implements this contract. Each call is one transaction: it happens whole or not at all. Messages are only
ever added, edits are switched on and off, and only ``forget`` and ``delete_session`` erase anything. A session id is
any text and never a path. Times are seconds since 1970, passed in by the caller.

A change names the state it is based on: ``append`` the version of the path, ``commit`` the active edits. If that state
is no longer current, nothing is written and the caller reads again. A server's address may contain a password, which
only ``LedgerPlace.reveal`` shows, for connecting.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from refold.errors import ConfigError

if TYPE_CHECKING:
    from refold.conversation.view import Edit
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
    """The durable record. Raises LedgerError for problems that the operator must fix, and never loses data.

    Reading a session that does not exist returns nothing; changing one raises SessionNotFound.
    """

    def open_session(self, session_id: str, now: float) -> SessionRow:
        """Return the session; it is made if there is none."""

    def measure(self, prefix: str = "") -> int:
        """Return how many bytes of messages the sessions have whose id begins with ``prefix``."""

    def check_write(self) -> None:
        """Write something that leaves no trace; raise LedgerError if the store cannot be written now."""

    def read_session(self, session_id: str) -> SessionRow | None: ...

    def list_sessions(self, *, limit: int = 100, offset: int = 0, prefix: str = "") -> list[SessionRow]:
        """Return sessions whose id begins with an ASCII ``prefix``, the last changed first, at a cost per match."""

    def update_session(self, session_id: str, changes: Mapping[str, object], now: float) -> None:
        """Set ``wire``, ``model`` or, key by key, ``settings`` (a mapping; None removes a key)."""

    def change_setting(self, session_id: str, name: str, change: Callable[[Any], object], now: float) -> bool:
        """Replace a setting by what ``change`` makes of it, in one transaction; False if there is no such session.

        ``change`` gets None where there is no such setting. It may be called again if the transaction fails.
        """

    def delete_session(self, session_id: str) -> bool:
        """Delete a session and everything that belongs to it; False if there is none."""

    def read_whole(self, session_id: str) -> WholeSession | None:
        """Return all of a session in one snapshot; None if there is none."""

    def put_whole(self, whole: WholeSession, now: float) -> bool:
        """Store a whole session with ``now`` as its last change; False, and nothing stored, if its id is taken.

        The caller must have validated it: ids follow from content, each is unique, and every reference resolves.
        """

    def read_path(self, session_id: str) -> MessagePath:
        """Return the messages on the session's current path, in order, with its version."""

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

    def read_messages(self, session_id: str, ids: Sequence[str] | None = None) -> list[StoredMessage]:
        """Return the messages with these ids, in that order and without unknown ones; or the whole current path."""

    def list_messages(self, session_id: str, *, after: int = 0, limit: int = 1_000) -> list[StoredMessage]:
        """Return messages with a ``seq`` above ``after`` in the order of arrival, on the path or not."""

    def find_messages(self, session_id: str, digest_prefix: str, *, limit: int = 100) -> list[StoredMessage]:
        """Return messages, on the path or not, whose digest begins with these hex digits."""

    def commit(
        self, session_id: str, batch: Batch, *, now: float, events: Sequence[Event] = (), owner: str | None = None
    ) -> bool:
        """Store a batch whole; False, and nothing stored, if what it was based on has changed.

        That is the case if a covered message is missing, or was forgotten without the batch knowing; if the active
        edits over the covered messages are not those it expects; or if ``owner`` is given and has lost the lease.
        """

    def switch_edits(self, session_id: str, ids: Sequence[str], *, on: bool, now: float, event: Event) -> int:
        """Switch edits on or off and log the event that says why; return how many changed."""

    def read_edits(self, session_id: str, *, active_only: bool = True) -> list[StoredEdit]:
        """Return edits in the order they were made."""

    def read_summaries(self, session_id: str) -> list[tuple[str, str]]:
        """Return handle and summary of every active fold, in the order they were made."""

    def read_batches(self, session_id: str) -> list[StoredBatch]:
        """Return batches in the order they were committed."""

    def add_event(self, session_id: str, event: Event) -> int:
        """Log an event; return its id."""

    def read_events(self, session_id: str | None, *, after: int = 0, limit: int = 1_000) -> list[Event]:
        """Return events with an id above ``after``, oldest first; of all sessions if the id is None."""

    def read_newest_events(self, session_id: str | None, *, limit: int = 1) -> list[Event]:
        """Return the last events, newest first; of all sessions if the id is None."""

    def read_facts(self, session_id: str | None, *, limit: int = 10_000) -> list[StoredFact]:
        """Return facts, oldest first; of all sessions if the id is None. A fact found twice is listed once."""

    def add_usage(self, session_id: str, usage: StoredUsage) -> None: ...

    def read_usage(self, session_id: str, *, limit: int = 1) -> list[StoredUsage]:
        """Return reported usage, newest first."""

    def acquire_lease(self, session_id: str, owner: str, *, seconds: float, now: float) -> bool:
        """Take or extend the lease, the right to compress a session; False while another owner's has not expired.

        ``seconds`` is at most LEASE_S_MAX. A stored lease with more time left was taken before the clock was set back;
        it is void.
        """

    def release_lease(self, session_id: str, owner: str) -> None:
        """Release the lease if this owner has it."""

    def is_leased(self, session_id: str, *, now: float) -> bool:
        """Return whether any owner has the lease now, which means that the session is being compressed."""

    def verify(
        self, session_id: str | None = None, *, repair: bool = False, digest: Callable[[object], str] | None = None
    ) -> list[Finding]:
        """Recompute hashes, ids, counts and references of one session or all; ``repair`` rebuilds what is derived.

        ``digest`` recomputes the content hash of a provider's object.
        """

    def forget(self, session_id: str, ids: Sequence[str], now: float) -> int:
        """Erase the content of messages and everything made from it, and log that; return how many had content.

        This deletes the edits that cover the messages, edits made from those, and the facts of both, and it removes the
        words of the messages from events and reasons. If a message was forgotten before, its words are unknown, so all
        sentences of the session's events and reasons go. Hashes stay, so the chain still verifies. The version of the
        edits changes, so that every process drops the content from its memory and its index.
        """

    def erase_edits(self, session_id: str, ids: Sequence[str], now: float) -> int:
        """Delete edits and what was made from them, and log that; return how many went. The covered messages stay."""

    def find_forgotten(self, session_id: str) -> list[str]:
        """Return the ids of the messages whose content was erased, in the order of arrival."""

    def extend(self, extensions: Sequence[Extension], *, may_wait: bool = False) -> list[SessionRow | None] | None:
        """Store all extensions in one transaction; return the new rows, with None for a session that has changed.

        Nothing of such a session is stored; use ``append``, ``add_usage`` and ``update_session`` instead. Known
        messages stay as they are. An event loop may call this without ``may_wait``: it then returns None, with nothing
        stored, if it would have to wait for another writer or for a server.
        """

    def close(self) -> None:
        """Close what this thread and process opened. A later call opens it again."""


_PAGE = 1_000


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


LEDGER_FILE = ".refold/ledger.db"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_SERVER = frozenset({"postgresql", "postgres"})
_SECRET = re.compile(r"(?i)(password|sslpassword|sslkey)=[^&]*")
_HOW = "give a file, or postgresql://user:password@host:5432/database"


class LedgerPlace:
    """The location of a ledger as the user wrote it. Printing it never shows a password."""

    __slots__ = ("_written",)

    def __init__(self, written: object) -> None:
        self._written: str = _check(written.reveal() if isinstance(written, LedgerPlace) else written)

    @property
    def kind(self) -> Literal["file", "postgres"]:
        """The kind of store."""
        return "postgres" if _SCHEME.match(self._written) else "file"

    def reveal(self) -> str:
        """Return the whole address with its password, for connecting only."""
        return self._written

    def __str__(self) -> str:
        return redact_address(self._written)

    def __repr__(self) -> str:
        return f"LedgerPlace({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LedgerPlace) and other._written == self._written

    def __hash__(self) -> int:
        return hash(self._written)


def redact_address(address: str) -> str:
    """Return an address with its password redacted."""
    scheme = _SCHEME.match(address)
    if scheme is None:
        return address
    rest, mark, query = address[scheme.end() :].partition("?")
    who, at, where = rest.rpartition("@")
    user, colon, _ = who.partition(":")
    shown = f"{user}:***" if colon else user
    hidden = _SECRET.sub(r"\1=***", query)
    return f"{scheme[0]}{shown}{at}{where}{mark}{hidden}"


def _check(written: object) -> str:
    # The errors below quote nothing of the text: a password may be anywhere in it.
    if not isinstance(written, str) or not written.strip() or "\0" in written:
        raise ConfigError("ledger must be a non-empty text; {how}", how=_HOW)
    text = written.strip()
    scheme = _SCHEME.match(text)
    if scheme is None:
        return text
    if scheme[1].lower() not in _SERVER:
        raise ConfigError("ledger: unknown kind of store '{scheme}'; {how}", scheme=scheme[1][:20], how=_HOW)
    authority = text[scheme.end() :].partition("?")[0]
    if authority.count("@") > 1 or "#" in text or re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise ConfigError("ledger: the address cannot be parsed; write @ : / ? # % in a password as %40 %3A …")
    return text


def choose_ledger(workspace: str | Path, place: LedgerPlace | str | None = None) -> Ledger:
    """Return the ledger at a place, by default the file ``.refold/ledger.db`` of the workspace."""
    found = LedgerPlace(place) if isinstance(place, str) else place
    if found is not None and found.kind == "postgres":
        return _open_postgres(found)
    from refold.ledger.sqlite import SqliteLedger

    return SqliteLedger(find_file(workspace, found))


def _open_postgres(place: LedgerPlace) -> Ledger:
    try:
        from refold.ledger.postgres import PostgresLedger
    except ImportError as error:
        if (error.name or "").startswith("refold"):
            raise
        raise ConfigError(
            "ledger = {place} needs psycopg ({error}); install it with: pip install 'refold[postgres]'",
            place=place,
            error=error,
        ) from None
    return PostgresLedger(place)


def find_file(workspace: str | Path, place: LedgerPlace | None = None) -> Path:
    """Return the path of a ledger's file; a relative path starts at the workspace."""
    if place is None or place.kind != "file":
        return Path(workspace) / LEDGER_FILE
    return Path(workspace) / Path(place.reveal()).expanduser()


def find_place(ledger: Ledger, place: LedgerPlace | None) -> LedgerPlace | None:
    """Return where a ledger is kept: its own ``place``, otherwise the one of the settings."""
    own = getattr(ledger, "place", None)
    return own if isinstance(own, LedgerPlace) else place


def find_index_file(workspace: str | Path, place: LedgerPlace | None = None) -> Path:
    """Return the path of a ledger's search index: beside its file, or one per server in the workspace."""
    if place is None or place.kind == "file":
        return index_path(find_file(workspace, place))
    name = blake2b(str(place).encode("utf-8", "replace"), digest_size=4).hexdigest()
    return (Path(workspace) / LEDGER_FILE).with_name(f"postgres-{name}.recall.db")


def index_path(ledger_path: str | os.PathLike[str]) -> Path:
    """Return the path of the index beside a ledger's file."""
    path = Path(ledger_path)
    return path.with_name(f"{path.stem}.recall{path.suffix or '.db'}")
