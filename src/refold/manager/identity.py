"""Which session a history belongs to, by content: for callers that name none, and for sub-agents under one name.

A history continues a session if it begins with the session's path, without the model's last answer; or with half of it
and an answer of the model, as after an edited question. A client that trimmed or rewrote its history is found by the
model's answers and by our records. Under a name, a history that continues neither the named session nor a child of it
becomes a new child. Without a name it becomes a new session.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile

from refold.conversation.message import find_marks, write_json
from refold.conversation.turn import count_common
from refold.ledger.codec import load_json
from refold.ledger.records import SESSION_ID_MAX, SessionRow, StoredMessage
from refold.manager.history import find_by_record
from refold.manager.session import digest_raw
from refold.manager.store import Keeper

# The setting of a session that was found by content: its parent, and how many messages its first request had.
FOUND = "found"
FAMILIES_MAX = 2_000
CANDIDATES_MAX = 64
REPLIES_KEPT = 50_000
# A client that trimmed its history is recognised by its remaining answers: at least this share of them.
REPLIES_SHARE = 0.6
# A question that grows from request to request begins with the same characters: this many, and half of the shorter one.
GROWN_CHARS_MIN = 200
_REPLIES = ("function_call", "reasoning", "custom_tool_call")


@dataclass(slots=True)
class _Seen:
    """The last request of a session: its length, its first and last digest, and the hash of its system prompt."""

    count: int
    first: str
    last: str
    about: str


@dataclass(frozen=True, slots=True)
class _History:
    """A history without its leading system messages; ``about`` hashes those and the system prompt."""

    raws: Sequence[object]
    digests: Sequence[str]
    replies: Sequence[bool]
    about: str


class Families:
    """Finds the session of each history. Safe to use from any thread."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, dict[str, _Seen]] = OrderedDict()  # By family, then by session.
        self._replies: OrderedDict[str, str] = OrderedDict()  # The session of each answer, for nameless histories.
        self._busy: Counter[str] = Counter()
        self._nameless: set[str] = set()

    @property
    def only(self) -> str:
        """The one session that nameless histories belong to so far; empty if there is none, or several."""
        return next(iter(self._nameless)) if len(self._nameless) == 1 else ""

    @contextmanager
    def busy(self, session_id: str) -> Iterator[None]:
        """Mark a session as waiting for an answer: another history does not take its place meanwhile."""
        self._busy[session_id] += 1
        try:
            yield
        finally:
            self._busy[session_id] -= 1

    def find(self, name: str, raws: Sequence[object], system: object = "", wire: str | None = None) -> str:
        """Return the id of the session that a history belongs to: in the family of ``name``, or in any without one.

        ``wire`` is the format of the messages, if the caller names it.
        """
        lead = sum(1 for _ in takewhile(_is_system, raws))
        body = raws[lead:]
        if not body:
            return name or f"c-{uuid.uuid4().hex}"
        asked = write_json([wire, system, list(raws[:lead])]).encode("utf-8", "surrogatepass")
        about, first = hashlib.blake2b(asked, digest_size=8).hexdigest(), digest_raw(body[0], lead)
        prefix = _name_family(name, first)
        with self._lock:
            family = self._seen.setdefault(prefix, {})
            self._seen.move_to_end(prefix)
            while len(self._seen) > FAMILIES_MAX:
                self._seen.popitem(last=False)
            session_id, known = _follow(family, body, first, about), 0
            if session_id:
                known = family[session_id].count
            else:
                digests = [digest_raw(raw, at) for at, raw in enumerate(body, lead)]
                history = _History(body, digests, [_is_reply(raw) for raw in body], about)
                session_id = self._look_up(name, prefix, history, wire) or self._begin(name, prefix, history)
            family[session_id] = _Seen(len(body), first, digest_raw(body[-1], len(raws) - 1), about)
            if not name:
                self._nameless.add(session_id)
                self._note_replies(session_id, [raw for raw in body[known:] if _is_reply(raw)])
            return session_id

    def _note_replies(self, session_id: str, raws: Sequence[object]) -> None:
        for raw in raws:
            self._replies[digest_raw(raw, 0)] = session_id
        while len(self._replies) > REPLIES_KEPT:
            self._replies.popitem(last=False)

    def _look_up(self, name: str, prefix: str, history: _History, wire: str | None) -> str:
        """Return the stored session that a history continues; empty if there is none."""
        if not name and not any(history.replies):
            return ""  # Two people may begin with the same words.
        ledger, best = self._keeper.ledger, (0, "")
        root = ledger.read_session(name) if name else None
        rows = [*ledger.list_sessions(limit=CANDIDATES_MAX, prefix=prefix), *([root] if root else [])]
        paths = {
            row.id: _Path(row, _list_path(ledger.read_messages(row.id)))
            for row in rows
            if wire is None or row.wire in ("", wire)
        }
        for path in paths.values():
            seen = self._seen[prefix].get(path.row.id)
            common = count_common(path.digests, history.digests)
            is_alike = seen is None or seen.about == history.about
            if common >= best[0] and path.goes_on(
                history, common, is_alike, is_named=bool(name), is_busy=self._busy[path.row.id] > 0
            ):
                best = common, path.row.id
        if best[1]:
            return best[1]
        if not name:
            return self._find_nameless(history)
        if root is None or not root.messages:
            return name
        marks = {mark for raw in history.raws for mark in find_marks(write_json(raw))}
        return next((one.row.id for one in paths.values() if self._has_rewritten(one, history, marks)), "")

    def _find_nameless(self, history: _History) -> str:
        """Return the session whose answers or records a history has, although it begins otherwise."""
        replies = [digest for digest, is_reply in zip(history.digests, history.replies, strict=True) if is_reply]
        votes = Counter(self._replies[digest] for digest in replies if digest in self._replies)
        for chosen, count in votes.most_common(1):
            if count >= max(2, REPLIES_SHARE * len(replies)) and not self._busy[chosen]:
                stored = self._keeper.ledger.read_messages(chosen)
                newest = next((one.digest for one in reversed(stored) if one.role != "assistant"), "")
                # Models give many people the same answers: the newest message of this session is there, too.
                return chosen if newest in history.digests else ""
        return find_by_record(self._keeper.ledger, frozenset(history.digests), history.raws) or ""

    def _has_rewritten(self, path: _Path, history: _History, marks: Collection[str]) -> bool:
        """Return whether a client rewrote a session's history to this one: answers, records or its growing question."""
        replies = [digest for digest, is_reply in zip(history.digests, history.replies, strict=True) if is_reply]
        if replies:
            found = len(path.answers.intersection(replies))
            if found and found >= REPLIES_SHARE * len(replies):
                return True
        edits = self._keeper.ledger.read_edits(path.row.id, active_only=False) if marks else ()
        if any(one.edit.fold is not None and one.edit.fold.handle in marks for one in edits):
            return True
        if replies or not path.messages:
            return False
        before, now = (_read_text(raw) for raw in (load_json(path.messages[0].raw), history.raws[0]))
        return count_common(before, now) >= max(GROWN_CHARS_MIN, min(len(before), len(now)) / 2)

    def _begin(self, name: str, prefix: str, history: _History) -> str:
        """Return the id of a new session, which is stored with its parent."""
        ledger = self._keeper.ledger
        made = f"{prefix}{history.digests[0][:8] if name else uuid.uuid4().hex[:12]}"
        taken = [row.id for row in ledger.list_sessions(limit=CANDIDATES_MAX, prefix=made)]
        session_id = f"{made}-{uuid.uuid4().hex[:6]}" if taken else made
        self._keeper.make_row(session_id)
        settings = {FOUND: {"parent": name, "start": len(history.raws)}}
        ledger.update_session(session_id, {"settings": settings}, self._keeper.clock())
        return session_id


class _Path:
    """A stored session's path after its system messages."""

    def __init__(self, row: SessionRow, messages: Sequence[StoredMessage]) -> None:
        self.row, self.messages = row, messages
        self.digests = [message.digest for message in messages]
        found = row.settings.get(FOUND)
        # Answers within the first request are examples, which other conversations may begin with, too.
        self.start = int(found.get("start", 0)) if isinstance(found, dict) else 0
        self.answers = {one.digest for one in messages[self.start :] if one.role == "assistant"}
        self.asked = len(messages) - sum(1 for _ in takewhile(lambda one: one.role == "assistant", reversed(messages)))

    def goes_on(self, history: _History, common: int, is_alike: bool, *, is_named: bool, is_busy: bool) -> bool:
        """Return whether a history that shares its first ``common`` messages with the path continues it."""
        if not common:
            return False
        is_dialog = any(history.replies[self.start : common])
        if common >= self.asked and len(history.raws) > self.asked:
            return is_dialog or is_alike
        if is_busy:
            return False
        # The same question once more, or a step back.
        is_again = common == len(history.raws) and is_named and is_alike
        return is_again or (is_dialog and common * 2 >= self.asked)


def _list_path(messages: Sequence[StoredMessage]) -> list[StoredMessage]:
    kept = [one for one in messages if not one.is_forgotten]
    return kept[sum(1 for _ in takewhile(lambda one: one.role == "system", kept)) :]


def _follow(family: dict[str, _Seen], body: Sequence[object], first: str, about: str) -> str:
    """Return the session whose last request is the beginning of this one; empty if none is, or several are."""
    found = [
        name
        for name, seen in family.items()
        if seen.first == first
        and seen.count < len(body)
        and (seen.count > 1 or seen.about == about)
        and digest_raw(body[seen.count - 1], 0) == seen.last
    ]
    return found[0] if len(found) == 1 else ""


def _name_family(name: str, first: str) -> str:
    """Return the beginning of the ids of a session's children, or of nameless sessions with one first message."""
    if not name:
        return f"c-{first[:10]}-"
    if name.isascii() and len(name) + 20 <= SESSION_ID_MAX:
        return f"{name}/"
    return f"c-{hashlib.blake2b(name.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}/"


def _read_text(raw: object) -> str:
    content = raw.get("content") if isinstance(raw, dict) else None
    return content if isinstance(content, str) else write_json(content)


def _is_system(raw: object) -> bool:
    return isinstance(raw, dict) and raw.get("role") in ("system", "developer")


def _is_reply(raw: object) -> bool:
    return isinstance(raw, dict) and (raw.get("role") == "assistant" or raw.get("type") in _REPLIES)
