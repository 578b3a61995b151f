"""Triggers: pure functions that say whether to act now, how strongly, and why.

Each looks at numbers only. The reason goes into the report and the event log. ``look_ahead`` uses the same numbers, so
that indicators announce what will happen: at which counts the next compression starts, and how near that is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from refold.budget.budget import Budget
from refold.conversation import because
from refold.conversation.message import frozen
from refold.conversation.reason import NO_REASON, Language, Reason, count_things

Strength = Literal["none", "warn", "soft", "hard"]
_ORDER: dict[Strength, int] = {"none": 0, "warn": 1, "soft": 2, "hard": 3}


@dataclass(frozen=True, slots=True)
class Trigger:
    """How urgent a compression is. ``by_count``: a count or a person requests it; ``is_economic``: only prices do."""

    strength: Strength
    reason: Reason = NO_REASON
    by_count: bool = False
    is_economic: bool = False

    @property
    def acts(self) -> bool:
        """True if a batch has to run."""
        return self.strength in ("soft", "hard")


@frozen
class Counts:
    """Measurements of the view: tokens (system prompt and tools included), messages, turns; usage as reported.

    ``unsent_tokens`` are those of messages that no request has contained yet. ``spoken`` is the number of messages that
    are not system messages; None if they were not counted. ``since`` is the number of messages since a count last
    compressed the session; None if no count did. ``document_tokens`` are those of long messages of people and of what
    an undo restored, which are not removed to save money.
    """

    tokens: int
    messages: int = 0
    turns: int = 0
    reported_tokens: int | None = None
    unsent_tokens: int = 0
    spoken: int | None = None
    since: int | None = None
    document_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Counts at which to act; None means never. ``messages`` and ``turns`` must be passed, the others reached.

    With no more than ``kept`` spoken messages there is nothing to compress, whatever the counts say. ``spacing`` is how
    many messages come between two compressions by count: what is kept may itself exceed a threshold, and then every
    request would archive one message.
    """

    rounds: int | None = None
    messages: int | None = None
    tokens: int | None = None
    turns: int | None = None
    reported_ratio: float | None = None
    kept: int = 0
    spacing: int = 0

    def count_missing(self, counts: Counts) -> int:
        """Return how many messages have to come before a count compresses again."""
        return 0 if counts.since is None else max(0, self.spacing - counts.since)


QUIET = Trigger("none")
# A soft trigger waits for one request if less than this share of the excess above the target can be removed now.
FREED_SHARE = 0.5


def check_budget(counts: Counts, budget: Budget) -> Trigger:
    """Compare the tokens of a view with the tiers of its budget."""
    tokens = counts.tokens
    if tokens > budget.hard:
        return Trigger("hard", because.OVER_HARD(tokens=tokens, limit=budget.hard))
    # If all tiers are the same number, a view of exactly that size still fits.
    if tokens >= budget.soft and budget.soft < budget.hard:
        if _frees_too_little(counts, budget):
            return Trigger("warn", because.UNSENT(tokens=tokens, unsent=counts.unsent_tokens))
        return Trigger("soft", because.OVER_SOFT(tokens=tokens, limit=budget.soft))
    if tokens >= budget.warn and budget.warn < budget.soft:
        return Trigger("warn", because.NEAR_SOFT(tokens=tokens, limit=budget.soft))
    return QUIET


def _frees_too_little(counts: Counts, budget: Budget) -> bool:
    """Return whether most of what is above the target must be sent whole first (L11): the next request frees more."""
    above = counts.tokens - budget.target
    return not budget.is_ruled and above - counts.unsent_tokens < FREED_SHARE * above


def _check_counts(counts: Counts, thresholds: Thresholds, budget: Budget) -> Iterator[Trigger]:
    """Yield a trigger for each count that reached its threshold, or passed it (messages, turns)."""
    spoken = counts.messages if counts.spoken is None else counts.spoken
    if thresholds.rounds is not None and counts.messages >= thresholds.rounds:  # S0.3
        yield Trigger("soft", because.ROUNDS(messages=counts.messages, limit=thresholds.rounds), True)
    if thresholds.messages is not None and spoken > thresholds.messages:  # S1.3: system messages are left out.
        yield Trigger("soft", because.MESSAGES(messages=spoken, limit=thresholds.messages), True)
    if thresholds.tokens is not None and counts.tokens >= thresholds.tokens:  # S0.3
        yield Trigger("soft", because.TOKENS(tokens=counts.tokens, limit=thresholds.tokens), True)
    if thresholds.turns is not None and counts.turns > thresholds.turns:  # S1.1
        yield Trigger("soft", because.TURNS(turns=counts.turns, limit=thresholds.turns), True)
    ratio, reported = thresholds.reported_ratio, counts.reported_tokens
    if ratio is not None and reported is not None and reported >= ratio * budget.window:  # S3.4
        share = round(reported / budget.window, 4)
        yield Trigger("soft", because.REPORTED(tokens=reported, share=share), True)


def decide(counts: Counts, budget: Budget, thresholds: Thresholds | None = None) -> Trigger:
    """Return the strongest trigger; of two equally strong ones the first, in the order of this file."""
    thresholds = thresholds or Thresholds()
    found = (check_budget(counts, budget), *_check_counts(counts, thresholds, budget))
    strongest = max(found, key=lambda trigger: _ORDER[trigger.strength])
    if strongest.by_count and counts.spoken is not None and counts.spoken <= thresholds.kept:
        why = because.TOO_FEW(because=strongest.reason, messages=counts.spoken, kept=thresholds.kept)
        return Trigger("warn", why)
    if strongest.by_count and (missing := thresholds.count_missing(counts)):
        return Trigger("warn", because.SPACED(because=strongest.reason, missing=missing))
    return strongest


Measure = Literal["messages", "turns", "tokens"]
_CHINESE: dict[Measure, str] = {"messages": "条消息", "turns": "轮", "tokens": "词元"}


@dataclass(frozen=True, slots=True)
class Limit:
    """One threshold: compression begins when ``now`` reaches ``at``."""

    measure: Measure
    at: int
    now: int

    @property
    def left(self) -> int:
        """The distance to the threshold."""
        return max(0, self.at - self.now)

    @property
    def share(self) -> float:
        """The progress towards the threshold, from 0 to 1."""
        return min(1.0, self.now / self.at) if self.at > 0 else 1.0

    def unit(self, language: Language = "en") -> str:
        """Return the measure in words."""
        return _CHINESE[self.measure] if language == "zh" else self.measure


@dataclass(frozen=True, slots=True)
class Ahead:
    """The thresholds of a session. ``nearest`` is the one that acts next."""

    limits: tuple[Limit, ...] = ()
    nearest: Limit = Limit("tokens", 0, 0)

    @property
    def is_due(self) -> bool:
        """True if the next request compresses."""
        return not self.nearest.left

    @property
    def tokens_at(self) -> int | None:
        """The number of tokens at which a compression begins."""
        return next((one.at for one in self.limits if one.measure == "tokens"), None)

    def tell(self, language: Language = "en") -> str:
        """Return the sentence, such as ``compresses at 100 messages or 4,000 tokens; 40 messages to go``."""
        zh = language == "zh"
        # A threshold that was passed and has to wait for more messages is not the one that acts next.
        acting = self.limits if self.is_due or self.nearest in self.limits else (self.nearest,)
        places = ("或 " if zh else " or ").join(_count(one.at, one.measure, language) for one in acting)
        if self.is_due:
            left = "下一次请求将压缩" if zh else "the next request compresses"
        else:
            missing = _count(self.nearest.left, self.nearest.measure, language)
            left = f"还差 {missing}" if zh else f"{missing} to go"
        return f"达到 {places}时压缩；{left}" if zh else f"compresses at {places}; {left}"


def look_ahead(
    counts: Counts, budget: Budget, thresholds: Thresholds | None = None, saves_at: int | None = None
) -> Ahead:
    """Return the thresholds that are set, and the nearest; ``saves_at`` is the size at which a change pays."""
    wanted = thresholds or Thresholds()
    spoken = counts.messages if counts.spoken is None else counts.spoken
    limits = []
    if wanted.rounds is not None:
        limits.append(Limit("messages", wanted.rounds, counts.messages))
    if wanted.messages is not None:
        limits.append(Limit("messages", wanted.messages + 1, spoken))
    if wanted.turns is not None:
        limits.append(Limit("turns", wanted.turns + 1, counts.turns))
    # If all tiers are the same number, a view of exactly that size still fits.
    soft = budget.soft + (budget.soft >= budget.hard)
    by_tokens = Limit("tokens", soft if saves_at is None else min(soft, saves_at), counts.tokens)
    if wanted.tokens is not None and wanted.tokens <= by_tokens.at:
        by_tokens = Limit("tokens", wanted.tokens, counts.tokens)
    if wanted.reported_ratio is not None and counts.reported_tokens is not None:
        at = min(by_tokens.at, int(wanted.reported_ratio * budget.window))
        by_tokens = Limit("tokens", at, counts.reported_tokens)
    limits.append(by_tokens)
    nearest = max(limits, key=lambda one: one.share)
    is_counted = nearest is not by_tokens or by_tokens.at == wanted.tokens
    # A count may be reached while there is nothing to compress yet, or the last compression was just now.
    missing = max(wanted.kept + 1 - spoken, wanted.count_missing(counts))
    is_message = nearest.measure == "messages" and nearest.left < missing
    if is_counted and missing > 0 and (is_message or not nearest.left) and counts.tokens <= budget.hard:
        nearest = Limit("messages", counts.messages + missing, counts.messages)
    return Ahead(tuple(limits), nearest)


def _count(number: int, measure: Measure, language: Language) -> str:
    return f"{number:,} {_CHINESE[measure]}" if language == "zh" else count_things(number, measure[:-1])
