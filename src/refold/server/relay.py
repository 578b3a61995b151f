"""Relays an upstream's answer to the client, chunk by chunk, as the bytes come.

Every wait has a limit. A client that goes away ends the request upstream; an upstream that breaks off in the middle
breaks the client's connection too, so that half an answer is never taken for a whole one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import aiohttp
import orjson

from refold.server.request import Send, choose_response_headers, write_own
from refold.server.stream import AnswerReader
from refold.server.watching import Watch


class BrokenOff(Exception):
    """The upstream broke off, stalled or went over the time after the answer had begun; ``reason`` says which."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


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
    """Send status, headers and body; return the bytes of the body. ``head`` are bytes that were read already.

    ``at_end`` is called when the upstream is done, before the client knows it: its next request may follow at once.
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


async def read_head(response: aiohttp.ClientResponse, bytes_max: int) -> tuple[bytes, bool]:
    """Return the first bytes of an answer, and whether they are all of it."""
    pieces = bytearray()
    async for chunk in response.content.iter_any():
        pieces += chunk
        if len(pieces) > bytes_max:
            return bytes(pieces), False
    return bytes(pieces), True


async def send_json(
    send: Send, status: int, payload: object, own: Sequence[tuple[str, object]] = (), *, retry_after_s: int = 0
) -> None:
    """Answer with JSON of our own."""
    body = orjson.dumps(payload)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if retry_after_s:
        headers.append((b"retry-after", str(retry_after_s).encode()))
    if status == 408:
        headers.append((b"connection", b"close"))  # The rest of that request may still come; it is none of the next.
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *write_own(own)]})
    await send({"type": "http.response.body", "body": body})
