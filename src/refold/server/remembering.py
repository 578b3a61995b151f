"""Remembers where the messages of the last requests stand: at once where little is new, else in a thread afterwards.

A request that follows while its predecessor is still being looked at waits for that, within limits: it is shorter than
the long way.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from refold.server.identity import KnownSession
from refold.server.places import Places, find_places
from refold.server.reading import ReadRequest
from refold.server.reporting import Reporter
from refold.server.request_memory import Continued, Remembered, RequestMemory, Start, name_start
from refold.server.wires import Wire

WAIT_S = 1.0


class Remembering:
    """What the gateway knows of the last requests. For one event loop."""

    def __init__(self, reporter: Reporter, bytes_max: int) -> None:
        self._reporter = reporter
        self._memory = RequestMemory(bytes_max)
        self._under_way: dict[Start, set[asyncio.Task[None]]] = {}

    def find(self, tenant: str, wire: Wire, body: bytes, session_id: str) -> Continued | None:
        """Return what a request continues, if that is plain to see."""
        return self._memory.find(tenant, wire, body, session_id)

    async def find_later(self, tenant: str, wire: Wire, body: bytes, session_id: str) -> Continued | None:
        """Return the same once requests that begin alike have been looked at, if some are being looked at."""
        under_way = self._under_way.get(name_start(tenant, wire.name, body))
        if not under_way:
            return None
        await asyncio.wait(set(under_way), timeout=WAIT_S)
        return self._memory.find(tenant, wire, body, session_id)

    def remember(self, session: KnownSession, request: ReadRequest, places: Places | None) -> None:
        """Remember a session's last request; one whose messages cannot be told apart is forgotten."""
        if places is None or len(places.spans) != request.count:
            self._memory.forget(session.id)
        elif session.digests is request.digests:
            self._memory.remember(Remembered(session, places, replace(request, messages=[], body={})))

    def remember_later(self, session: KnownSession, request: ReadRequest, body: bytes) -> None:
        """Find where the messages stand, in a thread and after the request went on its way."""
        loop = asyncio.get_running_loop()
        key = name_start(session.tenant, session.wire, body)

        def look() -> None:
            places = find_places(body, request.wire.key)
            loop.call_soon_threadsafe(self.remember, session, request, places)

        def leave(task: asyncio.Task[None]) -> None:
            tasks = self._under_way.get(key, set())
            tasks.discard(task)
            if not tasks:
                self._under_way.pop(key, None)

        task = self._reporter.start(session, look)
        self._under_way.setdefault(key, set()).add(task)
        task.add_done_callback(leave)

    def forget(self, session_id: str) -> None:
        """Forget a session's last request."""
        self._memory.forget(session_id)
