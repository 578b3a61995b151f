"""Whose conversation a request continues, for clients that say nothing but the whole history each time.

The longest known prefix of the same tenant and wire decides, by content hashes. A request that goes on from all that
is known continues the session. One that leaves it on the way (an edited question, a retry from further back) takes the
session along only if nobody is using it; else it gets a session of its own, as does whatever merely begins alike. No
choice made here can corrupt a session: the manager aligns every history by content, and shows each request its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress

from refold.conversation.edit import Edit
from refold.errors import FormatError
from refold.ledger.align import count_common
from refold.manager.usage import ReportedUsage
from refold.server.origin import Origin
from refold.server.reading import ReadRequest

NOWHERE = Origin()
NAME_CHARS_MAX = 128
CANDIDATES_MAX = 64
TENANT_MARK = "@"
# A client that trims its oldest messages itself is known by the replies it still has: so many, and this share of them.
REPLIES_MIN, REPLIES_SHARE = 2, 0.6
REPLIES_KEPT = 200_000


@dataclass(slots=True, eq=False)
class KnownSession:
    """What the gateway holds of a session, so that it can tell who continues it.

    ``client`` is the program that it belongs to, ``conversation`` that program's own id of it, and ``parent`` the
    session that it was begun from. ``folded_tokens`` is the size of the last view that was accepted if edits made it
    smaller, else 0; ``spare_edits`` are those made in memory because the ledger failed.
    """

    id: str
    tenant: str
    wire: str
    digests: tuple[str, ...] = ()
    system_digest: str = ""
    in_flight: int = 0
    generation: int = 0
    is_stored: bool = False
    synced: tuple[str, ...] = ()
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    reports: set[asyncio.Task[None]] = field(default_factory=set)
    due: list[ReportedUsage] = field(default_factory=list)
    client: str = ""
    conversation: str = ""
    parent: str = ""
    folded_tokens: int = 0
    spare_edits: Sequence[Edit] = ()

    @property
    def name(self) -> str:
        """The session's name as its tenant knows it."""
        return name_session(self.tenant, self.id)


def make_id(tenant: str, name: str) -> str:
    """Return a session's id in the ledger: no name that a client gives reaches another tenant's sessions."""
    return f"{TENANT_MARK}{tenant}/{name}" if tenant else name


def name_session(tenant: str, session_id: str) -> str:
    """Return a session's name as its tenant knows it."""
    return session_id.removeprefix(f"{TENANT_MARK}{tenant}/") if tenant else session_id


def name_alike(request: ReadRequest) -> str:
    """Return how the names begin of all sessions that began as a request does: other processes find them by that."""
    start = hashlib.blake2b(f"{request.wire.name} {request.digests[0]}".encode(), digest_size=5)
    return f"g-{start.hexdigest()}-"


def belongs_to(tenant: str, session_id: str) -> bool:
    """Tell whether a session is this tenant's; where there are no tenants, all are the operator's."""
    return session_id.startswith(f"{TENANT_MARK}{tenant}/") if tenant else True


def check_name(name: str) -> str:
    """Return a session's name that a client gave; FormatError if it is none."""
    if not 1 <= len(name) <= NAME_CHARS_MAX or not name.isascii() or not name.isprintable():
        raise FormatError(f"a session's name is 1 to {NAME_CHARS_MAX} printable ASCII characters")
    if name.startswith(TENANT_MARK):
        raise FormatError(f"a session's name does not begin with {TENANT_MARK!r}")
    return name


class Identities:
    """The sessions that requests may continue, the least recently used forgotten first. For one event loop."""

    def __init__(self, sessions_max: int = 2_000) -> None:
        self._sessions_max = sessions_max
        self._known: OrderedDict[str, KnownSession] = OrderedDict()
        self._starts: dict[tuple[str, str, str], dict[str, KnownSession]] = {}
        self._replies: OrderedDict[tuple[str, str], KnownSession] = OrderedDict()
        self._roots: OrderedDict[tuple[str, str], str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def choose_named(self, tenant: str, name: str, request: ReadRequest, origin: Origin = NOWHERE) -> KnownSession:
        """Return the session that a client names."""
        session_id = make_id(tenant, check_name(name))
        known = self._known.get(session_id) or KnownSession(session_id, tenant, request.wire.name, client=origin.client)
        self._continue(known, request)
        return known

    def choose(self, tenant: str, request: ReadRequest, origin: Origin = NOWHERE) -> KnownSession:
        """Return the session that a request continues, a new one if it continues none.

        A new one of a conversation that is known (a sub-agent, or what the client made of it) gets that as its parent.
        """
        known = self.find(tenant, request, origin)
        if known is None:
            name = f"{name_alike(request)}{uuid.uuid4().hex[:12]}"
            known = KnownSession(make_id(tenant, name), tenant, request.wire.name, client=origin.client)
            known.parent = self._roots.get((tenant, origin.conversation), "") if origin.conversation else ""
        if origin.conversation:
            known.conversation = origin.conversation
            self._note_root(known)
        self._continue(known, request)
        return known

    def find(self, tenant: str, request: ReadRequest, origin: Origin = NOWHERE) -> KnownSession | None:
        """Return the session that a request continues, if it is known here.

        A client that names its conversation continues that. Only one that was never heard of (a client that resumed)
        continues another, and only if the model's answers are in it.
        """
        wanted = origin.conversation
        if wanted and (tenant, wanted) in self._roots:
            return self._find_prefix(tenant, request, wanted) or self._find_replies(tenant, request, wanted)
        if wanted and not any(request.replies):
            return None
        return self._find_prefix(tenant, request) or self._find_replies(tenant, request)

    def go_on(self, known: KnownSession, request: ReadRequest, since: int) -> None:
        """Take in that a request goes on with a session, its first ``since`` messages being all that was known."""
        self._continue(known, request, since)

    def add(self, known: KnownSession) -> None:
        """Make a stored session known again, also to a client that trims its oldest messages."""
        if known.id not in self._known and known.digests:
            self._enter(known)
            self._note_root(known)
            # Which of them are replies is not stored; only replies of a request are looked up.
            self._note_replies(known, known.digests)

    def forget(self, session_id: str) -> None:
        """Forget a session that is no longer there."""
        known = self._known.pop(session_id, None)
        if known is not None:
            self._leave_start(known)

    def _note_root(self, known: KnownSession) -> None:
        if known.conversation:
            self._roots.setdefault((known.tenant, known.conversation), known.parent or known.id)
            while len(self._roots) > self._sessions_max * 2:
                self._roots.popitem(last=False)

    def _find_prefix(self, tenant: str, request: ReadRequest, conversation: str = "") -> KnownSession | None:
        starts = self._starts.get((tenant, request.wire.name, request.digests[0]), {})
        best: KnownSession | None = None
        best_rank = (False, 0)
        candidates = [one for one in starts.values() if not conversation or one.conversation == conversation]
        for known in candidates[-CANDIDATES_MAX:]:
            common = count_common(known.digests, request.digests)
            rank = (common == len(known.digests), common)
            if rank >= best_rank and continues(known, request, common):
                best, best_rank = known, rank
        return best

    def _find_replies(self, tenant: str, request: ReadRequest, conversation: str = "") -> KnownSession | None:
        replies = [digest for digest, is_reply in zip(request.digests, request.replies, strict=True) if is_reply]
        if len(replies) < REPLIES_MIN:
            return None
        votes: dict[str, int] = {}
        for digest in replies:
            known = self._replies.get((tenant, digest))
            if known is not None and known.wire == request.wire.name and known.id in self._known:
                votes[known.id] = votes.get(known.id, 0) + 1
        if not votes:
            return None
        chosen, count_found = max(votes.items(), key=lambda vote: vote[1])
        known = self._known[chosen]
        if conversation and known.conversation != conversation:
            return None
        if known.in_flight or count_found < max(REPLIES_MIN, REPLIES_SHARE * len(replies)):
            return None
        # What begins as the session does was looked at already, and was found to be another conversation.
        return None if known.digests[0] == request.digests[0] else known

    def _continue(self, known: KnownSession, request: ReadRequest, since: int | None = None) -> None:
        if known.digests and known.digests[0] != request.digests[0]:
            self._leave_start(known)
        new = count_common(known.digests, request.digests) if since is None else since
        known.digests = request.digests
        known.system_digest = request.system_digest
        self._note_replies(known, compress(request.digests[new:], request.replies[new:]))
        self._enter(known)

    def _note_replies(self, known: KnownSession, digests: Iterable[str]) -> None:
        for digest in digests:
            self._replies[known.tenant, digest] = known
        while len(self._replies) > REPLIES_KEPT:
            self._replies.popitem(last=False)

    def _enter(self, known: KnownSession) -> None:
        self._known[known.id] = known
        self._known.move_to_end(known.id)
        starts = self._starts.setdefault(_start_of(known), {})
        starts.pop(known.id, None)
        starts[known.id] = known  # The last used stands last.
        spare = len(self._known) - self._sessions_max
        if spare > 0:
            idle = [one.id for one in list(self._known.values())[:-1] if not one.in_flight]
            for session_id in idle[:spare]:
                self.forget(session_id)

    def _leave_start(self, known: KnownSession) -> None:
        if known.digests:
            starts = self._starts.get(_start_of(known), {})
            starts.pop(known.id, None)
            if not starts:
                self._starts.pop(_start_of(known), None)


def _start_of(known: KnownSession) -> tuple[str, str, str]:
    return known.tenant, known.wire, known.digests[0]


def continues(known: KnownSession, request: ReadRequest, common: int) -> bool:
    """Tell whether a request that has so much in common with a session goes on with it."""
    is_dialog = any(request.replies[:common])
    if common == len(known.digests):
        # Before the model has answered, only the system prompt tells two conversations from each other.
        return is_dialog or known.system_digest in ("", request.system_digest)
    return is_dialog and not known.in_flight and common * 2 >= len(known.digests)
