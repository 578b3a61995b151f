"""Write-behind for an event loop: what ``prepare_now`` appended in memory is stored while the upstream works.

Appends that come together share one transaction. A caller waits for its ticket before it passes on any of the answer:
a client that has an answer knows that its question is in the ledger. If another process is writing, a thread waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from refold.ledger.records import Extension

log = logging.getLogger("refold.manager")
WAIT_S = 30.0
GATHER_S = 0.005


# Stores extensions and says of each whether it was stored; None if another writer is at work.
StoreAll = Callable[..., "list[bool] | None"]


@dataclass(slots=True, eq=False)
class Ticket:
    """One request's part. ``is_stored`` is None until that is known; ``done`` is set if a thread stores it."""

    extension: Extension = field(repr=False)
    is_stored: bool | None = None
    done: asyncio.Future[None] | None = field(default=None, repr=False)


class WriteBehind:
    """Stores extensions in the order they come. For one event loop."""

    def __init__(self, store: StoreAll) -> None:
        self._store = store
        self._queue: list[Ticket] = []

    def add(self, extension: Extension, *, is_alone: bool = True) -> Ticket:
        """Queue an extension; its ticket says when it is stored. ``is_alone``: no other request is under way."""
        ticket = Ticket(extension)
        self._queue.append(ticket)
        if len(self._queue) == 1:
            loop = asyncio.get_running_loop()
            if is_alone:
                # Two iterations of the loop later the request itself has been sent.
                loop.call_soon(loop.call_soon, self.flush)
            else:
                # The first of them to be answered stores them all.
                loop.call_later(GATHER_S, self.flush)
        return ticket

    def flush(self) -> None:
        """Store everything in the queue now."""
        queue, self._queue = self._queue, []
        if not queue:
            return
        try:
            stored = self._store([ticket.extension for ticket in queue])
        except Exception as error:  # noqa: BLE001 - the caller prepares from the ledger again and reports the failure
            _log_failure(error)
            stored = [False] * len(queue)
        if stored is None:
            self._store_in_thread(queue)
            return
        for ticket, is_stored in zip(queue, stored, strict=True):
            ticket.is_stored = is_stored

    def _store_in_thread(self, queue: list[Ticket]) -> None:
        extensions = [ticket.extension for ticket in queue]
        work = asyncio.ensure_future(asyncio.to_thread(self._store, extensions, may_wait=True))
        futures = [asyncio.get_running_loop().create_future() for _ in queue]
        for ticket, future in zip(queue, futures, strict=True):
            ticket.done = future

        def end(task: asyncio.Future[list[bool] | None]) -> None:
            error = None if task.cancelled() else task.exception()
            if isinstance(error, Exception):
                _log_failure(error)
            stored = None if error is not None or task.cancelled() else task.result()
            for ticket, is_stored in zip(queue, stored or [False] * len(queue), strict=True):
                ticket.is_stored = is_stored
                if ticket.done is not None and not ticket.done.done():
                    ticket.done.set_result(None)

        work.add_done_callback(end)

    async def wait(self, ticket: Ticket) -> bool:
        """Return whether an extension was stored, once that is known. The wait has a limit."""
        if ticket.is_stored is None and ticket.done is None:
            self.flush()
        if ticket.is_stored is None and ticket.done is not None:
            await asyncio.wait({ticket.done}, timeout=WAIT_S)
        return bool(ticket.is_stored)

    async def drain(self) -> None:
        """Store everything in the queue, and wait for threads."""
        waiting = list(self._queue)
        self.flush()
        for ticket in waiting:
            await self.wait(ticket)


def _log_failure(error: Exception) -> None:
    log.warning("storing failed", extra={"fields": {"error": type(error).__name__}})
