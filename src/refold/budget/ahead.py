"""The thresholds ahead: at which counts the next compression begins, and how far away the nearest is. Pure.

Every indicator says this sentence: gauge, ``/context``, ``context_status``, page and status. It follows the same
numbers as ``trigger``, so that what is announced is what acts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from refold.budget.budget import Budget
from refold.budget.trigger import Counts, Thresholds
from refold.conversation.language import Language, count_things

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
        """How much is missing."""
        return max(0, self.at - self.now)

    @property
    def share(self) -> float:
        """How much of the way is done, from 0 to 1."""
        return min(1.0, self.now / self.at) if self.at > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Ahead:
    """The thresholds of a session. ``nearest`` is the one that acts next."""

    limits: tuple[Limit, ...] = ()
    nearest: Limit = Limit("tokens", 0, 0)

    @property
    def is_due(self) -> bool:
        """True if the next request compresses."""
        return not self.nearest.left

    def tell(self, language: Language = "en") -> str:
        """Return the sentence, such as ``compresses at 100 messages or 4,000 tokens; 40 messages to go``."""
        zh = language == "zh"
        places = (" 或 " if zh else " or ").join(_count(one.at, one.measure, language) for one in self.limits)
        if self.is_due:
            left = "下一次请求将压缩" if zh else "the next request compresses"
        else:
            missing = _count(self.nearest.left, self.nearest.measure, language)
            left = f"还差 {missing}" if zh else f"{missing} to go"
        return f"达到 {places} 时压缩；{left}" if zh else f"compresses at {places}; {left}"


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
    # Where all tiers are one number, reaching it is still a fit.
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
    if is_counted and not nearest.left and spoken <= wanted.kept and counts.tokens <= budget.hard:
        # A count was reached, but with so few messages there is nothing to compress yet.
        nearest = Limit("messages", wanted.kept + 1, spoken)
    return Ahead(tuple(limits), nearest)


def _count(number: int, measure: Measure, language: Language) -> str:
    return f"{number:,} {_CHINESE[measure]}" if language == "zh" else count_things(number, measure[:-1])
