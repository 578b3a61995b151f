"""The cost of requests, and when changing a cached prefix pays. Pure numbers, in units of one uncached input token.

``charge_request`` bills one request as the providers do: the shared prefix is read from the cache, the rest is written,
and above a cliff every price rises. ``check_economics`` compares what a fold now would save with what it would cost:
rewriting the prefix, and the agent's re-reading of content that it still needed. Nothing here looks at a conversation
or a clock; idle times and expected re-reads come as arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter

from refold.budget.budget import Budget
from refold.budget.trigger import QUIET, Counts, Trigger
from refold.conversation import because
from refold.conversation.message import frozen
from refold.tokens.models import CacheRules, Cliff, ModelInfo

# Where a model's prices are not known, an output token costs as much as it does at most providers.
OUTPUT_PRICE = 5.0
# A fold to save money must save at least this share of the bill that it looks at.
SAVING_SHARE_MIN = 0.1
# A fold that frees less than this share of the view would soon have to be repeated.
FREED_SHARE_MIN = 0.5
# A session is expected to make as many further requests as it has made so far, within these bounds.
REQUESTS_MIN, REQUESTS_MAX = 8, 40
# The number of requests that ``Rereads`` cover, and the output tokens of one call that re-reads something.
TABLE_REQUESTS = 20
REREAD_OUTPUT_TOKENS = 60
# In a window of at least this size, nothing is removed to save money while the view has fewer than these tokens.
LARGE_WINDOW, LARGE_FLOOR_TOKENS = 60_000, 30_000
# How many requests ahead to search for the next fold.
NEXT_REQUESTS_MAX = 400


@dataclass(frozen=True, slots=True)
class Tariff:
    """Prices as multiples of an uncached input token, and the rules of the cache."""

    cache: CacheRules
    output: float = OUTPUT_PRICE
    cliffs: tuple[Cliff, ...] = ()

    @classmethod
    def of_model(cls, model: ModelInfo) -> Tariff:
        prices = model.prices
        output = prices.output / prices.input if prices and prices.input else OUTPUT_PRICE
        return cls(model.cache, output, model.cliffs)

    def cached_tokens(self, shared_tokens: int, idle_s: float = 0.0) -> int:
        """Return how much of a shared prefix the provider still caches: whole steps, above its minimum, not expired."""
        rules = self.cache
        if not rules.is_active or idle_s > rules.lifetime_s or shared_tokens < rules.tokens_min:
            return 0
        return shared_tokens - shared_tokens % max(1, rules.step_tokens)

    def cliff_at(self, tokens: int) -> Cliff | None:
        """Return the highest cliff that a request of this size is above."""
        return max(
            (cliff for cliff in self.cliffs if tokens > cliff.above_tokens),
            default=None,
            key=attrgetter("above_tokens"),
        )


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
        """The cost of the input alone."""
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
class BilledRequest:
    """One request in numbers: ``shared_tokens`` is the prefix it has in common with the one before it."""

    tokens: int
    shared_tokens: int = 0
    output_tokens: int = 0
    idle_s: float = 0.0


def charge_request(request: BilledRequest, tariff: Tariff) -> Charge:
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


def charge_ask(prompt_tokens: int, reply_tokens: int, tariff: Tariff, cached_tokens: int = 0) -> Charge:
    """Bill one call of a summariser; ``cached_tokens`` of its prompt are read from the cache."""
    cliff = tariff.cliff_at(prompt_tokens)
    dearer_in, dearer_out = (cliff.input_factor, cliff.output_factor) if cliff else (1.0, 1.0)
    read_tokens = prompt_tokens - cached_tokens * (1 - tariff.cache.read)
    return Charge(summariser=read_tokens * dearer_in + tariff.output * reply_tokens * dearer_out)


@frozen
class Carry:
    """Figures of the requests since the last change of the prefix, including the request that carried the change.

    ``first_tokens`` and ``last_tokens`` are the sizes of the first and the last of these ``requests``.
    ``floor_tokens`` is how large the view was after the change (0: there was none yet), ``kept_tokens`` how much of it
    was written again because of it: the next change is expected to leave and to cost as much. ``session_requests``
    counts all requests of the session. ``idle_s`` is the time since the last request, where it is known.
    """

    requests: int = 0
    session_requests: int = 0
    first_tokens: int = 0
    last_tokens: int = 0
    floor_tokens: int = 0
    kept_tokens: int = 0
    idle_s: float = 0.0

    def advance(self, tokens: int) -> Carry:
        """Return the carry after one more request with the same prefix."""
        counts = (self.requests + 1, self.session_requests + 1)
        return Carry(*counts, self.first_tokens or tokens, tokens, self.floor_tokens, self.kept_tokens)

    def restart(self, tokens: int, kept_tokens: int) -> Carry:
        """Return the carry after a change that left ``tokens``, of which ``kept_tokens`` were written again."""
        return Carry(1, self.session_requests + 1, tokens, tokens, tokens, kept_tokens)

    def find_growth(self, tokens: int) -> float:
        """Return the new tokens per request, at least one."""
        return max(1.0, (tokens - self.first_tokens) / max(1, self.requests))


@dataclass(frozen=True, slots=True)
class Rereads:
    """The messages that an agent is expected to re-read within ``TABLE_REQUESTS`` of a fold, and their tokens."""

    count: float = 0.0
    tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class Economics:
    """Inputs of the economic trigger: the prices, the requests so far, and the cost of a fold besides the prefix.

    Nothing is removed to save money while the view has less than ``share_min`` of the room (30,000 tokens in a large
    window), or than ``tokens_min`` if that is less. ``expect_rereads`` says what is read again if so many of the oldest
    tokens are removed; it is called only if the estimate without it favours a fold.
    """

    tariff: Tariff
    carry: Carry = Carry()
    summary_cost: float = 0.0
    share_min: float = 0.0
    tokens_min: int = 0
    expect_rereads: Callable[[int], Rereads] = lambda _: Rereads()

    def find_floor(self, budget: Budget) -> float:
        """Return the size below which nothing is removed to save money."""
        share = self.share_min * budget.hard
        if budget.window >= LARGE_WINDOW:
            share = max(share, LARGE_FLOOR_TOKENS)
        return min(share, self.tokens_min) if self.tokens_min else share


@dataclass(frozen=True, slots=True)
class Forecast:
    """The saving expected of a fold over the next ``requests``, and its cost; ``bill`` is that of the rest."""

    removable: int
    requests: float
    gross: float
    cost: float
    bill: float

    @property
    def share(self) -> float:
        """The saving as a share of the bill."""
        return (self.gross - self.cost) / self.bill if self.bill > 0 else 0.0


def count_removable(counts: Counts, budget: Budget, carry: Carry) -> int:
    """Return the tokens that a change could remove; documents and messages not sent yet (L11) stay."""
    kept = max(carry.floor_tokens or budget.target, budget.target + counts.document_tokens)
    return max(0, counts.tokens - counts.unsent_tokens - kept)


def check_economics(counts: Counts, head_tokens: int, budget: Budget, economics: Economics) -> Trigger:
    """Return a trigger if a fold now saves a clear part of the bill. ``head_tokens`` precede any possible change."""
    carry, tariff = economics.carry, economics.tariff
    if not carry.requests:
        return QUIET
    cliff = _find_cliff_ahead(counts.tokens, carry, tariff)
    if cliff is not None and counts.tokens - counts.unsent_tokens - counts.document_tokens > budget.target:
        reason = because.CLIFF(above=cliff.above_tokens, factor=cliff.input_factor)
        return Trigger("soft", reason, is_economic=True)
    if not tariff.cache.is_active or counts.tokens < economics.find_floor(budget):
        return QUIET
    forecast = forecast_fold(counts, head_tokens, budget, economics)
    if forecast is None:
        return QUIET
    if forecast.share >= SAVING_SHARE_MIN:
        if carry.idle_s > tariff.cache.lifetime_s:
            return Trigger("soft", because.COLD(minutes=round(carry.idle_s / 60)), is_economic=True)
        requests = round(forecast.requests)
        reason = because.SAVES(removable=forecast.removable, share=round(forecast.share, 4), requests=requests)
        return Trigger("soft", reason, is_economic=True)
    return Trigger("none", because.WAIT(removable=forecast.removable, share=round(forecast.share, 4)))


def forecast_fold(counts: Counts, head_tokens: int, budget: Budget, economics: Economics) -> Forecast | None:
    """Return what a fold now is expected to save, re-reads included; None if there is nothing to save.

    The session is expected to make as many further requests as it has made. A fold that the window will force anyway
    limits the saving to the requests before it; the bill covers all expected requests.
    """
    carry, rules, tokens = economics.carry, economics.tariff.cache, counts.tokens
    removable = count_removable(counts, budget, carry)
    growth = carry.find_growth(tokens)
    expected = min(max(carry.session_requests, REQUESTS_MIN), REQUESTS_MAX)
    requests = min(float(expected), (budget.soft - tokens) / growth)
    if removable < FREED_SHARE_MIN * tokens or requests < 1:
        return None
    gross = rules.read * removable * requests
    mean = min(tokens + growth * expected / 2, (tokens + budget.soft) / 2)
    bill = expected * (rules.read * mean + rules.write * growth)
    kept = carry.kept_tokens or max(0, budget.target - head_tokens)
    is_cold = carry.idle_s > rules.lifetime_s
    cost = economics.summary_cost + (0.0 if is_cold else max(0.0, rules.write - rules.read) * kept)
    if gross - cost >= SAVING_SHARE_MIN * bill:
        again, share = economics.expect_rereads(removable), min(1.0, requests / TABLE_REQUESTS)
        each = rules.read * (tokens - removable) + economics.tariff.output * REREAD_OUTPUT_TOKENS
        cost += share * (again.count * each + again.tokens * rules.write)
    return Forecast(removable, requests, gross, cost, bill)


def find_next_size(counts: Counts, head_tokens: int, budget: Budget, economics: Economics) -> int | None:
    """Return the size at which a fold would save money if the session continues at the same rate; else None."""
    carry = economics.carry
    if not carry.requests:
        return None
    growth = carry.find_growth(counts.tokens)
    for ahead in range(NEXT_REQUESTS_MAX):
        tokens = round(counts.tokens + ahead * growth)
        if tokens >= budget.soft:
            return None
        requests, all_requests = carry.requests + ahead, carry.session_requests + ahead
        later = replace(carry, requests=requests, session_requests=all_requests, last_tokens=tokens, idle_s=0.0)
        sized = replace(counts, tokens=tokens, unsent_tokens=min(counts.unsent_tokens, round(growth)))
        if check_economics(sized, head_tokens, budget, replace(economics, carry=later)).acts:
            return tokens
    return None


def _find_cliff_ahead(tokens: int, carry: Carry, tariff: Tariff) -> Cliff | None:
    """Return the cliff that this request is above, or that the next one would be at the same growth."""
    growth = max(0, tokens - carry.last_tokens)
    now, then = tariff.cliff_at(tokens), tariff.cliff_at(tokens + growth)
    return now or then
