"""Stores what requests bring while their upstreams work: what came at the same time goes into one transaction.

It runs after a request was handed to its upstream, and before any of the answer goes to the client: whoever has an
answer knows that what was asked is in the ledger. If another process is writing, a thread waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from refold.ledger.records import Extension
from refold.manager import ContextCompressionManager

log = logging.getLogger("refold.server")
WAIT_S = 30.0
GATHER_S = 0.005


@dataclass(slots=True, eq=False)
class Ticket:
    """One request's part: ``is_stored`` None while it is under way, ``done`` set if a thread does it."""

    extension: Extension = field(repr=False)
    is_stored: bool | None = None
    done: asyncio.Future[None] | None = field(default=None, repr=False)


class Storing:
    """Gathers what is to be stored. For one event loop."""

    def __init__(self, manager: ContextCompressionManager) -> None:
        self._manager = manager
        self._queue: list[Ticket] = []

    def add(self, extension: Extension, *, is_alone: bool = True) -> Ticket:
        """Have something stored soon; the ticket says when it is. ``is_alone``: no other request is under way."""
        ticket = Ticket(extension)
        self._queue.append(ticket)
        if len(self._queue) == 1:
            loop = asyncio.get_running_loop()
            if is_alone:
                # Two rounds of the loop later: by then the request itself is on its way.
                loop.call_soon(loop.call_soon, self.flush)
            else:
                # The first of them that is answered stores them all.
                loop.call_later(GATHER_S, self.flush)
        return ticket

    def flush(self) -> None:
        """Store at once all that is waiting."""
        queue, self._queue = self._queue, []
        if not queue:
            return
        try:
            stored = self._manager.store([ticket.extension for ticket in queue])
        except Exception as error:  # noqa: BLE001 - whatever it is, the long way tries again and says so
            _tell_failed(error)
            stored = [False] * len(queue)
        if stored is None:
            self._store_in_thread(queue)
            return
        for ticket, is_stored in zip(queue, stored, strict=True):
            ticket.is_stored = is_stored

    def _store_in_thread(self, queue: list[Ticket]) -> None:
        extensions = [ticket.extension for ticket in queue]
        work = asyncio.ensure_future(asyncio.to_thread(self._manager.store, extensions, may_wait=True))
        futures = [asyncio.get_running_loop().create_future() for _ in queue]
        for ticket, future in zip(queue, futures, strict=True):
            ticket.done = future

        def end(task: asyncio.Future[list[bool] | None]) -> None:
            error = None if task.cancelled() else task.exception()
            if isinstance(error, Exception):
                _tell_failed(error)
            stored = None if error is not None or task.cancelled() else task.result()
            for ticket, is_stored in zip(queue, stored or [False] * len(queue), strict=True):
                ticket.is_stored = is_stored
                if ticket.done is not None and not ticket.done.done():
                    ticket.done.set_result(None)

        work.add_done_callback(end)

    async def wait(self, ticket: Ticket) -> bool:
        """Return whether a ticket's part was stored, once that is known, but do not wait for ever."""
        if ticket.is_stored is None and ticket.done is None:
            self.flush()
        if ticket.is_stored is None and ticket.done is not None:
            await asyncio.wait({ticket.done}, timeout=WAIT_S)
        return bool(ticket.is_stored)

    async def drain(self) -> None:
        """Store all that is waiting, and wait for what a thread does."""
        waiting = list(self._queue)
        self.flush()
        for ticket in waiting:
            await self.wait(ticket)


def _tell_failed(error: Exception) -> None:
    log.warning("storing failed", extra={"fields": {"error": type(error).__name__}})
