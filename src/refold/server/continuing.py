"""Requests that go on from the one before: prepared by what is new in them.

Where little is new and nothing is to be compressed, that takes no thread and no wait; what it brings is stored while
the upstream works. Whatever does not fit this gives None, and the whole history decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from refold.manager.prepare import Billed
from refold.server.fixed import FixedCounter
from refold.server.identity import KnownSession
from refold.server.limits import Limits
from refold.server.managers import Managers
from refold.server.outgoing import Outgoing
from refold.server.places import find_places
from refold.server.remembering import Remembering
from refold.server.reporting import Reporter
from refold.server.request_memory import Continued
from refold.server.settings import GatewaySettings
from refold.server.stored import (
    Ready,
    Spliced,
    describe_stored,
    find_ready,
    go_on,
    make_outgoing,
    read_ready,
    splice_view,
)
from refold.server.storing import Storing

# Counting the tokens of so much new text takes longer than handing it to a thread.
NEW_BYTES_MAX = 16_384
ITEMS_MAX = 1_000


class Continuing:
    """Prepares what goes on. ``count_requests`` tells how many are under way."""

    def __init__(
        self,
        settings: GatewaySettings,
        managers: Managers,
        reporter: Reporter,
        remembering: Remembering,
        count_requests: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._managers = managers
        self._reporter = reporter
        self._remembering = remembering
        self._count_requests = count_requests
        self.fixed = FixedCounter(managers)
        self.storing = Storing(managers.main)

    def prepare_now(self, session: KnownSession, continued: Continued, limits: Limits, body: bytes) -> Outgoing | None:
        """Prepare a request where it stands, without a thread; None if it takes more than that."""
        new_bytes = len(body) - continued.remembered.places.end
        if session.turn.locked() or session.reports or new_bytes > NEW_BYTES_MAX:
            return None
        request = continued.request
        if not self.is_in_step(session, continued):
            return None
        due = self._reporter.take_due(session)
        went = go_on(self._managers.main, session, request, limits, due)
        if went is None:
            session.due = due
            return None
        session.generation += 1
        ticket = self.storing.add(went.extension, is_alone=self._count_requests() == 1)
        ready = find_ready(went)
        is_small = ready is not None and len(ready.items) <= ITEMS_MAX
        outgoing = None
        if ready is not None and is_small:
            outgoing = self._finish(session, continued, ready, self._splice(continued, ready, body), body)
        if outgoing is None:
            self.storing.flush()  # The long way starts from what is stored.
            continued.ticket = ticket
        else:
            outgoing.ticket = ticket
        return outgoing

    def is_in_step(self, session: KnownSession, continued: Continued) -> bool:
        """Tell whether the session is as the request before left it."""
        return session.is_stored and session.synced is continued.remembered.request.digests

    async def prepare(
        self, session: KnownSession, continued: Continued, limits: Limits, body: bytes, due: list[Billed]
    ) -> Outgoing | None:
        """Prepare a request by what is new in it, stored with what is ``due``; None if the session is not as it was."""
        request, manager = continued.request, self._managers.main
        ready = None
        if continued.ticket is None:
            went = await asyncio.to_thread(go_on, manager, session, request, limits, due)
            if went is None:
                return None
            due.clear()
            continued.ticket = self.storing.add(went.extension, is_alone=self._count_requests() == 1)
            ready = find_ready(went)
        if ready is None:
            if not await self.storing.wait(continued.ticket):
                return None
            prepared = await manager.prepare_context(session.id, **describe_stored(request, limits))
            ready = await asyncio.to_thread(read_ready, manager, session, prepared)
        if ready is None:
            return None
        if ready.edits:
            spliced = await asyncio.to_thread(self._splice, continued, ready, body)
        else:
            spliced = self._splice(continued, ready, body)
        outgoing = self._finish(session, continued, ready, spliced, body)
        if outgoing is not None:
            outgoing.ticket = continued.ticket
        return outgoing

    def _splice(self, continued: Continued, ready: Ready, body: bytes) -> Spliced | None:
        """Find where a request's messages stand, and put the view in their place if it differs; None if in doubt."""
        request = continued.request
        if ready.messages != request.count:
            return None
        places = find_places(body, request.wire.key, continued.remembered.places, continued.kept)
        if not ready.edits:
            return Spliced(places)
        if places is None or ready.row is None or self._settings.cache_marks == "auto":
            return None
        written = splice_view(ready, request, places)
        if written is None:
            return None
        return Spliced(places, (written, ready.row.tokens + self.fixed.count(request)))

    def _finish(
        self, session: KnownSession, continued: Continued, ready: Ready, spliced: Spliced | None, body: bytes
    ) -> Outgoing | None:
        """Return what goes upstream for a request whose session is ready; None if it is another than we thought."""
        if spliced is None:
            session.synced = ()
            return None
        self._remembering.remember(session, continued.request, spliced.places)
        return make_outgoing(session, continued.request, ready, body, spliced.written, session.generation)
