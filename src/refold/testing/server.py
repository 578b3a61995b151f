"""A scripted provider on loopback: the interfaces of OpenAI and Anthropic, for tests without a key and a network.

    with ScriptedProvider("Hello.") as provider:
        client = openai.OpenAI(base_url=provider.openai_url, api_key="any")

It checks requests as providers do, records each, and answers from a script, which may also misbehave. It binds
127.0.0.1 on a free port, needs the standard library only, and leaves no thread or socket behind when it closes.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import math
import re
import socket
import struct
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from refold.testing.answers import WIRES, Events, encode_event, write_json
from refold.testing.provider_rules import PrefixCache, Refusal, count_input, count_usage, find_refusal, write_error
from refold.testing.script import Fault, RecordedRequest, Script, ScriptedReply, ScriptedUsage, Step
from refold.tokens import counter_for

REQUESTS_MAX = 10_000


class ScriptedProvider:
    """A provider that answers from a script. Use it as a context manager, or call ``start`` and ``close``.

    ``window``: tokens that a request may have, one number or one for each model; None for no limit. ``key``: the only
    key that is accepted. ``unsupported``: parameters that the model refuses. ``models``: the models it lists.
    ``seconds_max`` and ``events_max`` bound every answer, even one scripted to hang or never to end. With ``caches`` it
    reports which tokens of a prefix it has seen before; ``usages`` has the figures of every answer.
    """

    def __init__(
        self,
        script: Step | Sequence[Step] = "ok",
        *,
        window: int | Mapping[str, int] | None = None,
        key: str | None = None,
        unsupported: Collection[str] = (),
        models: Sequence[str] = ("scripted-1",),
        seconds_max: float = 60.0,
        events_max: int = 20_000,
        caches: bool = False,
    ) -> None:
        self.script = Script(script)
        self.cache = PrefixCache() if caches else None
        self.usages: list[ScriptedUsage] = []
        self.window = window
        self.key = key
        self.unsupported = frozenset(unsupported)
        self.models = tuple(models)
        self.seconds_max = seconds_max
        self.events_max = events_max
        self.closing = threading.Event()
        self._requests: list[RecordedRequest] = []
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"ScriptedProvider({self.url if self._server else 'closed'})"

    @property
    def requests(self) -> list[RecordedRequest]:
        """Every request so far, refused ones included, oldest first."""
        with self._lock:
            return list(self._requests)

    @property
    def url(self) -> str:
        """The address without a path, as Anthropic's client wants it."""
        assert self._server is not None, "the provider is not running; use it in a with statement"
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def openai_url(self) -> str:
        """The address as OpenAI's client wants it."""
        return f"{self.url}/v1"

    @property
    def anthropic_url(self) -> str:
        """The address as Anthropic's client wants it."""
        return self.url

    def start(self) -> Self:
        """Listen on a free port."""
        self.closing.clear()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve, name="scripted-provider", daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop: end running answers, close connections and wait for threads."""
        if self._server is None or self._thread is None:
            return
        self.closing.set()
        # The thread waits for a connection; this one wakes it.
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._server.server_port)):
            self._thread.join()
        self._server.close_connections()
        self._server.server_close()
        self._server = self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def record(self, request: RecordedRequest) -> None:
        """Keep a request; beyond the limit the oldest ones are dropped."""
        with self._lock:
            self._requests.append(request)
            del self._requests[:-REQUESTS_MAX]

    def window_of(self, model: str) -> int | None:
        """Return the window that a model has here."""
        return self.window.get(model) if isinstance(self.window, Mapping) else self.window


class _Server(ThreadingHTTPServer):
    """Tracks open connections, so that closing does not wait for clients that keep theirs alive."""

    daemon_threads = False
    block_on_close = True
    request_queue_size = 64

    def __init__(self, provider: ScriptedProvider) -> None:
        self.provider = provider
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), ProviderHandler)

    def serve(self) -> None:
        """Take connections until the provider closes."""
        while not self.provider.closing.is_set():
            self.handle_request()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._open_lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._open_lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        with self._open_lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect; any other error is a bug in a script and goes to standard error."""
        import sys

        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


BODY_BYTES_MAX = 64_000_000
DRIP_BYTES = 8
_PATHS = {
    "/chat/completions": "openai-chat",
    "/responses": "openai-responses",
    "/messages": "anthropic",
    "/messages/count_tokens": "anthropic",
    "/embeddings": "embeddings",
    "/conversations": "conversations",
}
_PAGE = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body><h1>Please sign in</h1></body></html>\n"


class ProviderHandler(BaseHTTPRequestHandler):
    """Answers one connection; HTTP/1.1, so that clients may keep it."""

    protocol_version = "HTTP/1.1"
    server_version = "scripted-provider"
    sys_version = ""
    disable_nagle_algorithm = True
    timeout = 60  # An idle connection does not keep its thread for ever.

    @property
    def provider(self) -> ScriptedProvider:
        provider: ScriptedProvider = self.server.provider  # type: ignore[attr-defined]
        return provider

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the parent's
        """Log nothing: ``provider.requests`` has every request."""

    def do_GET(self) -> None:
        path = self._path()
        request = self._record("models", b"")
        refusal = self._check_key()
        if refusal is None and path == "/models":
            listed = [_describe_model(name) for name in self.provider.models]
            self._send_json({"object": "list", "data": listed, "has_more": False})
        elif refusal is None and path.removeprefix("/models/") in self.provider.models:
            self._send_json(_describe_model(path.removeprefix("/models/")))
        else:
            self._send_refusal(request.wire, refusal or Refusal(404, f"Not found: {path}", "not_found"))

    def do_POST(self) -> None:
        path = self._path()
        wire = "conversations" if path.startswith("/conversations/") else _PATHS.get(path, "")
        body = self._read_body()
        if body is None:
            return
        request = self._record(wire, body)
        refusal = self._check_key() or (None if wire else Refusal(404, f"Not found: {path}", "not_found"))
        if refusal is None and wire == "anthropic" and "anthropic-version" not in request.headers:
            refusal = Refusal(400, "anthropic-version: header is required")
        if refusal is not None:
            self._send_refusal(wire, refusal)
        elif wire == "embeddings":
            self._answer_embeddings(request)
        elif wire == "conversations":
            made = {"id": f"conv_{len(self.provider.requests)}", "object": "conversation", "created_at": 0}
            self._send_json({"object": "list", "data": []} if path.count("/") > 1 else {**made, "metadata": {}})
        elif path.endswith("/count_tokens"):
            self._answer_count(request)
        else:
            self._answer(request)

    def _path(self) -> str:
        return urlsplit(self.path).path.removeprefix("/v1").rstrip("/")

    def _read_body(self) -> bytes | None:
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > BODY_BYTES_MAX:
            self.close_connection = True
            self._send_refusal("anthropic", Refusal(413, "Request exceeds the maximum size"))
            return None
        return self.rfile.read(int(length))

    def _record(self, wire: str, body: bytes) -> RecordedRequest:
        try:
            parsed = json.loads(body) if body else None
        except (ValueError, RecursionError):
            parsed = None
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = RecordedRequest(wire, self.command, self.path, headers, body, parsed)
        self.provider.record(request)
        return request

    def _check_key(self) -> Refusal | None:
        given = (self.headers.get("x-api-key"), (self.headers.get("Authorization") or "").removeprefix("Bearer "))
        if self.provider.key is None or self.provider.key in given:
            return None
        return Refusal(401, "Incorrect API key provided.", "invalid_api_key")

    def _answer_embeddings(self, request: RecordedRequest) -> None:
        body = request.json
        if not isinstance(body, dict) or not isinstance(body.get("input"), str | list) or "model" not in body:
            self._send_refusal("openai-chat", Refusal(400, "Missing required parameter: 'input' or 'model'."))
            return
        self._send_json(write_embeddings(body, counter_for(None).count_text(str(body["input"]))))

    def _answer_count(self, request: RecordedRequest) -> None:
        body = {"max_tokens": 1, **request.json} if isinstance(request.json, dict) else request.json
        refusal = find_refusal(request.wire, body, None)
        if refusal is not None:
            self._send_refusal(request.wire, refusal)
        else:
            self._send_json({"input_tokens": count_input(request.wire, body)})

    def _answer(self, request: RecordedRequest) -> None:
        provider = self.provider
        refusal = find_refusal(request.wire, request.json, provider.window_of(request.model), provider.unsupported)
        if refusal is not None:
            self._send_refusal(request.wire, refusal)
            return
        action = provider.script.next(request)
        if isinstance(action, Fault):
            self._misbehave(request, action)
        elif request.is_streaming:
            self._send_events(self._list_events(request, action))
        else:
            self._send(200, self._write_whole(request, action), "application/json")

    def _list_events(self, request: RecordedRequest, reply: ScriptedReply) -> Events:
        _, write_events = WIRES[request.wire]
        return write_events(reply, self._count_usage(request, reply), request.json)

    def _count_usage(self, request: RecordedRequest, reply: ScriptedReply) -> ScriptedUsage:
        provider = self.provider
        with provider._lock:
            cached = provider.cache.read(request.wire, request.json) if provider.cache else 0
            usage = count_usage(request.wire, request.json, reply, cached)
            provider.usages.append(usage)
        return usage

    def _misbehave(self, request: RecordedRequest, fault: Fault) -> None:
        if fault.kind == "hang":
            self.provider.closing.wait(min(fault.pause_s, self.provider.seconds_max))
            self._cut()
        elif fault.kind == "html":
            self._send(200, _PAGE, "text/html; charset=utf-8")
        elif fault.kind == "empty":
            self._send(200, b"", "application/json")
        elif fault.kind == "half_json":
            whole = self._write_whole(request, fault.reply)
            self._send(200, whole[: len(whole) // 2], "application/json")
        elif fault.kind == "status" or (fault.kind == "error_event" and not request.is_streaming):
            text = fault.message or f"scripted error {fault.status}"
            self._send_refusal(request.wire, Refusal(fault.status, text), fault.headers)
        elif request.is_streaming:
            self._misbehave_streaming(request, fault)
        else:
            self._misbehave_whole(request, fault)

    def _misbehave_streaming(self, request: RecordedRequest, fault: Fault) -> None:
        if fault.kind == "drip":
            self._send_events(self._list_events(request, fault.reply), pause_s=fault.pause_s, until=fault.until)
            return
        if fault.kind == "endless":
            # Repeat one chunk from the middle of the stream: the start is right, the end never comes.
            events = list(self._list_events(request, ScriptedReply("word " * 40)))
            middle = len(events) // 2
            self._send_events([*events[:middle], *[events[middle]] * self.provider.events_max], pause_s=fault.pause_s)
        else:
            events = list(self._list_events(request, fault.reply))[: fault.after]
            if fault.kind == "error_event":
                error = write_error(request.wire, Refusal(fault.status, fault.message))
                events.append(("error" if request.wire == "anthropic" else "", error))
                self._send_events(events)
                return
            self._send_events(events, ends=False)
        self._cut()

    def _misbehave_whole(self, request: RecordedRequest, fault: Fault) -> None:
        whole = self._write_whole(request, fault.reply)
        self._send_head(200, "application/json", {"Content-Length": str(len(whole))})
        if fault.kind == "drip":
            pieces = (whole[at : at + DRIP_BYTES] for at in range(0, len(whole), DRIP_BYTES))
            self._write_pieces(pieces, fault.pause_s, fault.until)
            return
        if fault.kind == "endless":
            # The body never reaches its declared length.
            self._write_pieces([b" "] * min(len(whole) - 1, self.provider.events_max), max(fault.pause_s, 0.05))
        else:
            self._write_pieces([whole[: len(whole) // 2]], 0.0)
        self._cut()

    def _write_whole(self, request: RecordedRequest, reply: ScriptedReply) -> bytes:
        write_answer, _ = WIRES[request.wire]
        return write_json(write_answer(reply, self._count_usage(request, reply), request.model)).encode()

    def _send_json(self, payload: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self._send(status, write_json(payload).encode(), "application/json", headers)

    def _send_refusal(self, wire: str, refusal: Refusal, headers: Mapping[str, str] | None = None) -> None:
        self._send_json(write_error(wire, refusal), refusal.status, headers)

    def _send(self, status: int, body: bytes, kind: str, headers: Mapping[str, str] | None = None) -> None:
        self._send_head(status, kind, {"Content-Length": str(len(body)), **(headers or {})})
        self.wfile.write(body)

    def _send_head(self, status: int, kind: str, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("x-request-id", "req_scripted")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _send_events(
        self,
        events: Iterable[tuple[str, dict[str, Any] | str]],
        *,
        pause_s: float = 0.0,
        until: threading.Event | None = None,
        ends: bool = True,
    ) -> None:
        self._send_head(200, "text/event-stream; charset=utf-8", {"Transfer-Encoding": "chunked"})
        chunks = (encode_event(*event) for event in events)
        whole = self._write_pieces((b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks), pause_s, until)
        if ends and whole:
            self.wfile.write(b"0\r\n\r\n")

    def _write_pieces(self, pieces: Iterable[bytes], pause_s: float, until: threading.Event | None = None) -> bool:
        """Write with a pause before each piece; return False if a limit or closing cut it short.

        The second half of the pieces waits for ``until``.
        """
        provider = self.provider
        deadline = time.monotonic() + provider.seconds_max
        known = list(pieces) if until is not None else []
        for count, piece in enumerate(known or pieces):
            stopped = provider.closing.wait(pause_s) if pause_s else provider.closing.is_set()
            if until is not None and count == len(known) // 2:
                stopped = not self._wait(until, deadline)
            if stopped or count >= provider.events_max or time.monotonic() > deadline:
                self._cut()
                return False
            self.wfile.write(piece)
        return True

    def _wait(self, event: threading.Event, deadline: float) -> bool:
        """Wait for a test's event; return False if the provider closes first, or its time is over."""
        while not event.wait(0.01):
            if self.provider.closing.is_set() or time.monotonic() > deadline:
                return False
        return True

    def _cut(self) -> None:
        """Close the connection hard, like a failing network."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.shutdown(socket.SHUT_RDWR)


def _describe_model(name: str) -> dict[str, Any]:
    made = {"created": 1_767_225_600, "created_at": "2026-01-01T00:00:00Z", "owned_by": "scripted"}
    return {"id": name, "object": "model", "type": "model", "display_name": name, **made}


DIMENSIONS = 64
DIMENSIONS_MAX = 4_096
_WORD = re.compile(r"[a-z0-9_]+|[\u3400-\u9fff]")


def embed_text(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """Return a unit vector, the same on every run: each word (or Chinese character) adds to one dimension."""
    vector = [0.0] * dimensions
    for word in _WORD.findall(text.lower()) or [""]:
        digest = hashlib.sha256(word.encode()).digest()
        vector[int.from_bytes(digest[:4], "big") % dimensions] += 1.0 if digest[4] & 1 else -1.0
    length = math.sqrt(sum(value * value for value in vector))
    if length == 0.0:
        vector[0] = length = 1.0
    return [value / length for value in vector]


def write_embeddings(body: dict[str, Any], tokens: int) -> dict[str, Any]:
    """Return the answer to a request for embeddings, as numbers or as base64 of 32-bit floats."""
    given = body.get("input")
    texts = [given] if isinstance(given, str) else [str(text) for text in given or []]
    asked = body.get("dimensions")
    dimensions = min(asked, DIMENSIONS_MAX) if isinstance(asked, int) and asked > 0 else DIMENSIONS
    rows = [
        {"object": "embedding", "index": at, "embedding": _encode(embed_text(text, dimensions), body)}
        for at, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": rows, "model": body.get("model", ""), "usage": usage}


def _encode(vector: list[float], body: dict[str, Any]) -> list[float] | str:
    if body.get("encoding_format") != "base64":
        return vector
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
