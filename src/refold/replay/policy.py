"""Policies decide what a request contains. A preset's ladder is one policy; the baselines are others.

A policy sees each message once, in order, and prepares a context whenever the assistant is about to speak. Its changes
persist: a session has one view, which grows.

Baselines are other ways to fill a window, for comparison in the same run. They are measured, never offered as presets.
Five are simple on purpose: send everything, the newest that fits, masking, cutting by characters, trimming older words.
Peers are other
people's compressors: each receives the new messages of each request in the OpenAI chat format and returns what it would
send. It counts with our counter and asks our stand-in for summaries, so that only its decisions differ.
``benchmarks/peers`` runs more of them, each in a separate environment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, ClassVar, Protocol

from refold.budget import Budget, Carry, Tariff
from refold.config import CompressionConfig
from refold.conversation import because
from refold.conversation.message import Message, read_words
from refold.conversation.reason import NO_REASON, Reason
from refold.conversation.turn import find_task, find_units
from refold.conversation.view import Edit, Item, Lens, View, apply, extend
from refold.errors import BudgetTooSmall, FormatError
from refold.formats import parse_messages
from refold.ladder.plan import Outcome, Plan, order_stages, prepare
from refold.ladder.run import climb, drive
from refold.replay.langchain import Summarisation
from refold.replay.record import SummariserCall
from refold.stages.mask import Mask
from refold.stages.stage import Ask, Goal, Reply

# Maximum length of a stand-in's summary. The stand-in answers in place of a model, so that calls can be billed.
STAND_IN_CHARS = 2_400
TRIGGER_SHARE = 0.75
TARGET_SHARE = 0.5
CHARS_PER_TOKEN = 4
# What the message around trimmed words takes.
TRIM_FRAME_TOKENS = 8
# One message may have this share of the window's characters.
MESSAGE_SHARE = 0.25
# A summary takes at most this share of the budget beside the system prompt, as if the peer
# had limited the length of its summary. Peers without a limit would summarise before every request in a small window.
SUMMARY_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Step:
    """A prepared request and how it was made. ``problem`` says why it does not fit."""

    items: tuple[Item, ...]
    tokens: int
    tokens_freed: int = 0
    stages: tuple[str, ...] = ()
    reason: Reason = NO_REASON
    asked: tuple[SummariserCall, ...] = ()
    problem: str = ""


class Policy(Protocol):
    """Prepares the requests of one session. ``keeps_originals``: hidden messages can be recalled."""

    keeps_originals: ClassVar[bool]

    def see(self, messages: Sequence[Message]) -> None:
        """Add new messages."""

    def prepare(self, idle_s: float = 0.0) -> Step:
        """Return what would be sent now."""


@dataclass(frozen=True, slots=True)
class PolicyRoom:
    """Input of every policy: the lens, the tokens beside the messages, the budget and the prices."""

    lens: Lens
    fixed_tokens: int
    budget: Budget
    tariff: Tariff


class LadderPolicy:
    """A preset's ladder over one view that is extended, never rebuilt; edits stay."""

    keeps_originals: ClassVar[bool] = True

    def __init__(self, room: PolicyRoom, config: CompressionConfig) -> None:
        self._room = room
        self._view: View = apply((), (), room.lens, fixed_tokens=room.fixed_tokens)
        self._carry = Carry()
        self._asked: list[SummariserCall] = []
        self._unsent: set[str] = set()
        self._sent_tokens = self._cached_tokens = 0
        self._plan = Plan(
            budget=room.budget,
            stages=order_stages(config.stages()),
            thresholds=config.thresholds(),
            language=config.language,
            is_auto=config.auto_compress,
            economics=config.economics(room.tariff) if config.economic else None,
        )

    def see(self, messages: Sequence[Message]) -> None:
        self._view = extend(self._view, messages)
        self._unsent.update(message.id for message in messages)

    def prepare(self, idle_s: float = 0.0) -> Step:
        before = self._view.tokens
        plan = replace(self._plan, unsent=frozenset(self._unsent))
        self._unsent.clear()
        if plan.economics is not None:
            carry = replace(self._carry, idle_s=idle_s)
            plan = replace(plan, economics=replace(plan.economics, carry=carry))
        self._asked = []
        self._cached_tokens = self._room.tariff.cached_tokens(self._sent_tokens, idle_s)
        try:
            outcome = self.run(plan)
        except BudgetTooSmall as error:
            return Step(self._view.items, self._view.tokens, reason=because.TOO_SMALL(), problem=str(error))
        self._view, self._carry = outcome.view, outcome.carry
        self._sent_tokens = outcome.view.tokens
        return Step(
            self._view.items,
            self._view.tokens,
            before - self._view.tokens,
            tuple(stage.stage for stage in outcome.stages if stage.edits),
            outcome.trigger.reason,
            tuple(self._asked),
        )

    def run(self, plan: Plan) -> Outcome:
        return drive(prepare(self._view, plan), self._answer)

    def _answer(self, ask: Ask) -> Reply:
        count = self._room.lens.count_text
        text = ask.prompt[-STAND_IN_CHARS:]
        prompt, reply = count(ask.system) + count(ask.prompt), min(ask.tokens_max, count(text))
        call, asked = SummariserCall(prompt, reply), count(ask.follow)
        # As with a real model: on the cached conversation if that is cheaper.
        riding = SummariserCall(self._sent_tokens + asked, reply, self._cached_tokens)
        tariff = self._room.tariff
        if ask.follow and self._sent_tokens and riding.charge(tariff).total < call.charge(tariff).total:
            call = riding
        self._asked.append(call)
        return Reply(text)


class Raw:
    """Sends everything, as if the window were unlimited."""

    keeps_originals: ClassVar[bool] = False

    def __init__(self, room: PolicyRoom) -> None:
        self._room = room
        self._items: list[Item] = []
        self._tokens = room.fixed_tokens

    def see(self, messages: Sequence[Message]) -> None:
        new = [self._room.lens.plain(message) for message in messages]
        self._items += new
        self._tokens += sum(item.tokens for item in new)

    def prepare(self, idle_s: float = 0.0) -> Step:  # noqa: ARG002
        return Step(tuple(self._items), self._tokens)


class LastFitting(Raw):
    """Keeps the system prompt and as many of the newest units as fit: once full, it slides with every request."""

    def prepare(self, idle_s: float = 0.0) -> Step:  # noqa: ARG002
        return self._send_newest(lambda item: item.tokens)

    def _send_newest(self, size: Callable[[Item], int]) -> Step:
        system = [item for item in self._items if item.role == "system"]
        rest = [item for item in self._items if item.role != "system"]
        room = self._room.budget.hard - self._room.fixed_tokens - sum(map(size, system))
        items = (*system, *_keep_newest(rest, room, size))
        return Step(items, self._room.fixed_tokens + sum(item.tokens for item in items))


class CharacterCut(LastFitting):
    """Cuts long messages and drops old ones by characters / 4, as many agents do; the bill counts tokens."""

    def see(self, messages: Sequence[Message]) -> None:
        most = int(self._room.budget.hard * CHARS_PER_TOKEN * MESSAGE_SHARE)
        self._items += [self._cut(message, most) for message in messages]

    def prepare(self, idle_s: float = 0.0) -> Step:  # noqa: ARG002
        return self._send_newest(lambda item: sum(len(part.text) for part in item.parts) // CHARS_PER_TOKEN)

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


class TrimWords(Raw):
    """Keeps the task and the newest half of the window; of older words head and tail fill the rest, old results go."""

    def prepare(self, idle_s: float = 0.0) -> Step:  # noqa: ARG002
        if self._tokens <= self._room.budget.hard:
            return Step(tuple(self._items), self._tokens)
        lens = self._room.lens
        system = [item for item in self._items if item.role == "system"]
        rest = [item for item in self._items if item.role != "system"]
        stated = find_task([item.message for item in rest], lens.is_observation)
        task = [item for item in rest if stated is not None and item.message.id == stated.id]
        room = self._room.budget.hard - self._room.fixed_tokens - sum(item.tokens for item in (*system, *task))
        newest = _keep_newest(rest, room // 2, lambda item: item.tokens)
        older = [item for item in rest[: len(rest) - len(newest)] if item not in task]
        task = [item for item in task if item not in newest]
        left = room - sum(item.tokens for item in newest) - TRIM_FRAME_TOKENS
        text = trim_words([read_words(item.parts) for item in older], left, lens.count_text)
        words = (
            [lens.fold(Edit("fold", "trim", tuple(item.message.id for item in older), text=text), ())] if text else []
        )
        items = (*system, *task, *words, *newest)
        return Step(items, self._room.fixed_tokens + sum(item.tokens for item in items))


def trim_words(texts: Sequence[str], tokens_max: int, count: Callable[[str], int]) -> str:
    """Return head and tail of each text, as many characters of each as fill so many tokens; no text if none fit."""
    texts = [text.strip() for text in texts if text.strip()]

    def cut(chars: int) -> str:
        half = chars // 2
        return "\n".join(one if len(one) <= chars else f"{one[:half]} … {one[len(one) - half :]}" for one in texts)

    low, high = 0, max(map(len, texts), default=0)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(cut(middle)) <= tokens_max else (low, middle - 1)
    return cut(low) if low else ""


class StickyMask:
    """Masks old observations in batches: at 0.75 of the budget, down to half of it. What is masked stays masked."""

    keeps_originals: ClassVar[bool] = False

    def __init__(self, room: PolicyRoom) -> None:
        self._room = room
        self._view: View = apply((), (), room.lens, fixed_tokens=room.fixed_tokens)
        self._stage = Mask(keep=1, values=0)

    def see(self, messages: Sequence[Message]) -> None:
        self._view = extend(self._view, messages)

    def prepare(self, idle_s: float = 0.0) -> Step:  # noqa: ARG002
        view = self._view
        fixed = view.fixed_tokens + sum(item.tokens for item in view.items if item.role == "system")
        room = self._room.budget.hard - fixed
        if view.tokens >= fixed + TRIGGER_SHARE * room:
            target = max(1, fixed + int(TARGET_SHARE * room))
            goal = Goal(target=target, hard=self._room.budget.hard)
            self._view = drive(climb(view, goal, (self._stage,)), lambda _: Reply()).view
        freed = view.tokens - self._view.tokens
        return Step(self._view.items, self._view.tokens, freed, ("mask",) if freed else ())


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


@dataclass(frozen=True, slots=True)
class Allowance:
    """The means of a peer: tokens for system messages and conversation, our counter, and our stand-in summariser."""

    tokens: int
    count: Callable[[Sequence[object]], int]
    ask: Callable[[str], str]


class Peer(Protocol):
    """One compressor over one session; it keeps its own state."""

    def prepare(self, new: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return what to send now; untouched messages are the very objects that were handed in."""


MakePeer = Callable[[Allowance], Peer]


class PeerPolicy:
    """Replays a session through a peer."""

    keeps_originals: ClassVar[bool] = False

    def __init__(self, room: PolicyRoom, make_peer: MakePeer) -> None:
        if room.lens.format.name != "openai-chat":
            raise FormatError(f"peers read OpenAI chat messages only, and this session is {room.lens.format.name}")
        self._room = room
        self._new: list[dict[str, Any]] = []
        self._items: dict[int, Item] = {}
        self._asked: list[SummariserCall] = []
        self._last = 0
        self._peer = make_peer(Allowance(room.budget.hard - room.fixed_tokens, self._count, self._ask))

    def see(self, messages: Sequence[Message]) -> None:
        for message in messages:
            assert isinstance(message.raw, dict)
            self._items[id(message.raw)] = self._room.lens.plain(message)
            self._new.append(message.raw)

    def prepare(self, idle_s: float = 0.0) -> Step:  # noqa: ARG002
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
        self._asked.append(SummariserCall(count(prompt), count(text)))
        return text


BASELINES: dict[str, Callable[[PolicyRoom], Policy]] = {
    "raw": Raw,
    "last-n": LastFitting,
    "mask": StickyMask,
    "chars": CharacterCut,
    "trim": TrimWords,
}


def find_baselines() -> dict[str, Callable[[PolicyRoom], Policy]]:
    """Return all baselines by name; LangChain's only where it is installed."""
    if find_spec("langchain") is None:
        return BASELINES
    return {**BASELINES, "langchain": lambda room: PeerPolicy(room, Summarisation)}
