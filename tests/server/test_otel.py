"""OpenTelemetry: spans and metrics reach a collector if the user turns them on, and nothing is sent otherwise."""

import gzip
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.errors import ConfigError
from refold.server.settings import GatewaySettings, load_settings
from refold.testing.postgres import find_port
from tests.rigs.server import Rig, make_body, make_dialog, start_rig, wait_for

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the extra otel")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from refold.otel import MODELS_MAX, Telemetry, instrument

SMALL = {"window": 4_000, "reserve": 500}
SECRET = "w3x17"


@dataclass
class Collector:
    """The data that an OTLP collector received."""

    url: str
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    spans: list[Any] = field(default_factory=list)
    services: set[str] = field(default_factory=set)
    metrics: dict[str, Any] = field(default_factory=dict)

    def find(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]


def read_attributes(span: Any) -> dict[str, Any]:
    """Return the attributes of a span that came as protobuf."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector on loopback that decodes what it is sent."""

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            found.headers.append({name.lower(): value for name, value in self.headers.items()})
            found.bodies.append(body)
            if self.path == "/otlp/v1/traces":
                for batch in ExportTraceServiceRequest.FromString(body).resource_spans:
                    found.services |= {one.value.string_value for one in batch.resource.attributes}
                    found.spans += [span for scope in batch.scope_spans for span in scope.spans]
            elif self.path == "/otlp/v1/metrics":
                for group in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    found.metrics |= {one.name: one for scope in group.scope_metrics for one in scope.metrics}
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        found = Collector(f"http://127.0.0.1:{server.server_port}/otlp")
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield found
        server.shutdown()


@dataclass(frozen=True)
class Memory:
    """Telemetry that stays in this process."""

    telemetry: Telemetry
    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def read_points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        return [
            point
            for group in (data.resource_metrics if data else [])
            for scope in group.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


def watch(manager: ContextCompressionManager) -> Memory:
    """Report a manager's compressions into memory."""
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracer_provider = TracerProvider()
    tracer_provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = instrument(manager, tracer_provider=tracer_provider, meter_provider=MeterProvider([reader]))
    return Memory(telemetry, exporter, reader)


def watch_gateway(rig: Rig) -> Memory:
    memory = watch(rig.manager)
    rig.application.metrics.telemetry = memory.telemetry
    return memory


def test_a_collector_gets_spans_and_metrics_of_a_conversation_that_is_compressed(
    tmp_path: Path, empty_home: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20abc")
    with start_rig(tmp_path, config=SMALL, settings={"otel": collector.url}) as rig:
        for turns in range(1, 9):
            answer = rig.post("openai-chat", make_body("openai-chat", make_dialog(turns)))
            assert answer.status_code == 200
    requests, folds = collector.find("chat scripted-1"), collector.find("refold.compress")
    assert len(requests) == 8
    assert folds, "the conversation outgrew its window"
    last = read_attributes(requests[-1])
    before, after = answer.headers["x-refold-tokens"].split("->")
    assert (last["refold.tokens.before"], last["refold.tokens.after"]) == (int(before), int(after))
    assert last["refold.session"] == answer.headers["x-refold-session"]
    assert last["gen_ai.operation.name"] == "chat"
    assert last["gen_ai.provider.name"] == "openai"
    assert last["gen_ai.request.model"] == "scripted-1"
    assert last["gen_ai.usage.input_tokens"] > 0
    assert last["gen_ai.usage.output_tokens"] > 0
    assert last["http.response.status_code"] == 200
    assert {span.parent_span_id for span in folds} <= {span.span_id for span in requests}
    assert "refold" in collector.services
    assert {
        "gen_ai.client.token.usage",
        "gen_ai.client.operation.duration",
        "refold.tokens.before",
        "refold.tokens.after",
        "refold.tokens.saved",
        "refold.compressions",
        "refold.compression.duration",
    } <= set(collector.metrics)
    saved = sum(point.as_int for point in collector.metrics["refold.tokens.saved"].sum.data_points)
    each = [read_attributes(span) for span in requests]
    assert saved == sum(one["refold.tokens.before"] - one["refold.tokens.after"] for one in each) > 0
    assert all(one["authorization"] == "Basic abc" for one in collector.headers)
    for text in (SECRET, "Question", "Answer", "file_"):
        assert not any(text.encode() in body for body in collector.bodies), "no message text is sent"


def test_nothing_is_sent_or_imported_unless_it_is_turned_on(
    tmp_path: Path, empty_home: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    with start_rig(tmp_path, config=SMALL) as rig:
        rig.post("openai-chat", make_body("openai-chat", make_dialog(8)))
        assert rig.application.metrics.telemetry is None
    assert collector.bodies == []
    code = (
        "import sys; from refold.manager import ContextCompressionManager; from refold.server.app import Application; "
        f"Application(ContextCompressionManager(workspace_path={str(tmp_path)!r})); "
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_the_standard_variables_say_where_to_send_if_the_setting_is_on(
    tmp_path: Path, empty_home: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "team-gateway")
    with start_rig(tmp_path, settings={"otel": "on", "otel_metrics": False}) as rig:
        rig.post("anthropic", make_body("anthropic", make_dialog(1)))
    (span,) = collector.find("chat scripted-1")
    assert read_attributes(span)["gen_ai.provider.name"] == "anthropic"
    assert "team-gateway" in collector.services
    assert "refold" not in collector.services
    assert collector.metrics == {}


def test_a_collector_that_is_down_costs_no_request(
    tmp_path: Path, empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refold.otel.EXPORT_S_MAX", 0.2)
    with start_rig(tmp_path, settings={"otel": f"http://127.0.0.1:{find_port()}"}) as rig:
        for turns in (1, 2):
            assert rig.post("openai-chat", make_body("openai-chat", make_dialog(turns))).status_code == 200


def test_cached_tokens_are_part_of_the_input_on_both_sides(start: Callable[..., Rig]) -> None:
    rig = start()
    memory = watch_gateway(rig)
    for wire in ("openai-chat", "openai-responses", "anthropic"):
        for turns in (1, 2, 3):
            assert rig.post(wire, make_body(wire, make_dialog(turns))).status_code == 200
    wait_for(lambda: len(memory.spans) == 9)
    for span in memory.spans:
        told = dict(span.attributes or {})
        assert told["gen_ai.usage.input_tokens"] >= told["gen_ai.usage.cache_read.input_tokens"]
    points = memory.read_points("gen_ai.client.token.usage")
    assert {point.attributes["gen_ai.token.type"] for point in points} == {"input", "output"}
    assert sum(point.count for point in points) == 18


def test_a_span_continues_the_trace_of_the_client(rig: Rig) -> None:
    memory = watch_gateway(rig)
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    body = make_body("openai-chat", make_dialog(1))
    rig.post("openai-chat", body, traceparent=f"00-{trace}-{parent}-01")
    rig.post("openai-chat", body, traceparent="00-nonsense-01")
    wait_for(lambda: len(memory.spans) == 2)
    known, unknown = memory.spans
    assert known.context.trace_id == int(trace, 16)
    assert known.parent is not None
    assert known.parent.span_id == int(parent, 16)
    assert unknown.parent is None


def test_requests_that_fail_or_pass_through_have_spans_of_their_own(start: Callable[..., Rig]) -> None:
    rig = start(upstream=f"http://127.0.0.1:{find_port()}")
    memory = watch_gateway(rig)
    assert rig.post("openai-chat", make_body("openai-chat", make_dialog(1))).status_code >= 500
    assert rig.http.get("/v1/models?key=sk-secret").status_code >= 500
    wait_for(lambda: len(memory.spans) == 2)
    failed, passed = memory.spans
    assert failed.status.status_code is StatusCode.ERROR
    assert dict(failed.attributes or {})["error.type"].startswith("50")
    assert failed.status.description is None
    assert passed.name == "GET /v1/models"
    assert "gen_ai.operation.name" not in dict(passed.attributes or {})
    assert "sk-secret" not in passed.to_json()


def test_model_names_of_clients_cannot_make_series_without_end(rig: Rig) -> None:
    memory = watch_gateway(rig)
    odd = "\udcff" + "x" * 500
    for model in [odd, *(f"made-up-{number}" for number in range(MODELS_MAX + 5))]:
        told = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": model}
        with memory.telemetry.span_request({}) as span:
            memory.telemetry.finish_request(span, f"chat {model}", told, 0.1)
    names = {
        point.attributes["gen_ai.request.model"] for point in memory.read_points("gen_ai.client.operation.duration")
    }
    assert len(names) == MODELS_MAX + 1
    assert "other" in names
    assert max(map(len, names)) <= 80
    assert all(span.to_json().encode() for span in memory.spans)


def test_a_program_reports_the_compressions_of_its_manager(tmp_path: Path) -> None:
    manager = ContextCompressionManager(CompressionConfig(**SMALL), tmp_path)
    memory = watch(manager)
    for turns in range(1, 9):
        prepared = manager.prepare_context_sync("s1", make_dialog(turns), "You are careful.")
    assert prepared.summary is not None
    made = [span for span in memory.spans if span.name == "refold.compress"]
    assert made
    assert len(made) == sum(point.value for point in memory.read_points("refold.compressions"))
    told = dict(made[-1].attributes or {})
    assert told["refold.session"] == "s1"
    assert told["refold.tokens.after"] < told["refold.tokens.before"]
    assert "." in told["refold.reason"]
    assert made[-1].end_time >= made[-1].start_time
    assert SECRET not in json.dumps([json.loads(span.to_json()) for span in memory.spans])
    manager.close()


@pytest.mark.parametrize(
    ("written", "read"),
    [("on", "on"), ("off", "off"), ("true", "on"), ("http://127.0.0.1:4318", "http://127.0.0.1:4318")],
)
def test_the_setting_is_a_switch_or_an_address(tmp_path: Path, empty_home: Path, written: str, read: str) -> None:
    file = empty_home / ".config" / "refold" / "config.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(f"gateway:\n  otel: {written}\n")
    assert load_settings(tmp_path).otel == read
    assert GatewaySettings().otel == "off"


@pytest.mark.parametrize("written", ["collector", "https://user:pw@x", "grpc://x:4317"])
def test_an_address_that_is_malformed_or_holds_a_secret_is_refused(written: str) -> None:
    with pytest.raises(ConfigError, match=r"gateway\.otel"):
        GatewaySettings(otel=written)
