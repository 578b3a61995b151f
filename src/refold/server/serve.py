"""Runs the gateway: the HTTP server around the application.

Stopping is graceful: no new request is accepted, those in flight finish within ``shutdown_s``, then connections are
cut.
"""

from __future__ import annotations

import gc
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

import uvicorn

from refold.errors import ConfigError
from refold.server.app import Application
from refold.server.protocol import make_protocol

START_S_MAX = 30.0
BACKLOG = 2_048


def check_binding(application: Application) -> None:
    """Raise ConfigError if the gateway would be open to other machines without a key."""
    settings = application.settings
    if not settings.is_local and not application.keys.has_keys:
        raise ConfigError(
            "binding {host} would open the gateway to other machines without a key; "
            "make one with 'refold key add TENANT', or bind 127.0.0.1",
            host=settings.host,
        )


class GatewayServer(uvicorn.Server):
    """An HTTP server that exits without an error on SIGINT and SIGTERM."""

    def __init__(self, config: uvicorn.Config, application: Application) -> None:
        super().__init__(config)
        self._application = application

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM without raising them again after shutdown."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop accepting requests; a second signal does not wait for those in flight."""
        self._application.is_stopping = True
        super().handle_exit(sig, frame)


def make_server(application: Application) -> GatewayServer:
    """Return an application's HTTP server, not yet running."""
    check_binding(application)
    settings = application.settings
    config = uvicorn.Config(
        application,
        http=make_protocol(settings.client_stall_s),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(settings.shutdown_s) or 1,
    )
    return GatewayServer(config, application)


def tune_process() -> None:
    """Tune the interpreter for a process that only serves."""
    # A thread that counts or folds yields after this time; with the default of 5 ms every answer would wait that long.
    sys.setswitchinterval(0.0005)
    # Loaded modules stay: scanning them for garbage takes longer than a request.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def open_socket(host: str, port: int) -> socket.socket:
    """Return a bound socket, so that a port in use is reported before anything else starts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise ConfigError(
            "{host}:{port} cannot be bound: {why}; choose another --port",
            host=host,
            port=port,
            why=error.strerror or error,
        ) from None
    return made


class BackgroundServer:
    """The gateway in a thread of this process, for tests and for programs that embed it."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self._server = make_server(application)
        self._socket = open_socket(application.settings.host, application.settings.port)
        self._thread = threading.Thread(target=self._run, name="refold-gateway", daemon=True)

    @property
    def url(self) -> str:
        """The address without a path."""
        host, port = self._socket.getsockname()[:2]
        return f"http://{host}:{port}"

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])

    def start(self) -> Self:
        """Start, and wait until requests are answered."""
        self._thread.start()
        until = time.monotonic() + START_S_MAX
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > until:
                raise ConfigError("the gateway did not start; its log says why")
            time.sleep(0.01)
        return self

    def close(self) -> None:
        """Finish requests in flight, then stop."""
        self.application.is_stopping = True
        self._server.should_exit = True
        self._thread.join(self.application.settings.shutdown_s + 10)
        self._socket.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
