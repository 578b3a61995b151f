"""Edits, and the view they produce: ``apply(messages, edits)`` is what the model sees. Edits never change a message.

``replace`` substitutes a text for one part, ``drop`` leaves one part out, ``fold`` substitutes a summary for a span. An
edit's id is a hash of what it does, so the same edit has the same id everywhere.

The view is always computed, never stored as truth. It depends on the *set* of edits, not on their order. An edit
applies wherever all the messages it covers are present, in order; a fold hides every other edit within it; of two
edits on one part the higher level wins. An untouched message is an item whose ``raw`` is the identical input object.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal

from refold.conversation.message import Format, Message, Part, Role, is_observation, is_user_turn, read_words
from refold.conversation.reason import NO_REASON, Reason, text_reason
from refold.conversation.turn import Unit, find_units, newest_step

EditKind = Literal["replace", "drop", "fold"]
FactKind = Literal["preference", "decision", "todo", "key"]
# Any other number may be a name: "customer 7 must not be called" says nothing of customer 8.
_AMOUNT = re.compile(r"(?<![\d,./])\d[\d,./]{0,40}(?=\s?(?:%|tokens?\b|left\b|remaining\b|个?\s?(?:token|词元)))")
RECALL = "recall"  # The stage of edits that put recalled text below a message; they hide nothing.


@dataclass(frozen=True, slots=True)
class Fact:
    """A statement worth remembering, with the handle of the message that made it."""

    kind: FactKind
    text: str
    handle: str = ""


@dataclass(frozen=True, slots=True)
class Artifact:
    """One exact value of the index: a path, id, number, command ..., with the handle where it occurs.

    ``sort`` is its kind (file, command, error, url, id, number, date, name, identifier), ``note`` what happened to it
    (read, written, deleted, exit 1), ``weight`` its rank, ``alike`` how many unused values of the same shape it
    represents (0 if only itself).
    """

    sort: str
    value: str
    handle: str = ""
    note: str = ""
    weight: float = 0.0
    alike: int = 0


@dataclass(frozen=True, slots=True)
class FoldRecord:
    """The record of a fold: its summary, and what it knows besides.

    ``is_current``: it states how things are now, so the next fold takes it in and writes that anew. ``dropped`` are the
    lines of a model that were left out, with the reasons; ``usage`` are its tokens: input, cached input, output.
    """

    handle: str
    summary: str
    facts: tuple[Fact, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    key_points: tuple[str, ...] = ()
    turn_range: tuple[int, int] = (0, 0)
    by: str = "extract"
    is_current: bool = False
    dropped: tuple[str, ...] = ()
    usage: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Edit:
    """One reversible change. ``covers`` are ids of messages in order; ``part`` is set for replace and drop.

    A fold takes the place of its first covered message, or goes before the message that ``before`` names. ``reason``
    may be passed as a sentence; it is not part of the id.
    """

    kind: EditKind
    stage: str
    covers: tuple[str, ...]
    part: int | None = None
    text: str = ""
    role: Role = "user"
    reason: Reason = NO_REASON
    level: int = 0
    made_from: tuple[str, ...] = ()
    tokens_before: int = 0
    tokens_after: int = 0
    fold: FoldRecord | None = None
    before: str = ""
    # Tokens of the originals that a fold covers. ``tokens_before`` counts them as they were in view, which is much
    # less for a fold over folds.
    tokens_covered: int = field(default=0, compare=False)
    id: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not self.covers:
            raise ValueError("an edit must cover at least one message")
        if (self.kind == "fold") is not (self.part is None):
            raise ValueError("replace and drop edits need a part; a fold must not have one")
        given: object = self.reason
        if isinstance(given, str):
            object.__setattr__(self, "reason", text_reason(given))
        object.__setattr__(self, "id", self.id or _edit_id(self))

    @property
    def tokens_original(self) -> int:
        """Tokens of the text that this edit replaces: the originals of a fold, else the changed part."""
        return self.tokens_covered or self.tokens_before

    @property
    def tokens_freed(self) -> int:
        """Tokens that this edit takes out of the view."""
        return self.tokens_before - self.tokens_after


def _edit_id(edit: Edit) -> str:
    hasher = hashlib.blake2b(digest_size=8)
    place = (edit.before,) if edit.before else ()
    head = (edit.kind, edit.stage, edit.part, edit.role, edit.level, *place)
    for piece in (repr(head), edit.text, *edit.covers):
        hasher.update(piece.encode("utf-8", "surrogatepass"))
        hasher.update(b"\0")
    return hasher.hexdigest()


CountParts = Callable[[Role, Sequence[Part], str], int]


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One message as the model sees it. ``messages`` are the originals it replaces, ``edits`` those that shaped it."""

    raw: object
    role: Role
    parts: tuple[Part, ...]
    tokens: int
    messages: tuple[Message, ...]
    edits: tuple[Edit, ...] = ()

    @property
    def message(self) -> Message:
        """The original behind an item that is not a fold (the first one behind a fold)."""
        return self.messages[0]

    @property
    def is_fold(self) -> bool:
        """True for a summary that replaces a span."""
        return bool(self.edits) and self.edits[0].kind == "fold"

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the messages behind this item."""
        return tuple(message.id for message in self.messages)

    def edited_parts(self) -> dict[int, Edit]:
        """Return the edit in force on each changed part, by part of the original."""
        return {edit.part: edit for edit in self.edits if edit.part is not None}


@dataclass(frozen=True, slots=True)
class Rendering:
    """A message or a fold under edits, rendered and counted once. If nothing is left, ``raw`` is None."""

    raw: object
    parts: tuple[Part, ...] = ()
    tokens: int = 0


class Lens:
    """Renders and counts items through one format and one counter, each item once."""

    def __init__(
        self,
        form: Format,
        count_parts: CountParts,
        count_text: Callable[[str], int],
        is_observation: Callable[[Message], bool] = is_observation,
    ) -> None:
        self.format = form
        self.count_text = count_text
        self.is_observation = is_observation
        self._count_parts = count_parts
        self._plain: dict[str, Item] = {}
        self._renderings: dict[tuple[str, ...], Rendering] = {}

    def plain(self, message: Message) -> Item:
        """Return the item of an untouched message."""
        item = self._plain.get(message.id)
        if item is None:
            tokens = self._count_parts(message.role, message.parts, message.name)
            item = self._plain[message.id] = Item(message.raw, message.role, message.parts, tokens, (message,))
        return item

    def edited(self, message: Message, edits: Iterable[Edit]) -> Item | None:
        """Return the item of a message under edits; None if they leave nothing of it."""
        chosen = choose_edits(edits)
        key = (message.id, *(edit.id for edit in chosen))
        seen = self._renderings.get(key)
        if seen is None:
            changes = {
                edit.part: None if edit.kind == "drop" else edit.text for edit in chosen if edit.part is not None
            }
            seen = self._renderings[key] = self._render(
                self.format.render(message, changes), message.role, message.name
            )
        if seen.raw is None:
            return None
        return Item(seen.raw, message.role, seen.parts, seen.tokens, (message,), chosen)

    def fold(self, edit: Edit, messages: tuple[Message, ...]) -> Item:
        """Return the item of a fold over these messages."""
        seen = self._renderings.get((edit.id,))
        if seen is None:
            seen = self._render(self.format.write_summary(edit.text, edit.role), edit.role, "")
            self._renderings[(edit.id,)] = seen
        return Item(seen.raw, edit.role, seen.parts, seen.tokens, messages, (edit,))

    def count_bare(self, part: Part) -> int:
        """Return the tokens of one part alone, without the framing of a message."""
        return self._count_parts("user", (part,), "") - self._count_parts("user", (), "")

    def forget_all(self, keep: Iterable[Item]) -> None:
        """Drop all cached items except these, so that memory use follows the view."""
        keep = tuple(keep)
        self._plain = {item.message.id: item for item in keep if not item.edits}
        self._renderings = {
            (edits[0].id,) if item.is_fold else (item.message.id, *(edit.id for edit in edits)): Rendering(
                item.raw, item.parts, item.tokens
            )
            for item in keep
            if (edits := item.edits)
        }

    def _render(self, raw: object, role: Role, name: str) -> Rendering:
        if raw is None:
            return Rendering(None)
        parts = self.format.parse_parts(raw)
        return Rendering(raw, parts, self._count_parts(role, parts, name))


@dataclass(frozen=True, eq=False)
class View:
    """The model's view. ``fixed_tokens`` count system prompt and tools; ``held`` messages stay unchanged (L11).

    ``task`` is the id of the message that states the work, if it is to stay in place (L8).
    """

    items: tuple[Item, ...]
    messages: tuple[Message, ...]
    edits: tuple[Edit, ...]
    lens: Lens = field(repr=False)
    fixed_tokens: int = 0
    pinned: frozenset[str] = frozenset()
    tokens: int = -1
    held: frozenset[str] = frozenset()
    task: str = ""

    def __post_init__(self) -> None:
        if self.tokens < 0:
            object.__setattr__(self, "tokens", self.fixed_tokens + sum(item.tokens for item in self.items))

    @cached_property
    def units(self) -> list[Unit]:
        """The units of the view, in order."""
        return find_units(self.items)

    @cached_property
    def newest_user(self) -> int | None:
        """The index of the newest message that a person wrote: no fold, no notice, no tool result sent as user text."""
        for at in range(len(self.items) - 1, -1, -1):
            item = self.items[at]
            if not item.is_fold and is_user_turn(item.role, item.parts) and not self.is_observed(at):
                return at
        return None

    def is_observed(self, at: int) -> bool:
        """Return whether an item is a tool result that a framework sends as user text."""
        # A result follows an answer or another result: the first message is a person's, however it begins.
        while at:
            item, before = self.items[at], self.items[at - 1]
            if item.is_fold or item.role != "user" or not self.lens.is_observation(item.message):
                return False
            if before.is_fold or before.role == "assistant":
                return True
            at -= 1
        return False

    @cached_property
    def protected(self) -> frozenset[int]:
        """Indexes that no stage but clamp may edit.

        These are system, pinned, sealed and held messages, the task, the newest user message and the newest step.
        Of reminders that repeat each other, the newest.
        """
        kept = {at for at, item in enumerate(self.items) if self._is_kept(item)}
        if self.newest_user is not None:
            kept.add(self.newest_user)
        step = newest_step(self.items)
        if step is not None:
            kept.update(range(step.start, step.stop))
        return frozenset(kept)

    def _is_kept(self, item: Item) -> bool:
        if item.is_fold:
            return False
        at = item.message.id
        is_marked = at in self.pinned or at in self.held or at == self.task or item.message.is_sealed
        return is_marked or (item.role == "system" and at not in self.repeated)

    @cached_property
    def repeated(self) -> frozenset[str]:
        """Ids of system messages in the conversation that a later one repeats, but for amounts of tokens: reminders."""
        start = next((at for at, item in enumerate(self.items) if item.is_fold or item.role != "system"), 0)
        said = [
            (item.message.id, _AMOUNT.sub("0", read_words(item.parts)))
            for item in self.items[start:]
            if item.role == "system" and all(part.kind == "text" for part in item.parts)
        ]
        return frozenset(dict(said)).difference({words: message_id for message_id, words in said}.values())

    @cached_property
    def task_at(self) -> int | None:
        """The index of the task, if it stays in place and is in view."""
        places = (at for at, item in enumerate(self.items) if not item.is_fold and item.message.id == self.task)
        return next(places, None) if self.task else None

    @cached_property
    def loading(self) -> frozenset[int]:
        """Indexes of items that load a tool which no later item loads: without them the model loses the tool."""
        newest = {name: at for at, item in enumerate(self.items) for part in item.parts for name in part.loads}
        return frozenset(newest.values())

    def free_units(self) -> list[Unit]:
        """Units that may be folded, in order: no item is protected, and none loads a tool."""
        kept = self.protected | self.loading
        return [unit for unit in self.units if kept.isdisjoint(range(unit.start, unit.stop))]


def apply(
    messages: Sequence[Message],
    edits: Iterable[Edit],
    lens: Lens,
    *,
    fixed_tokens: int = 0,
    pinned: frozenset[str] = frozenset(),
    held: frozenset[str] = frozenset(),
    task: str = "",
) -> View:
    """Compute what the model sees of these messages under this set of edits."""
    edits = tuple(edits)
    place = {message.id: at for at, message in enumerate(messages)}
    folds = _choose_folds((edit for edit in edits if edit.kind == "fold"), place)
    hidden = {message_id for fold in folds for message_id in fold.covers}
    by_message: dict[str, list[Edit]] = {}
    for edit in edits:
        if edit.kind != "fold" and edit.covers[0] in place and edit.covers[0] not in hidden:
            by_message.setdefault(edit.covers[0], []).append(edit)
    folds_at = _place_folds(folds, place)
    items: list[Item] = []
    for at, message in enumerate(messages):
        items += [lens.fold(fold, tuple(messages[place[one]] for one in fold.covers)) for fold in folds_at.get(at, ())]
        if message.id in by_message:
            item = lens.edited(message, by_message[message.id])
            if item is not None:
                items.append(item)
        elif message.id not in hidden:
            items.append(lens.plain(message))
    return View(tuple(items), tuple(messages), edits, lens, fixed_tokens, pinned, held=held, task=task)


def amend(view: View, edits: Iterable[Edit]) -> View:
    """Return the view with these edits added to those in force."""
    return apply(
        view.messages,
        (*view.edits, *edits),
        view.lens,
        fixed_tokens=view.fixed_tokens,
        pinned=view.pinned,
        held=view.held,
        task=view.task,
    )


def extend(view: View, messages: Iterable[Message]) -> View:
    """Return the view with new messages at its end: O(new)."""
    added = tuple(messages)
    items = tuple(view.lens.plain(message) for message in added)
    tokens = view.tokens + sum(item.tokens for item in items)
    return replace(view, items=(*view.items, *items), messages=(*view.messages, *added), tokens=tokens)


def choose_edits(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """Keep one edit for each part: the one of the highest level, then of the highest id, in any order of arrival."""
    best: dict[int, Edit] = {}
    for edit in sorted(edits, key=lambda edit: (edit.level, edit.id)):
        assert edit.part is not None
        best[edit.part] = edit
    return tuple(best[part] for part in sorted(best))


def _choose_folds(folds: Iterable[Edit], place: dict[str, int]) -> list[Edit]:
    """Keep the folds that apply: all covered messages are present, in order, and no higher or larger fold has them."""
    ranked = sorted(folds, key=lambda fold: (-fold.level, -len(fold.covers), fold.id))
    taken: set[str] = set()
    chosen: list[Edit] = []
    for fold in ranked:
        spots = [place.get(message_id, -1) for message_id in fold.covers]
        in_order = spots[0] >= 0 and all(a < b for a, b in pairwise(spots))
        if in_order and taken.isdisjoint(fold.covers):
            taken.update(fold.covers)
            chosen.append(fold)
    return chosen


def _place_folds(folds: Iterable[Edit], place: dict[str, int]) -> dict[int, list[Edit]]:
    """Return the folds that go before each message; of two in one place, the one of earlier messages comes first."""
    placed: dict[int, list[Edit]] = {}
    for fold in sorted(folds, key=lambda fold: place[fold.covers[0]]):
        placed.setdefault(place.get(fold.before, place[fold.covers[0]]), []).append(fold)
    return placed
