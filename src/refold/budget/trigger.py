"""Triggers: pure functions that say whether to act now, how strongly, and why.

Each looks at numbers only. The reason goes into the report and the event log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from refold.budget.budget import Budget
from refold.conversation import because
from refold.conversation.message import frozen
from refold.conversation.reason import NO_REASON, Reason

Strength = Literal["none", "warn", "soft", "hard"]
_ORDER: dict[Strength, int] = {"none": 0, "warn": 1, "soft": 2, "hard": 3}


@dataclass(frozen=True, slots=True)
class Trigger:
    """How urgent a compression is. ``by_count``: a count or a person requests it; ``is_economic``: only prices do.

    ``by_size``: it is about tokens, so a compression that makes the context larger would not help. ``missing`` is how
    many more messages have to come first.
    """

    strength: Strength
    reason: Reason = NO_REASON
    by_count: bool = False
    is_economic: bool = False
    by_size: bool = False
    missing: int = 0

    @property
    def acts(self) -> bool:
        """True if a batch has to run."""
        return self.strength in ("soft", "hard")


@frozen
class Foldable:
    """What a fold that keeps the newest messages by count would take: messages and their tokens, without records."""

    messages: int
    tokens: int
    has_record: bool = False


@frozen
class Counts:
    """Measurements of the view: tokens (system prompt and tools included), messages, rounds; usage as reported.

    ``turns`` are rounds: a user message with its answer, or one step of an agent.

    ``unsent_tokens`` are those of messages that no request has contained yet. ``spoken`` is the number of messages that
    are not system messages; None if they were not counted. ``since`` is the number of messages since a count last
    compressed the session; None if no count did. ``document_tokens`` are those of long messages of people and of what
    an undo restored, which are not removed to save money. ``find_foldable`` measures what a fold by count could take,
    given whether it is forced; it is called only if a threshold is reached, and None if no count says what stays.
    """

    tokens: int
    messages: int = 0
    turns: int = 0
    reported_tokens: int | None = None
    unsent_tokens: int = 0
    spoken: int | None = None
    since: int | None = None
    document_tokens: int = 0
    find_foldable: Callable[[bool], Foldable] | None = field(default=None, compare=False, repr=False)

    def count_spoken(self) -> int:
        """Return how many messages are not system messages; all of them if they were not counted apart."""
        return self.messages if self.spoken is None else self.spoken


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
# Content of fewer tokens is not worth a record, which takes about half as many itself, unless it is this part of all.
WORTHWHILE_TOKENS, WORTHWHILE_PART = 320, 8


def check_budget(counts: Counts, budget: Budget) -> Trigger:
    """Compare the tokens of a view with the tiers of its budget."""
    tokens = counts.tokens
    if tokens > budget.hard:
        return Trigger("hard", because.OVER_HARD(tokens=tokens, limit=budget.hard))
    # If all tiers are the same number, a view of exactly that size still fits.
    if tokens >= budget.soft and budget.soft < budget.hard:
        if _frees_too_little(counts, budget):
            return Trigger("warn", because.UNSENT(tokens=tokens, unsent=counts.unsent_tokens))
        return Trigger("soft", because.OVER_SOFT(tokens=tokens, limit=budget.soft), by_size=True)
    if tokens >= budget.warn and budget.warn < budget.soft:
        return Trigger("warn", because.NEAR_SOFT(tokens=tokens, limit=budget.soft))
    return QUIET


def _frees_too_little(counts: Counts, budget: Budget) -> bool:
    """Return whether most of what is above the target must be sent whole first (L11): the next request frees more."""
    above = counts.tokens - budget.target
    return not budget.is_ruled and above - counts.unsent_tokens < FREED_SHARE * above


def _check_counts(counts: Counts, thresholds: Thresholds, budget: Budget) -> Iterator[Trigger]:
    """Yield a trigger for each count that reached its threshold, or passed it (messages, turns)."""
    spoken = counts.count_spoken()
    if thresholds.rounds is not None and counts.messages >= thresholds.rounds:  # S0.3
        yield Trigger("soft", because.ROUNDS(messages=counts.messages, limit=thresholds.rounds), True)
    if thresholds.messages is not None and spoken > thresholds.messages:  # S1.3: system messages are left out.
        yield Trigger("soft", because.MESSAGES(messages=spoken, limit=thresholds.messages), True)
    if thresholds.tokens is not None and counts.tokens >= thresholds.tokens:  # S0.3
        yield Trigger("soft", because.TOKENS(tokens=counts.tokens, limit=thresholds.tokens), True, by_size=True)
    if thresholds.turns is not None and counts.turns > thresholds.turns:  # S1.1
        yield Trigger("soft", because.TURNS(turns=counts.turns, limit=thresholds.turns), True)
    ratio, reported = thresholds.reported_ratio, counts.reported_tokens
    if ratio is not None and reported is not None and reported >= ratio * budget.window:  # S3.4
        share = round(reported / budget.window, 4)
        yield Trigger("soft", because.REPORTED(tokens=reported, share=share), True)


def decide(counts: Counts, budget: Budget, thresholds: Thresholds | None = None) -> Trigger:
    """Return the strongest trigger; of two equally strong ones the first, in the order of this file.

    A trigger that a compression could not satisfy now is only a warning, which says what it waits for.
    """
    thresholds = thresholds or Thresholds()
    found = (check_budget(counts, budget), *_check_counts(counts, thresholds, budget))
    strongest = max(found, key=lambda trigger: _ORDER[trigger.strength])
    return (strongest.strength == "soft" and _find_wait(strongest, counts, thresholds)) or strongest


def _find_wait(trigger: Trigger, counts: Counts, thresholds: Thresholds) -> Trigger | None:
    """Return what a fold by count waits for: older messages, more of them, or some distance to the last fold."""
    why, spoken = trigger.reason, counts.count_spoken()
    if trigger.by_count:
        if thresholds.kept and spoken <= thresholds.kept:
            few = because.TOO_FEW(because=why, messages=spoken, kept=thresholds.kept)
            return Trigger("warn", few, missing=thresholds.kept + 1 - spoken)
        if missing := thresholds.count_missing(counts):
            return Trigger("warn", because.SPACED(because=why, missing=missing), missing=missing)
    if counts.find_foldable is None:
        return None
    found = counts.find_foldable(trigger.by_count)
    if not found.messages:
        return Trigger("warn", because.NOTHING_OLD(because=why))
    if trigger.by_size and found.tokens < min(WORTHWHILE_TOKENS, counts.tokens // WORTHWHILE_PART):
        return Trigger("warn", because.TOO_LITTLE(because=why, messages=found.messages, tokens=found.tokens))
    missing = thresholds.spacing - found.messages
    if counts.since is None and found.has_record and missing > 0:
        return Trigger("warn", because.SPACED(because=why, missing=missing), missing=missing)
    return None
