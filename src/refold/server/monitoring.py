"""Metrics for Prometheus and OpenTelemetry, and structured logs: one line of JSON per request.

Labels are few and fixed: no client can add one. Logs contain figures and names, never content: no header, query, body
or key. Of a client's data, only sizes, counts and the shortened name of the model appear.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter as Sum
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TextIO

import orjson

from refold.conversation.reason import CATALOGUE
from refold.manager.usage import read_usage

if TYPE_CHECKING:
    from refold.otel import Telemetry
    from refold.server.gateway import Exchange
    from refold.server.outgoing import Outgoing

# Clients choose the ids of runs, so their number is bounded, and so is the number of sessions of each.
RUNS_MAX, RUN_SESSIONS_MAX = 256, 200
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
log = logging.getLogger("refold.server")
_TEXT_MAX = 200


@dataclass(slots=True)
class RunCounts:
    """Counts of one run of a wrapped program. ``sessions`` maps the sessions it used to their requests.

    ``newest_before`` and ``newest_after`` are the sizes of the newest request of the session with the most requests.
    """

    requests: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    newest_before: int = 0
    newest_after: int = 0
    sessions: dict[str, int] = field(default_factory=dict)

    def add(self, outgoing: Outgoing) -> None:
        self.requests += 1
        if outgoing.tokens_after:
            self.tokens_before += outgoing.tokens_before
            self.tokens_after += outgoing.tokens_after
        if outgoing.session is not None and len(self.sessions) < RUN_SESSIONS_MAX:
            count = self.sessions[outgoing.session.id] = self.sessions.get(outgoing.session.id, 0) + 1
            if outgoing.tokens_after and count >= max(self.sessions.values()):
                self.newest_before, self.newest_after = outgoing.tokens_before, outgoing.tokens_after


class Metrics:
    """Counters of one gateway; ``telemetry`` is set if they go to OpenTelemetry too."""

    def __init__(self, telemetry: Telemetry | None = None) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.telemetry = telemetry
        self.registry = registry = CollectorRegistry()
        count = partial(Counter, registry=registry)
        self.in_flight = Gauge("refold_requests_in_flight", "Requests in flight.", registry=registry)
        self.failed_open = count("refold_failed_open", "Requests forwarded unchanged because refold failed.")
        self.overflows = count("refold_overflows", "Requests that an upstream refused as too long.")
        self.retried = count("refold_overflows_retried", "Refused requests that were retried with a smaller context.")
        self.broken = count(
            "refold_broken", "Requests that ended early: client gone or stalled, upstream stalled or broken off."
        )
        self.tokens_before = count("refold_tokens_before", "Tokens of incoming requests.")
        self.tokens_after = count("refold_tokens_after", "Tokens of requests as sent upstream.")
        self.prepare_seconds = Histogram(
            "refold_prepare_seconds", "Time that refold itself took per request.", buckets=_SECONDS, registry=registry
        )
        self.recalls = count("refold_recalls", "Recall calls that the gateway answered.")
        self.compressions = count("refold_compressions", "Compressions made.")
        requests = count("refold_requests", "Requests by wire format and status class.", ["wire", "status"])
        reasons = count("refold_reasons", "Requests by reason code, as in x-refold-reason.", ["code"])
        # Looking a label up takes longer than counting.
        self._find_requests, self._find_reason = cache(requests.labels), cache(reasons.labels)
        self._runs: OrderedDict[tuple[str, str], RunCounts] = OrderedDict()

    def find_run(self, tenant: str, run: str) -> RunCounts:
        """Return the counts of a tenant's run; zeros if it made no request."""
        return self._runs.get((tenant, run)) or RunCounts()

    def follow(self, exchange: Exchange) -> AbstractContextManager[None]:
        """Return the span of a request; it does nothing without OpenTelemetry."""
        return _NO_SPAN if self.telemetry is None else _follow(self.telemetry, exchange)

    def count_passage(self, exchange: Exchange) -> None:
        outgoing = exchange.outgoing
        wire = exchange.wire.name if exchange.wire else "other"
        status = f"{exchange.status // 100}xx" if exchange.status else "none"
        self._find_requests(wire, status).inc()
        if outgoing.reason:
            self._find_reason(outgoing.reason.code if outgoing.reason.code in CATALOGUE else "other").inc()
        if outgoing.tokens_after:
            self.tokens_before.inc(outgoing.tokens_before)
            self.tokens_after.inc(outgoing.tokens_after)
        if outgoing.session is not None:
            self.prepare_seconds.observe(outgoing.seconds)
        if outgoing.is_failed_open:
            self.failed_open.inc()
        if exchange.retries:
            self.retried.inc()
        if exchange.problem and (exchange.has_begun or not exchange.status):
            self.broken.inc()
        # Other paths count tokens, list models or ask whether the gateway is there.
        if exchange.asked.run and exchange.wire is not None:
            key = (exchange.asked.tenant, exchange.asked.run)
            self._runs.setdefault(key, RunCounts()).add(outgoing)
            self._runs.move_to_end(key)
            while len(self._runs) > RUNS_MAX:
                self._runs.popitem(last=False)

    def write(self) -> bytes:
        from prometheus_client import generate_latest

        return generate_latest(self.registry)


_NO_SPAN = nullcontext()


@contextmanager
def _follow(telemetry: Telemetry, exchange: Exchange) -> Iterator[None]:
    names = ("traceparent", "tracestate")
    with telemetry.span_request({name: exchange.asked.header(name) for name in names}) as span:
        try:
            yield
        finally:
            name, attributes = describe_passage(exchange)
            telemetry.finish_request(span, name, attributes, time.perf_counter() - exchange.started)


def describe_passage(exchange: Exchange) -> tuple[str, dict[str, Any]]:
    """Return the name and the attributes of a finished request's span."""
    asked, outgoing = exchange.asked, exchange.outgoing
    attributes: dict[str, Any] = {
        "http.request.method": asked.method,
        "http.response.status_code": exchange.status or None,
        "refold.tenant": asked.tenant,
        "refold.reason": outgoing.reason.code,
        "refold.retries": exchange.retries or None,
    }
    if exchange.status >= 400:
        attributes["error.type"] = str(exchange.status)
    elif exchange.problem or not exchange.status:
        attributes["error.type"] = "interrupted"
    if exchange.wire is None:
        return f"{asked.method} {asked.path}", attributes
    model = outgoing.request.model if outgoing.request is not None else ""
    attributes |= {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": exchange.side,
        "gen_ai.request.model": model,
    }
    if outgoing.session is not None:
        attributes |= {"refold.session": outgoing.session.id, "gen_ai.conversation.id": outgoing.session.id}
    if outgoing.tokens_after:
        attributes |= {"refold.tokens.before": outgoing.tokens_before, "refold.tokens.after": outgoing.tokens_after}
    return f"chat {model}".strip(), attributes | _describe_answers(exchange)


def _describe_answers(exchange: Exchange) -> dict[str, Any]:
    """Return what the provider billed; the sum if the gateway sent several requests."""
    billed: Sum[str] = Sum()
    for answered in exchange.answers:
        if answered.has_usage:
            billed.update(read_usage(answered.usage))
    ends = tuple(answered.finish_reason for answered in exchange.answers if answered.finish_reason)
    return {
        "gen_ai.usage.input_tokens": billed.get("input_tokens"),
        "gen_ai.usage.output_tokens": billed.get("output_tokens"),
        "gen_ai.usage.cache_read.input_tokens": billed.get("cache_read_tokens"),
        "gen_ai.usage.cache_creation.input_tokens": billed.get("cache_write_tokens"),
        "gen_ai.response.finish_reasons": ends[-1:],
    }


class JsonLines(logging.Formatter):
    """Writes a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = getattr(record, "fields", {})
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage()[:_TEXT_MAX],
            **fields,
        }
        if record.exc_info and record.exc_info[0] is not None:
            # An exception's type is safe to log; its text may quote a request.
            line["error"] = record.exc_info[0].__name__
        return orjson.dumps(line, default=str).decode()


def log_request(exchange: Exchange) -> None:
    """Log a finished request."""
    if not log.isEnabledFor(logging.INFO):
        return
    outgoing, asked = exchange.outgoing, exchange.asked
    fields: dict[str, Any] = {
        "method": asked.method,
        "path": asked.path[:_TEXT_MAX],
        "status": exchange.status,
        "ms": round((time.perf_counter() - exchange.started) * 1_000, 1),
        "bytes_in": exchange.bytes_in,
        "bytes_out": exchange.bytes_out,
        "reason": outgoing.reason.code,
    }
    if asked.tenant:
        fields["tenant"] = asked.tenant
    if outgoing.session is not None and outgoing.request is not None:
        fields |= {
            "session": outgoing.session.name,
            "model": outgoing.request.model[:80],
            "tokens_before": outgoing.tokens_before,
            "tokens_after": outgoing.tokens_after,
            "edits": outgoing.edits,
            "prepare_ms": round(outgoing.seconds * 1_000, 2),
        }
    if exchange.retries:
        fields["retries"] = exchange.retries
    if exchange.problem:
        fields["problem"] = exchange.problem[:_TEXT_MAX]
    log.info("request", extra={"fields": fields})


class StandardErrorHandler(logging.StreamHandler[TextIO]):
    """Writes to the current ``sys.stderr``, which a program that embeds the gateway may replace."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def set_up_logs(level: str = "info") -> None:
    """Send the gateway's log to standard error, and silence the HTTP server's own: it would log addresses and paths."""
    handler = StandardErrorHandler()
    handler.setFormatter(JsonLines())
    # Failed exports to OpenTelemetry are logged.
    levels: dict[str, int | str] = {log.name: level.upper(), "opentelemetry": logging.NOTSET}
    levels |= dict.fromkeys(("uvicorn", "uvicorn.error", "uvicorn.access", "aiohttp", "asyncio"), logging.CRITICAL)
    for name, wanted in levels.items():
        logger = logging.getLogger(name)
        logger.handlers[:], logger.propagate = [handler], False
        logger.setLevel(wanted)
