"""A scripted provider on loopback: the interfaces of OpenAI and Anthropic, for tests without a key and a network.

    with ScriptedProvider("Hello.") as provider:
        client = openai.OpenAI(base_url=provider.openai_url, api_key="any")

It checks requests as providers do, records each, and answers from a script, which may also misbehave. It binds
127.0.0.1 on a free port, needs the standard library only, and leaves no thread or socket behind when it closes.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Collection, Mapping, Sequence
from http.server import ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from refold.testing.handler import ProviderHandler
from refold.testing.script import RecordedRequest, Script, Step

REQUESTS_MAX = 10_000


class ScriptedProvider:
    """A provider that says what a script says. Use it as a context manager, or call ``start`` and ``close``.

    ``window``: tokens a request may have, or a table of model and tokens; None for any number. ``key``: the only
    key that is accepted. ``unsupported``: parameters that the model refuses. ``models``: what it lists.
    ``seconds_max`` and ``events_max`` bound every answer, also one scripted to hang or never to end.
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
    ) -> None:
        self.script = Script(script)
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
        """Every request that came in, refused ones included, oldest first."""
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
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, name="scripted-provider", daemon=True
        )
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop: answers under way end, connections close, threads are waited for."""
        if self._server is None or self._thread is None:
            return
        self.closing.set()
        self._server.shutdown()
        self._server.close_connections()
        self._server.server_close()
        self._thread.join()
        self._server = self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def record(self, request: RecordedRequest) -> None:
        """Keep a request; beyond a limit the oldest go."""
        with self._lock:
            self._requests.append(request)
            del self._requests[:-REQUESTS_MAX]

    def window_of(self, model: str) -> int | None:
        """Return the window that a model has here."""
        return self.window.get(model) if isinstance(self.window, Mapping) else self.window


class _Server(ThreadingHTTPServer):
    """Knows its open connections, so that closing does not wait for clients that keep theirs alive."""

    daemon_threads = False
    block_on_close = True
    request_queue_size = 64

    def __init__(self, provider: ScriptedProvider) -> None:
        self.provider = provider
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), ProviderHandler)

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
        """A client that left is no event; anything else is a bug in a script and is told on standard error."""
        import sys

        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)
