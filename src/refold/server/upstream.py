"""The way to the upstreams and back: send a request, notice refusals, relay the answer, read its usage.

Addresses come from settings only. Redirects are not followed (a credential would go where no operator sent it), cookies
are not kept (they would pass from one client to another), nothing is decompressed, and no header is added. An upstream
that breaks off breaks the client's connection too, so that half an answer is never taken for a whole one. A proxy and
certificates that the environment names are used, as the client itself would use them.

Some upstreams begin a stream with status 200 and put a refusal into its first event, so the first bytes of a stream are
inspected and then forwarded unchanged. Usage is read from the bytes as they pass, without changing or delaying them.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

import aiohttp
import orjson
from yarl import URL

from refold.config.load import copy_environment
from refold.conversation.message import frozen
from refold.errors import ConfigError, ContextOverflow, ProviderError, Unavailable
from refold.formats.streamed import StreamedAnswer, list_objects
from refold.llm.errors import classify_response, show_url
from refold.server.request import (
    Asked,
    CodingError,
    Send,
    Watch,
    choose_request_headers,
    choose_response_headers,
    decode_headers,
    make_decoder,
)
from refold.server.settings import LARGE_BYTES, GatewaySettings, is_local_host
from refold.server.wires import Side

HEADER_BYTES_MAX = 65_536
# Shorter than servers' keep-alive, so that we never send into a connection that is closing.
KEEPALIVE_S = 15.0
# A larger body is written in pieces, so that other requests are answered in between.
_WRITTEN_WHOLE = 1_000_000
_CREDENTIALS = frozenset((b"authorization", b"x-api-key", b"api-key"))
# With the operator's key, a tenant must not choose another method or path, or one of the operator's accounts.
_STEERING = frozenset(
    b"x-http-method-override x-http-method x-method-override x-original-url x-original-uri x-rewrite-url "
    b"x-forwarded-host x-forwarded-prefix x-forwarded-path x-forwarded-uri forwarded "
    b"openai-organization openai-project cookie".split()
)
_AUTO_HEADERS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
ERROR_BYTES_MAX = 1_000_000
_REASON_CHARS_MAX = 100
EVENT_BYTES_MAX = 65_536
# After this time without an event, a stream is relayed unchanged: the request was accepted.
FIRST_EVENT_S = 5.0
# Statuses that providers use for requests that are too long.
_MAY_OVERFLOW = frozenset((400, 413, 422, 429, 500))
_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_ESCAPE = re.compile(rb"\\(?:u[0-9a-fA-F]{4}|.)")
_NOT_PLAIN = re.compile(rb"[^0-9A-Za-z\x80-\xff]+")
_TAKEN = re.compile(rb'"type"\s*:\s*"response\.(?:created|queued|in_progress)"')
BYTES_MAX = 16_000_000
# Only events that can contain figures are parsed.
_WORDS = (b'"usage"', b'_reason"', b'"error"')


@lru_cache(maxsize=256)
def _read_url(url: str) -> URL:
    return URL(url, encoded=True)


class UpstreamSlow(Unavailable):
    """The upstream did not answer in time."""

    http_status = 504


# Files with certificate authorities that clients trust beside the system's, each by the name that its users know.
_AUTHORITIES = ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "CODEX_CA_CERTIFICATE", "REQUESTS_CA_BUNDLE")


def find_proxy(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the proxy that the environment names for an address; None for addresses of this machine."""
    parts = urlsplit(url)
    names = (f"{parts.scheme}_proxy", "all_proxy")
    proxy = next((found for name in names if (found := environ.get(name) or environ.get(name.upper()))), "")
    excepted = {"no": environ.get("no_proxy") or environ.get("NO_PROXY") or ""}
    if not proxy or is_local_host(parts.hostname or "") or proxy_bypass_environment(parts.netloc, excepted):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if not proxy.startswith(("http://", "https://")):
        raise ConfigError(
            "the proxy {proxy} of the environment is not an HTTP proxy, so {url} cannot be reached through it; name an "
            "HTTP proxy in HTTPS_PROXY, or add the host to NO_PROXY",
            proxy=show_url(proxy),
            url=show_url(url),
        )
    return proxy


def read_authorities(environ: Mapping[str, str]) -> ssl.SSLContext | bool:
    """Return the certificate authorities that the environment names, beside the system's; True if it names none."""
    paths = [(name, environ[name]) for name in _AUTHORITIES if environ.get(name)]
    context = ssl.create_default_context() if paths else True
    for name, path in paths:
        try:
            context.load_verify_locations(path)  # type: ignore[union-attr]
        except OSError as error:
            raise ConfigError(
                "{name} names {path}, whose certificates cannot be read: {why}",
                name=name,
                path=path,
                why=error.strerror or error,
            ) from None
    return context


class Upstreams:
    """Sends requests to the two configured upstreams; ``environ`` names proxies and certificates."""

    def __init__(self, settings: GatewaySettings, environ: Mapping[str, str] | None = None) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None
        given = copy_environment() if environ is None else environ
        self._proxies = {side: find_proxy(settings.find_url(side), given) for side in ("openai", "anthropic")}
        self._authorities = read_authorities(given)

    def open(self) -> None:
        """Make the client; an event loop must be running."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self._settings.connect_timeout_s, sock_read=self._settings.upstream_stall_s
        )
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S, ssl=self._authorities),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=timeout,
            auto_decompress=False,
            skip_auto_headers=_AUTO_HEADERS,
            max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def make_url(self, side: Side, path: str, query: bytes = b"") -> URL:
        """Return the URL of a request; the client's path and query stay unchanged."""
        rest = path.removeprefix("/v1") if side == "openai" else path
        tail = f"?{query.decode('latin-1')}" if query else ""
        return _read_url(f"{self._settings.find_url(side)}{rest}{tail}")

    async def send(
        self, side: Side, asked: Asked, path: str, body: bytes, *, is_read: bool = False
    ) -> aiohttp.ClientResponse:
        """Send a request; return the response with its body unread. ``is_read``: usage will be read from it."""
        assert self._session is not None, "the gateway is not running"
        held = self._settings.find_held_key(side)
        drop = {*asked.drop, *(_CREDENTIALS if held else ()), *(_STEERING if held and asked.tenant else ())}
        headers = decode_headers(choose_request_headers(asked.headers, drop=drop, limit_codings=is_read))
        if held:
            headers.append(("authorization", f"Bearer {held}") if side == "openai" else ("x-api-key", held))
        url = self.make_url(side, path, asked.query)
        has_body = bool(body) or asked.method in ("POST", "PUT", "PATCH")
        data = io.BytesIO(body) if len(body) > _WRITTEN_WHOLE else body if has_body else None
        try:
            found = await self._session.request(
                asked.method, url, data=data, headers=headers, allow_redirects=False, proxy=self._proxies[side]
            )
        except aiohttp.ClientHttpProxyError as error:
            raise Unavailable(f"the proxy on the way to the {side} upstream answered {error.status}") from None
        except (TimeoutError, aiohttp.ServerTimeoutError):
            raise UpstreamSlow(f"the {side} upstream did not answer in time") from None
        except aiohttp.ClientResponseError as error:
            why = (error.message or type(error).__name__).partition("\n")[0][:_REASON_CHARS_MAX]
            raise ProviderError(f"the answer of the {side} upstream is malformed ({why})") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"the {side} upstream cannot be reached ({type(error).__name__})") from None
        except ValueError as error:
            raise ProviderError(f"the request cannot be forwarded ({type(error).__name__})") from None
        if found.status == HTTPStatus.SWITCHING_PROTOCOLS:  # No client asked for that: the header is not forwarded.
            found.close()
            raise ProviderError(f"the {side} upstream answered 101 and switched to another protocol")
        return found


@frozen
class AnswerStart:
    """The first bytes of an answer; ``overflow`` is set if they are a refusal."""

    head: bytes = field(default=b"", repr=False)
    overflow: ContextOverflow | None = None


async def look_for_refusal(response: aiohttp.ClientResponse, stall_s: float, request: bytes = b"") -> AnswerStart:
    """Read enough of an answer to see whether the request was too long; ``request`` is the request's body."""
    try:
        if response.status in _MAY_OVERFLOW:
            pieces = bytearray()
            async with asyncio.timeout(stall_s):
                async for chunk in response.content.iter_any():
                    pieces += chunk
                    if len(pieces) > ERROR_BYTES_MAX:
                        return AnswerStart(bytes(pieces))
            head = bytes(pieces)
            return AnswerStart(head, await _classify(response.status, _decode(head, response), request))
        if response.status == 200 and response.content_type == "text/event-stream":
            head = await _read_first_event(response)
            error = _find_error(_decode(head, response))
            return AnswerStart(head, await _classify(400, error, request) if error is not None else None)
    except (aiohttp.ServerTimeoutError, TimeoutError):
        raise UpstreamSlow("the upstream stalled at the start of its answer") from None
    except aiohttp.ClientError as error:
        raise ProviderError(f"the upstream broke off at the start of its answer ({type(error).__name__})") from None
    return AnswerStart()


async def _read_first_event(response: aiohttp.ClientResponse) -> bytes:
    """Return the beginning of a stream up to its first significant event, or what arrived in time."""
    head = b""
    try:
        async with asyncio.timeout(FIRST_EVENT_S):
            while not _has_begun(_decode(head, response)) and len(head) < EVENT_BYTES_MAX:
                chunk = await response.content.readany()
                if not chunk:
                    break
                head += chunk
    except TimeoutError as error:
        if isinstance(error, aiohttp.ServerTimeoutError):
            raise
    return head


def _has_begun(text: bytes) -> bool:
    """Return whether there is a complete event after the acknowledgement of the request (Responses)."""
    *events, _ = _EVENT_END.split(text)
    return any(event.strip() and not _TAKEN.search(event) for event in events)


def _find_error(text: bytes) -> bytes | None:
    """Return the error in the first events; None if the answer has begun."""
    for line in text.splitlines():
        if not line.startswith(b"data:") or b'"error"' not in line:
            continue
        payload = read_object(line[5:])
        # OpenAI's and Anthropic's error events, or a failed response.
        is_bare = isinstance(payload.get("error"), dict) and not payload.get("choices")
        if is_bare or payload.get("type") in ("error", "response.failed"):
            return line[5:]
    return None


async def _classify(status: int, text: bytes, request: bytes) -> ContextOverflow | None:
    error = classify_response(status, text)
    if not isinstance(error, ContextOverflow):
        return None
    # Providers quote what they refuse. A limit that the request itself contains must not be learned as theirs.
    if len(request) > LARGE_BYTES:  # Searching it would block other requests: trust no quotation.
        error = classify_response(status, text, is_quoted=lambda _: True)
    else:
        said = await asyncio.to_thread(_read_plain, request)
        error = classify_response(status, text, is_quoted=lambda piece: _make_plain(piece.encode()) in said)
    return error if isinstance(error, ContextOverflow) else None


def _read_plain(request: bytes) -> bytes:
    with contextlib.suppress(orjson.JSONDecodeError, TypeError):
        request = orjson.dumps(orjson.loads(request))  # Characters beyond ASCII may come as escapes.
    return _make_plain(request)


def _make_plain(text: bytes) -> bytes:
    """Return a text's letters and digits in lower case, so that escapes and spaces do not hide a quotation."""
    return _NOT_PLAIN.sub(b"", _ESCAPE.sub(b"", text)).lower()


def _decode(head: bytes, response: aiohttp.ClientResponse) -> bytes:
    decoder = make_decoder(response.headers.get("content-encoding", ""))
    try:
        return head if decoder is None else decoder.decompress(head, ERROR_BYTES_MAX)
    except CodingError:
        return head


class BrokenOff(Exception):
    """The upstream broke off or stalled after the answer had begun; the text says which."""


async def relay_answer(
    response: aiohttp.ClientResponse,
    send: Send,
    watch: Watch,
    *,
    own: Sequence[tuple[bytes, bytes]] = (),
    head: bytes = b"",
    reader: AnswerReader | None = None,
    at_end: Callable[[], None] | None = None,
) -> int:
    """Send status, headers and body, of which ``head`` was read before; return the body's size.

    ``at_end`` is called before the client sees the end of the answer: its next request may follow at once.
    """
    size = 0
    try:
        headers = [*choose_response_headers(response.raw_headers), *own]
        await watch.give(send, {"type": "http.response.start", "status": response.status, "headers": headers})
        if head:
            size += len(head)
            if reader is not None:
                reader.feed(head)
            await watch.give(send, {"type": "http.response.body", "body": head, "more_body": True})
        stated = response.content_length
        is_over = False
        async for chunk in response.content.iter_any():
            size += len(chunk)
            if reader is not None:
                reader.feed(chunk)
            is_over = size == stated
            if is_over and at_end is not None:
                at_end()
            await watch.give(send, {"type": "http.response.body", "body": chunk, "more_body": not is_over})
        if is_over:
            return size
        if at_end is not None:
            at_end()
        await watch.give(send, {"type": "http.response.body", "body": b"", "more_body": False})
    except (aiohttp.ServerTimeoutError, aiohttp.SocketTimeoutError):
        raise BrokenOff("the upstream stalled") from None
    except (aiohttp.ClientError, ConnectionError) as error:
        raise BrokenOff(f"the upstream broke off ({type(error).__name__})") from None
    return size


class AnswerReader:
    """Reads usage from the bytes of one answer."""

    def __init__(self, answer: StreamedAnswer, headers: Mapping[str, str]) -> None:
        content_type, coding = headers.get("content-type", ""), headers.get("content-encoding", "")
        self._answer = answer
        self._is_stream = content_type.partition(";")[0].strip().lower() == "text/event-stream"
        self.is_finished = False
        self._decoder = make_decoder(coding)
        self._is_given_up = self._decoder is None and coding.strip().lower() not in ("", "identity")
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> None:
        if self._is_given_up:
            return
        if self._decoder is not None:
            try:
                chunk = self._decoder.decompress(chunk, BYTES_MAX)
            except CodingError:
                self._give_up()
                return
        self._rest += chunk
        if self._is_stream and (b"\n" in chunk or b"\r" in chunk):
            self._read_lines()
        if len(self._rest) > BYTES_MAX:
            self._give_up()

    def finish(self) -> StreamedAnswer:
        """Read the rest and return the answer."""
        if not self._is_given_up and self._is_stream:
            self._read_line(bytes(self._rest))
        elif not self._is_given_up:
            self._answer.add_whole(read_object(bytes(self._rest)))
        self._give_up()
        self.is_finished = True
        return self._answer

    def _give_up(self) -> None:
        self._is_given_up = True
        self._rest.clear()

    def _read_lines(self) -> None:
        end = max(self._rest.rfind(b"\n"), self._rest.rfind(b"\r")) + 1
        if not end:
            return
        whole = bytes(self._rest[:end])
        del self._rest[:end]
        # The common case is an event without these words: one search, no split.
        if any(word in whole for word in _WORDS):
            for line in whole.splitlines():
                self._read_line(line)

    def _read_line(self, line: bytes) -> None:
        if line.startswith(b"data:") and any(word in line for word in _WORDS):
            event = read_object(line[5:])
            for choice in list_objects(event.get("choices")):
                choice.pop("delta", None)  # Only figures are kept: nothing limits the length of a stream.
            self._answer.add(event)


def read_object(text: bytes) -> dict[str, Any]:
    """Return a JSON object; empty if the text is not one."""
    try:
        payload = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return payload if isinstance(payload, dict) else {}
