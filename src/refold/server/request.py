"""A client's HTTP request: headers, body, content codings, and a watch over slow or disconnected clients.

Headers are pairs of bytes with lower-case names, as in ASGI. End-to-end headers are forwarded, hop-by-hop headers are
not, and refold's own (``x-refold-…``) never go upstream. Bodies and what they decompress to are bounded.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping, Sequence
from dataclasses import field
from functools import lru_cache
from importlib import import_module
from typing import Any, TypeVar
from urllib.parse import quote

import orjson

from refold.conversation.message import frozen

Headers = Sequence[tuple[bytes, bytes]]

OWN = b"x-refold-"
_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer trailers "
    b"transfer-encoding upgrade".split()
)
# These are set for each connection: host, length of the body, whether to wait before sending it.
_NOT_FORWARDED = _HOP_BY_HOP | {b"host", b"content-length", b"expect"}
# Codings that AnswerReader can decode; usage in any other coding would go unread.
_CODINGS = ("gzip", "x-gzip", "deflate", "br", "zstd", "identity")
# Characters that are not percent-encoded in a value with letters beyond ASCII: all of ASCII except the percent sign.
_PLAIN = "".join(chr(code) for code in range(32, 127)).replace("%", "")
Result = TypeVar("Result")
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
# Most answers arrive before it is worth watching for a disconnect.
FIRST_S, NEXT_S = 0.1, 1.0
_NEVER = float("inf")


def find_header(headers: Headers, name: bytes) -> str:
    """Return the first value of a header, empty if there is none."""
    for given, value in headers:
        if given == name:
            return value.decode("latin-1").strip()
    return ""


def find_bearer(headers: Headers) -> str:
    """Return the bearer token of a request, empty if there is none."""
    stated = find_header(headers, b"authorization")
    return stated[7:].strip() if stated[:7].lower() == "bearer " else ""


def choose_request_headers(headers: Headers, *, drop: Iterable[bytes] = (), limit_codings: bool = False) -> Headers:
    """Return the client's headers that go upstream."""
    dropped = _name_per_connection(headers).union(drop)
    chosen: list[tuple[bytes, bytes]] = []
    for name, value in headers:
        if name in _NOT_FORWARDED or name in dropped or name.startswith(OWN):
            continue
        chosen.append((name, _limit_codings(value) if limit_codings and name == b"accept-encoding" else value))
    return chosen


def choose_response_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the upstream's headers that go to the client."""
    lowered = [(name.lower(), value) for name, value in headers]
    dropped = _HOP_BY_HOP.union(_name_per_connection(lowered))
    return [(name, value) for name, value in lowered if name not in dropped and not name.startswith(OWN)]


def write_own(values: Iterable[tuple[str, object]]) -> list[tuple[bytes, bytes]]:
    """Return our own headers: one line of bounded length each, letters beyond ASCII percent-encoded."""
    return [(OWN + name.encode(), _make_plain(str(value))) for name, value in values if value not in (None, "")]


def decode_headers(headers: Headers) -> list[tuple[str, str]]:
    """Return headers as text for an HTTP client that writes UTF-8: valid UTF-8 stays unchanged."""
    return [(name.decode("latin-1"), _decode(value)) for name, value in headers]


def _decode(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _name_per_connection(headers: Headers) -> frozenset[bytes]:
    """Return the headers that the Connection header names as hop-by-hop."""
    return frozenset(
        [token.strip().lower() for name, value in headers if name == b"connection" for token in value.split(b",")]
    )


@lru_cache(maxsize=64)
def _limit_codings(value: bytes) -> bytes:
    kept = [
        coding.strip()
        for coding in value.decode("latin-1").split(",")
        if coding.partition(";")[0].strip().lower() in _CODINGS
    ]
    return ", ".join(kept or ["identity"]).encode("latin-1")


def _make_plain(text: str) -> bytes:
    line = " ".join(text.split())[:300]
    return line.encode() if line.isascii() else quote(line, safe=_PLAIN, errors="replace").encode()


class CodingError(Exception):
    """The bytes are not in the stated coding."""


class Decoder:
    """Decompresses incrementally, with a decoder that has the standard library's interface."""

    def __init__(self, decoder: Any, *errors: type[Exception]) -> None:
        self._decoder = decoder
        self._errors = errors

    @property
    def is_complete(self) -> bool:
        """True if the stream has ended, and no bytes follow it."""
        return bool(self._decoder.eof) and not self._decoder.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return decompressed bytes, about ``max_length`` at most; raise CodingError if they are malformed."""
        try:
            return bytes(self._decoder.decompress(data, max_length))
        except self._errors as error:
            raise CodingError(type(error).__name__) from None


def make_decoder(coding: str) -> Decoder | None:
    """Return the decoder of a coding as named in a header; None if it is not supported."""
    named = coding.strip().lower()
    if named in ("gzip", "x-gzip"):
        return Decoder(zlib.decompressobj(wbits=zlib.MAX_WBITS | 16), zlib.error)
    if named == "deflate":
        return Decoder(zlib.decompressobj(wbits=zlib.MAX_WBITS), zlib.error)
    if named == "zstd":
        # The standard library has it since 3.14.
        zstd = import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
        return Decoder(zstd.ZstdDecompressor(), zstd.ZstdError, EOFError)
    if named == "br":
        brotli = import_module("brotli")
        return Decoder(_Brotli(brotli.Decompressor()), brotli.error)
    return None


class _Brotli:
    """Brotli's decoder, which treats the limit as advice and does not report bytes after the end."""

    unused_data = b""

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder

    @property
    def eof(self) -> bool:
        return bool(self._decoder.is_finished())

    def decompress(self, data: bytes, max_length: int) -> bytes:
        made = bytearray(self._decoder.process(data, output_buffer_limit=max_length))
        while len(made) < max_length and not self._decoder.can_accept_more_data():
            made += self._decoder.process(b"", output_buffer_limit=max_length - len(made))
        return bytes(made)


@frozen
class Asked:
    """A client's request; its representation shows no header. ``run`` is the id of a wrapped program's run."""

    method: str
    path: str
    query: bytes = field(repr=False)
    headers: Headers = field(repr=False)
    tenant: str = ""
    drop: frozenset[bytes] = field(default=frozenset(), repr=False)
    run: str = ""

    def header(self, name: str) -> str:
        """Return the first value of a header, empty if there is none."""
        return find_header(self.headers, name.encode())


class BodyTooLarge(Exception):
    """The body is larger than the gateway accepts."""


class ClientGone(Exception):
    """The client disconnected before it had its answer."""


class ClientStalled(Exception):
    """The client neither sends nor reads anything."""


async def read_body(receive: Receive, headers: Headers, *, bytes_max: int) -> bytes:
    """Return a request's whole body."""
    stated = find_header(headers, b"content-length")
    if stated.isdigit() and int(stated) > bytes_max:
        raise BodyTooLarge
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece = message.get("body", b"")
        size += len(piece)
        if size > bytes_max:
            raise BodyTooLarge
        if piece:
            pieces.append(piece)
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def decode_body(body: bytes, coding: str, bytes_max: int) -> bytes | None:
    """Return a body decompressed; None if it is malformed; raise BodyTooLarge over ``bytes_max``."""
    decoder = make_decoder(coding)
    if decoder is None:
        return None
    try:
        plain = decoder.decompress(body, bytes_max + 1)
    except CodingError:
        return None
    if len(plain) > bytes_max:
        raise BodyTooLarge
    return plain if decoder.is_complete else None


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that first returns a body that was already read."""
    is_given = False

    async def give() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return give


async def send_json(
    send: Send, status: int, payload: object, own: Sequence[tuple[str, object]] = (), *, retry_after_s: int = 0
) -> None:
    """Send our own JSON answer."""
    headers = [(b"content-type", b"application/json"), *write_own(own)]
    if retry_after_s:
        headers.append((b"retry-after", str(retry_after_s).encode()))
    if status == 408:
        headers.append((b"connection", b"close"))  # Unread body bytes must not be parsed as the next request.
    await send_whole(send, status, headers, orjson.dumps(payload))


async def send_whole(send: Send, status: int, headers: Headers = (), body: bytes = b"", *, kind: str = "http") -> None:
    """Send an answer at once; ``kind`` is ``websocket.http`` for the refusal of a websocket."""
    headers = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": f"{kind}.response.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": body})


class TookTooLong(Exception):
    """The request took longer than ``request_s_max``."""


class Watch:
    """Watches the current task with one timer; cancels it if the client is gone or stalls, or the time is over."""

    def __init__(self, receive: Receive, *, stall_s: float, request_s_max: float) -> None:
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[Any] | None = asyncio.current_task()
        self._stall_s = stall_s
        self._stalled_at = _NEVER
        self._over_at = self._loop.time() + request_s_max
        self._tick_s = min(NEXT_S, stall_s / 4, request_s_max / 4)
        self._timer = self._loop.call_later(min(FIRST_S, self._tick_s), self._look)
        self._watcher: asyncio.Task[None] | None = None
        self.body_is_read = False  # Once it is, only a disconnect can arrive.
        self._problem: Exception | None = None

    async def receive(self) -> Message:
        """Wait for the client to send something, as one step."""
        self._stalled_at = self._loop.time() + self._stall_s
        message = await self._receive()
        self._stalled_at = _NEVER
        return message

    async def give(self, send: Send, message: Message) -> None:
        """Send something to the client, as one step."""
        self._stalled_at = self._loop.time() + self._stall_s
        await send(message)
        self._stalled_at = _NEVER

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Await ``work``; raise ClientGone, ClientStalled or TookTooLong if that is why it was cancelled."""
        try:
            return await work
        except asyncio.CancelledError:
            if self._problem is not None and self._task is not None and not self._task.uncancel():
                raise self._problem from None
            raise
        finally:
            self._timer.cancel()
            if self._watcher is not None:
                self._watcher.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        if now >= self._stalled_at:
            self._end(ClientStalled())
        elif now >= self._over_at:
            self._end(TookTooLong())
        else:
            if self._watcher is None and self.body_is_read:
                self._watcher = self._loop.create_task(self._watch_client())
            self._timer = self._loop.call_later(self._tick_s, self._look)

    async def _watch_client(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._end(ClientGone())

    def _end(self, problem: Exception) -> None:
        if self._problem is None and self._task is not None:
            self._problem = problem
            self._task.cancel()
