"""A client's request as the gateway handles it, and how its body is read: bounded in size and in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from refold.server.coding import CodingError, make_decoder
from refold.server.headers import Headers, find_header

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
