"""Other people's compressors under the same conditions: same window, same counter, same stand-in summariser, same bill.

A peer is given the new messages of each request in the OpenAI chat format and returns what it would send. It counts
with our counter and asks our stand-in for summaries, so that only its decisions differ. ``benchmarks/peers`` runs more
of them, each in an environment of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar, Protocol

from refold.conversation.message import Message
from refold.conversation.view import Item
from refold.errors import FormatError
from refold.formats import parse_messages
from refold.replay.policy import STAND_IN_CHARS, Policy, Room, Step
from refold.replay.record import Asked

# A summary takes at most this share of the room that the system prompt leaves, as if the peer had told its model how
# long it may be. Without a limit, peers that state none would summarise before every request in a small window.
SUMMARY_SHARE = 0.1
CHARS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a peer is given: tokens for system messages and conversation, our counter and our stand-in summariser."""

    tokens: int
    count: Callable[[Sequence[object]], int]
    ask: Callable[[str], str]


class Peer(Protocol):
    """One compressor over one session; it keeps its own state."""

    def prepare(self, new: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return what to send now; untouched messages are the very objects that were handed in."""
        ...


MakePeer = Callable[[Allowance], Peer]


class PeerPolicy:
    """Replays a session through a peer."""

    keeps_originals: ClassVar[bool] = False

    def __init__(self, room: Room, make_peer: MakePeer) -> None:
        if room.lens.format.name != "openai-chat":
            raise FormatError(f"peers read OpenAI chat messages only, and this session is {room.lens.format.name}")
        self._room = room
        self._new: list[dict[str, Any]] = []
        self._items: dict[int, Item] = {}
        self._asked: list[Asked] = []
        self._last = 0
        self._peer = make_peer(Allowance(room.budget.hard - room.fixed_tokens, self._count, self._ask))

    def see(self, messages: Sequence[Message]) -> None:
        """Keep what is new for the peer."""
        for message in messages:
            assert isinstance(message.raw, dict)
            self._items[id(message.raw)] = self._room.lens.plain(message)
            self._new.append(message.raw)

    def prepare(self, idle_s: float = 0.0) -> Step:  # noqa: ARG002
        """Ask the peer what to send."""
        self._asked = []
        before = self._last + self._count(self._new)
        sent = self._peer.prepare(self._new)
        self._new = []
        items = tuple(self._read(raw) for raw in sent)
        self._last = sum(item.tokens for item in items)
        freed = before - self._last
        return Step(items, self._room.fixed_tokens + self._last, freed, asked=tuple(self._asked))

    def _read(self, raw: object) -> Item:
        """Return the item of a message; one that the peer wrote is parsed and counted once."""
        item = self._items.get(id(raw))
        if item is None:
            lens = self._room.lens
            (message,) = parse_messages(lens.format, [raw])
            # The item keeps ``raw`` alive, so that its id stays its own.
            item = self._items[id(raw)] = lens.plain(message)
        return item

    def _count(self, raws: Sequence[object]) -> int:
        return sum(self._read(raw).tokens for raw in raws)

    def _ask(self, prompt: str) -> str:
        count = self._room.lens.count_text
        system = sum(item.tokens for item in self._items.values() if item.role == "system")
        room = self._room.budget.hard - self._room.fixed_tokens - system
        chars = int(SUMMARY_SHARE * CHARS_PER_TOKEN * room)
        text = prompt[-min(STAND_IN_CHARS, max(CHARS_PER_TOKEN, chars)) :]
        self._asked.append(Asked(count(prompt), count(text)))
        return text


def find_peers() -> dict[str, Callable[[Room], Policy]]:
    """Return the peers that are installed here, by name."""
    if find_spec("langchain") is None:
        return {}
    return {"langchain": _make_langchain}


def _make_langchain(room: Room) -> Policy:
    from refold.replay.langchain import Summarisation

    return PeerPolicy(room, Summarisation)
