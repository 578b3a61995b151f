"""The record of one session under one preset: numbers per request and per probe. Plain values, JSON both ways.

Times are kept apart, so that the same input gives the same record on every machine.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from refold.budget.economics import Charge, Request, Tariff, charge_ask, charge_request, sum_charges
from refold.conversation.reason import NO_REASON, Reason, read_reason

# A tool call that reads something again, in output tokens.
REREAD_OUTPUT_TOKENS = 60


@dataclass(frozen=True, slots=True)
class Asked:
    """One call of the summariser, in tokens."""

    prompt_tokens: int
    reply_tokens: int


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request: what was sent, whether the provider would accept it, and what was changed before it and why.

    ``runs`` counts the text that the answer copied from earlier messages (see ``copied``), ``rereads`` holds the tokens
    of each message that the agent would have had to read again for it, once per compression.
    """

    at: int
    tokens: int
    shared_tokens: int
    output_tokens: int
    idle_s: float = 0.0
    is_fit: bool = True
    violations: tuple[str, ...] = ()
    is_intact: bool = True
    is_break: bool = False
    tokens_freed: int = 0
    stages: tuple[str, ...] = ()
    reason: Reason = NO_REASON
    asked: tuple[Asked, ...] = ()
    runs: int = 0
    runs_in_view: int = 0
    rereads: tuple[int, ...] = ()

    def charge(self, tariff: Tariff) -> Charge:
        """Return what this request cost, its summariser calls included."""
        request = Request(self.tokens, self.shared_tokens, self.output_tokens, self.idle_s)
        asked = [charge_ask(one.prompt_tokens, one.reply_tokens, tariff) for one in self.asked]
        return sum_charges([charge_request(request, tariff), *asked])

    def charge_rereads(self, tariff: Tariff) -> float:
        """Return what reading missing sources again would cost: for each one request from the cache, and its text."""
        request = Request(self.tokens, self.tokens, REREAD_OUTPUT_TOKENS)
        return len(self.rereads) * charge_request(request, tariff).total + sum(self.rereads)


@dataclass(frozen=True, slots=True)
class ProbeRecord:
    """Whether a value was verbatim in view when the recording used it, or else was found by recall."""

    at: int
    sort: str
    distance: int
    is_hard: bool
    in_view: bool
    is_found: bool


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A whole session under one preset. ``seconds`` holds the time of each prepare and is not part of reports."""

    session: str
    preset: str
    messages: int
    tokens: int
    window: int
    requests: tuple[RequestRecord, ...] = ()
    probes: tuple[ProbeRecord, ...] = ()
    seconds: tuple[float, ...] = field(default=(), compare=False)
    bytes: int = 0
    problem: str = ""

    def charge(self, tariff: Tariff) -> Charge:
        """Return what the whole session cost."""
        return sum_charges([request.charge(tariff) for request in self.requests])

    def charge_rereads(self, tariff: Tariff) -> float:
        """Return what reading again cost in the whole session; with ``charge`` it makes the whole bill."""
        return math.fsum(request.charge_rereads(tariff) for request in self.requests)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> SessionRecord:
        """Read what ``to_dict`` wrote."""
        requests = tuple(
            RequestRecord(
                **{
                    **one,
                    "violations": tuple(one["violations"]),
                    "stages": tuple(one["stages"]),
                    "rereads": tuple(one["rereads"]),
                    "reason": read_reason(one["reason"]),
                    "asked": tuple(Asked(**asked) for asked in one["asked"]),
                }
            )
            for one in plain["requests"]
        )
        probes = tuple(ProbeRecord(**one) for one in plain["probes"])
        return cls(**{**plain, "requests": requests, "probes": probes, "seconds": tuple(plain["seconds"])})
