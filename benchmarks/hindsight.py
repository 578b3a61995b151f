"""The cheapest schedule of cuts in hindsight, and what the trigger would have paid for the same trace.

For measuring only: nobody knows the requests to come. A trace is sizes alone. A cut leaves the head, ``kept_tokens`` of
summaries, and what is new with the request; what is new is written in any case. Pure numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from refold.budget.budget import Budget
from refold.budget.economics import Carry, Economics, Tariff, check_economics
from refold.budget.trigger import Counts, check_budget


@dataclass(frozen=True, slots=True)
class Trace:
    """A session in sizes: the head that no cut touches, what a cut keeps, and the new tokens of each request."""

    head_tokens: int
    kept_tokens: int
    growth: tuple[int, ...]

    @property
    def floor_tokens(self) -> int:
        """How large a view is right after a cut, without what is new."""
        return self.head_tokens + self.kept_tokens


@dataclass(frozen=True, slots=True)
class Schedule:
    """At which requests a cut was made, and what the input cost in all."""

    cuts: tuple[int, ...]
    cost: float


def find_unavoidable(trace: Trace, tariff: Tariff) -> float:
    """Return what every schedule pays: each new token written once, the head read with each request but the first."""
    rules = tariff.cache
    later = max(0, len(trace.growth) - 1)
    return rules.write * (trace.head_tokens + sum(trace.growth)) + rules.read * trace.head_tokens * later


def find_best_schedule(trace: Trace, hard: int, tariff: Tariff) -> Schedule:
    """Return the cheapest schedule whose requests all fit, by dynamic programming over the last cut: O(requests²)."""
    rules = tariff.cache
    # For each possible last cut (-1: none yet): the view's size, the cost so far, and the cuts on the way.
    states: dict[int, tuple[int, float, tuple[int, ...]]] = {}
    for at, new in enumerate(trace.growth):
        if at == 0:
            size = trace.head_tokens + new
            states[-1] = (size, rules.write * size, ())
            continue
        cheapest = min(states.values(), key=lambda state: state[1])
        moved = {
            last: (size + new, cost + rules.read * size + rules.write * new, cuts)
            for last, (size, cost, cuts) in states.items()
            if size + new <= hard
        }
        cut = rules.read * trace.head_tokens + rules.write * (trace.kept_tokens + new)
        moved[at] = (trace.floor_tokens + new, cheapest[1] + cut, (*cheapest[2], at))
        states = moved
    if not states:
        return Schedule((), 0.0)
    _, cost, cuts = min(states.values(), key=lambda state: state[1])
    return Schedule(cuts, cost)


def run_trigger(trace: Trace, budget: Budget, economics: Economics) -> Schedule:
    """Return what the economic trigger, and the budget's own, would have done with the same trace."""
    rules = economics.tariff.cache
    cuts: list[int] = []
    cost, size, carry = 0.0, 0, Carry()
    for at, new in enumerate(trace.growth):
        tokens = (size or trace.head_tokens) + new
        acts = at > 0 and (
            check_budget(Counts(tokens), budget).acts
            or check_economics(Counts(tokens), trace.head_tokens, budget, replace(economics, carry=carry)).acts
        )
        if acts and size > trace.floor_tokens:
            cost += rules.read * trace.head_tokens + rules.write * (trace.kept_tokens + new)
            size = trace.floor_tokens + new
            carry = carry.restart(size, trace.kept_tokens)
            cuts.append(at)
            continue
        cost += rules.read * size + rules.write * (tokens - size)
        size = tokens
        carry = carry.advance(tokens)
    return Schedule(tuple(cuts), cost)


def compare_costs(ours: Sequence[float], best: Sequence[float]) -> tuple[float, float]:
    """Return the ratio of the sums, and the worst single one; 1 where nothing was paid."""
    ratios = [one / other for one, other in zip(ours, best, strict=True) if other > 0]
    whole = math.fsum(best)
    return (math.fsum(ours) / whole if whole else 1.0), max(ratios, default=1.0)
