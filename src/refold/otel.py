"""OpenTelemetry: a span and metrics for each request through the gateway and for each compression.

Nothing is sent unless it is turned on: in the gateway by the setting ``otel``, in a program by calling ``instrument``.
Names follow the GenAI semantic conventions; refold's own begin with ``refold.``. Attributes are figures, names and
codes, never a message, prompt, summary, header or key. The library is imported only when telemetry is on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from refold.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from refold.manager import ContextCompressionManager
    from refold.manager.notices import Notice

SCOPE = "refold"
EXPORT_S_MAX = 5.0
# Clients choose model names, and every name is a separate series: further ones are counted as "other".
MODELS_MAX = 100
_NAME_CHARS_MAX = 80
_SESSIONS_MAX = 10_000
_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS = tuple(4.0**power for power in range(14))


def instrument(
    manager: ContextCompressionManager,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> Telemetry:
    """Report a manager's compressions to OpenTelemetry, by default to the providers that the program set globally."""
    telemetry = Telemetry(tracer_provider, meter_provider)
    telemetry.listen(manager)
    return telemetry


class Telemetry:
    """Writes spans and metrics to a pair of providers."""

    def __init__(
        self, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        try:
            from opentelemetry import metrics, trace
        except ImportError:
            raise ConfigError("opentelemetry is not installed; install it with: pip install 'refold[otel]'") from None
        self._trace = trace
        self._providers = (tracer_provider, meter_provider)
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._usage = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens that the provider billed for a request.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self._duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "Duration of a request.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._before = meter.create_counter("refold.tokens.before", "{token}", "Tokens of incoming requests.")
        self._after = meter.create_counter("refold.tokens.after", "{token}", "Tokens of requests as they were sent.")
        self._saved = meter.create_up_down_counter(
            "refold.tokens.saved", "{token}", "Tokens that were not sent because of compression."
        )
        self._compressions = meter.create_counter("refold.compressions", "{compression}", "Compressions made.")
        self._compressing = meter.create_histogram(
            "refold.compression.duration",
            "s",
            "Duration of a compression.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._lock = threading.Lock()
        self._started: dict[str, float] = {}
        self._models: set[str] = set()

    def listen(self, manager: ContextCompressionManager) -> None:
        manager.on("before_compress", self._note_start)
        for kind in ("compressed", "failed", "skipped"):
            manager.on(kind, self._note_end)

    @contextmanager
    def span_request(self, headers: Mapping[str, str]) -> Iterator[Span]:
        """Open the span of a request, as a child of the client's if its headers name one (W3C trace context)."""
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        parent = TraceContextTextMapPropagator().extract(headers)
        kind = self._trace.SpanKind.CLIENT
        with self._tracer.start_as_current_span(
            "request", context=parent, kind=kind, record_exception=False, set_status_on_exception=False
        ) as span:
            yield span

    def finish_request(self, span: Span, name: str, attributes: Mapping[str, Any], seconds: float) -> None:
        """Complete a request's span and count the request; empty ``attributes`` are left out."""
        named = {key: _shorten(value) for key, value in attributes.items() if value not in (None, "", ())}
        span.update_name(_shorten(name))
        span.set_attributes(named)
        if "error.type" in named:
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))
        if "gen_ai.operation.name" not in named:
            return
        labels = {key: named[key] for key in ("gen_ai.operation.name", "gen_ai.provider.name")}
        if model := self._limit_model(str(named.get("gen_ai.request.model", ""))):
            labels["gen_ai.request.model"] = model
        failed = {"error.type": named["error.type"]} if "error.type" in named else {}
        self._duration.record(seconds, {**labels, **failed})
        for kind in ("input", "output"):
            if (tokens := named.get(f"gen_ai.usage.{kind}_tokens")) is not None:
                self._usage.record(tokens, {**labels, "gen_ai.token.type": kind})
        if after := named.get("refold.tokens.after"):
            before = named.get("refold.tokens.before", 0)
            self._before.add(before, labels)
            self._after.add(after, labels)
            self._saved.add(before - after, labels)

    def close(self) -> None:
        """Flush and stop the providers if they are our own; this takes a few seconds at most."""
        for provider in self._providers:
            if (shutdown := getattr(provider, "shutdown", None)) is not None:
                shutdown()

    def _note_start(self, notice: Notice) -> None:
        with self._lock:
            while len(self._started) >= _SESSIONS_MAX:
                del self._started[next(iter(self._started))]
            self._started[notice.session_id] = time.time()

    def _note_end(self, notice: Notice) -> None:
        now = time.time()
        with self._lock:
            started = self._started.pop(notice.session_id, None)
        if notice.kind == "skipped":
            return
        seconds = now - started if started is not None else notice.seconds
        labels = {"refold.reason": notice.reason.code}
        named: dict[str, Any] = {
            **labels,
            "refold.session": _shorten(notice.session_id),
            "refold.tokens.before": notice.tokens_before,
            "refold.tokens.after": notice.tokens_after,
        }
        stages = notice.fields.get("stages")
        if isinstance(stages, Mapping):
            named["refold.stages"] = [str(stage) for stage in stages]
        if (model := notice.fields.get("model")) and isinstance(model, str):
            named["gen_ai.request.model"] = _shorten(model)
        span = self._tracer.start_span("refold.compress", attributes=named, start_time=int((now - seconds) * 1e9))
        if notice.kind == "failed":
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))
        else:
            self._compressions.add(1, labels)
            self._compressing.record(seconds, labels)
        span.end(int(now * 1e9))

    def _limit_model(self, model: str) -> str:
        with self._lock:
            if model and model not in self._models and len(self._models) >= MODELS_MAX:
                return "other"
            self._models.add(model)
        return model


def _shorten(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    # A lone surrogate cannot be encoded: the exporter would lose the whole batch.
    return value[:_NAME_CHARS_MAX].encode("utf-8", "replace").decode()


def open_telemetry(endpoint: str = "", *, has_metrics: bool = True) -> Telemetry:
    """Return telemetry that sends to an OTLP endpoint over HTTP, by default the standard variables' one."""
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(f"{error.name} is not installed; install it with: pip install 'refold[otel]'") from None
    base = endpoint.rstrip("/")
    spans = OTLPSpanExporter(f"{base}/v1/traces" if base else None, timeout=EXPORT_S_MAX)
    resource = Resource.create({"service.name": SCOPE}).merge(OTELResourceDetector().detect())
    tracer_provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    tracer_provider.add_span_processor(BatchSpanProcessor(spans))
    readers = []
    if has_metrics:
        figures = OTLPMetricExporter(f"{base}/v1/metrics" if base else None, timeout=EXPORT_S_MAX)
        readers = [PeriodicExportingMetricReader(figures)]
    meter_provider = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
    return Telemetry(tracer_provider, meter_provider)
