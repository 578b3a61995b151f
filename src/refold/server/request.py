"""A client's request as the gateway handles it: its headers, its body, and the codings that a body may come in.

Headers are pairs of bytes with lower-case names, as ASGI has them. All that concern the two ends go through, none that
concern one connection only; nothing of refold's own (``x-refold-…``) goes upstream. A body is bounded in size and in
time, and a decoder stops at a limit, so that a small body cannot become a large one.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

Headers = Sequence[tuple[bytes, bytes]]

OWN = b"x-refold-"
CODINGS = ("gzip", "x-gzip", "deflate", "br", "zstd")
_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"trailers",
        b"transfer-encoding",
        b"upgrade",
    )
)
# Set anew for each connection: whose host it is, how long the body is, whether to wait before sending it.
_PER_REQUEST = frozenset((b"host", b"content-length", b"expect"))
# What the reader of answers can decode; an answer in another coding would pass through unread.
_CODINGS = (*CODINGS, "identity")


def find_header(headers: Headers, name: bytes) -> str:
    """Return the first value of a header, empty if there is none."""
    value = next((value for key, value in headers if key == name), b"")
    return value.decode("latin-1").strip()


def find_bearer(headers: Headers) -> str:
    """Return the bearer token of a request, empty if there is none."""
    stated = find_header(headers, b"authorization")
    return stated[7:].strip() if stated[:7].lower() == "bearer " else ""


_NEVER_SENT = _HOP_BY_HOP | _PER_REQUEST


def choose_request_headers(headers: Headers, *, drop: Iterable[bytes] = (), limit_codings: bool = False) -> Headers:
    """Return what goes upstream of a client's headers."""
    dropped = _NEVER_SENT.union(_name_per_connection(headers), drop)
    chosen: list[tuple[bytes, bytes]] = []
    for name, value in headers:
        if name in dropped or name.startswith(OWN):
            continue
        chosen.append((name, _limit_codings(value) if limit_codings and name == b"accept-encoding" else value))
    return chosen


def choose_response_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return what goes to the client of an upstream's headers."""
    lowered = [(name.lower(), value) for name, value in headers]
    dropped = _HOP_BY_HOP.union(_name_per_connection(lowered))
    return [(name, value) for name, value in lowered if name not in dropped and not name.startswith(OWN)]


def write_own(values: Iterable[tuple[str, object]]) -> list[tuple[bytes, bytes]]:
    """Return headers of our own; values are made plain: one line, ASCII, of bounded length."""
    return [(OWN + name.encode(), _make_plain(str(value))) for name, value in values if value not in (None, "")]


def decode_headers(headers: Headers) -> list[tuple[str, str]]:
    """Return headers as text for a client that writes UTF-8: valid UTF-8 comes out as it went in."""
    return [(name.decode("latin-1"), _decode(value)) for name, value in headers]


def _decode(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _name_per_connection(headers: Headers) -> frozenset[bytes]:
    """Return what the Connection header names as its own."""
    for name, value in headers:
        if name == b"connection" and value.lower() not in (b"keep-alive", b"close"):
            break
    else:
        return frozenset()
    named = [value for name, value in headers if name == b"connection"]
    return frozenset(token.strip().lower() for value in named for token in value.split(b",")) - {b""}


def _limit_codings(value: bytes) -> bytes:
    kept = [
        coding.strip()
        for coding in value.decode("latin-1").split(",")
        if coding.partition(";")[0].strip().lower() in _CODINGS
    ]
    return ", ".join(kept or ["identity"]).encode("latin-1")


def _make_plain(text: str) -> bytes:
    line = " ".join(text.split())[:300]
    return line.encode("ascii", "replace")


class CodingError(Exception):
    """The bytes are not in the coding that they claim."""


class Decoder(Protocol):
    """Reads compressed bytes, some at a time."""

    @property
    def eof(self) -> bool:
        """True once the end was reached."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What came after the end."""
        ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Return what these bytes hold, not much more than ``max_length``; raise CodingError if they are malformed."""
        ...


def make_decoder(coding: str) -> Decoder | None:
    """Return the decoder of a coding as a header names it; None for one that cannot be read here."""
    named = coding.strip().lower()
    if named in ("gzip", "x-gzip"):
        return _Stream(zlib.decompressobj(wbits=zlib.MAX_WBITS | 16), zlib.error)
    if named == "deflate":
        return _Stream(zlib.decompressobj(wbits=zlib.MAX_WBITS), zlib.error)
    if named == "zstd":
        # The standard library has it since 3.14.
        zstd = import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
        return _Stream(zstd.ZstdDecompressor(), (zstd.ZstdError, EOFError))
    return _Brotli() if named == "br" else None


class _Stream:
    """A decoder with the interface of the standard library's."""

    def __init__(self, decoder: Any, errors: type[Exception] | tuple[type[Exception], ...]) -> None:
        self._decoder = decoder
        self._errors = errors

    @property
    def eof(self) -> bool:
        return bool(self._decoder.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._decoder.unused_data)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        try:
            return bytes(self._decoder.decompress(data, max_length))
        except self._errors as error:
            raise CodingError(type(error).__name__) from None


class _Brotli:
    """Brotli's decoder, which takes a limit as advice and says nothing about what follows the end."""

    unused_data = b""

    def __init__(self) -> None:
        import brotli  # type: ignore[import-untyped]

        self._decoder = brotli.Decompressor()
        self._error: type[Exception] = brotli.error
        self._process: Callable[..., bytes] = self._decoder.process

    @property
    def eof(self) -> bool:
        return bool(self._decoder.is_finished())

    def decompress(self, data: bytes, max_length: int) -> bytes:
        try:
            made = bytearray(self._process(data, output_buffer_limit=max_length))
            while len(made) < max_length and not self._decoder.can_accept_more_data():
                made += self._process(b"", output_buffer_limit=max_length - len(made))
        except self._error as error:
            raise CodingError(type(error).__name__) from None
        return bytes(made)


Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: where to, with which headers, from which tenant. Its representation shows no header and no body."""

    method: str
    path: str
    query: bytes = field(repr=False)
    headers: Headers = field(repr=False)
    tenant: str = ""
    drop: frozenset[bytes] = field(default=frozenset(), repr=False)

    def header(self, name: str) -> str:
        """Return the first value of a header, empty if there is none."""
        return find_header(self.headers, name.encode())


class BodyTooLarge(Exception):
    """The body is larger than the gateway takes."""


class ClientGone(Exception):
    """The client went away before it had its answer."""


class ClientStalled(Exception):
    """The client neither sends nor takes anything."""


async def read_body(receive: Receive, headers: Headers, *, bytes_max: int, stall_s: float | None = None) -> bytes:
    """Return the whole body of a request; each piece of it within ``stall_s``, unless somebody else watches."""
    stated = find_header(headers, b"content-length")
    if stated.isdigit() and int(stated) > bytes_max:
        raise BodyTooLarge
    pieces: list[bytes] = []
    size = 0
    while True:
        try:
            if stall_s is None:
                message = await receive()
            else:
                async with asyncio.timeout(stall_s):
                    message = await receive()
        except TimeoutError:
            raise ClientStalled from None
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
    """Return a compressed body as it was before; None if it cannot be read, BodyTooLarge if over ``bytes_max``."""
    decoder = make_decoder(coding)
    if decoder is None:
        return None
    try:
        plain = decoder.decompress(body, bytes_max + 1)
    except CodingError:
        return None
    if len(plain) > bytes_max:
        raise BodyTooLarge
    return plain if decoder.eof and not decoder.unused_data else None


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that gives a body that was read already, then what really comes."""
    is_given = False

    async def give() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return give
