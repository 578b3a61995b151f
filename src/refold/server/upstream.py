"""The way to the upstreams: addresses from settings only, bytes sent and received as they are.

Redirects are not followed (a credential would go where no operator sent it), cookies are not kept (they would pass from
one client to another), nothing is decompressed, and no header is added.
"""

from __future__ import annotations

from typing import Any

import aiohttp
from yarl import URL

from refold.errors import ProviderError, Unavailable
from refold.server.request import Asked, choose_request_headers, decode_headers
from refold.server.settings import GatewaySettings
from refold.server.wires import Side

HEADER_BYTES_MAX = 65_536
# Shorter than what servers keep an idle connection for, so that we never send into one that is closing.
KEEPALIVE_S = 15.0
_CREDENTIALS = frozenset((b"authorization", b"x-api-key", b"api-key"))
_AUTO_HEADERS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class UpstreamSlow(Unavailable):
    """The upstream did not answer in time."""

    http_status = 504


class Upstreams:
    """Sends requests to the two configured upstreams."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._bases = {
            "openai": _find_openai_base(settings.openai_upstream),
            "anthropic": settings.anthropic_upstream.rstrip("/").removesuffix("/v1"),
        }
        self._session: aiohttp.ClientSession | None = None

    def open(self) -> None:
        """Make the client; an event loop must be running."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self._settings.connect_timeout_s, sock_read=self._settings.upstream_stall_s
        )
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=timeout,
            auto_decompress=False,
            skip_auto_headers=_AUTO_HEADERS,
            max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
        )

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def make_url(self, side: Side, path: str, query: bytes = b"") -> URL:
        """Return where a request goes; a client's path and query stand as they came."""
        base = self._bases[side]
        rest = path.removeprefix("/v1") if side == "openai" else path
        tail = f"?{query.decode('latin-1')}" if query else ""
        return URL(f"{base}{rest}{tail}", encoded=True)

    async def send(
        self, side: Side, asked: Asked, path: str, body: bytes, *, is_read: bool = False
    ) -> aiohttp.ClientResponse:
        """Send a request; return the answer with its body still to come. ``is_read``: we want to read it too."""
        assert self._session is not None, "the gateway is not running"
        headers = decode_headers(self._choose_headers(side, asked, is_read))
        url = self.make_url(side, path, asked.query)
        has_body = bool(body) or asked.method in ("POST", "PUT", "PATCH")
        try:
            return await self._session.request(
                asked.method, url, data=body if has_body else None, headers=headers, allow_redirects=False
            )
        except (TimeoutError, aiohttp.ServerTimeoutError):
            raise UpstreamSlow(f"the {side} upstream did not answer in time") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"the {side} upstream cannot be reached ({type(error).__name__})") from None
        except ValueError as error:
            raise ProviderError(f"the request cannot be sent on ({type(error).__name__})") from None

    def _choose_headers(self, side: Side, asked: Asked, is_read: bool) -> Any:
        held = self._settings.find_held_key(side)
        drop = {*asked.drop, *(_CREDENTIALS if held else ())}
        headers = list(choose_request_headers(asked.headers, drop=drop, limit_codings=is_read))
        if held and side == "openai":
            headers.append((b"authorization", f"Bearer {held}".encode()))
        elif held:
            headers.append((b"x-api-key", held.encode()))
        return headers


def _find_openai_base(url: str) -> str:
    """Return the address as OpenAI's clients take it: with its version in the path, /v1 if there is no path."""
    base = url.rstrip("/")
    return base if URL(base).path.strip("/") else f"{base}/v1"
