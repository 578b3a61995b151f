"""Which session a request continues, for clients that only resend the whole history.

Coding agents name their conversation in a header or in the body (``Origin``). Otherwise the longest known prefix of the
same tenant and wire decides, by content hashes. A request that diverges (an edited question, a retry from further back)
takes the session over only if nobody is using it; otherwise it gets its own. A wrong choice cannot corrupt a session:
the manager aligns every history by content. What identifies a session is stored in the ledger, for other processes.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import time
import unicodedata
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, compress, pairwise
from typing import Any
from urllib.parse import unquote

from refold.conversation.message import frozen
from refold.conversation.turn import count_common
from refold.conversation.view import Edit
from refold.errors import FormatError, RefoldError
from refold.ledger.sql.ledger import Ledger
from refold.llm.choose import GATEWAY
from refold.manager.usage import ReportedUsage
from refold.recall.family import APART
from refold.server.auth import TENANT_MARK, find_tenant, make_id, name_session
from refold.server.body import ReadRequest
from refold.server.request import Asked

log = logging.getLogger("refold.server")
ID_CHARS_MAX = 200
# Headers that name a conversation, by priority: Claude Code, Codex, opencode.
CONVERSATION_HEADERS = b"x-claude-code-session-id thread-id session-id session_id x-session-id conversation-id".split()
# Headers that name the conversation that began this one: Codex, opencode; a thread of Codex is part of a session.
_PARENT_HEADERS = (b"x-codex-parent-thread-id", b"x-parent-session-id", b"session-id")
_NAMES = {
    "claude-cli": "claude-code",
    "codex": "codex",
    "opencode": "opencode",
    "qwencode": "qwen-code",
    "aider": "aider",
    "litellm": "litellm",
}
_AGENT = re.compile(r"[A-Za-z][\w.-]{0,39}")
_OLD_CLAUDE = re.compile(r"_session_([0-9a-fA-F-]{8,64})$")
NAME_CHARS_MAX = 128
CANDIDATES_MAX = 64
# A client that trims its history is recognised by what is left: so many replies, and this share of its messages.
REPLIES_MIN, KEPT_SHARE = 2, 0.6
# Codex asks for titles in conversations of their own, which quote a person's words below this line.
_TITLE, _QUOTED_BELOW, WORDS_CHARS = '"thread_source":"thread_title"', "User prompt:\n", 200
_ORIGIN = ("client", "conversation", "parent")


@frozen
class Origin:
    """A client program's name, its own id of the conversation, and that of the one it began in; empty if unknown.

    ``is_title``: the conversation only asks for the title of another one, whose id is not stated.
    """

    client: str = ""
    conversation: str = ""
    parent: str = ""
    is_title: bool = False


def find_origin(asked: Asked) -> Origin:
    """Return the origin that a request's headers state."""
    client = _name_client(asked.header("user-agent"))
    conversation = _find_first(asked, CONVERSATION_HEADERS)
    if not conversation:
        return Origin(client)
    if agent := asked.header("x-claude-code-agent-id"):
        # Sub-agents of Claude Code send the session's id and their own.
        above = asked.header("x-claude-code-parent-agent-id")
        parent = _join_ids(conversation, above) if above else conversation
        return Origin(client, _join_ids(conversation, agent), parent)
    parent = _find_first(asked, _PARENT_HEADERS)
    is_title = _TITLE in asked.header("x-codex-turn-metadata")
    return Origin(client, conversation, parent if parent != conversation else "", is_title)


def _find_first(asked: Asked, names: Sequence[bytes]) -> str:
    """Return the first of these headers that has a value; empty if none has."""
    given = dict(reversed(asked.headers))  # Of several with one name, the first comes last.
    found = next((value for name in names if (value := given.get(name, b"").strip())), b"")
    return found.decode("latin-1")[:ID_CHARS_MAX]


def _read_words(request: ReadRequest) -> str:
    """Return the beginning of a person's words if the newest message of Codex has them."""
    newest = request.messages[-1] if request.messages else None
    content = newest.get("content") if isinstance(newest, dict) and newest.get("role") == "user" else None
    part = content[-1] if isinstance(content, list) and content else {"text": content}
    text = part.get("text") if isinstance(part, dict) else None
    return text.rpartition(_QUOTED_BELOW)[2].strip()[:WORDS_CHARS] if isinstance(text, str) else ""


def _join_ids(conversation: str, agent: str) -> str:
    return f"{conversation[: ID_CHARS_MAX // 2]}/{agent[: ID_CHARS_MAX // 2]}"


def read_conversation(body: Mapping[str, Any], client: str = "") -> str:
    """Return the conversation id in a body: Claude Code puts it in ``metadata``, Codex in ``prompt_cache_key``."""
    key = body.get("prompt_cache_key")
    if client == "codex" and isinstance(key, str):
        return key[:ID_CHARS_MAX]
    metadata = body.get("metadata")
    given = metadata.get("user_id") if isinstance(metadata, dict) else None
    if not isinstance(given, str):
        return ""
    if given.startswith("{"):
        try:
            found = json.loads(given).get("session_id")
        except (ValueError, AttributeError, RecursionError):
            return ""
        return found[:ID_CHARS_MAX] if isinstance(found, str) else ""
    old = _OLD_CLAUDE.search(given)
    return old[1] if old else ""


def find_provider_conversation(body: Mapping[str, Any]) -> str:
    """Return the id of the conversation object at the provider that a Responses request continues."""
    given = body.get("conversation")
    found = given.get("id") if isinstance(given, dict) else given
    return found[:ID_CHARS_MAX] if isinstance(found, str) else ""


def name_provided(conversation: str) -> str:
    """Return the session name for a provider's conversation: the conversation's id, if that is a valid name."""
    try:
        return check_name(conversation)
    except FormatError:
        return f"conv-{hashlib.blake2b(conversation.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"


@lru_cache(maxsize=256)
def _name_client(agent: str) -> str:
    """Return a program's name from its User-Agent: the part before the version."""
    found = _AGENT.match(agent)
    if found is None:
        return ""
    name = found[0].lower()
    return next((short for start, short in _NAMES.items() if name.startswith(start)), name)


NOWHERE = Origin()


@dataclass(slots=True, weakref_slot=True, eq=False)
class KnownSession:
    """State of a session in the gateway.

    ``client`` is the program that it belongs to, ``conversation`` that program's own id, and ``parent`` the session
    that it branched from. ``is_aside``: no request had tools yet, so it may only be a question for a title.
    ``is_twice``: its first request came twice, so what diverges may be another person's.
    ``folded_tokens`` is the size of the last accepted view if edits made it smaller; ``spare_edits`` were made in
    memory as the ledger failed.
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
    is_aside: bool = False
    is_twice: bool = False
    folded_tokens: int = 0
    spare_edits: Sequence[Edit] = ()

    @property
    def name(self) -> str:
        """The session's name as its tenant knows it."""
        return name_session(self.tenant, self.id)


def name_alike(request: ReadRequest) -> str:
    """Return the name prefix of all sessions with the same first message; other processes find them by it."""
    start = hashlib.blake2b(f"{request.wire.name} {request.digests[0]}".encode(), digest_size=5)
    return f"g-{start.hexdigest()}-"


def read_name(asked: Asked, default: str = "") -> str:
    """Return the session name in a request's header, or the default; raise FormatError if it is invalid.

    Letters beyond ASCII may come as UTF-8, as Latin-1 or percent-encoded. In a name of ASCII letters ``%`` means
    itself.
    """
    stated = asked.header("x-refold-session") or default
    try:
        text = stated.encode("latin-1").decode()
        spelled = unquote(text, errors="strict")
        stated = spelled if text.isascii() and not spelled.isascii() else text
    except UnicodeError:
        pass  # Latin-1, a default with other letters, or a % that escapes nothing.
    return check_name(stated) if stated else ""


def check_name(name: str) -> str:
    """Return a session name from a client, normalised; raise FormatError if it is invalid."""
    # Two spellings of one letter (é as one character or as two) look alike: they name the same session.
    known = unicodedata.normalize("NFC", name)
    if not 1 <= len(known) <= NAME_CHARS_MAX or not known.isprintable():
        raise FormatError(f"a session's name is 1 to {NAME_CHARS_MAX} printable characters")
    if known.startswith(TENANT_MARK):
        raise FormatError(f"a session's name does not begin with {TENANT_MARK!r}")
    return known


_Index = dict[tuple[str, str, str], dict[str, KnownSession]]


class Identities:
    """Sessions that requests may continue, in an LRU cache. For one event loop."""

    def __init__(self, sessions_max: int = 2_000) -> None:
        self._sessions_max = sessions_max
        self._known: OrderedDict[str, KnownSession] = OrderedDict()
        self._starts: _Index = {}
        self._ends: _Index = {}
        self._roots: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._moved: list[KnownSession] = []
        # Words of people that Codex sent: the session they were said in, and one that asks for a title for them.
        self._said: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._titles: OrderedDict[tuple[str, str], str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def choose_named(
        self, tenant: str, name: str, request: ReadRequest, origin: Origin = NOWHERE, stored_wire: str = ""
    ) -> KnownSession:
        """Return the session that a client names; each wire format has its own, with the format in its name."""
        session_id = make_id(tenant, check_name(name))
        known, wire = self._known.get(session_id), request.wire.name
        if (known.wire if known is not None else stored_wire or wire) != wire:
            session_id = f"{session_id}.{wire}"
            known = self._known.get(session_id)
        known = known or KnownSession(session_id, tenant, wire, client=origin.client)
        self.go_on(known, request)
        return known

    async def look_up(
        self, ledger: Ledger, tenant: str, request: ReadRequest, *, named: str, origin: Origin
    ) -> KnownSession:
        """Return the session that a request names or continues, from memory or from the ledger, or a new one."""
        stored_wire = ""
        try:
            if named:
                session_id = make_id(tenant, named)
                is_known = session_id in self._known
                row = None if is_known else await asyncio.to_thread(ledger.read_session, session_id)
                stored_wire = row.wire if row is not None else ""
            # A request without a reply usually starts a new conversation; if it does not, nothing is lost.
            elif any(request.replies) and self.find(tenant, request, origin) is None:
                # Load sessions with the same first message, from any process.
                await self.load(ledger, CANDIDATES_MAX, make_id(tenant, name_alike(request)))
        except RefoldError as error:
            log.warning("sessions could not be looked up", extra={"fields": {"error": type(error).__name__}})
        if named:
            return self.choose_named(tenant, named, request, origin, stored_wire)
        return self.choose(tenant, request, origin)

    async def load(self, ledger: Ledger, limit: int, prefix: str = "") -> None:
        """Load the sessions that changed last, those whose ids have this prefix."""
        for one in await asyncio.to_thread(read_known, ledger, limit, prefix):
            self.add(one)

    def choose(self, tenant: str, request: ReadRequest, origin: Origin = NOWHERE) -> KnownSession:
        """Return the session that a request continues, or a new one, a child of the conversation's first session."""
        known = self.find(tenant, request, origin)
        if known is None:
            name = f"{name_alike(request)}{uuid.uuid4().hex[:12]}"
            known = KnownSession(make_id(tenant, name), tenant, request.wire.name, client=origin.client, is_aside=True)
            alike = self._starts.get((tenant, known.wire, request.digests[0]), {})
            known.is_twice = not origin.conversation and any(one.is_twice for one in alike.values())
            self._join_family(known, request, origin)
        if origin.conversation:
            known.conversation = origin.conversation
            self._note_root(known)
        self.go_on(known, request, is_title=origin.is_title)
        return known

    def _pair_title(self, known: KnownSession, said: tuple[str, str], *, is_title: bool) -> None:
        """Put a session that asks for a title below the one in which the same words were said, whichever came first."""
        own, others = (self._titles, self._said) if is_title else (self._said, self._titles)
        own[said] = known.id
        if len(own) > self._sessions_max:
            own.popitem(last=False)
        other = self._known.get(others.get(said, ""))
        title, talk = (known, other) if is_title else (other, known)
        if title is not None and talk is not None and title is not talk and not title.parent:
            title.parent = talk.parent or talk.id
            self._moved.append(title)

    def take_moved(self) -> list[KnownSession]:
        """Return the sessions whose parent has changed since the last call."""
        moved, self._moved = self._moved, []
        return moved

    def _join_family(self, known: KnownSession, request: ReadRequest, origin: Origin) -> None:
        """Set the parent of a new session. A conversation becomes the parent of one that only asked for its title."""
        ids = [one for one in (origin.conversation, origin.parent) if one]
        roots = [self._roots[known.tenant, one] for one in ids if (known.tenant, one) in self._roots]
        known.parent = roots[0] if roots else ""
        root = self._known.get(known.parent)
        if root is not None and root.is_aside and root.conversation == origin.conversation and request.tools:
            known.parent, root.parent = "", known.id
            self._roots[known.tenant, origin.conversation] = known.id
            self._moved.append(root)

    def find(self, tenant: str, request: ReadRequest, origin: Origin = NOWHERE) -> KnownSession | None:
        """Return the known session that a request continues, or None.

        A client that names its conversation continues that one; an unknown one may continue any session that has its
        replies.
        """
        wanted = origin.conversation
        if wanted and (tenant, wanted) in self._roots:
            return self._find_prefix(tenant, request, wanted) or self._find_trimmed(tenant, request, wanted)
        if wanted and not any(request.replies):
            return None
        return self._find_prefix(tenant, request) or self._find_trimmed(tenant, request)

    def add(self, known: KnownSession) -> None:
        """Add a stored session; clients that trim their oldest messages find it, too."""
        if known.id not in self._known and known.digests:
            self._enter(known)
            self._note_root(known)

    def forget(self, session_id: str) -> None:
        """Forget a deleted session."""
        known = self._known.pop(session_id, None)
        if known is not None:
            self._leave(known)

    def _note_root(self, known: KnownSession) -> None:
        if known.conversation:
            self._roots.setdefault((known.tenant, known.conversation), known.parent or known.id)
            while len(self._roots) > self._sessions_max * 2:
                self._roots.popitem(last=False)

    def _find_prefix(self, tenant: str, request: ReadRequest, conversation: str = "") -> KnownSession | None:
        starts = self._starts.get((tenant, request.wire.name, request.digests[0]), {})
        best: KnownSession | None = None
        best_rank = (False, 0, False)
        candidates = [one for one in starts.values() if not conversation or one.conversation == conversation]
        for known in candidates[-CANDIDATES_MAX:]:
            common = count_common(known.digests, request.digests)
            is_whole = common == len(known.digests)
            # A session whose last request is one answer ago comes first: others may run the same task beside it. A
            # session that ended many answers ago only begins alike.
            rank = (is_whole and not answers_twice(request.replies[common:]), common, is_whole)
            if rank >= best_rank and continues(known, request, common):
                best, best_rank = known, rank
        return best

    def _find_trimmed(self, tenant: str, request: ReadRequest, conversation: str = "") -> KnownSession | None:
        """Return the session whose last request ends in a history that has lost messages before that end."""
        replies = sum(request.replies)
        for count in range(len(request.digests), 0, -1):
            if replies < REPLIES_MIN:
                break
            ended = self._ends.get((tenant, request.wire.name, request.digests[count - 1]), {})
            for known in [*ended.values()][: -CANDIDATES_MAX - 1 : -1]:
                is_other = bool(conversation) and known.conversation != conversation
                had = frozenset(known.digests)
                kept = [digest in had for digest in request.digests[:count]]
                enough = sum(compress(request.replies, kept)) >= REPLIES_MIN and sum(kept) >= KEPT_SHARE * count
                if enough and not is_other and not known.in_flight:
                    return known
            replies -= request.replies[count - 1]
        return None

    def go_on(self, known: KnownSession, request: ReadRequest, *, is_title: bool = False) -> None:
        """Record that a request continues a session."""
        is_first = not any(request.replies) and not known.conversation
        known.is_twice = known.is_twice or (is_first and known.digests == request.digests)
        self._leave(known)
        known.digests = request.digests
        known.system_digest = request.system_digest
        known.is_aside = known.is_aside and not request.tools
        self._enter(known)
        if known.client == "codex" and (words := _read_words(request)):
            self._pair_title(known, (known.tenant, words), is_title=is_title)

    def _enter(self, known: KnownSession) -> None:
        self._known[known.id] = known
        self._known.move_to_end(known.id)
        for index, key in self._places(known):
            index.setdefault(key, {})[known.id] = known  # Most recently used last.
        spare = len(self._known) - self._sessions_max
        if spare > 0:
            idle = [one.id for one in list(self._known.values())[:-1] if not one.in_flight]
            for session_id in idle[:spare]:
                self.forget(session_id)

    def _leave(self, known: KnownSession) -> None:
        for index, key in self._places(known):
            index.get(key, {}).pop(known.id, None)
            if not index.get(key):
                index.pop(key, None)

    def _places(self, known: KnownSession) -> Iterator[tuple[_Index, tuple[str, str, str]]]:
        """Yield where a session is found: by the first and by the last message of its last request."""
        if known.digests:
            yield self._starts, (known.tenant, known.wire, known.digests[0])
            yield self._ends, (known.tenant, known.wire, known.digests[-1])


def answers_twice(replies: Sequence[bool]) -> bool:
    """Return whether the model answered more than once; an answer may consist of several messages."""
    starts = (is_reply and not before for before, is_reply in pairwise(chain((False,), replies)))
    return any(starts) and any(starts)  # Stops at the second one: a history may have thousands.


def continues(known: KnownSession, request: ReadRequest, common: int) -> bool:
    """Return whether a request that shares ``common`` messages with a session continues it."""
    is_dialog = any(request.replies[:common])
    if common == len(known.digests):
        # Before the model has answered, only the system prompt distinguishes two conversations.
        return is_dialog or known.system_digest in ("", request.system_digest)
    # A request that goes on after a last message that its client has changed since is nobody else's.
    may_differ = not known.is_twice or len(request.digests) > len(known.digests)
    return is_dialog and not known.in_flight and may_differ and common * 2 >= len(known.digests)


def store_known(ledger: Ledger, session: KnownSession, request: ReadRequest) -> None:
    """Store what identifies a session; once, when it begins."""
    made = {"lead": request.lead, "system": request.system_digest, "tenant": session.tenant}
    made |= {APART: True} if session.is_twice else {}
    for name in _ORIGIN:
        if value := getattr(session, name):
            made[name] = value
    if session.is_aside:
        made["aside"] = True
    ledger.update_session(session.id, {"settings": {GATEWAY: made}}, time.time())
    session.is_stored = True


def store_parent(ledger: Ledger, session: KnownSession) -> None:
    """Store a session's new parent; one that is not stored yet is stored with it later. Blocks."""

    def lead(made: object) -> object:
        return {**made, "parent": session.parent} if isinstance(made, dict) else made

    ledger.change_setting(session.id, GATEWAY, lead, time.time())


def read_known(ledger: Ledger, limit: int, prefix: str = "") -> list[KnownSession]:
    """Return sessions made by a gateway whose ids have this prefix, most recently changed last."""
    found: list[KnownSession] = []
    for row in reversed(ledger.list_sessions(limit=limit, prefix=prefix)):
        made = row.settings.get(GATEWAY)
        if not isinstance(made, dict) or not isinstance(made.get("lead"), int):
            continue
        digests = ledger.read_path(row.id).digests[made["lead"] :]
        origin: dict[str, Any] = {name: str(made.get(name, "")) for name in _ORIGIN}
        known = KnownSession(row.id, find_tenant(row.id), row.wire, digests, is_stored=True, **origin)
        known.system_digest, known.is_aside = str(made.get("system", "")), bool(made.get("aside"))
        known.is_twice = bool(made.get(APART))
        found.append(known)
    return found
