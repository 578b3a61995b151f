"""Decides whether to compress before a request, and forecasts when: one decision behind every interface. Pure.

Triggers compare the numbers with their limits. If none fires, prices may still justify a compression. The switch
and the brake (L9) hold back everything but *hard*, because a context must fit (L1). ``look_ahead`` asks the same
function, so an indicator announces a compression exactly if the next request makes one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from refold.budget.budget import Budget
from refold.budget.economics import Economics, check_economics, find_next_size
from refold.budget.trigger import Counts, Thresholds, Trigger, decide
from refold.conversation import because
from refold.conversation.message import frozen
from refold.conversation.reason import NO_REASON, Language, Reason, count_things, say


@frozen
class DecisionPolicy:
    """Inputs of a decision besides the numbers. ``head_tokens`` come before anything that a change could touch.

    ``forced`` is why a compression is due whatever the numbers say: a provider refused the last request as too long.
    ``braked`` is why automatic ones have stopped.
    """

    thresholds: Thresholds = Thresholds()
    economics: Economics | None = None
    head_tokens: int = 0
    is_auto: bool = True
    forced: Reason = NO_REASON
    braked: Reason = NO_REASON


@frozen
class Decision:
    """The decision. ``note`` says why not to compress, or why despite a switch; ``is_held``: it was held back."""

    trigger: Trigger
    acts: bool
    note: Reason = NO_REASON
    is_held: bool = False


def decide_batch(counts: Counts, budget: Budget, policy: DecisionPolicy) -> Decision:
    """Return whether a trigger fires and whether anything holds it back. *hard* is never held back (L1)."""
    trigger = _find_trigger(counts, budget, policy)
    if not trigger.acts:
        return Decision(trigger, False, trigger.reason)
    if trigger.strength == "hard":
        return Decision(trigger, True, NO_REASON if policy.is_auto else because.HAD_TO(because=trigger.reason))
    if not policy.is_auto:
        return Decision(trigger, False, because.HELD_OFF(because=trigger.reason), True)
    if policy.braked:
        return Decision(trigger, False, policy.braked, True)
    return Decision(trigger, True)


def _find_trigger(counts: Counts, budget: Budget, policy: DecisionPolicy) -> Trigger:
    trigger = decide(counts, budget, policy.thresholds)
    if policy.forced and trigger.strength != "hard":
        return Trigger("soft", policy.forced, True)
    if trigger.acts or policy.economics is None:
        return trigger
    economic = check_economics(counts, policy.head_tokens, budget, policy.economics)
    return economic if economic.acts or trigger.strength == "none" else trigger


Measure = Literal["messages", "turns", "tokens"]
_CHINESE: dict[Measure, str] = {"messages": "条消息", "turns": "轮", "tokens": "token"}


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
    """The thresholds of a session. ``nearest`` is the one that acts next.

    ``is_due``: the next request compresses. ``waits`` is why not, although a threshold is reached. ``saves_at`` is the
    estimated size at which a compression starts to save money, if the session goes on at its present rate.
    """

    limits: tuple[Limit, ...] = ()
    nearest: Limit = Limit("tokens", 0, 0)
    is_due: bool = False
    waits: Reason = NO_REASON
    saves_at: int | None = None

    @property
    def tokens_at(self) -> int | None:
        """The number of tokens at which a compression begins."""
        return next((limit.at for limit in self.limits if limit.measure == "tokens"), None)

    def tell(self, language: Language = "en") -> str:
        """Return the sentence, such as ``compresses at 100 messages or 4,000 tokens; 40 messages to go``."""
        zh = language == "zh"
        # A threshold that was passed and has to wait for more messages is not the one that acts next.
        acting = self.limits if self.is_due or self.nearest in self.limits else (self.nearest,)
        places = (" 或 " if zh else " or ").join(_count(one.at, one.measure, language) for one in acting)
        left = self._tell_left(language)
        return _space(f"达到 {places}时压缩；{left}") if zh else f"compresses at {places}; {left}"

    def _tell_left(self, language: Language) -> str:
        zh = language == "zh"
        if self.is_due:
            return "下一次请求将压缩" if zh else "the next request compresses"
        if self.waits:
            why = say(self.waits, language)
            return f"暂不压缩：{why}" if zh else f"not yet: {why}"
        if self.saves_at is not None:
            about = _count(self.saves_at, "tokens", language)
            return f"若能省钱则提前，预计约在 {about}" if zh else f"earlier if that saves money, at about {about}"
        missing = _count(self.nearest.left, self.nearest.measure, language)
        return f"还差 {missing}" if zh else f"{missing} to go"


def look_ahead(counts: Counts, budget: Budget, policy: DecisionPolicy) -> Ahead:
    """Return the thresholds that are set and the nearest, and whether the next request compresses."""
    decision = decide_batch(counts, budget, policy)
    trigger, limits = decision.trigger, _list_limits(counts, budget, policy.thresholds)
    nearest = max(limits, key=lambda one: one.share)
    if decision.acts and _acts_later(decision, counts, budget, policy):
        return Ahead(limits, nearest, True, saves_at=counts.tokens if trigger.is_economic else None)
    saves_at = None
    if policy.economics is not None:
        saves_at = find_next_size(counts, policy.head_tokens, budget, policy.economics)
    if nearest.left:
        missing = _count_first(counts, policy.thresholds) if nearest.measure == "messages" else 0
        missing = missing if missing > nearest.left else 0
    else:
        missing = trigger.missing
    if missing:
        return Ahead(limits, Limit("messages", counts.messages + missing, counts.messages))
    return Ahead(limits, nearest, False, NO_REASON if nearest.left else decision.note, saves_at)


def _acts_later(decision: Decision, counts: Counts, budget: Budget, policy: DecisionPolicy) -> bool:
    """Return whether a decision holds for a request that is larger, as the next one is: prices may change it."""
    if not decision.trigger.is_economic or policy.economics is None:
        return True
    growth = round(policy.economics.carry.find_growth(counts.tokens))
    larger = replace(counts, tokens=counts.tokens + growth, unsent_tokens=counts.unsent_tokens + growth)
    return decide_batch(larger, budget, policy).acts


def _count_first(counts: Counts, thresholds: Thresholds) -> int:
    """Return how many messages have to come before a fold by count has anything to take."""
    return max(0, thresholds.kept + 1 - counts.count_spoken(), thresholds.count_missing(counts))


def _list_limits(counts: Counts, budget: Budget, wanted: Thresholds) -> tuple[Limit, ...]:
    limits = []
    if wanted.rounds is not None:
        limits.append(Limit("messages", wanted.rounds, counts.messages))
    if wanted.messages is not None:
        limits.append(Limit("messages", wanted.messages + 1, counts.count_spoken()))
    if wanted.turns is not None:
        limits.append(Limit("turns", wanted.turns + 1, counts.turns))
    # If all tiers are the same number, a view of exactly that size still fits.
    by_tokens = Limit("tokens", budget.soft + (budget.soft >= budget.hard), counts.tokens)
    if wanted.tokens is not None and wanted.tokens <= by_tokens.at:
        by_tokens = Limit("tokens", wanted.tokens, counts.tokens)
    if wanted.reported_ratio is not None and counts.reported_tokens is not None:
        at = min(by_tokens.at, int(wanted.reported_ratio * budget.window))
        by_tokens = Limit("tokens", at, counts.reported_tokens)
    return (*limits, by_tokens)


def _count(number: int, measure: Measure, language: Language) -> str:
    return f"{number:,} {_CHINESE[measure]}" if language == "zh" else count_things(number, measure[:-1])


def _space(chinese: str) -> str:
    """Put a space between Latin and Chinese letters, and none between two Chinese ones."""
    return re.sub(
        r"(?<=[a-z])(?=[\u4e00-\u9fff])", " ", re.sub(r"(?<=[\u4e00-\u9fff]) (?=[\u4e00-\u9fff])", "", chinese)
    )
