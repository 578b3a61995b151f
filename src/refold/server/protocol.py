"""uvicorn's HTTP protocol with limits on a request's head. The only module that uses uvicorn's internals.

A new connection is anonymous, so its head is bounded in bytes and time. A client that offers an upgrade (HTTP/2 in
clear text, as Java's own client does with every first request) is answered in HTTP/1.1, body included. A test checks
that the installed uvicorn has every name that is used or overridden here.
"""

from __future__ import annotations

import asyncio

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MAX = 131_072
_OFFER = frozenset((b"upgrade", b"http2-settings"))


class GatewayProtocol(HttpToolsProtocol):
    """One client connection."""

    head_s_max = 60.0
    _head_bytes = 0
    _is_in_head = False
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit for the first request."""
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time limit."""
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
            self._stop_timer()
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES_MAX:
            self.send_400_response("The head of the request is too long.")
        elif self._head_timer is None:
            self._start_timer()

    def on_message_begin(self) -> None:
        """Start counting the bytes of a head."""
        self._is_in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Handle a complete head; one with a declined upgrade is parsed again without the offer."""
        self._is_in_head = False
        if not self._is_declined():
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Handle a complete request, unless it is parsed again."""
        if not self._is_declined():
            super().on_message_complete()

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
    """Return the protocol class with this time limit for heads."""

    class LimitedProtocol(GatewayProtocol):
        """One client connection of this server."""

    LimitedProtocol.head_s_max = head_s_max
    return LimitedProtocol
