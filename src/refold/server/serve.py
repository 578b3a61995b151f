"""Runs the gateway: the HTTP server around the application. The only module that uses uvicorn's internals.

A new connection is anonymous, so its head is bounded in bytes and time. A client that offers an upgrade (HTTP/2 in
clear text, as Java's own client does with every first request) is answered in HTTP/1.1, body included. A test checks
that the installed uvicorn has every name that is used or overridden here.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from refold.errors import ConfigError
from refold.server.app import Application

START_S_MAX = 30.0
BACKLOG = 2_048
HEAD_BYTES_MAX = 131_072
ADOPTED_MAX = 64
_OFFER = frozenset((b"upgrade", b"http2-settings"))


class JoinedWrites:
    """The transport of one answer: its head waits for the beginning of its body, if that follows at once.

    uvicorn writes them one after the other, and the client would wake up for each.
    """

    __slots__ = ("_head", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head: bytes | None = None

    def write(self, data: bytes) -> None:
        """Write bytes; the first ones when more are written, or in the next iteration of the event loop."""
        if self._head is None:
            self._head = data
            self._loop.call_soon(self._flush)
        elif self._head:
            head, self._head = self._head, b""
            # Not ``writelines``: before Python 3.13.6 it writes to a connection that is lost.
            self._transport.write(head + data)
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Close the connection once everything is written."""
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Return whether the connection is closing or closed."""
        return self._transport.is_closing()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)


class GatewayProtocol(HttpToolsProtocol):
    """One client connection."""

    _head_bytes = 0
    _is_in_head = False
    _has_rest = False  # The request was answered before the end of its body.
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes; refuse a head that is too long."""
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._stop_timer()
            if self._should_upgrade():
                self.handle_websocket_upgrade()
            else:
                self._decline_offer(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
            return
        if not self._is_in_head:
            if not self._has_rest:
                self._stop_timer()
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES_MAX:
            self.send_400_response("The head of the request is too long.")
        elif self._head_timer is None:
            self._start_timer()

    def on_message_begin(self) -> None:
        self._is_in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Handle a complete head; one with a declined upgrade is parsed again without the offer."""
        self._is_in_head = False
        if not self._is_declined():
            super().on_headers_complete()
            if self.cycle is not None:  # None if the client requested a websocket.
                self.cycle.transport = JoinedWrites(self.transport, self.loop)  # type: ignore[assignment]

    def on_message_complete(self) -> None:
        """Handle a complete request, unless it is parsed again."""
        if self._has_rest:
            self._has_rest = False
            self._stop_timer()
        if not self._is_declined():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the rest of a request that is answered already, but not forever."""
        super().on_response_complete()
        is_answered = self.cycle.response_complete  # False if it is the next request, which came before this answer.
        self._has_rest = is_answered and self.cycle.more_body and not self.transport.is_closing()
        if self._has_rest and self._head_timer is None:
            self._start_timer()

    def _is_declined(self) -> bool:
        return bool(self.parser.should_upgrade()) and not self._should_upgrade()

    def _decline_offer(self, rest: bytes) -> None:
        """Parse a request again without its upgrade offer: the parser stopped where the other protocol would begin."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            self.send_400_response("This is not a proxy.")
            return
        head = [method, b" ", self.url, b" HTTP/", self.parser.get_http_version().encode(), b"\r\n"]
        for name, value in self.headers:
            if name == b"connection":
                value = b",".join(one for one in value.split(b",") if one.strip().lower() not in _OFFER)
            if name not in _OFFER and value:
                head += [name, b": ", value, b"\r\n"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # As the one before it.
        self.data_received(b"".join((*head, b"\r\n", rest)))

    def _start_timer(self) -> None:
        head_s_max = self.config.app.settings.client_stall_s  # type: ignore[union-attr]
        self._head_timer = self.loop.call_later(head_s_max, self._give_up)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.close()


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

    def __init__(self, config: uvicorn.Config, application: Application, channel: socket.socket | None = None) -> None:
        super().__init__(config)
        self._application = application
        self._channel = channel
        self._adopting: set[asyncio.Task[object]] = set()
        self.has_begun = threading.Event()
        self._wake: Callable[[], object] = lambda: None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._channel is not None:
            self._channel.setblocking(False)
            asyncio.get_running_loop().add_reader(self._channel, self._adopt, self._channel)
            self._channel.send(b"r")  # Connections may come.
        self.has_begun.set()

    def _adopt(self, channel: socket.socket) -> None:
        """Serve connections that another process has accepted; stop when it closes the socket."""
        loop = asyncio.get_running_loop()
        data, handles, _, _ = socket.recv_fds(channel, ADOPTED_MAX, ADOPTED_MAX)
        for handle in handles:
            made = loop.connect_accepted_socket(self._make_protocol, socket.socket(fileno=handle))
            task = asyncio.ensure_future(made)
            self._adopting.add(task)
            task.add_done_callback(self._adopting.discard)
        if not data:
            loop.remove_reader(channel)
            self.stop()

    def _make_protocol(self) -> GatewayProtocol:
        return GatewayProtocol(self.config, self.server_state, self.lifespan.state)

    async def main_loop(self) -> None:
        """Wait until the server is stopped. uvicorn itself would poll ten times a second."""
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(stopped.set)
        if not self.should_exit:
            await stopped.wait()
        self._wake = lambda: None

    def stop(self) -> None:
        """Stop from another thread, after the requests in flight."""
        self._application.is_stopping = self.should_exit = True
        self._wake()

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
        self._wake()


def make_server(application: Application, channel: socket.socket | None = None) -> GatewayServer:
    """Return an application's HTTP server, not yet running; ``channel`` brings connections from another process."""
    check_binding(application)
    settings = application.settings
    config = uvicorn.Config(
        application,
        http=GatewayProtocol,
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
    return GatewayServer(config, application, channel)


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

    def __init__(self, application: Application, bound: socket.socket | None = None) -> None:
        self.application = application
        self._server = make_server(application)
        self._socket = bound or open_socket(application.settings.host, application.settings.port)
        self._thread = threading.Thread(target=self._run, name="refold-gateway", daemon=True)

    @property
    def url(self) -> str:
        """The address without a path."""
        host, port = self._socket.getsockname()[:2]
        return f"http://{host}:{port}"

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._server.has_begun.set()

    def start(self) -> Self:
        """Start, and wait until requests are answered."""
        self._thread.start()
        self._server.has_begun.wait(START_S_MAX)
        if not self._server.started:
            raise ConfigError("the gateway did not start; its log says why")
        return self

    def close(self) -> None:
        """Finish requests in flight, then stop."""
        self._server.stop()
        self._thread.join(self.application.settings.shutdown_s + 10)
        self._socket.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()
