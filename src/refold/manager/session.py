"""A session in memory, so that preparing costs O(new messages).

Everything here can be loaded again from the ledger, and nothing here writes. Messages that an edit hides or changes are
read from the ledger when a compression needs them.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain

import orjson

from refold.budget import Budget, Carry, Counts
from refold.conversation.message import Message, frozen, is_user_turn
from refold.conversation.reason import Language
from refold.conversation.turn import starts_round
from refold.conversation.view import RECALL, Edit, Item, Lens, View, apply
from refold.errors import FormatError, LedgerError
from refold.formats import MessageSource, digest_message
from refold.formats.block import drop_marks
from refold.ladder.plan import count_kept, count_lead, count_unsent, detect_said, is_document
from refold.ladder.rereads import ItemKinds
from refold.ledger.codec import PLAIN_ONLY, load_json
from refold.ledger.records import SWITCH, MessagePath, SessionRow, StoredMessage, format_of
from refold.ledger.sql.ledger import Ledger
from refold.manager.session_state import Brake, SessionState
from refold.prepared import trace_items
from refold.stages.fold import Fold
from refold.tokens import Counter
from refold.tokens.counter import REPLY_TOKENS

# A new turn releases the brake, and so do this many messages, or growth by this share of the room.
RELEASE_MESSAGES = 10
RELEASE_SHARE = 0.1
CHUNK = 64


class Prints:
    """Content hashes of the last history, in chunks, each with a fingerprint of its JSON bytes.

    A client resends everything, and a fingerprint costs a fraction of canonical hashes. Equal bytes are equal messages.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[bytes, list[str]]] = {}

    def digest_all(self, raws: Sequence[object]) -> list[str]:
        digests: list[str] = []
        known: dict[int, tuple[bytes, list[str]]] = {}
        for start in range(0, len(raws), CHUNK):
            chunk = raws[start : start + CHUNK]
            print_now = _print(chunk) if len(chunk) == CHUNK else None
            before = self._known.get(start)
            if print_now is not None and before is not None and before[0] == print_now:
                found = before[1]
            else:
                found = [digest_raw(raw, at) for at, raw in enumerate(chunk, start)]
            if print_now is not None:
                known[start] = print_now, found
            digests += found
        self._known = known
        return digests


def digest_raw(raw: object, at: int) -> str:
    """Return the content hash of one message; raise FormatError if it is not an object."""
    if not isinstance(raw, dict):
        raise FormatError("messages[{at}] is {kind}, expected an object with a role", at=at, kind=type(raw).__name__)
    return digest_message(raw, f"messages[{at}]")


def _print(chunk: Sequence[object]) -> bytes | None:
    try:
        return hashlib.blake2b(orjson.dumps(chunk, option=PLAIN_ONLY), digest_size=16).digest()
    except TypeError:  # Not plain JSON: the canonical form decides.
        return None


@lru_cache(maxsize=1_024)
def _hash_edits(edits: frozenset[str]) -> str:
    return hashlib.blake2b("".join(sorted(edits)).encode(), digest_size=8).hexdigest()


@frozen
class Sent:
    """The context that was prepared last, which the next usage report is about."""

    model: str
    tokens: int
    marker: str
    messages: int


@dataclass(slots=True, eq=False)
class OpenSession:
    """One session of this process: its path, its view, its stored state, and what is known of its last request.

    ``lock`` belongs to whoever works on it. ``is_loaded``: path and view can be used; ``may_be_reused``: otherwise they
    are of an earlier moment, and most of them are still true. ``messages`` are the unchanged ones in view, by id.
    ``shown`` is the provider's object of each item, ``places`` the position of an untouched one on the path, else -1.
    ``undone`` are the messages that the edits ``switched_off`` had hidden. ``unsent`` are messages that no prepared
    context contained yet, as far as this process knows. ``spoken`` counts items that are not system messages.
    ``language`` is the number of turns at the last detection, and the language found. ``ahead``: so many of the newest
    messages are not stored yet. ``kinds`` says what items hold. ``reported`` is the last logged reason for doing
    nothing. ``idle`` names a view in which nothing could be compressed. ``read_to`` items have been read ahead.
    """

    id: str
    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    tokens: int = 0  # Of its items, as the store of sessions counts them.
    is_loaded: bool = False
    may_be_reused: bool = False
    is_shared: bool = False  # Another process changed it lately: read it again before anything is added.
    row: SessionRow = field(init=False)
    lens: Lens = field(init=False)
    counter: Counter = field(init=False)
    path_version: int = 0
    ids: list[str] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    messages: dict[str, Message] = field(default_factory=dict)
    edits: list[Edit] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    shown: list[object] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    item_tokens: int = 0
    turns: int = 0
    rounds: int = 0
    spoken: int = 0
    document_tokens: int = 0
    undone: frozenset[str] = frozenset()
    switched_off: frozenset[str] = frozenset()
    batch_edits: frozenset[str] = frozenset()
    forgotten: frozenset[str] = frozenset()
    unsent: set[str] = field(default_factory=set)
    language: tuple[int, Language] | None = None
    ahead: int = 0
    kinds: ItemKinds = field(default_factory=ItemKinds, repr=False)
    carry: Carry = Carry()
    sent: Sent | None = None
    prints: Prints = field(default_factory=Prints)
    prepared_at: float = 0.0
    reported: str = ""
    idle: tuple[object, ...] = ()
    fixed: tuple[object, ...] = ()
    fixed_tokens: int = REPLY_TOKENS
    system_tokens: int = 0
    read_to: int = 0
    _state: tuple[object, SessionState] = (None, SessionState())

    @property
    def state(self) -> SessionState:
        """What the session stores about itself."""
        return self.read_state(self.row.settings)

    def read_state(self, settings: Mapping[str, object]) -> SessionState:
        """Return stored values; from memory if they are those that were read last."""
        known, state = self._state
        if known is not settings:
            self._state = settings, state if known == settings else SessionState.read(settings)
        return self._state[1]

    def drop(self) -> None:
        """Read everything from the ledger again at the next use."""
        self.is_loaded = self.may_be_reused = False

    @property
    def marker(self) -> str:
        """A hash that changes with every compression and every undo, and with nothing else."""
        return _hash_edits(self.batch_edits)

    def is_as_stored(self, row: SessionRow) -> bool:
        """Return whether messages, edits and switch are unchanged since this was loaded, and all are stored."""
        stored = row.path_version, row.edits_version, row.wire, row.settings.get(SWITCH)
        known = self.path_version, self.row.edits_version, self.row.wire, self.row.settings.get(SWITCH)
        return not self.ahead and stored == known

    def extend(self, messages: Iterable[Message], edits: Sequence[Edit]) -> None:
        """Add messages at the end, some of them under edits made on arrival: O(new)."""
        by_message: dict[str, list[Edit]] = {}
        for edit in edits:
            by_message.setdefault(edit.covers[0], []).append(edit)
        for message in messages:
            edited = by_message.get(message.id)
            item = self.lens.edited(message, edited) if edited else self.lens.plain(message)
            self.ids.append(message.id)
            self.unsent.add(message.id)
            self.digests.append(message.digest)
            if item is not None:
                self._add_item(item, len(self.ids) - 1)
        self.edits.extend(edits)

    def show(self, view: View) -> None:
        """Adopt the items of a view; originals are kept only where the view shows them whole."""
        place = {message_id: at for at, message_id in enumerate(self.ids)}
        self.edits = _drop_values(view.edits, view.items)
        self.items, self.shown, self.places, self.messages = [], [], [], {}
        self.item_tokens = self.turns = self.rounds = self.spoken = self.document_tokens = 0
        for item in view.items:
            self._add_item(item, -1 if item.is_fold else place[item.message.id])
        self.lens.forget_all(self.items)

    def _add_item(self, item: Item, place: int) -> None:
        if self.items and self.items[-1].edits and not self.items[-1].is_fold:
            # A client moves its cache marks with every request; an old one must not remain, since few are allowed.
            self.items[-1] = replace(self.items[-1], raw=drop_marks(self.shown[-1]))
            self.shown[-1] = self.items[-1].raw
        if item.edits:
            item = replace(item, messages=() if item.is_fold else tuple(map(hollow, item.messages)))
        else:
            self.messages[item.message.id] = item.message
        is_turn = is_user_turn(item.role, item.parts)
        before = self.items[-1] if self.items else None
        self.rounds += not item.is_fold and (is_turn or starts_round(item, before))
        is_own = not item.edits and item.message.id not in self.state.stubs
        self.items.append(item)
        self.shown.append(item.raw)
        self.places.append(place if is_own else -1)
        self.item_tokens += item.tokens
        self.turns += is_turn
        self.spoken += item.role != "system"
        # Messages that an undo restored count as documents: they are not folded to save money.
        is_back = bool(self.undone) and not item.is_fold and item.message.id in self.undone
        self.document_tokens += item.tokens if is_back or is_document(item, self.lens) else 0

    def count(self, tokens: int, reported_tokens: int | None = None) -> Counts:
        """Return the counts that decide about compression; ``tokens`` includes system prompt and tools."""
        unsent = count_unsent(self.items, self.unsent)
        counted = self.state.counted
        # A client that cut its own history has fewer messages than before.
        since = len(self.ids) - counted if counted is not None and len(self.ids) >= counted else None
        sizes = tokens, len(self.items), self.rounds
        return Counts(*sizes, reported_tokens, unsent, self.spoken, since, self.document_tokens)

    def lift(self, budget: Budget, tokens: int, fold: Fold) -> Budget:
        """Return the budget with its tiers lifted above what no compression can remove; ``tokens`` is the request."""
        fixed = tokens - self.item_tokens
        lifted = budget.above(count_lead(self.items, fixed))
        if not budget.spacing or tokens < budget.soft:
            return lifted
        return lifted.spaced(fixed + count_kept(self.items, fold.keep_messages, fold.keep_turns))

    def find_language(self, new: Sequence[Message] = ()) -> Language:
        """Return the language of the conversation, including new messages; detected once in each turn."""
        if self.language is None or self.language[0] != self.turns or any(one.starts_turn for one in new):
            earlier = (item for item in reversed(self.items) if not item.is_fold)
            self.language = self.turns, detect_said(chain(reversed(new), earlier))
        return self.language[1]

    def has_turn_since(self, count: int) -> bool:
        """Return whether a user wrote after the path had ``count`` messages: O(new)."""
        for item, place in zip(reversed(self.items), reversed(self.places), strict=True):
            if 0 <= place < count or item.is_fold:
                return False
            if is_user_turn(item.role, item.parts):
                return True
        return False

    def find_brake(self, attempts_max: int, tokens: int, hard: int) -> Brake | None:
        """Return the brake if it stops the next compression (L9), until a new turn, or until the view has grown."""
        brake = self.state.brake
        if brake.misses < attempts_max or brake.model != self.row.model:
            return None
        if brake.tokens:
            return None if tokens >= brake.tokens + RELEASE_SHARE * hard else brake
        has_grown = len(self.ids) >= brake.messages + RELEASE_MESSAGES
        return None if has_grown or self.has_turn_since(brake.messages) else brake

    def trace(
        self, given: Sequence[object] | None, origins: Sequence[int] | None = None
    ) -> Callable[[], list[MessageSource]]:
        """Return a function that says where each message in the current view comes from."""
        # These lists grow, and their last element may change; a compression makes new ones. So nothing is copied here.
        ids, items, places, length, shown = self.ids, self.items, self.places, len(self.ids), len(self.items)
        last = (items[-1], places[-1]) if items else None

        def look() -> list[MessageSource]:
            then, own = items[:shown], [place >= 0 for place in places[:shown]]
            if last is not None:
                then[-1], own[-1] = last[0], last[1] >= 0
            return trace_items(then, ids[:length], given, own, origins=origins)

        return look

    def change_last(self, item: Item, edit: Edit) -> None:
        """Show the last message under a new edit."""
        self.messages.pop(item.message.id, None)
        self.item_tokens += item.tokens - self.items[-1].tokens
        self.items[-1] = replace(item, messages=tuple(map(hollow, item.messages)))
        self.shown[-1], self.places[-1] = item.raw, -1
        self.edits.append(edit)

    def make_view(
        self,
        ledger: Ledger,
        *,
        fixed_tokens: int = 0,
        pinned: frozenset[str] = frozenset(),
        edits: Sequence[Edit] | None = None,
    ) -> View:
        """Return the view with every original in it, under the edits in force or under ``edits``."""
        wanted = [message_id for message_id in self.ids if message_id not in self.messages]
        known = {**self.messages, **read_originals(ledger, self.row, self.lens, wanted)}
        full = [known[message_id] for message_id in self.ids]
        chosen = self.edits if edits is None else edits
        return apply(full, chosen, self.lens, fixed_tokens=fixed_tokens, pinned=pinned)

    def raws(self, given: Sequence[object] | None = None) -> list[object]:
        """Return the provider objects in view; untouched messages are the caller's own objects from ``given``."""
        if given is None:
            return self.shown.copy()
        return [raw if place < 0 else given[place] for raw, place in zip(self.shown, self.places, strict=True)]


def hollow(message: Message) -> Message:
    """Return a message without its content, which is enough to locate it."""
    return Message(None, message.role, (), message.digest, message.id)


def load_session(session: OpenSession, ledger: Ledger, row: SessionRow, lens: Lens, *, counter: Counter) -> None:
    """Read a session from the ledger; of one that was loaded with the same lens, only what other processes changed."""
    before = copy(session) if session.may_be_reused and session.lens is lens else None
    session.row, session.lens, session.counter = row, lens, counter
    session.drop()  # A read that fails half-way leaves nothing that a later use may take for the session.
    session.ahead, session.language = 0, None
    session.undone = session.switched_off = session.batch_edits = frozenset()
    path = ledger.read_path(row.id) if row.path_version else MessagePath()
    session.ids, session.digests, session.path_version = list(path.ids), list(path.digests), path.version
    # Messages forgotten by now are known, even if others are forgotten before a compression is stored. To forget one
    # changes the version of the edits.
    if before is None or before.row.edits_version != row.edits_version:
        session.forgotten = frozenset(ledger.find_forgotten(row.id) if row.path_version else ())
    if before is not None and (before.forgotten, before.state.stubs) != (session.forgotten, session.state.stubs):
        lens.forget_all(())
        before = None
    # One string object for each id, however often edits name it.
    known = {message_id: message_id for message_id in path.ids}
    edits = _read_edits(ledger, session, known, before) if row.path_version else []
    folds = [edit for edit in edits if edit.kind == "fold" and known.keys() >= set(edit.covers)]
    hidden = {covered for edit in folds for covered in edit.covers}
    loaded = {} if before is None else {one: before.messages[one] for one in known if one in before.messages}
    new = [message_id for message_id in path.ids if message_id not in hidden and message_id not in loaded]
    loaded |= read_originals(ledger, row, lens, new)
    # A fold whose messages are out of order does not apply and hides nothing. Its messages take no edits until they
    # have been read.
    ready = [edit for edit in edits if edit.kind == "fold" or edit.covers[0] not in hidden]
    view = apply(_fill(path, loaded), ready, lens)
    missing = [item.message.id for item in view.items if not item.is_fold and item.message.raw is None]
    if missing:
        lens.forget_all(())
        loaded |= read_originals(ledger, row, lens, missing)
        view = apply(_fill(path, loaded), edits, lens)
    session.show(view)
    session.edits = _drop_values(edits, view.items)
    session.is_loaded = session.may_be_reused = True


def _read_edits(
    ledger: Ledger, session: OpenSession, known: Mapping[str, str], before: OpenSession | None
) -> list[Edit]:
    """Return the edits in force, and note those that are not; from memory if only messages were added since."""
    ids = before.ids[: len(before.ids) - before.ahead] if before is not None else []
    is_longer = before is not None and session.ids[: len(ids)] == ids
    if before is not None and is_longer and before.row.edits_version == session.row.edits_version:
        session.switched_off, session.undone = before.switched_off, before.undone
        session.batch_edits = before.batch_edits
        return list(before.edits)
    stored = ledger.read_edits(session.id, active_only=False)
    # Withdrawn recalled text hid nothing: its message may be folded like the rest.
    undone = [one.edit.covers for one in stored if not one.is_active and one.edit.stage != RECALL]
    session.switched_off = frozenset(one.edit.id for one in stored if not one.is_active)
    session.undone = frozenset(covered for covers in undone for covered in covers)
    session.batch_edits = frozenset(one.edit.id for one in stored if one.is_active and one.batch_id)
    return [
        replace(one.edit, covers=tuple(known.get(covered, covered) for covered in one.edit.covers), id=one.edit.id)
        for one in stored
        if one.is_active
    ]


def _drop_values(edits: Sequence[Edit], items: Sequence[Item]) -> list[Edit]:
    """Return edits without the values of folds that newer folds took over: they take most memory; undo reads them."""
    taken_over = {origin for edit in edits for origin in edit.made_from}
    taken_over -= {edit.id for item in items for edit in item.edits}
    return [
        replace(edit, fold=replace(edit.fold, artifacts=()), id=edit.id)
        if edit.fold is not None and edit.id in taken_over
        else edit
        for edit in edits
    ]


def _fill(path: MessagePath, loaded: Mapping[str, Message]) -> list[Message]:
    return [
        loaded.get(message_id) or Message(None, "user", (), digest, message_id)
        for message_id, digest in zip(path.ids, path.digests, strict=True)
    ]


def read_originals(ledger: Ledger, row: SessionRow, lens: Lens, ids: Sequence[str]) -> dict[str, Message]:
    """Return messages by id, parsed; forgotten ones as their stubs."""
    if not ids:
        return {}
    found = {stored.id: parse_stored(stored, row, lens) for stored in ledger.read_messages(row.id, ids)}
    lost = next((message_id for message_id in ids if message_id not in found), None)
    if lost is not None:
        raise LedgerError(
            "message {number} of session {id!r} is not in the ledger; run 'refold verify'", number=lost, id=row.id
        )
    return found


def parse_stored(stored: StoredMessage, row: SessionRow, lens: Lens | None = None) -> Message:
    """Return a stored message in its original form, with the id it was stored under."""
    form = lens.format if lens is not None else format_of(row)
    stub = SessionState.read(row.settings).stubs.get(stored.id) if stored.is_forgotten else None
    if stored.is_forgotten:
        raw = stub if stub is not None else form.write_summary("[forgotten]", stored.role)
    else:
        raw = load_json(stored.raw)
    # Its content was hashed when it was stored.
    message = form.parse(raw, stored.parent, f"message {stored.id}", digest=stored.digest)
    return message if message.id == stored.id else replace(message, id=stored.id)
