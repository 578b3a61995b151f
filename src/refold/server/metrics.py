"""Figures of the gateway for monitoring, in Prometheus' form. Labels are few and fixed: no client can add one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refold.conversation.reason import CATALOGUE

if TYPE_CHECKING:
    from refold.server.gateway import Passage

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The counters of one gateway."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = registry = CollectorRegistry()
        self.in_flight = Gauge("refold_requests_in_flight", "Requests under way.", registry=registry)
        self.requests = Counter(
            "refold_requests",
            "Requests by wire format and the class of their status.",
            ["wire", "status"],
            registry=registry,
        )
        self.failed_open = Counter(
            "refold_failed_open", "Requests that went through as they came because refold failed.", registry=registry
        )
        self.overflows = Counter(
            "refold_overflows", "Requests that an upstream refused as too long.", registry=registry
        )
        self.retried = Counter("refold_overflows_retried", "Those that were sent again, smaller.", registry=registry)
        self.broken = Counter(
            "refold_broken",
            "Requests that ended early: client gone or stalled, upstream stalled or broken off.",
            registry=registry,
        )
        self.tokens_before = Counter("refold_tokens_before", "Tokens of requests as they came.", registry=registry)
        self.tokens_after = Counter("refold_tokens_after", "Tokens of requests as they went.", registry=registry)
        self.prepare_seconds = Histogram(
            "refold_prepare_seconds", "Time that refold itself took per request.", buckets=_SECONDS, registry=registry
        )
        self.reasons = Counter(
            "refold_reasons",
            "Requests by the code of what was done with them, as in x-refold-reason.",
            ["code"],
            registry=registry,
        )
        self._by_code: dict[str, Counter] = {}
        self._by_label: dict[tuple[str, str], Counter] = {}
        self.compressions = Counter("refold_compressions", "Compressions that were made.", registry=registry)

    def count_passage(self, passage: Passage) -> None:
        """Count a request that is over."""
        outgoing = passage.outgoing
        wire = passage.wire.name if passage.wire else "other"
        status = f"{passage.status // 100}xx" if passage.status else "none"
        counter = self._by_label.get((wire, status))
        if counter is None:
            counter = self._by_label[wire, status] = self.requests.labels(wire, status)
        counter.inc()
        if outgoing.reason:
            self._count_reason(outgoing.reason.code)
        if outgoing.tokens_after:
            self.tokens_before.inc(outgoing.tokens_before)
            self.tokens_after.inc(outgoing.tokens_after)
        if outgoing.session is not None:
            self.prepare_seconds.observe(outgoing.seconds)
        if outgoing.is_failed_open:
            self.failed_open.inc()
        if passage.retries:
            self.retried.inc()
        if passage.problem and (passage.has_begun or not passage.status):
            self.broken.inc()

    def _count_reason(self, code: str) -> None:
        counter = self._by_code.get(code)
        if counter is None:
            counter = self._by_code[code] = self.reasons.labels(code if code in CATALOGUE else "other")
        counter.inc()

    def write(self) -> bytes:
        """Return all figures as text."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)
