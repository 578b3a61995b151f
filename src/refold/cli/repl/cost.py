"""What a session has cost, in a line: the tokens that providers reported, and their list prices where we know them."""

from __future__ import annotations

from refold.cli.render import count_things
from refold.ledger.port import Ledger
from refold.manager.usage import read_figures

REQUESTS_MAX = 100_000


def write_costs(ledger: Ledger, session_id: str) -> str:
    """Return the sums over a session's requests, as the page of statistics has them."""
    bill = read_figures(ledger, session_id, REQUESTS_MAX).bill
    if not bill.requests:
        return "no usage was reported yet"
    requests = count_things(bill.requests, "request")
    tokens = (
        f"{requests} · {bill.tokens:,} tokens in ({bill.cached_share * 100:.0f} % from the cache) · {bill.output:,} out"
    )
    if not bill.priced:
        return f"{tokens} · no known price"
    rest = f" (without {bill.requests - bill.priced:,} of unknown price)" if bill.priced < bill.requests else ""
    return f"{tokens} · about ${bill.dollars:.4f} at list prices{rest}"
