"""Which session a history belongs to, by content: for callers that name none, and for sub-agents under one name.

A history continues a session if it begins with the session's path, without the model's last answer; or with half of it
and an answer of the model, as after an edited question. A client that trimmed or rewrote its history is found by its
newest message with most of the history before it, and by our records. Under a name, a history that continues neither
the named session nor a child of it becomes a new child. Without a name it becomes a new session.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, takewhile

from refold.conversation.message import find_marks, write_json
from refold.conversation.turn import count_common
from refold.ledger.codec import load_json
from refold.ledger.records import SESSION_ID_MAX, SessionRow, StoredMessage
from refold.manager.history import find_by_record
from refold.manager.session import digest_raw
from refold.manager.store import Keeper

# The setting of a session that was found by content: its parent, and how many messages its first request had.
FOUND = "found"
NAMELESS = "c-"
FAMILIES_MAX = 2_000
CANDIDATES_MAX, LOADED_MAX = 64, 16
ASKED_MAX = 50_000
# A client that trimmed its history is recognised by what is left: two answers, this share of it, and so many characters
# of questions, since people who say little may say the same.
KEPT_ANSWERS, KEPT_SHARE, KEPT_CHARS = 2, 0.6, 100
# Without a name, a shorter common beginning may be another person's: an edited question begins a new session then.
EDITED_MIN = 8
# A question that grows from request to request begins with the same characters: this many, and half of the shorter one.
GROWN_CHARS_MIN = 200
_NO_FIT = 0, 0
_REPLIES = ("function_call", "reasoning", "custom_tool_call")


@dataclass(slots=True)
class _LastRequest:
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

    @property
    def answers(self) -> list[str]:
        """The digests of the model's answers."""
        return [digest for digest, is_reply in zip(self.digests, self.replies, strict=True) if is_reply]


class Families:
    """Finds the session of each history. Safe to use from any thread."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, dict[str, _LastRequest]] = OrderedDict()  # By family, then by session.
        self._asked: OrderedDict[str, dict[str, None]] = OrderedDict()  # Nameless sessions, by their newest message.
        self._busy: Counter[str] = Counter()
        self.turns: Counter[str] = Counter()  # How many requests each session has had.
        self._nameless: set[str] = set()
        self._has_loaded = False

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

    def find(self, name: str, raws: Sequence[object], system: object = "", wire: str | None = None) -> tuple[str, int]:
        """Return the session that a history belongs to, in the family of ``name`` or in any, and the request's turn.

        ``wire`` is the format of the messages, if the caller names it.
        """
        lead = sum(1 for _ in takewhile(_is_system, raws))
        body = raws[lead:]
        if not body:
            return name or f"c-{uuid.uuid4().hex}", 0
        asked = write_json([wire, system, list(raws[:lead])]).encode("utf-8", "surrogatepass")
        about, first = hashlib.blake2b(asked, digest_size=8).hexdigest(), digest_raw(body[0], lead)
        prefix = _name_family(name, first)
        with self._lock:
            family = self._seen.setdefault(prefix, {})
            self._seen.move_to_end(prefix)
            while len(self._seen) > FAMILIES_MAX:
                self._seen.popitem(last=False)
            followed = _follow(family, body, first, about)
            session_id = followed[0] if len(followed) == 1 else ""
            if not session_id:
                digests = [digest_raw(raw, at) for at, raw in enumerate(body, lead)]
                history = _History(body, digests, [_is_reply(raw) for raw in body], about)
                found = self._look_up(name, prefix, history, wire, followed)
                session_id = found or self._begin(name, prefix, history)
            last = digest_raw(body[-1], len(raws) - 1)
            if not name:
                self._nameless.add(session_id)
                self._note_asked(session_id, family.get(session_id), last)
            family[session_id] = _LastRequest(len(body), first, last, about)
            self.turns[session_id] += 1
            return session_id, self.turns[session_id]

    def _note_asked(self, session_id: str, before: _LastRequest | None, last: str) -> None:
        if before is not None:
            self._asked.get(before.last, {}).pop(session_id, None)
        self._asked.setdefault(last, {})[session_id] = None
        self._asked.move_to_end(last)
        while len(self._asked) > ASKED_MAX:
            self._asked.popitem(last=False)

    def _look_up(self, name: str, prefix: str, history: _History, wire: str | None, followed: Collection[str]) -> str:
        """Return the stored session that a history continues; empty if there is none.

        ``followed`` are sessions whose last request here is the beginning of this one: any of them is as good.
        """
        if not name and not any(history.replies):
            return ""  # Two people may begin with the same words.
        ledger = self._keeper.ledger
        root = ledger.read_session(name) if name else None
        rows = [*ledger.list_sessions(limit=CANDIDATES_MAX, prefix=prefix), *([root] if root else [])]
        paths = {
            row.id: _Path(row, ledger.read_messages(row.id)) for row in rows if wire is None or row.wire in ("", wire)
        }
        fits = {
            one: path.rank(history, self._seen[prefix].get(one), is_named=bool(name), is_busy=self._busy[one] > 0)
            for one, path in paths.items()
            if not followed or one in followed
        }
        top = max(fits.values(), default=_NO_FIT)
        best = sorted((one for one, fit in fits.items() if fit == top != _NO_FIT), key=self._busy.__getitem__)
        if best:
            # Of sessions of other processes that fit alike, one is another person's.
            return best[0] if len(best) == 1 or name or followed else ""
        if not name:
            return self._find_nameless(history)
        if root is None or not root.messages:
            return name
        marks = {mark for raw in history.raws for mark in find_marks(write_json(raw))}
        # Even where an answer is under way: the caller may have cancelled it.
        return next((one for one, path in paths.items() if self._has_rewritten(path, history, marks)), "")

    def _find_nameless(self, history: _History) -> str:
        """Return the session whose newest message or whose records a history has, although it begins otherwise."""
        ledger, counts = self._keeper.ledger, range(len(history.raws), 0, -1)
        if not self._has_loaded:
            self._has_loaded = True
            for other in reversed(ledger.list_sessions(limit=LOADED_MAX, prefix=NAMELESS)):  # Of other processes.
                path = _Path(other, ledger.read_messages(other.id))
                self._note_asked(other.id, None, path.digests[path.asked - 1] if path.asked else "")
        asked = ((count, one) for count in counts for one in reversed(self._asked.get(history.digests[count - 1], {})))
        for count, chosen in islice(asked, CANDIDATES_MAX):
            row = None if self._busy[chosen] else ledger.read_session(chosen)
            if row is not None and _Path(row, ledger.read_messages(chosen)).is_trimmed_to(history, count):
                return chosen
        return find_by_record(ledger, frozenset(history.digests), history.raws) or ""

    def _has_rewritten(self, path: _Path, history: _History, marks: Collection[str]) -> bool:
        """Return whether a client rewrote a session's history to this one: answers, records or its growing question."""
        found = len(path.answers.intersection(history.answers))
        if found and found >= KEPT_SHARE * len(history.answers):
            return True
        edits = self._keeper.ledger.read_edits(path.row.id, active_only=False) if marks else ()
        if any(edit.edit.fold is not None and edit.edit.fold.handle in marks for edit in edits):
            return True
        if history.answers or not path.messages:
            return False
        before, now = (_read_text(raw) for raw in (load_json(path.messages[0].raw), history.raws[0]))
        return count_common(before, now) >= max(GROWN_CHARS_MIN, min(len(before), len(now)) / 2)

    def _begin(self, name: str, prefix: str, history: _History) -> str:
        """Return the id of a new session, which is stored with its parent."""
        session_id, settings = f"{prefix}{uuid.uuid4().hex[:12]}", {FOUND: {"parent": name, "start": len(history.raws)}}
        self._keeper.make_row(session_id)
        self._keeper.ledger.update_session(session_id, {"settings": settings}, self._keeper.clock())
        return session_id


class _Path:
    """A stored session's path after its system messages."""

    def __init__(self, row: SessionRow, stored: Sequence[StoredMessage]) -> None:
        kept = [one for one in stored if not one.is_forgotten]
        messages = kept[sum(1 for _ in takewhile(lambda one: one.role == "system", kept)) :]
        self.row, self.messages = row, messages
        self.digests = [message.digest for message in messages]
        found = row.settings.get(FOUND)
        # Answers within the first request are examples, which other conversations may begin with, too.
        self.start = int(found.get("start", 0)) if isinstance(found, dict) else 0
        self.answers = {message.digest for message in messages[self.start :] if message.role == "assistant"}
        self.asked = len(messages) - sum(1 for _ in takewhile(lambda one: one.role == "assistant", reversed(messages)))

    def rank(self, history: _History, seen: _LastRequest | None, *, is_named: bool, is_busy: bool) -> tuple[int, int]:
        """Return how well a history fits: 2 if it goes on, 1 if it was edited, 0 if neither; and what is in common."""
        common, is_alike = count_common(self.digests, history.digests), seen is None or seen.about == history.about
        if not common or (seen is not None and seen.last not in (*self.digests, history.digests[-1])):
            return _NO_FIT  # Another request has taken the session and is not stored yet.
        is_dialog = any(history.replies[self.start : common])
        if common >= self.asked and len(history.raws) > self.asked:
            return (2, common) if is_dialog or is_alike else _NO_FIT
        if self._has_reworded(history, common):
            return 2, common
        if is_busy:
            return _NO_FIT
        # The same question once more, or a step back.
        is_again = common == len(history.raws) and (is_alike if is_named else is_dialog and common == self.asked)
        is_edited = is_dialog and common * 2 >= self.asked and (is_named or common >= EDITED_MIN)
        return (1, common) if is_again or is_edited else _NO_FIT

    def _has_reworded(self, history: _History, at: int) -> bool:
        """Return whether only a question differs, by what a client adds to its newest message; its answer follows."""
        if at != self.asked - 1 or len(self.messages) == self.asked:
            return False
        before = [_read_text(load_json(message.raw)) for message in self.messages[at:]]
        now = [_read_text(raw) for raw in history.raws[at : at + len(before)]]
        is_answered = before[1:] == now[1:] and not history.replies[at]
        return is_answered and bool(before[0] and now[0]) and (now[0] in before[0] or before[0] in now[0])

    def is_trimmed_to(self, history: _History, count: int) -> bool:
        """Return whether the first messages of a history are what a client left of this path."""
        known = {*self.digests}
        kept = [at for at in range(count) if history.digests[at] in known]
        # A first request that comes again may be another person's, with the same examples.
        counted = self.answers if count == len(history.raws) else known
        answers = sum(history.replies[at] and history.digests[at] in counted for at in kept)
        chars = sum(len(_read_text(history.raws[at])) for at in kept if not history.replies[at])
        return answers >= KEPT_ANSWERS and len(kept) >= KEPT_SHARE * count and chars >= KEPT_CHARS


def _follow(family: dict[str, _LastRequest], body: Sequence[object], first: str, about: str) -> list[str]:
    """Return the sessions whose last request is the beginning of this one."""
    return [
        name
        for name, seen in family.items()
        if seen.first == first
        and seen.count < len(body)
        and (seen.count > 1 or seen.about == about)
        and digest_raw(body[seen.count - 1], 0) == seen.last
    ]


def _name_family(name: str, first: str) -> str:
    """Return the beginning of the ids of a session's children, or of nameless sessions with one first message."""
    if not name:
        return f"{NAMELESS}{first[:10]}-"
    if name.isascii() and len(name) + 20 <= SESSION_ID_MAX:
        return f"{name}/"
    return f"c-{hashlib.blake2b(name.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}/"


def _read_text(raw: object) -> str:
    content = raw.get("content") if isinstance(raw, dict) else None
    return content if isinstance(content, str) else write_json(content).strip("[]")


def _is_system(raw: object) -> bool:
    return isinstance(raw, dict) and raw.get("role") in ("system", "developer")


def _is_reply(raw: object) -> bool:
    return isinstance(raw, dict) and (raw.get("role") == "assistant" or raw.get("type") in _REPLIES)
