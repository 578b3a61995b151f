"""Routes of the whole workspace: gateway status, settings, statistics, daily memory, recall, and a stream of events.

A tenant sees only figures of its own sessions. Routes about all tenants are for the operator, who has no key. Events
come from the ledger, so those of other processes are included, and a client that reconnects continues where it stopped
(``Last-Event-ID``). Streams end when the gateway stops; their number is limited.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi import Path as InPath
from fastapi.responses import StreamingResponse

from refold import __version__
from refold.errors import ConfigError, RefoldError
from refold.ledger.sql.ledger import read_all_events
from refold.llm.errors import show_url
from refold.manager.status import sum_up_events
from refold.server.api.interface import PAGE_MAX, Access, Asker, Json, NotFound, Text
from refold.server.api.sessions import describe_event
from refold.server.body import dump_json

router = APIRouter(prefix="/api", tags=["workspace"])
SESSIONS_SEARCHED = 50
# Event streams: how often the ledger is read, how often a quiet stream gets a line, their number, events in a read.
POLL_S, BEAT_S, STREAMS_MAX, PAGE = 0.5, 15.0, 64, 500


@router.get("/status")
def read_status(access: Asker) -> Json:
    """Return the gateway's status."""
    application = access.application
    settings = application.settings
    return Json(
        {
            "version": __version__,
            "time": time.time(),
            "requests_in_flight": application.gateway.requests,
            "openai_upstream": show_url(settings.openai_upstream),
            "anthropic_upstream": show_url(settings.anthropic_upstream),
            "compress": settings.compress,
            "cache_marks": settings.cache_marks,
            "keys": application.keys.is_required,
            "ledger": _describe_ledger(access),
            "tenant": access.tenant,
            "storage": _describe_storage(access),
        }
    )


def _describe_storage(access: Access) -> dict[str, object]:
    """Return the bytes that the caller has stored, and its limit (0: none)."""
    storage = access.application.preparer.storage
    stored = storage.measure(access.tenant) if access.tenant and storage.bytes_max else None
    return {"bytes": stored, "bytes_max": storage.bytes_max if access.tenant else 0}


def _describe_ledger(access: Access) -> dict[str, object]:
    """Return whether requests are stored; the error's text may name paths, so only the operator sees it."""
    problem = access.application.preparer.reporter.problem
    if problem is None:
        return {"writable": True}
    return {"writable": False, "since": problem.since, **({} if access.tenant else {"error": problem.error})}


@router.get("/config")
def read_config(access: Asker) -> Json:
    """Return every compression setting and its source."""
    from refold.config.values import explain

    rows = [row.to_dict() for row in explain(access.manager.config)]
    if access.tenant:
        # Paths on the operator's machine, and the ledger's address.
        rows = [{**row, "place": ""} for row in rows if row["name"] != "ledger"]
    return Json({"settings": rows})


@router.patch("/config")
def change_config(access: Asker, changes: dict[str, Any]) -> Json:
    """Change compression settings from now on; operator only."""
    access.check_operator()
    try:
        access.manager.configure(**changes)
    except TypeError as error:
        raise ConfigError(f"a setting is wrong: {str(error)[:200]}") from None
    return Json({"changed": sorted(changes)})


@router.get("/stats")
def read_statistics(access: Asker) -> Json:
    """Return statistics of compressions over the caller's sessions."""
    if not access.tenant:
        return Json(access.manager.statistics().to_dict())
    rows = access.list_rows(PAGE_MAX, 0)
    total = sum_up_events(event for row in rows for event in read_all_events(access.ledger, row.id))
    # Single decisions name sessions by their ids, which a tenant does not know.
    return Json(replace(total, sessions=len(rows), decisions=()).to_dict())


@router.get("/memory")
def list_memory(access: Asker) -> Json:
    """Return the dates that have a daily page; operator only, because pages cover every session."""
    access.check_operator()
    return Json({"dates": access.manager.md_sync.list_dates()})


@router.get("/memory/{date}")
def read_memory(date: Annotated[str, InPath(pattern=r"^\d{4}-\d{2}-\d{2}$")], access: Asker) -> Json:
    """Return the daily page of a date; operator only."""
    access.check_operator()
    page = access.manager.md_sync.read(date)
    if page is None:
        raise NotFound(f"there is no page for {date}")
    return Json({"date": date, "text": page})


@router.get("/recall")
def recall(
    access: Asker,
    query: Annotated[Text, Query(min_length=1)],
    limit: Annotated[int, Query(ge=1, le=50)] = 10,
) -> Json:
    """Search the caller's sessions, most recently changed first."""
    found = access.manager.recalling.search_sessions(access.list_rows(SESSIONS_SEARCHED, 0), query, limit)
    return Json({"results": [{**asdict(one), "session_id": access.name(one.session_id)} for one in found]})


class TooMany(RefoldError):
    """The limit of event streams is reached."""

    http_status = 503


@router.get(
    "/events",
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
