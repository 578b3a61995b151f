"""Background work: folds, pages, and write-behind of requests prepared in memory, while the conversation continues.

Between *soft* and *hard* a model writes a summary while the conversation continues. Each manager has one worker thread,
each session at most one job. A fold is made over a snapshot and committed if the messages it covers are unchanged.
Nothing is stored before that, so a process that ends leaves nothing half done.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field

from refold.conversation import because
from refold.errors import LedgerError, RefoldError
from refold.ledger.records import Extension
from refold.manager.batch import BatchRequest, BatchResult
from refold.manager.compress import Remember, finish, run_leased
from refold.manager.flow import Flow, Pause, run_flow_async
from refold.manager.notices import Notice
from refold.manager.session import OpenSession
from refold.manager.store import Keeper
from refold.memory import MarkdownSync
from refold.recall.upkeep import SessionQueue

_PAUSE_S = 0.01
log = logging.getLogger("refold.manager")
WAIT_S = 30.0
GATHER_S = 0.005
# Stores extensions and returns whether each was stored; None if another writer is busy.
StoreAll = Callable[..., "list[bool] | None"]


@dataclass(slots=True)
class FoldJob:
    """One fold, in the context of its initiator. ``stop`` ends it, from any thread."""

    wish: BatchRequest
    context: Context = field(default_factory=copy_context)
    loop: asyncio.AbstractEventLoop | None = None
    task: asyncio.Task[object] | None = None
    is_stopped: bool = False

    def stop(self) -> None:
        """Stop the fold; nothing of it is stored, unless it is being committed already."""
        self.is_stopped = True
        if self.loop is not None and self.task is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.task.cancel)


class Background(SessionQueue[FoldJob]):
    """The folds of one manager that are made in the background."""

    thread_name = "refold-background"

    def __init__(self, keeper: Keeper, remember: Remember) -> None:
        super().__init__()
        self._keeper = keeper
        self.remember = remember

    def begin(self, session_id: str, wish: BatchRequest) -> bool:
        """Queue a fold of a session, once; False if too many are waiting."""
        with self._guard:
            return self._has(session_id) or self._add(session_id, FoldJob(wish))

    def wait(self, session_id: str, seconds: float) -> Flow[bool]:
        """Wait for a session's fold; after ``seconds`` cancel it and return False. A waiting job is withdrawn."""
        with self._guard:
            self._jobs.pop(session_id, None)
        waited = 0.0
        while self.is_busy(session_id):
            if waited >= seconds:
                yield from self.cancel_flow(session_id)
                return False
            yield Pause(_PAUSE_S)
            waited += _PAUSE_S
        return True

    def cancel_flow(self, session_id: str) -> Flow[None]:
        """Cancel a session's fold and wait until it has released everything."""
        self._stop(session_id)
        while self.is_busy(session_id):
            yield Pause(_PAUSE_S)

    def cancel(self, session_id: str) -> None:
        """The same, in this thread."""
        self._stop(session_id)
        self.join(session_id)

    def close(self) -> None:
        """Stop all folds; each is committed whole or not at all."""
        with self._guard:
            self._jobs.clear()
            running = self._running
        if running is not None:
            running[1].stop()
        super().close()

    def _stop(self, session_id: str) -> None:
        with self._guard:
            self._jobs.pop(session_id, None)
            running = self._running
        if running is not None and running[0] == session_id:
            running[1].stop()

    def _do(self, session_id: str, job: FoldJob) -> bool:
        job.context.run(asyncio.run, self._run(session_id, job))
        return True

    async def _run(self, session_id: str, job: FoldJob) -> None:
        flow = fold_flow(self._keeper, session_id, job.wish, self.remember)
        job.task = asyncio.ensure_future(run_flow_async(flow))
        job.loop = asyncio.get_running_loop()
        if job.is_stopped:
            job.task.cancel()
        try:
            await job.task
        except asyncio.CancelledError:
            return
        except RefoldError:
            return  # Reported and logged where it happened; the next request decides again.
        except Exception as error:  # noqa: BLE001 - a worker must outlive whatever one session does to it
            why = because.ERROR(error=type(error).__name__, detail=str(error)[:300])
            self._keeper.listeners.tell(Notice("failed", session_id, why, time=self._keeper.clock()))


class PageQueue(SessionQueue[list[tuple[str, str]]]):
    """Sections of daily pages, as dates and texts, that are written while requests continue."""

    thread_name = "refold-pages"

    def __init__(self, pages: MarkdownSync, complain: Callable[[str, str], None]) -> None:
        super().__init__()
        self._pages = pages
        self._complain = complain

    def ask(self, session_id: str, date: str, section: str) -> None:
        """Queue a section; complain if too many are waiting."""
        with self._guard:
            waiting = self._jobs.get(session_id) if self._waits(session_id) else None
            if waiting is not None:
                waiting.append((date, section))
                return
            is_queued = self._add(session_id, [(date, section)])
        if not is_queued:
            self._complain(session_id, "the memory page was not written: too many sections are waiting")

    def close(self) -> None:
        """Write what is waiting, within the limit of ``join``."""
        self.join()
        super().close()

    def _do(self, session_id: str, job: list[tuple[str, str]]) -> bool:
        with self._guard:  # Everything that waits is written with it: each write copies the page.
            others, self._jobs = self._jobs, OrderedDict()
        try:
            self._pages.append_all([*job, *(section for sections in others.values() for section in sections)])
        except (LedgerError, OSError) as error:
            with suppress(LedgerError):
                self._complain(session_id, f"the memory page was not written: {error}"[:300])
        return True


def fold_flow(keeper: Keeper, session_id: str, wish: BatchRequest, remember: Remember) -> Flow[BatchResult]:
    """Make a fold over a snapshot without holding the session, and swap it in if what it covers is unchanged."""
    session = OpenSession(session_id)  # Separate from the one that requests use: threads do not share a lens.
    made = yield from run_leased(keeper, session, wish)
    yield from finish(keeper, session, made, remember)
    return made


@dataclass(slots=True, eq=False)
class Ticket:
    """The extension of one request. ``is_stored`` is None until known; ``done`` is set if somebody waits for that."""

    extension: Extension = field(repr=False)
    is_stored: bool | None = None
    done: asyncio.Future[None] | None = field(default=None, repr=False)

    def settle(self, *, is_stored: bool) -> None:
        """Note the outcome and wake up the waiting request."""
        self.is_stored = is_stored
        if self.done is not None and not self.done.done():
            self.done.set_result(None)


class WriteBehind:
    """Stores extensions in the order they come, for one event loop, while the upstream works.

    Appends that come together share one transaction. A caller waits for its ticket before it relays any of the answer:
    a client that has an answer knows that its question is stored. If the store would block the loop, a thread is used.
    """

    def __init__(self, store: StoreAll) -> None:
        self._store = store
        self._queue: list[Ticket] = []
        self._in_thread: asyncio.Task[None] | None = None

    def add(self, extension: Extension, *, is_alone: bool = True) -> Ticket:
        """Queue an extension; its ticket says when it is stored. ``is_alone``: no other request is in progress."""
        ticket = Ticket(extension)
        self._queue.append(ticket)
        if len(self._queue) == 1 and self._in_thread is None:
            loop = asyncio.get_running_loop()
            if is_alone:
                # Two iterations of the loop later, the request itself has been sent.
                loop.call_soon(loop.call_soon, self.flush)
            else:
                # The first request that gets its answer stores them all.
                loop.call_later(GATHER_S, self.flush)
        return ticket

    def flush(self) -> None:
        """Store everything in the queue now, or as soon as the running thread has ended."""
        if self._in_thread is not None or not self._queue:
            return
        queue, self._queue = self._queue, []
        try:
            stored = self._store([ticket.extension for ticket in queue])
        except Exception as error:  # noqa: BLE001 - the caller prepares from the ledger again and reports the failure
            _log_failure(error)
            stored = [False] * len(queue)
        if stored is None:
            self._in_thread = asyncio.ensure_future(self._store_in_thread(queue))
            return
        for ticket, is_stored in zip(queue, stored, strict=True):
            ticket.settle(is_stored=is_stored)

    async def _store_in_thread(self, queue: list[Ticket]) -> None:
        stored: list[bool] | None = None
        try:
            extensions = [ticket.extension for ticket in queue]
            stored = await asyncio.to_thread(self._store, extensions, may_wait=True)
        except Exception as error:  # noqa: BLE001 - as above
            _log_failure(error)
        finally:
            self._in_thread = None
            for ticket, is_stored in zip(queue, stored or [False] * len(queue), strict=True):
                ticket.settle(is_stored=is_stored)
        self.flush()

    async def wait(self, ticket: Ticket) -> bool:
        """Return whether an extension was stored, once that is known. The wait has a limit."""
        if ticket.is_stored is None:
            self.flush()
        if ticket.is_stored is None:
            ticket.done = ticket.done or asyncio.get_running_loop().create_future()
            await asyncio.wait({ticket.done}, timeout=WAIT_S)
        return bool(ticket.is_stored)

    async def drain(self) -> None:
        """Store everything in the queue, and wait for threads."""
        self.flush()
        while self._in_thread is not None:
            await asyncio.wait({self._in_thread}, timeout=WAIT_S)


def _log_failure(error: Exception) -> None:
    log.warning("storing failed", extra={"fields": {"error": type(error).__name__}})
