"""How many gateways and how much storage a number of sessions a day needs, from measured figures.

    python benchmarks/simulate_scale.py --sessions 1000000
    python benchmarks/simulate_scale.py --rates 120 210 330           fits the model to the rates of 1, 2 and 4 gateways
    python benchmarks/simulate_scale.py --cpu-ms 2.5 2.6 4.4         the same from processor time per request

The day is simulated minute by minute: sessions begin by a daily curve (the busiest hour has twice the mean), each sends
its requests over its length, and a gateway serves what its cores can. Every figure that the model uses is an option,
with the one measured in docs/explanation/scaling.md as its default.

The model of several gateways on one database is the universal scalability law, fitted by least squares. On a machine
with fewer cores than gateways, rates say how busy the cores were; processor time per request says what each gateway
could do with a core of its own.
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
    """Cost of one request, fold and message. CPU in milliseconds of one core, sizes in bytes."""

    request_ms: float
    fold_ms: float
    database_ms: float
    message_bytes: float
    index_bytes: float


@dataclass(frozen=True, slots=True)
class Shape:
    """A typical session."""

    requests: int
    minutes: int
    messages_per_request: float
    folds: float


@dataclass(frozen=True, slots=True)
class Day:
    """Needs of a day. Rates are those of the busiest minute."""

    requests: int
    rate_mean: float
    rate_peak: float
    cores_peak: float
    database_cores_peak: float
    gigabytes: float
    index_gigabytes: float


@dataclass(frozen=True, slots=True)
class Law:
    """Requests per second of gateways on one database, by the universal scalability law.

    ``alone`` is what one gateway does, ``shared`` the share of a request that all do one after another, and
    ``crosstalk`` what each pair of gateways costs.
    """

    alone: float
    shared: float
    crosstalk: float

    def rate_of(self, gateways: int) -> float:
        lost = self.shared * (gateways - 1) + self.crosstalk * gateways * (gateways - 1)
        return gateways * self.alone / (1 + lost)

    @property
    def best_count(self) -> int | None:
        """The number of gateways beyond which another one does not help; None if there is no such number."""
        if self.crosstalk < 1e-6:
            return None
        return max(1, round(math.sqrt((1 - self.shared) / self.crosstalk)))


def fit_law(rates: dict[int, float]) -> Law:
    """Return the law that fits measured rates best, by least squares over gateways / rate, which is linear in it."""
    columns = [lambda n: n**0.0, lambda n: n - 1.0, lambda n: n * (n - 1.0)]
    chosen = [0, 1, 2] if len(rates) > 2 else [0, 1]
    while True:
        rows = [[columns[one](count) for one in chosen] for count in rates]
        found = solve_least_squares(rows, [count / rate for count, rate in rates.items()])
        terms = dict(zip(chosen, found, strict=True))
        # Neither waiting nor crosstalk can be negative: a term that would be is left out.
        worst = min(chosen[1:], key=lambda one: terms[one], default=0)
        if not worst or terms[worst] >= 0:
            return Law(1 / terms[0], terms.get(1, 0.0) / terms[0], terms.get(2, 0.0) / terms[0])
        chosen.remove(worst)


def solve_least_squares(rows: Sequence[Sequence[float]], wanted: Sequence[float]) -> list[float]:
    """Return what minimises the squared error of ``rows · x = wanted``, by the normal equations."""
    size = len(rows[0])
    matrix = [
        [sum(row[i] * row[j] for row in rows) for j in range(size)]
        + [sum(row[i] * value for row, value in zip(rows, wanted, strict=True))]
        for i in range(size)
    ]
    for at in range(size):
        pivot = max(range(at, size), key=lambda row: abs(matrix[row][at]))
        matrix[at], matrix[pivot] = matrix[pivot], matrix[at]
        for row in range(size):
            if row != at:
                factor = matrix[row][at] / matrix[at][at]
                matrix[row] = [own - factor * other for own, other in zip(matrix[row], matrix[at], strict=True)]
    return [matrix[at][size] / matrix[at][at] for at in range(size)]


def describe_law(rates: dict[int, float]) -> str:
    law = fit_law(rates)
    fitted = ", ".join(f"{count}: {law.rate_of(count):.0f} (measured {rate:.0f})" for count, rate in rates.items())
    best = law.best_count
    most = f"most with {best} gateways: {law.rate_of(best):.0f}/s" if best else "more gateways always bring more"
    return (
        f"one gateway {law.alone:.0f}/s, shared {law.shared:.3f}, crosstalk {law.crosstalk:.4f}; "
        f"requests/s by gateways: {fitted}; {most}"
    )


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
    parser.add_argument("--cpu-ms", type=float, nargs="*", default=[], help="CPU ms per request of 1, 2, 4 … gateways")
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
        print(describe_law({2**at: rate for at, rate in enumerate(wish.rates)}))
    if wish.cpu_ms:
        print(describe_law({2**at: 2**at * 1_000 / spent for at, spent in enumerate(wish.cpu_ms)}))
    return 0


REQUEST_MS = 2.6
FOLD_MS = 200.0
DATABASE_MS = 0.8
MESSAGE_BYTES = 1_371.0
INDEX_BYTES = 217.0

if __name__ == "__main__":
    sys.exit(main())
