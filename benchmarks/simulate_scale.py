"""How many gateways and how much storage a number of sessions a day needs, from measured figures.

    python benchmarks/simulate_scale.py --sessions 1000000

The day is simulated minute by minute: sessions begin by a daily curve (the busiest hour has twice the mean), each sends
its requests over its length, and a gateway serves what its cores can. Every figure that the model uses is an option,
with the one measured in docs/explanation/scaling.md as its default; --rates fits the model to measured rates.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

MINUTES = 24 * 60
DAYS_KEPT = 30
LENGTHS = (0.5, 0.75, 1.0, 1.25, 1.5)


@dataclass(frozen=True, slots=True)
class Costs:
    """What one request, fold and message cost. CPU in milliseconds of one core, sizes in bytes."""

    request_ms: float
    fold_ms: float
    database_ms: float
    message_bytes: float
    index_bytes: float


@dataclass(frozen=True, slots=True)
class Shape:
    """What a session is like."""

    requests: int
    minutes: int
    messages_per_request: float
    folds: float


@dataclass(frozen=True, slots=True)
class Day:
    """What a day needs. Rates are those of the busiest minute."""

    requests: int
    rate_mean: float
    rate_peak: float
    cores_peak: float
    database_cores_peak: float
    gigabytes: float
    index_gigabytes: float


def rate_of(gateways: int, alone: float, shared: float) -> float:
    """Return requests per second of gateways on one database: the law of diminishing returns, fitted by two figures.

    ``alone`` is what one gateway does; ``shared`` the share of its work that all gateways have to do one after another.
    """
    return gateways * alone / (1 + shared * (gateways - 1))


def fit_shared(rates: dict[int, float]) -> tuple[float, float]:
    """Return ``alone`` and ``shared`` from measured rates, the latter as the mean over all counts above one."""
    alone = rates[min(rates)] / min(rates)
    found = [(count * alone / rate - 1) / (count - 1) for count, rate in rates.items() if count > 1 and rate > 0]
    return alone, max(0.0, sum(found) / len(found)) if found else 0.0


def simulate(sessions: int, shape: Shape, costs: Costs) -> Day:
    """Return what a day of so many sessions needs."""
    weights = [1 - math.cos(2 * math.pi * minute / MINUTES) for minute in range(MINUTES)]
    total = sum(weights)
    starting = [sessions * weight / total for weight in weights]
    requests = [0.0] * MINUTES
    for minute, count in enumerate(starting):
        for share in LENGTHS:
            length = max(1, int(shape.minutes * share))
            for later in range(length):
                requests[(minute + later) % MINUTES] += count * shape.requests / length / len(LENGTHS)
    folds = [one * shape.folds / shape.requests for one in requests]
    spent = [count * costs.request_ms + fold * costs.fold_ms for count, fold in zip(requests, folds, strict=True)]
    messages = sessions * shape.requests * shape.messages_per_request
    return Day(
        requests=sessions * shape.requests,
        rate_mean=sum(requests) / 86_400,
        rate_peak=max(requests) / 60,
        cores_peak=max(spent) / 60_000,
        database_cores_peak=max(requests) * costs.database_ms / 60_000,
        gigabytes=messages * costs.message_bytes / 1e9,
        index_gigabytes=messages * costs.index_bytes / 1e9,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=1_000_000)
    parser.add_argument("--requests", type=int, default=20, help="requests of a session")
    parser.add_argument("--minutes", type=int, default=30, help="length of a session")
    parser.add_argument("--folds", type=float, default=0.2, help="folds of a session")
    parser.add_argument("--request-ms", type=float, default=REQUEST_MS)
    parser.add_argument("--fold-ms", type=float, default=FOLD_MS)
    parser.add_argument("--database-ms", type=float, default=DATABASE_MS)
    parser.add_argument("--message-bytes", type=float, default=MESSAGE_BYTES)
    parser.add_argument("--index-bytes", type=float, default=INDEX_BYTES)
    parser.add_argument("--busy", type=float, default=0.6, help="share of a core that may be busy at the peak")
    parser.add_argument("--rates", type=float, nargs="*", default=[], help="measured requests/s of 1, 2, 4 … gateways")
    wish = parser.parse_args(arguments)
    shape = Shape(wish.requests, wish.minutes, 2.0, wish.folds)
    costs = Costs(wish.request_ms, wish.fold_ms, wish.database_ms, wish.message_bytes, wish.index_bytes)
    day = simulate(wish.sessions, shape, costs)
    print(f"{wish.sessions:,} sessions a day, {shape.requests} requests each over {shape.minutes} minutes")
    print(f"requests a day {day.requests:,}, {day.rate_mean:,.0f}/s on average, {day.rate_peak:,.0f}/s at the peak")
    print(f"gateway cores at the peak {day.cores_peak:,.0f}, to provide {day.cores_peak / wish.busy:,.0f}")
    cores = day.database_cores_peak
    print(f"database cores at the peak {cores:,.0f}, to provide {cores / wish.busy:,.0f}")
    print(f"ledger {day.gigabytes:,.0f} GB a day, {day.gigabytes * DAYS_KEPT / 1e3:,.1f} TB kept for {DAYS_KEPT} days")
    print(f"search index {day.index_gigabytes:,.0f} GB a day if every session is folded, spread over the gateways")
    if wish.rates:
        rates = {2**at: rate for at, rate in enumerate(wish.rates)}
        alone, shared = fit_shared(rates)
        fitted = ", ".join(
            f"{count}: {rate_of(count, alone, shared):.0f} (measured {rate:.0f})" for count, rate in rates.items()
        )
        print(f"one gateway {alone:.0f}/s, shared share {shared:.2f}; gateways on one database: {fitted}")
        print(
            f"limit of one database with any number of gateways: {alone / shared:.0f}/s" if shared else "no limit seen"
        )
    return 0


REQUEST_MS = 7.0
FOLD_MS = 300.0
DATABASE_MS = 2.2
MESSAGE_BYTES = 1_532.0
INDEX_BYTES = 217.0

if __name__ == "__main__":
    sys.exit(main())
