"""What requests cost, and when changing a cached prefix pays. Pure numbers, in units of one uncached input token.

``charge_request`` bills one request as the providers do: the shared prefix is read, what comes after it is written,
all at other prices above a cliff. ``check_economics`` is the ski-rental rule: act once carrying what could be removed
has cost as much as removing it. Nothing here looks at a conversation or a clock; idle times come as arguments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from refold.budget.budget import Budget
from refold.budget.trigger import QUIET, Counts, Trigger
from refold.conversation import because
from refold.tokens.models import CacheRules, Cliff, ModelInfo

# Where a model's prices are not known, an output token costs as much as it does at most providers.
OUTPUT_PRICE = 5.0
# With a cold cache a change is free, but what it hides is not: it must take out at least this share of what it keeps.
COLD_SHARE = 0.5
# Cuts that free less than this share of what they keep are not worth the words they hide, whatever was paid.
FREED_SHARE_MIN = 0.25
# Nor those that free less than this of the room below which nothing goes: in a small window they would come with every
# other request.
FREED_OF_SHARE_MIN = 0.75


@dataclass(frozen=True, slots=True)
class Tariff:
    """Prices as multiples of an uncached input token, and the rules of the cache."""

    cache: CacheRules
    output: float = OUTPUT_PRICE
    cliffs: tuple[Cliff, ...] = ()

    @classmethod
    def of_model(cls, model: ModelInfo) -> Tariff:
        """Return the tariff of a model."""
        prices = model.prices
        output = prices.output / prices.input if prices and prices.input else OUTPUT_PRICE
        return cls(model.cache, output, model.cliffs)

    def cached_tokens(self, shared_tokens: int, idle_s: float = 0.0) -> int:
        """Return how much of a shared prefix the provider still has: whole steps, above its minimum, not expired."""
        rules = self.cache
        if not rules.is_active or idle_s > rules.lifetime_s or shared_tokens < rules.tokens_min:
            return 0
        return shared_tokens - shared_tokens % max(1, rules.step_tokens)

    def cliff_at(self, tokens: int) -> Cliff | None:
        """Return the highest cliff that a request of this size is above."""
        return max((cliff for cliff in self.cliffs if tokens > cliff.above_tokens), default=None, key=_height)


def _height(cliff: Cliff) -> int:
    return cliff.above_tokens


@dataclass(frozen=True, slots=True)
class Charge:
    """A bill by cause. ``new`` is input at the plain price: there is no cache, or too little to write one."""

    read: float = 0.0
    write: float = 0.0
    new: float = 0.0
    output: float = 0.0
    summariser: float = 0.0

    @property
    def input(self) -> float:
        """What the input alone cost."""
        return self.read + self.write + self.new

    @property
    def total(self) -> float:
        """The whole bill."""
        return self.input + self.output + self.summariser


CAUSES = tuple(cause.name for cause in fields(Charge))


def sum_charges(charges: Sequence[Charge]) -> Charge:
    """Return one bill for several, without the drift of adding floats one by one."""
    return Charge(*(math.fsum(getattr(charge, cause) for charge in charges) for cause in CAUSES))


@dataclass(frozen=True, slots=True)
class Request:
    """One request in numbers: ``shared_tokens`` is the prefix it has in common with the one before it."""

    tokens: int
    shared_tokens: int = 0
    output_tokens: int = 0
    idle_s: float = 0.0


def charge_request(request: Request, tariff: Tariff) -> Charge:
    """Bill one request: the cached prefix is read, the rest written; above a cliff everything costs more."""
    rules = tariff.cache
    cached = tariff.cached_tokens(min(request.shared_tokens, request.tokens), request.idle_s)
    rest = request.tokens - cached
    cliff = tariff.cliff_at(request.tokens)
    dearer_in, dearer_out = (cliff.input_factor, cliff.output_factor) if cliff else (1.0, 1.0)
    is_written = rules.is_active and request.tokens >= rules.tokens_min
    return Charge(
        read=rules.read * cached * dearer_in,
        write=rules.write * rest * dearer_in if is_written else 0.0,
        new=0.0 if is_written else rest * dearer_in,
        output=tariff.output * request.output_tokens * dearer_out,
    )


def charge_ask(prompt_tokens: int, reply_tokens: int, tariff: Tariff) -> Charge:
    """Bill one call of a summariser: nothing of its prompt is cached, nothing is written."""
    cliff = tariff.cliff_at(prompt_tokens)
    dearer_in, dearer_out = (cliff.input_factor, cliff.output_factor) if cliff else (1.0, 1.0)
    return Charge(summariser=prompt_tokens * dearer_in + tariff.output * reply_tokens * dearer_out)


@dataclass(frozen=True, slots=True)
class Carry:
    """What has been carried since the last change: ``tokens`` sums what could be removed over ``requests``.

    ``floor_tokens`` is how large the view was after that change, ``kept_tokens`` how much of it stood after the
    earliest change: the next one is expected to leave and to cost as much. ``idle_s`` is the time since the last
    request, where it is known.
    """

    tokens: int = 0
    requests: int = 0
    floor_tokens: int = 0
    kept_tokens: int = 0
    last_tokens: int = 0
    idle_s: float = 0.0

    def advance(self, tokens: int, removable: int) -> Carry:
        """Return the carry after one more request that changed nothing."""
        return replace(self, tokens=self.tokens + removable, requests=self.requests + 1, last_tokens=tokens, idle_s=0.0)

    def restart(self, tokens: int, kept_tokens: int) -> Carry:
        """Return the carry after a change that left ``tokens``, of which ``kept_tokens`` are written anew."""
        return Carry(floor_tokens=tokens, kept_tokens=kept_tokens, last_tokens=tokens)


@dataclass(frozen=True, slots=True)
class Economics:
    """What the economic trigger knows: the prices, what has been carried, and what a summary costs to write.

    Below ``share_min`` of the room nothing is removed to save money: what is in view is worth more than it costs. Nor
    is anything that frees less than three quarters of that.
    """

    tariff: Tariff
    carry: Carry = Carry()
    summary_cost: float = 0.0
    share_min: float = 0.0


def count_removable(tokens: int, budget: Budget, carry: Carry) -> int:
    """Return the tokens that a change could remove: what came since the last one, or is above the target."""
    return max(0, tokens - find_base(budget, carry))


def find_base(budget: Budget, carry: Carry) -> int:
    """Return how large the view would be after a change: as after the last one; before any, the target."""
    return carry.floor_tokens or budget.target


def find_rewrite_cost(kept_tokens: int, economics: Economics) -> float:
    """Return what a change of a warm prefix costs: what is kept after it is written anew instead of read."""
    rules = economics.tariff.cache
    return max(0.0, rules.write - rules.read) * kept_tokens + economics.summary_cost


def advance_carry(carry: Carry, tokens: int, budget: Budget) -> Carry:
    """Return the carry after a request that changed nothing."""
    return carry.advance(tokens, count_removable(tokens, budget, carry))


def check_economics(counts: Counts, head_tokens: int, budget: Budget, economics: Economics) -> Trigger:
    """Say whether a change pays now. ``head_tokens`` is the part of the view before anything that could change.

    What no request contained yet is not removable, and has not been carried: it must be sent whole first (L11).
    """
    carry, tariff, tokens = economics.carry, economics.tariff, counts.tokens
    removable = count_removable(tokens - counts.unsent_tokens, budget, carry)
    kept = carry.kept_tokens or max(0, find_base(budget, carry) - head_tokens)
    if removable <= 0 or not carry.requests:
        return QUIET
    cliff = _find_cliff_ahead(tokens, carry, tariff)
    if cliff is not None:
        return Trigger(
            "soft",
            because.CLIFF(above=cliff.above_tokens, factor=cliff.input_factor),
            is_economic=True,
        )
    least = economics.share_min * budget.hard
    is_little = removable < max(FREED_SHARE_MIN * kept, FREED_OF_SHARE_MIN * least)
    if not tariff.cache.is_active or is_little or tokens < least:
        return QUIET
    if carry.idle_s > tariff.cache.lifetime_s and removable >= COLD_SHARE * kept:
        return Trigger(
            "soft",
            because.COLD(minutes=round(carry.idle_s / 60)),
            is_economic=True,
        )
    cost = find_rewrite_cost(kept, economics)
    paid = tariff.cache.read * carry.tokens
    if paid >= cost:
        return Trigger(
            "soft",
            because.PAYS(removable=removable, paid=round(paid), requests=carry.requests, cost=round(cost)),
            is_economic=True,
        )
    left = math.ceil((cost - paid) / (tariff.cache.read * removable)) if tariff.cache.read else 0
    if not left:
        return QUIET
    return Trigger("none", because.WAIT(removable=removable, requests=left))


def _find_cliff_ahead(tokens: int, carry: Carry, tariff: Tariff) -> Cliff | None:
    """Return the cliff that this request is above, or that the next one would be at the same growth."""
    growth = max(0, tokens - carry.last_tokens) if carry.requests else 0
    now, then = tariff.cliff_at(tokens), tariff.cliff_at(tokens + growth)
    return now or then
