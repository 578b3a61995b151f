"""Tells whether an upstream refused a request as too long, before any of its answer goes to the client.

Most say so by status. Some begin a stream with status 200 and put the refusal into its first event: the first bytes of
a stream are looked at, and whatever is read here is handed on, byte for byte, if it is something else.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import dataclass, field

import aiohttp
import orjson

from refold.errors import ContextOverflow, ProviderError
from refold.llm.errors import classify_response
from refold.server.relay import read_head
from refold.server.request import CodingError, make_decoder
from refold.server.upstream import UpstreamSlow

ERROR_BYTES_MAX = 1_000_000
EVENT_BYTES_MAX = 65_536
# A stream that says nothing for so long is handed on as it is: it was taken, whatever comes.
FIRST_EVENT_S = 5.0
# Statuses with which providers say that a request is too long.
_MAY_OVERFLOW = frozenset((400, 413, 422, 429, 500))
_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_ESCAPE = re.compile(rb"\\(?:u[0-9a-fA-F]{4}|.)")
_NOT_PLAIN = re.compile(rb"[^0-9A-Za-z\x80-\xff]+")
_TAKEN = re.compile(rb'"type"\s*:\s*"response\.(?:created|queued|in_progress)"')


@dataclass(frozen=True, slots=True)
class Look:
    """What was read of an answer to see whether it is a refusal; ``overflow`` if it is."""

    head: bytes = field(default=b"", repr=False)
    overflow: ContextOverflow | None = None


async def look_for_refusal(response: aiohttp.ClientResponse, stall_s: float, request: bytes = b"") -> Look:
    """Read as much of an answer as shows whether the request was too long; ``request`` is the body it answers."""
    try:
        if response.status in _MAY_OVERFLOW:
            async with asyncio.timeout(stall_s):
                head, is_whole = await read_head(response, ERROR_BYTES_MAX)
            text = _decode(head, response)
            return Look(head, await _classify(response.status, text, request) if is_whole else None)
        if response.status == 200 and response.content_type == "text/event-stream":
            head = await _read_first_event(response)
            error = _find_error(_decode(head, response))
            return Look(head, await _classify(400, error, request) if error is not None else None)
    except (aiohttp.ServerTimeoutError, TimeoutError):
        raise UpstreamSlow("the upstream began to answer and stalled") from None
    except aiohttp.ClientError as error:
        raise ProviderError(f"the upstream broke off as it began to answer ({type(error).__name__})") from None
    return Look()


async def _read_first_event(response: aiohttp.ClientResponse) -> bytes:
    """Return the beginning of a stream up to the end of the first event that counts, or as far as it came in time."""
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
    """Tell whether an event is whole that says more than that the request was taken (Responses)."""
    *events, _ = _EVENT_END.split(text)
    return any(event.strip() and not _TAKEN.search(event) for event in events)


def _find_error(text: bytes) -> bytes | None:
    """Return the error that one of the first events carries; an event of an answer that began carries none."""
    for line in text.splitlines():
        if not line.startswith(b"data:") or b'"error"' not in line:
            continue
        try:
            payload = orjson.loads(line[5:])
        except orjson.JSONDecodeError:
            return None
        if isinstance(payload, dict) and _is_error(payload):
            return line[5:]
    return None


def _is_error(payload: dict[str, object]) -> bool:
    """Tell whether an event is a failure: OpenAI's and Anthropic's error events, a response that failed."""
    if payload.get("type") in ("error", "response.failed"):
        return True
    return isinstance(payload.get("error"), dict) and not payload.get("choices")


async def _classify(status: int, text: bytes, request: bytes) -> ContextOverflow | None:
    error = classify_response(status, text)
    if not isinstance(error, ContextOverflow):
        return None
    # Providers quote what they refuse. A limit that the request states itself must not be learned as theirs.
    said = await asyncio.to_thread(_read_plain, request)
    error = classify_response(status, text, is_quoted=lambda piece: _make_plain(piece.encode()) in said)
    return error if isinstance(error, ContextOverflow) else None


def _read_plain(request: bytes) -> bytes:
    with contextlib.suppress(orjson.JSONDecodeError, TypeError):
        request = orjson.dumps(orjson.loads(request))  # Characters beyond ASCII may come as escapes.
    return _make_plain(request)


def _make_plain(text: bytes) -> bytes:
    """Return the letters and digits of a text in lower case, so that escapes, quotes and spaces do not hide a quote."""
    return _NOT_PLAIN.sub(b"", _ESCAPE.sub(b"", text)).lower()


def _decode(head: bytes, response: aiohttp.ClientResponse) -> bytes:
    decoder = make_decoder(response.headers.get("content-encoding", ""))
    try:
        return head if decoder is None else decoder.decompress(head, ERROR_BYTES_MAX)
    except CodingError:
        return head
