"""What people do today, for comparison in the same run: nothing, the newest that fits, masking, cutting by characters.

Simple on purpose. They are measured, never offered as presets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from refold.conversation.message import Message
from refold.conversation.turn import find_units
from refold.conversation.view import Item, View, apply, extend
from refold.ladder.run import climb, drive
from refold.replay.peer import find_peers
from refold.replay.policy import Policy, Room, Step
from refold.stages.mask import Mask
from refold.stages.stage import Goal, Reply

TRIGGER_SHARE = 0.75
TARGET_SHARE = 0.5
CHARS_PER_TOKEN = 4
# One message may have this share of the window's characters.
MESSAGE_SHARE = 0.25


class Raw:
    """Sends everything, as if the window had no end."""

    keeps_originals: ClassVar[bool] = False

    def __init__(self, room: Room) -> None:
        self._room = room
        self._items: list[Item] = []
        self._tokens = room.fixed_tokens

    def see(self, messages: Sequence[Message]) -> None:
        """Keep what is new."""
        new = [self._room.lens.plain(message) for message in messages]
        self._items += new
        self._tokens += sum(item.tokens for item in new)

    def prepare(self, idle_s: float = 0.0) -> Step:  # noqa: ARG002
        """Send all of it."""
        return Step(tuple(self._items), self._tokens)


class LastFitting(Raw):
    """Keeps the system prompt and as many of the newest units as fit: once full, it slides with every request."""

    def prepare(self, idle_s: float = 0.0) -> Step:  # noqa: ARG002
        """Send the newest units that fit."""
        system = [item for item in self._items if item.role == "system"]
        rest = [item for item in self._items if item.role != "system"]
        room = self._room.budget.hard - self._room.fixed_tokens - sum(item.tokens for item in system)
        kept = _keep_newest(rest, room, lambda item: item.tokens)
        items = (*system, *kept)
        return Step(items, self._room.fixed_tokens + sum(item.tokens for item in items))


class CharacterCut(Raw):
    """Cuts long messages and drops old ones by characters / 4, as many agents do; the bill counts tokens."""

    def see(self, messages: Sequence[Message]) -> None:
        """Cut what is long, once, when it comes."""
        most = int(self._room.budget.hard * CHARS_PER_TOKEN * MESSAGE_SHARE)
        self._items += [self._cut(message, most) for message in messages]

    def prepare(self, idle_s: float = 0.0) -> Step:  # noqa: ARG002
        """Send the newest units that fit by their characters."""
        system = [item for item in self._items if item.role == "system"]
        rest = [item for item in self._items if item.role != "system"]
        room = self._room.budget.hard - self._room.fixed_tokens - sum(_quarter(item) for item in system)
        items = (*system, *_keep_newest(rest, room, _quarter))
        return Step(items, self._room.fixed_tokens + sum(item.tokens for item in items))

    def _cut(self, message: Message, chars_max: int) -> Item:
        lens = self._room.lens
        if message.role not in ("tool", "user") or sum(len(part.text) for part in message.parts) <= chars_max:
            return lens.plain(message)
        texts = {
            at: f"{part.text[:chars_max]}..." for at, part in enumerate(message.parts) if len(part.text) > chars_max
        }
        raw = lens.format.render(message, texts)
        if raw is None:
            return lens.plain(message)
        parts = lens.format.parse_parts(raw)
        tokens = lens.plain(message).tokens - sum(
            lens.count_text(message.parts[at].text) - lens.count_text(text) for at, text in texts.items()
        )
        return Item(raw, message.role, parts, tokens, (message,))


class StickyMask:
    """Masks old observations in batches: at 0.75 of the room, down to half of it, and what is masked stays so."""

    keeps_originals: ClassVar[bool] = False

    def __init__(self, room: Room) -> None:
        self._room = room
        self._view: View = apply((), (), room.lens, fixed_tokens=room.fixed_tokens)
        self._stage = Mask(keep=1, values=0)

    def see(self, messages: Sequence[Message]) -> None:
        """Extend the view."""
        self._view = extend(self._view, messages)

    def prepare(self, idle_s: float = 0.0) -> Step:  # noqa: ARG002
        """Mask if it is time."""
        view = self._view
        fixed = view.fixed_tokens + sum(item.tokens for item in view.items if item.role == "system")
        room = self._room.budget.hard - fixed
        if view.tokens >= fixed + TRIGGER_SHARE * room:
            target = max(1, fixed + int(TARGET_SHARE * room))
            goal = Goal(target=target, hard=self._room.budget.hard)
            self._view = drive(climb(view, goal, (self._stage,)), lambda _: Reply()).view
        freed = view.tokens - self._view.tokens
        return Step(self._view.items, self._view.tokens, freed, ("mask",) if freed else ())


def _quarter(item: Item) -> int:
    return sum(len(part.text) for part in item.parts) // CHARS_PER_TOKEN


def _keep_newest(items: Sequence[Item], room: int, size: Callable[[Item], int]) -> list[Item]:
    """Return the newest units that fit into the room; at least the last one."""
    kept: list[Item] = []
    for unit in reversed(find_units(items)):
        part = items[unit.start : unit.stop]
        room -= sum(size(item) for item in part)
        if room < 0 and kept:
            break
        kept = [*part, *kept]
    return kept


BASELINES: dict[str, Callable[[Room], Policy]] = {
    "raw": Raw,
    "last-n": LastFitting,
    "mask": StickyMask,
    "chars": CharacterCut,
}


def find_baselines() -> dict[str, Callable[[Room], Policy]]:
    """Return all baselines by name, among them the peers that are installed."""
    return {**BASELINES, **find_peers()}
