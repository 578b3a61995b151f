"""The last request of each session, kept in memory within a limit in bytes.

A client usually resends its last request with more at the end. Comparing bytes runs at memory speed; parsing and
hashing a long history does not. A request that does not match is prepared from its whole history, with the same result.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import field, replace
from functools import partial
from itertools import islice
from operator import itemgetter

from refold.conversation.message import frozen
from refold.server.body import Places, ReadRequest, TooManyValues, Unreadable, find_places, read_request
from refold.server.outgoing import Reporter
from refold.server.session_lookup import KnownSession, answers_twice, continues
from refold.server.settings import INLINE_BYTES_MAX, LARGE_BYTES
from refold.server.wires import Wire

# Requests with the same beginning that are looked at, and those of them that are compared message by message.
CANDIDATES_MAX, COMPARED_MAX = 256, 32
HEAD_BYTES, PROBE_BYTES = 48, 64
WAIT_S = 1.0

Start = tuple[str, str, bytes]


def name_start(tenant: str, wire: str, body: bytes) -> Start:
    """Return the key under which a request is remembered: only requests with the same beginning are compared."""
    return tenant, wire, body[:HEAD_BYTES]


@frozen
class Remembered:
    """A session's last prepared request: its bytes, and what was read from them.

    ``probe`` are the last bytes of its last message, which begin at ``probe_at``.
    """

    session: KnownSession
    places: Places
    request: ReadRequest
    start: Start
    probe: bytes = field(repr=False)
    probe_at: int


@frozen
class Continued:
    """A request that shares its first ``kept`` messages with a remembered one; ``request`` holds its new messages."""

    remembered: Remembered
    kept: int
    request: ReadRequest


def _continue(
    remembered: Remembered, kept: int, wire: Wire, body: bytes, *, is_named: bool, has_rivals: bool
) -> Continued | None:
    """Return the request's new messages; None if it does not extend everything known, or may extend another session."""
    before, session = remembered.request, remembered.session
    if session.digests is not before.digests or kept <= before.lead:
        return None
    rest = remembered.places.leave_out(body, kept)
    if len(rest) > LARGE_BYTES:
        return None  # Too much is new to be read in this process.
    try:
        tail = read_request(wire, rest, is_tail=True)
    except (Unreadable, TooManyValues):
        return None
    known = before.digests[kept - before.lead :]
    if tail.digests[: len(known)] != known:
        return None
    request = tail.follow(before, len(known))
    count = len(before.digests)
    if not is_named and not continues(session, request, count):
        return None
    # After more than one answer, another session may share more with this request than its beginning.
    if has_rivals and answers_twice(request.replies[count:]):
        return None
    return Continued(remembered, kept, request)


class RequestMemory:
    """The last request of each session, by its beginning. For one event loop.

    Long ones are scanned in a thread after they were sent. A request that arrives meanwhile waits for the scan, which
    takes less time than preparing from the ledger.
    """

    def __init__(self, reporter: Reporter, *, bytes_max: int, sessions_max: int) -> None:
        self._reporter = reporter
        self._bytes_max = bytes_max
        self._sessions_max = sessions_max
        self._bytes = 0
        self._by_session: OrderedDict[str, Remembered] = OrderedDict()
        self._by_start: dict[Start, dict[str, Remembered]] = {}
        self._under_way: dict[Start, set[asyncio.Task[None]]] = {}

    async def find(
        self, tenant: str, wire: Wire, body: bytes, session_id: str, conversation: str = ""
    ) -> Continued | None:
        """Return the remembered request that this one extends, once scans of requests with its beginning are done."""
        start = name_start(tenant, wire.name, body)
        named = {"session_id": session_id, "conversation": conversation}
        found = await self._find(start, wire, body, **named)
        under_way = self._under_way.get(start) if found is None else None
        if not under_way:
            return found
        await asyncio.wait(set(under_way), timeout=WAIT_S)
        return await self._find(start, wire, body, **named)

    async def _find(
        self, start: Start, wire: Wire, body: bytes, *, session_id: str, conversation: str
    ) -> Continued | None:
        candidates = self._list_candidates(start, session_id, conversation)
        # Most other conversations of the same client differ in these few bytes.
        likely = [candidate for candidate in candidates if body.startswith(candidate.probe, candidate.probe_at)]
        shared = [(len(one.places.spans), one) for one in likely if one.places.is_in(body)]
        if not shared:
            # A retry, or a conversation that was changed further back, shares only part of what is remembered.
            shared = [(candidate.places.count_shared(body), candidate) for candidate in candidates[:COMPARED_MAX]]
        kept, best = max(shared, key=itemgetter(0), default=(0, None))
        if best is None or not kept:
            return None
        read = partial(_continue, best, kept, wire, body, is_named=bool(session_id), has_rivals=len(candidates) > 1)
        if len(body) - best.places.spans[kept - 1][1] <= INLINE_BYTES_MAX:
            return read()
        found = await asyncio.to_thread(read)
        # Another request may have extended the session meanwhile.
        return found if best.session.digests is best.request.digests else None

    def _list_candidates(self, start: Start, session_id: str, conversation: str) -> list[Remembered]:
        """Return remembered requests with the same beginning, newest first; of the named session or conversation."""
        if session_id:
            named = self._by_session.get(session_id)
            return [named] if named is not None and named.start == start else []
        newest = islice(reversed(self._by_start.get(start, {}).values()), CANDIDATES_MAX)
        return [one for one in newest if not conversation or one.session.conversation == conversation]

    def remember(self, session: KnownSession, request: ReadRequest, places: Places | None) -> None:
        """Remember a session's last request; forget it if its messages could not be located."""
        if places is None or len(places.spans) != request.count:
            self.forget(session.id)
        elif session.digests is request.digests:
            start = name_start(session.tenant, session.wire, places.body)
            at = max(0, places.end - PROBE_BYTES)
            known = replace(request, body={}, messages=[])
            self._keep(Remembered(session, places, known, start, places.body[at : places.end], at))

    def _keep(self, remembered: Remembered) -> None:
        session_id, size = remembered.session.id, len(remembered.places.body)
        self.forget(session_id)
        if size > self._bytes_max // 4:
            return
        self._by_session[session_id] = remembered
        self._by_start.setdefault(remembered.start, {})[session_id] = remembered
        self._bytes += size
        while self._bytes > self._bytes_max or len(self._by_session) > self._sessions_max:
            self.forget(next(iter(self._by_session)))

    def forget(self, session_id: str) -> None:
        """Forget a session's last request."""
        remembered = self._by_session.pop(session_id, None)
        if remembered is None:
            return
        self._bytes -= len(remembered.places.body)
        starts = self._by_start[remembered.start]
        del starts[session_id]
        if not starts:
            del self._by_start[remembered.start]

    def remember_later(self, session: KnownSession, request: ReadRequest, body: bytes) -> None:
        """Locate the messages in a thread, after the request was sent."""
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

        task = self._reporter.start(look, session)
        self._under_way.setdefault(key, set()).add(task)
        task.add_done_callback(leave)
