"""Studies one recorded session: its size, its bill, what was read twice, what the client's compactions lost.

A study holds numbers only, no text. Requests are billed by the prices of the session's model; where the provider's
usage is in the recording, that is the bill. The bill with refold is estimated without compressing anything: sizes of
messages, refold's own decisions (``budget``), and the size to which a fold brings the context.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from refold.budget import Tariff
from refold.budget.decision import DecisionPolicy, decide_batch
from refold.budget.economics import BilledRequest, Carry, charge_request
from refold.budget.trigger import Counts
from refold.config import CompressionConfig
from refold.conversation.message import Message, Part
from refold.conversation.view import Lens
from refold.formats import parse_messages
from refold.formats.detect import make_format
from refold.readers.session import Session
from refold.reading.calls import read_call
from refold.reading.events import Action
from refold.replay.record import find_probes
from refold.tokens import Counter, counter_for, model_info
from refold.tokens.models import ModelInfo

WINDOWS = (64_000, 128_000, 200_000)
# A result, or a text of the user's, of at least this many tokens counts as long.
LONG_TOKENS = 2_000
# What is older than this many requests is seldom looked at, and sent with every one.
OLD_REQUESTS = 40
HABITS = ("read again", "long files", "long outputs", "pasted", "cold cache", "old history", "instructions")
# A model without a known price is billed like this one, and the report says so.
USUAL_MODEL = "claude-sonnet-4-5"


@dataclass(frozen=True, slots=True)
class WindowEstimate:
    """The session in one window with refold: dollars, folds, and the largest request."""

    dollars: float
    folds: int
    peak: int


@dataclass(frozen=True, slots=True)
class Study:
    """One session in numbers. ``dollars`` is the bill as recorded; ``habits`` the dollars by cause, which overlap.

    ``lost`` are values that a compaction of the client dropped and that the agent used afterwards; ``used`` are all
    values of that kind. ``is_reported``: the provider's usage is in the recording.
    """

    client: str
    started: float
    ended: float
    model: str
    requests: int
    tokens: int
    peak: int
    dollars: float
    is_reported: bool
    is_priced: bool
    estimates: Mapping[int, WindowEstimate]
    reads: int = 0
    repeated: int = 0
    repeated_tokens: int = 0
    compactions: int = 0
    used: int = 0
    lost: int = 0
    habits: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Study:
        estimates = {int(window): WindowEstimate(**one) for window, one in plain["estimates"].items()}
        return cls(**{**plain, "estimates": estimates})


def study_session(session: Session, windows: Sequence[int] = WINDOWS) -> Study | None:
    """Return the study of a session; None if no request was made in it."""
    info = model_info(session.model)
    is_priced = info.prices is not None
    info = info if is_priced else model_info(USUAL_MODEL)
    counter = counter_for(info.name or None)
    messages = parse_messages(make_format(session.format), session.messages)
    sizes = _Sizes.measure(session, messages, counter)
    requests = list(_list_requests(session, messages, sizes))
    if not requests:
        return None
    tariff = Tariff.of_model(info)
    price = info.prices.input / 1e6 if info.prices else 0.0
    recorded = _bill_recorded(requests, sizes, tariff)
    reported = _bill_reported(session, tariff, len(requests))
    billed = reported or recorded
    estimates = {window: _estimate(requests, sizes, info, window) for window in windows}
    # What is estimated is the ratio; applied to what was really billed, an error in sizes does not count twice.
    scale = price * billed / recorded if recorded else 0.0
    reads = _Reads(messages)
    used, lost = _count_lost(session)
    return Study(
        client=session.client,
        started=session.times[0] if session.times else 0.0,
        ended=session.times[-1] if session.times else 0.0,
        model=session.model,
        requests=len(requests),
        tokens=sum(request.tokens for request in requests),
        peak=max(request.tokens for request in requests),
        dollars=price * billed,
        is_reported=bool(reported),
        is_priced=is_priced,
        estimates={window: replace(one, dollars=one.dollars * scale) for window, one in estimates.items()},
        reads=reads.count,
        repeated=len(reads.repeated),
        repeated_tokens=sum(sizes.messages[at] for at in reads.repeated),
        compactions=len(session.compactions),
        used=used,
        lost=lost,
        habits={name: scale * cost for name, cost in _cost_habits(requests, sizes, reads, messages, tariff).items()},
    )


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Tokens of each message, and of what every request has besides (system prompt and tools)."""

    messages: tuple[int, ...]
    fixed: int

    @classmethod
    def measure(cls, session: Session, messages: Sequence[Message], counter: Counter) -> _Sizes:
        form = make_format(session.format)
        lens = Lens(form, counter.count_parts, counter.count_text)
        sizes = tuple(lens.plain(message).tokens for message in messages)
        if session.reported:
            first = session.reported[0]
            return cls(sizes, max(0, first.prompt - sum(sizes[: first.at])))
        system = counter.count_text(form.read_system(session.system))
        return cls(sizes, system + counter.count_tools(session.tools))


@dataclass(frozen=True, slots=True)
class _Request:
    """A request: the answer begins at message ``at``; of the history, what lies before ``start`` is compacted away."""

    at: int
    start: int
    summary: int
    tokens: int
    output: int
    idle_s: float


def _list_requests(session: Session, messages: Sequence[Message], sizes: _Sizes) -> Iterator[_Request]:
    compacted = {one.at: len(one.summary) // 4 for one in session.compactions}
    start = summary = history = 0
    last = -1
    for at, message in enumerate(messages):
        if at in compacted:
            start, summary, history = at, compacted[at], 0
        if message.role == "assistant" and at > 0 and not (last == at - 1 and session.format == "openai-responses"):
            idle_s = session.idle_before(at - 1, last) if last >= 0 else 0.0
            yield _Request(at, start, summary, sizes.fixed + summary + history, sizes.messages[at], idle_s)
        if message.role == "assistant":
            last = at
        history += sizes.messages[at]


def _bill_recorded(requests: Sequence[_Request], sizes: _Sizes, tariff: Tariff) -> float:
    """Bill the session as the client sent it: a prefix that grows, and begins again after a compaction."""
    total, before = 0.0, None
    for request in requests:
        shared = 0 if before is None else (before.tokens if before.start == request.start else sizes.fixed)
        billed = BilledRequest(request.tokens, shared, request.output, request.idle_s)
        total += charge_request(billed, tariff).total
        before = request
    return total


def _bill_reported(session: Session, tariff: Tariff, requests: int) -> float:
    """Bill the usage that the provider reported; nothing if most requests have none."""
    if len(session.reported) < requests / 2:
        return 0.0
    rules = tariff.cache
    read, write = (rules.read, rules.write) if rules.is_active else (1.0, 1.0)
    return sum(
        one.input + read * one.cached + write * one.written + tariff.output * one.output for one in session.reported
    )


def _estimate(requests: Sequence[_Request], sizes: _Sizes, info: ModelInfo, window: int) -> WindowEstimate:
    """Play the session with refold in a window, in numbers: every message comes, and a fold leaves the target."""
    config = CompressionConfig(window=window)
    tariff = Tariff.of_model(info)
    budget = config.budget(info, 0.0).above(sizes.fixed)
    economics = config.economics(tariff)
    carry, size, seen, sent, total, folds, peak = Carry(), sizes.fixed, 0, 0, 0.0, 0, 0
    for request in requests:
        new = sum(sizes.messages[seen : request.at])
        size, seen = size + new, request.at
        policy = DecisionPolicy(
            economics=replace(economics, carry=replace(carry, idle_s=request.idle_s)), head_tokens=sizes.fixed
        )
        if decide_batch(Counts(size, unsent_tokens=new), budget, policy).acts and size - new > budget.target:
            # What is new is sent whole: it comes on top, as far as the room goes.
            size = min(max(budget.target, sizes.fixed + new), budget.hard)
            carry, folds, sent = carry.restart(size, max(0, size - sizes.fixed)), folds + 1, sizes.fixed
        else:
            size = min(size, budget.hard)
            carry = carry.advance(size)
        total += charge_request(BilledRequest(size, sent, request.output, request.idle_s), tariff).total
        sent, peak = size, max(peak, size)
    return WindowEstimate(total, folds, peak)


class _Reads:
    """The calls of a session that read something, and the results of those that had been read before."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.count = 0
        self.repeated: list[int] = []
        self.verbs: dict[int, str] = {}
        made: dict[str, Action] = {}
        seen: set[tuple[str, ...]] = set()
        for at, message in enumerate(messages):
            for number, part in enumerate(message.parts):
                if part.kind == "call":
                    made[part.call_id] = _find_action(part, number)
                    if made[part.call_id].verb in ("edit", "create", "move", "delete", "revert"):
                        seen -= {key for key in seen if set(key) & set(made[part.call_id].targets)}
                elif part.kind == "result" and (action := made.get(part.call_id)) is not None:
                    self.verbs[at] = action.verb
                    if action.verb == "read" and action.targets:
                        self.count += 1
                        key = (action.text, *action.targets)
                        if key in seen:
                            self.repeated.append(at)
                        seen.add(key)


def _find_action(part: Part, number: int) -> Action:
    return next((event for event in read_call(part, number) if isinstance(event, Action)), Action())


def _count_lost(session: Session) -> tuple[int, int]:
    """Return how many values from before a compaction were used after it, and how many of them it had dropped."""
    used = lost = 0
    if not session.compactions:
        return 0, 0
    probes = find_probes(session)
    for number, compaction in enumerate(session.compactions):
        until = session.compactions[number + 1].at if number + 1 < len(session.compactions) else len(session.messages)
        values = {
            probe.value
            for probe in probes
            if compaction.at <= probe.step < until and probe.step - probe.distance < compaction.at
        }
        used += len(values)
        lost += sum(value not in compaction.summary for value in values)
    return used, lost


def _cost_habits(
    requests: Sequence[_Request], sizes: _Sizes, reads: _Reads, messages: Sequence[Message], tariff: Tariff
) -> dict[str, float]:
    """Return what each habit cost, in uncached input tokens: what it put into the context is sent with each request."""
    rules = tariff.cache
    read, write = (rules.read, rules.write) if rules.is_active else (1.0, 1.0)
    repeated = set(reads.repeated)
    costs: defaultdict[str, float] = defaultdict(float)
    for number, request in enumerate(requests):
        is_cold = rules.is_active and (number == 0 or request.idle_s > rules.lifetime_s)
        if is_cold and number:
            costs["cold cache"] += (write - read) * requests[number - 1].tokens
        costs["instructions"] += (write if is_cold else read) * sizes.fixed
        if number >= OLD_REQUESTS:
            old = requests[number - OLD_REQUESTS]
            if old.start == request.start:
                costs["old history"] += read * max(0, old.tokens - sizes.fixed)
    for at, size in enumerate(sizes.messages):
        habit = _find_habit(at, size, messages[at], reads, repeated)
        if habit:
            carried = sum(1 for request in requests if request.at > at >= request.start)
            costs[habit] += size * (write + read * max(0, carried - 1)) if carried else 0.0
    return dict(costs)


def _find_habit(at: int, size: int, message: Message, reads: _Reads, repeated: set[int]) -> str:
    if at in repeated:
        return "read again"
    if size < LONG_TOKENS:
        return ""
    if at in reads.verbs:
        return "long files" if reads.verbs[at] == "read" else "long outputs"
    return "pasted" if message.starts_turn else ""
