"""A session in memory, so that preparing costs O(new messages), and the settings that a session stores about itself.

Everything here can be loaded again from the ledger, and nothing here writes. Messages that an edit hides or changes are
read from the ledger when a compression needs them. An unreadable setting, which another version or an import may have
written, counts as not set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from math import isnan
from typing import Any

from refold.budget import Budget, Carry, Counts
from refold.conversation import because
from refold.conversation.message import Message, frozen, is_user_turn
from refold.conversation.reason import Language, read_reason
from refold.conversation.turn import starts_round
from refold.conversation.view import RECALL, Edit, Item, Lens, View, apply
from refold.errors import LedgerError
from refold.formats import MessageSource
from refold.formats.block import drop_marks
from refold.ladder.plan import count_kept, count_lead, count_unsent, detect_said, is_document
from refold.ladder.rereads import ItemKinds
from refold.ledger.codec import load_json
from refold.ledger.records import SWITCH, MessagePath, SessionRow, StoredMessage, format_of
from refold.ledger.sql.ledger import Ledger
from refold.prepared import trace_items
from refold.stages.fold import Fold
from refold.tokens import Calibration, Counter
from refold.tokens.counter import Track

# Names of the settings that a session stores about itself.
BRAKE = "brake"
FORCED = "forced"
REPORTED = "reported"
CALIBRATION = "calibration"
PINNED = "pinned"
CARRY = "carry"
WINDOWS = "windows"
ROOM = "room"  # Window and reserve that the caller or its settings gave the newest request.
REDO = "redo"
COUNTED = "counted"  # How many messages the session had when a count last compressed it.
FORGOTTEN = "forgotten"  # The stubs of forgotten messages.
RESPONSES = "responses"  # The newest responses that a client may continue by their ids.
HELD = "held"  # Why a session's requests pass through: the provider holds part of them.
_FIGURES = frozenset((int, float))  # Not bool, which is an int.
FIGURE_MAX = 1e12  # The largest stored figure that is read: above any count of tokens, and any time in seconds.


@frozen
class Reported:
    """A provider's report about one request: its input tokens, our count, and a marker of the edits in force."""

    model: str
    input_tokens: int
    counted_tokens: int
    marker: str

    @classmethod
    def read(cls, settings: Mapping[str, object]) -> Reported | None:
        """Return the last report of a session, if there is one that can be read."""
        stored = settings.get(REPORTED)
        if not isinstance(stored, Mapping):
            return None
        figures: list[Any] = [stored.get("input_tokens"), stored.get("counted_tokens")]
        if not _are_figures(figures):
            return None
        input_tokens, counted_tokens = map(int, figures)
        return cls(str(stored.get("model", "")), input_tokens, counted_tokens, str(stored.get("marker", "")))

    def count_now(self, model: str, marker: str, tokens: int) -> int | None:
        """Return the provider's figure for the view: that of the request plus our count of what was added since."""
        if (self.model, self.marker) != (model, marker):
            return None  # It was sent before the last compression.
        return max(0, self.input_tokens + tokens - self.counted_tokens)


@frozen
class StoredCarry:
    """Inputs of a decision besides the view, stored with a usage report, so that other processes decide alike.

    They are the carry, the number of messages sent, the time, and the tokens of the system prompt and the tools (0 if
    an older version wrote it).
    """

    carry: Carry
    messages: int
    prepared_at: float
    system_tokens: int = 0
    fixed_tokens: int = 0

    @classmethod
    def read(cls, settings: Mapping[str, object]) -> StoredCarry | None:
        """Return the carry of a session, if there is one that can be read."""
        stored = settings.get(CARRY)
        if not isinstance(stored, list) or len(stored) not in (8, 10) or not _are_figures(stored):
            return None
        carry, (messages, prepared_at, *fixed) = Carry(*map(int, stored[:6])), stored[6:]
        return cls(carry, int(messages), float(prepared_at), *map(int, fixed))

    def is_newer(self, prepared_at: float) -> bool:
        """Return whether this belongs to a later request than the one prepared then; stored times are rounded."""
        return self.prepared_at > prepared_at + 0.001

    def to_settings(self) -> list[object]:
        one = self.carry
        sizes = [one.first_tokens, one.last_tokens, one.floor_tokens, one.kept_tokens]
        sent = [self.messages, round(self.prepared_at, 3), self.system_tokens, self.fixed_tokens]
        return [one.requests, one.session_requests, *sizes, *sent]


def is_refused(settings: Mapping[str, object]) -> bool:
    """Return whether the provider refused the last request as too long, and nothing was compressed since."""
    return read_reason(settings.get(FORCED)).is_a(because.OVERFLOW)


def read_calibration(settings: Mapping[str, object]) -> Calibration:
    """Return the calibration that usage reports gave this session."""
    stored = settings.get(CALIBRATION)
    rows = [row for row in stored if isinstance(row, list) and len(row) == 4] if isinstance(stored, list) else []
    named = [row for row in rows if isinstance(row[0], str) and _are_figures(row[1:])]
    tracks = [Track(row[0], *map(float, row[1:])) for row in named]
    return Calibration(tuple([track for track in tracks if track.is_plausible]))


def _are_figures(stored: list[Any]) -> bool:
    """Return whether stored values are plain numbers. An imported file may contain anything, even NaN and infinity."""
    if not stored or not _FIGURES.issuperset(map(type, stored)):
        return not stored
    # The extremes miss NaN, the sum does not.
    return min(stored) >= 0 and max(stored) <= FIGURE_MAX and not isnan(sum(stored))


def write_calibration(calibration: Calibration) -> list[object]:
    # Six digits are precise enough for a count; more would make the JSON slow to read.
    return [[one.model, round(one.ratio, 6), round(one.spread, 6), round(one.weight, 6)] for one in calibration.tracks]


def read_window(settings: Mapping[str, object], model: str) -> tuple[int | None, int | None]:
    """Return the window and the reserve that a session has for a model; None if the settings decide."""
    stored = settings.get(WINDOWS)
    return _read_room(stored.get(model) if isinstance(stored, Mapping) else None)


def read_room(settings: Mapping[str, object]) -> tuple[int | None, int | None]:
    """Return the window and the reserve that the newest request was given; None if it was that of its model."""
    return _read_room(settings.get(ROOM))


def _read_room(stored: object) -> tuple[int | None, int | None]:
    if not isinstance(stored, list) or len(stored) not in (1, 2):
        return None, None
    window, reserve = (one if isinstance(one, int) and _are_figures([one]) else None for one in [*stored, None][:2])
    if window and reserve and reserve >= window:
        return None, None
    return window or None, reserve


def read_pinned(settings: Mapping[str, object]) -> frozenset[str]:
    """Return the ids of a session's pinned messages."""
    stored = settings.get(PINNED)
    return frozenset(one for one in stored if isinstance(one, str)) if isinstance(stored, list) else frozenset()


@lru_cache(maxsize=1_024)
def _hash_edits(edits: frozenset[str]) -> str:
    return hashlib.blake2b("".join(sorted(edits)).encode(), digest_size=8).hexdigest()


@dataclass(slots=True)
class OpenSession:
    """A session's path and view.

    ``messages`` are the unchanged ones in view, by id. ``shown`` is the provider's object of each item, ``places`` the
    position of an untouched one on the path, else -1. ``undone`` are the messages that the edits ``switched_off`` had
    hidden. ``unsent`` are messages that no prepared context contained yet, as far as this process knows. ``spoken``
    counts items that are not system messages. ``language`` is the number of turns at the last detection, and the
    language found. ``is_ahead``: its newest messages are not stored yet. ``kinds`` says what items hold.
    """

    row: SessionRow
    lens: Lens
    counter: Counter
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
    is_ahead: bool = False
    kinds: ItemKinds = field(default_factory=ItemKinds, repr=False)

    @property
    def id(self) -> str:
        return self.row.id

    def path(self) -> MessagePath:
        return MessagePath(tuple(self.ids), tuple(self.digests), self.path_version)

    @property
    def marker(self) -> str:
        """A hash that changes with every compression and every undo, and with nothing else."""
        return _hash_edits(self.batch_edits)

    def is_current(self, row: SessionRow) -> bool:
        """Return whether messages, edits and switch are unchanged since this was loaded, and all are stored."""
        return not self.is_ahead and (row.path_version, row.edits_version, row.wire, row.settings.get(SWITCH)) == (
            self.path_version,
            self.row.edits_version,
            self.row.wire,
            self.row.settings.get(SWITCH),
        )

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
        self.rounds += not item.is_fold and starts_round(item, self.items[-1] if self.items else None)
        is_own = not item.edits and item.message.id not in _stubs_of(self.row)
        self.items.append(item)
        self.shown.append(item.raw)
        self.places.append(place if is_own else -1)
        self.item_tokens += item.tokens
        self.turns += is_user_turn(item.role, item.parts)
        self.spoken += item.role != "system"
        # Messages that an undo restored count as documents: they are not folded to save money.
        is_back = bool(self.undone) and not item.is_fold and item.message.id in self.undone
        self.document_tokens += item.tokens if is_back or is_document(item, self.lens) else 0

    def count(self, tokens: int, reported_tokens: int | None = None) -> Counts:
        """Return the counts that decide about compression; ``tokens`` includes system prompt and tools."""
        unsent = count_unsent(self.items, self.unsent)
        counted = self.row.settings.get(COUNTED)
        # A client that cut its own history has fewer messages than before.
        since = len(self.ids) - counted if isinstance(counted, int) and len(self.ids) >= counted else None
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


def load_session(
    ledger: Ledger, row: SessionRow, lens: Lens, counter: Counter, *, before: OpenSession | None = None
) -> OpenSession:
    """Read a session from the ledger: its path, the edits in force, and the messages that are in view.

    ``before`` is the session as this process knows it, with the same lens: only what another process added is read.
    """
    if not row.path_version:
        return OpenSession(row, lens, counter)  # It has never had a message.
    path = ledger.read_path(row.id)
    session = OpenSession(row, lens, counter, path.version, list(path.ids), list(path.digests))
    # Messages forgotten by now are known, even if others are forgotten before a compression is stored.
    session.forgotten = frozenset(ledger.find_forgotten(row.id))
    if before is not None and (before.forgotten, _stubs_of(before.row)) != (session.forgotten, _stubs_of(row)):
        lens.forget_all(())
        before = None
    # One string object for each id, however often edits name it.
    known = {message_id: message_id for message_id in path.ids}
    edits = _read_edits(ledger, session, known, before)
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
    return session


def _read_edits(
    ledger: Ledger, session: OpenSession, known: Mapping[str, str], before: OpenSession | None
) -> list[Edit]:
    """Return the edits in force, and note those that are not; from memory if only messages were added since."""
    is_longer = before is not None and session.ids[: len(before.ids)] == before.ids and not before.is_ahead
    if before is not None and is_longer and before.row.edits_version == session.row.edits_version:
        session.switched_off, session.undone, session.batch_edits = (
            before.switched_off,
            before.undone,
            before.batch_edits,
        )
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
    stub = _stubs_of(row).get(stored.id)
    if stored.is_forgotten:
        raw = stub if stub is not None else form.write_summary("[forgotten]", stored.role)
    else:
        raw = load_json(stored.raw)
    # Its content was hashed when it was stored.
    message = form.parse(raw, stored.parent, f"message {stored.id}", digest=stored.digest)
    return message if message.id == stored.id else replace(message, id=stored.id)


def _stubs_of(row: SessionRow) -> Mapping[str, object]:
    stubs = row.settings.get(FORGOTTEN)
    return stubs if stubs and isinstance(stubs, Mapping) else {}
