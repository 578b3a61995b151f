"""The last request of each session, as bytes, to recognise a client that sends it again with more at its end.

Comparing bytes runs at the speed of memory; parsing and hashing a long history does not. A request that does not match
is prepared from its whole history, with the same result. The memory is limited in bytes; the oldest request goes first.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, replace

from refold.manager.write_behind import Ticket
from refold.server.identity import KnownSession, continues
from refold.server.places import Places, find_places
from refold.server.reading import ReadRequest, Unreadable, read_request
from refold.server.reporting import Reporter
from refold.server.wires import Wire

CANDIDATES_MAX = 32
HEAD_BYTES = 48
WAIT_S = 1.0

Start = tuple[str, str, bytes]


def name_start(tenant: str, wire: str, body: bytes) -> Start:
    """Return how a request begins: only those that begin alike are compared."""
    return tenant, wire, body[:HEAD_BYTES]


@dataclass(frozen=True, slots=True)
class Remembered:
    """A session's last request that was prepared: its bytes, and what was read from them."""

    session: KnownSession
    places: Places
    request: ReadRequest


@dataclass(slots=True)
class Continued:
    """A request that goes on from a remembered one: ``request`` holds its new messages only.

    ``ticket``: these are being stored.
    """

    session: KnownSession
    request: ReadRequest
    remembered: Remembered
    kept: int
    ticket: Ticket | None = None


class _Requests:
    """Requests by how they begin."""

    def __init__(self, bytes_max: int = 64_000_000) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._by_session: OrderedDict[str, tuple[Start, Remembered]] = OrderedDict()
        self._by_start: dict[Start, OrderedDict[str, Remembered]] = {}

    def find(
        self, tenant: str, wire: Wire, body: bytes, session_id: str = "", conversation: str = ""
    ) -> Continued | None:
        """Return what a request continues, if that is plain to see; of one session or conversation if it is named."""
        key = name_start(tenant, wire.name, body)
        best: Remembered | None = None
        best_kept = 0
        for one in list(self._by_start.get(key, {}).values())[-CANDIDATES_MAX:]:
            if session_id and one.session.id != session_id:
                continue
            if conversation and one.session.conversation != conversation:
                continue
            kept = one.places.count_shared(body)
            if kept >= max(1, best_kept):
                best, best_kept = one, kept
        return _continue(best, best_kept, wire, body, is_named=bool(session_id)) if best is not None else None

    def remember(self, remembered: Remembered) -> None:
        """Remember a session's last request in the place of the one before."""
        session, body = remembered.session, remembered.places.body
        self.forget(session.id)
        if len(body) > self._bytes_max // 4:
            return
        key = name_start(session.tenant, session.wire, body)
        self._by_session[session.id] = key, remembered
        self._by_start.setdefault(key, OrderedDict())[session.id] = remembered
        self._bytes += len(body)
        while self._bytes > self._bytes_max:
            self.forget(next(iter(self._by_session)))

    def forget(self, session_id: str) -> None:
        """Forget a session's last request."""
        found = self._by_session.pop(session_id, None)
        if found is None:
            return
        key, remembered = found
        self._bytes -= len(remembered.places.body)
        starts = self._by_start[key]
        del starts[session_id]
        if not starts:
            del self._by_start[key]


def _continue(remembered: Remembered, kept: int, wire: Wire, body: bytes, *, is_named: bool) -> Continued | None:
    """Return the request with what is new in it; None if it does not go on from all that is known."""
    before, session = remembered.request, remembered.session
    if session.digests is not before.digests or kept <= before.lead:
        return None
    try:
        tail = read_request(wire, remembered.places.leave_out(body, kept), is_tail=True)
    except Unreadable:
        return None
    known = before.digests[kept - before.lead :]
    if tail.digests[: len(known)] != known:
        return None
    new = len(known)
    request = tail.follow(before, new)
    if not is_named and not continues(session, request, len(before.digests)):
        return None
    return Continued(session, request, remembered, kept)


class RequestMemory:
    """The last requests of sessions. What takes long to look at is looked at in a thread, after the request was sent.

    A request that comes while its predecessor is being looked at waits for that, within limits: it is shorter than
    preparing from the ledger. For one event loop.
    """

    def __init__(self, reporter: Reporter, bytes_max: int) -> None:
        self._reporter = reporter
        self._memory = _Requests(bytes_max)
        self._under_way: dict[Start, set[asyncio.Task[None]]] = {}

    def find(self, tenant: str, wire: Wire, body: bytes, session_id: str, conversation: str = "") -> Continued | None:
        """Return what a request continues, if that is plain to see."""
        return self._memory.find(tenant, wire, body, session_id, conversation)

    async def find_later(
        self, tenant: str, wire: Wire, body: bytes, session_id: str, conversation: str = ""
    ) -> Continued | None:
        """Return the same once requests that begin alike have been looked at, if some are being looked at."""
        under_way = self._under_way.get(name_start(tenant, wire.name, body))
        if not under_way:
            return None
        await asyncio.wait(set(under_way), timeout=WAIT_S)
        return self._memory.find(tenant, wire, body, session_id, conversation)

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
