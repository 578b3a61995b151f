"""The event stream of the caller's sessions.

Events come from the ledger, so those of other processes are included, and a client that reconnects continues where it
stopped (``Last-Event-ID``). Streams end when the gateway stops; their number is limited.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from refold.errors import RefoldError
from refold.server.api.interface import Access, Asker
from refold.server.api.sessions import describe_event
from refold.server.body import dump_json

router = APIRouter(tags=["events"])
POLL_S = 0.5
BEAT_S = 15.0
STREAMS_MAX = 64
PAGE = 500


class TooMany(RefoldError):
    """The limit of event streams is reached."""

    http_status = 503


@router.get(
    "/api/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "Events as they happen."}},
)
async def stream_events(
    access: Asker,
    after: Annotated[int | None, Query(ge=0, le=2**53)] = None,
    seconds: Annotated[float | None, Query(gt=0, le=86_400)] = None,
    last_event_id: Annotated[str | None, Header(max_length=30)] = None,
) -> StreamingResponse:
    """Stream events from now on, or those with a greater id than ``after``; for ``seconds``, or until disconnected."""
    start = after
    if last_event_id is not None and last_event_id.isdecimal():
        start = min(int(last_event_id), 2**53)
    application = access.application
    tenant_max = application.settings.tenant_streams_max
    if sum(application.streams.values()) >= STREAMS_MAX:
        raise TooMany(f"there are {STREAMS_MAX} event streams already; try again later")
    if access.tenant and application.streams[access.tenant] >= tenant_max:
        raise TooMany(f"this tenant has {tenant_max} event streams already; close one")
    if start is None:
        newest = await asyncio.to_thread(access.ledger.read_newest_events, None)
        start = newest[0].id if newest else 0
    return StreamingResponse(_write_events(access, start, seconds), media_type="text/event-stream")


async def _write_events(access: Access, after: int, seconds: float | None) -> AsyncIterator[bytes]:
    application = access.application
    application.streams[access.tenant] += 1
    loop = asyncio.get_running_loop()
    until = None if seconds is None else loop.time() + seconds
    quiet = loop.time()
    try:
        yield b": refold events\n\n"
        while not application.is_stopping and (until is None or loop.time() < until):
            page = await asyncio.to_thread(access.ledger.read_events, None, after=after, limit=PAGE)
            for event in page:
                after = event.id
                if access.owns(event.session_id):
                    data = dump_json(describe_event(access, event))
                    yield b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, event.kind.encode(), data)
                    quiet = loop.time()
            if not page:
                if loop.time() - quiet > BEAT_S:
                    yield b": still here\n\n"
                    quiet = loop.time()
                await asyncio.sleep(POLL_S)
    finally:
        application.streams[access.tenant] -= 1
