"""HTTP as the gateway speaks it: uvicorn's own parser, with limits on what comes before a request is whole.

Whoever opens a connection has no name yet, so its head is bounded in bytes and in time. A client that offers another
protocol for later (HTTP/2 in the clear, as Java's own client does with every first request) is answered in HTTP/1.1,
its body included. Nothing here looks at what a request says.
"""

from __future__ import annotations

import asyncio

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MAX = 131_072
_OFFER = frozenset((b"upgrade", b"http2-settings"))


class GatewayProtocol(HttpToolsProtocol):
    """One connection of a client."""

    head_s_max = 60.0
    _head_bytes = 0
    _is_in_head = False
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection; it has to say something before long."""
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of a connection."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came; a head that goes on and on is refused."""
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
            self._stop_timer()
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES_MAX:
            self.send_400_response("The head of the request is too long.")
        elif self._head_timer is None:
            self._start_timer()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._is_in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head of a request is whole; one with an offer is read once more without it."""
        self._is_in_head = False
        if not self._is_declined():
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """A request is whole."""
        if not self._is_declined():
            super().on_message_complete()

    def _is_declined(self) -> bool:
        return bool(self.parser.should_upgrade()) and not self._should_upgrade()

    def _decline_offer(self, rest: bytes) -> None:
        """Read a request again as if nothing had been offered: the parser ends where another protocol could begin."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            self.send_400_response("This is no proxy.")
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
        self._head_timer = self.loop.call_later(self.head_s_max, self._give_up)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.close()


def make_protocol(head_s_max: float) -> type[GatewayProtocol]:
    """Return the protocol of a server whose clients have so long to say what they want."""

    class LimitedProtocol(GatewayProtocol):
        """One connection of a client of this server."""

    LimitedProtocol.head_s_max = head_s_max
    return LimitedProtocol
