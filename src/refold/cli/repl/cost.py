"""What a session has cost: the tokens that providers reported, and their list prices where we know them."""

from __future__ import annotations

from dataclasses import dataclass

from refold.cli.render import count_things
from refold.ledger.ledger import Ledger
from refold.tokens import model_info

REQUESTS_MAX = 100_000
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Costs:
    """Sums over requests. ``dollars`` covers those ``priced``; the rest went to models without a known price."""

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    priced: int = 0

    def write(self) -> str:
        """Return the sums as a line."""
        if not self.requests:
            return "no usage was reported yet"
        share = (
            f"{self.cached_tokens / self.input_tokens * 100:.0f} % from the cache"
            if self.input_tokens
            else "nothing cached"
        )
        requests = count_things(self.requests, "request")
        tokens = f"{requests} · {self.input_tokens:,} tokens in ({share}) · {self.output_tokens:,} out"
        if not self.priced:
            return f"{tokens} · no known price"
        rest = f" (without {self.requests - self.priced:,} of unknown price)" if self.priced < self.requests else ""
        return f"{tokens} · about ${self.dollars:.4f} at list prices{rest}"


def sum_costs(ledger: Ledger, session_id: str) -> Costs:
    """Return what was reported for a session."""
    requests = given = cached = answered = priced = 0
    dollars = 0.0
    for usage in ledger.read_usage(session_id, limit=REQUESTS_MAX):
        if not usage.input_tokens:
            continue  # A refused request: nothing was billed.
        requests += 1
        given += usage.input_tokens
        cached += usage.cache_read_tokens
        answered += usage.output_tokens
        info = model_info(usage.model or None)
        if info.prices is None:
            continue
        priced += 1
        plain = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
        weighed = plain + usage.cache_read_tokens * info.cache.read + usage.cache_write_tokens * info.cache.write
        dollars += (weighed * info.prices.input + usage.output_tokens * info.prices.output) / _MILLION
    return Costs(requests, given, cached, answered, dollars, priced)
