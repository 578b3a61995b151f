"""What an answer cost goes back to the manager: with the session's next request, or in a thread if none follows soon.

A report speaks of the context that was prepared last. One that comes after another request was prepared is left out:
it would teach the counter nonsense.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from refold.conversation import because
from refold.errors import RefoldError
from refold.ledger.records import Event
from refold.llm.overflow import find_overflow
from refold.manager import ContextCompressionManager
from refold.manager.usage import ReportedUsage
from refold.server.identity import KnownSession
from refold.server.managers import Managers
from refold.server.outgoing import Outgoing
from refold.server.wires import Answered

log = logging.getLogger("refold.server")
WAIT_S = 5.0
# An agent's next request often follows at once: then one transaction stores both.
LINGER_S = 0.1


class Reporter:
    """Takes in what answers cost, and what went wrong."""

    def __init__(self, managers: Managers) -> None:
        self._managers = managers
        self._running: set[asyncio.Task[None]] = set()
        self._due: dict[str, tuple[KnownSession, float]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def observe(self, outgoing: Outgoing, answered: Answered) -> None:
        """Take in what an answer cost."""
        session = outgoing.session
        if session is None or outgoing.is_failed_open or session.generation != outgoing.generation:
            return  # Another request was prepared since, or this one was not.
        if answered.has_usage:
            session.due.append(ReportedUsage(answered.usage, answered.finish_reason or None))
        elif answered.error_text and find_overflow(answered.error_text) is not None:
            session.due.append(ReportedUsage(0, is_overflow=True))
        else:
            return
        loop = asyncio.get_running_loop()
        self._due[session.id] = session, loop.time() + LINGER_S
        if self._timer is None:
            self._timer = loop.call_later(LINGER_S, self._flush)

    def take_due(self, session: KnownSession) -> list[ReportedUsage]:
        """Return what is still to be stored for a session; who takes it stores it."""
        if not session.due:
            return []
        due, session.due = session.due, []
        self._due.pop(session.id, None)
        return due

    def _flush(self, *, is_last: bool = False) -> None:
        """Store in one thread all that no request has taken along in time; ``is_last``: all there is."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        late = [session for session, until in self._due.values() if is_last or until <= now]
        taken = [(session, self.take_due(session)) for session in late]
        if self._due:
            self._timer = loop.call_later(LINGER_S, self._flush)
        if not taken:
            return
        manager = self._managers.main

        def record() -> None:
            for session, due in taken:
                store_billed(manager, session.id, due)

        task = self._run(record)
        for session, _ in taken:
            session.reports.add(task)
            task.add_done_callback(session.reports.discard)

    def tell_failure(self, session: KnownSession, error: Exception) -> None:
        """Log a failure of ours, without content: our own errors may name places, others only their kind."""
        said = str(error)[:300] if isinstance(error, RefoldError) else ""
        log.error("failed open", extra={"fields": {"session": session.id, "error": type(error).__name__, "said": said}})
        ledger = self._managers.main.ledger

        why = because.FAILED_OPEN(error=type(error).__name__)

        def record() -> None:
            event = Event("failed", time.time(), {"reason": why.to_json(), "by": "gateway"})
            if ledger.read_session(session.id) is not None:
                ledger.add_event(session.id, event)

        self.start(session, record)

    def start(self, session: KnownSession, record: Callable[[], object]) -> asyncio.Task[None]:
        """Run something for a session in a thread; its next request waits for it."""
        task = self._run(record)
        session.reports.add(task)
        task.add_done_callback(session.reports.discard)
        return task

    def _run(self, record: Callable[[], object]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(_run_quietly(record))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def run(self, session: KnownSession, record: Callable[[], object]) -> None:
        """Run something for a session and wait for it, but not for ever."""
        await asyncio.wait({self.start(session, record)}, timeout=WAIT_S)

    async def drain(self) -> None:
        """Wait until everything that is due or was started is done, but not for ever."""
        if self._timer is not None:
            self._timer.cancel()
        self._flush(is_last=True)
        if self._running:
            await asyncio.wait(set(self._running), timeout=WAIT_S)

    async def wait(self, session: KnownSession) -> None:
        """Wait until all that was started for a session is done, but not for ever."""
        if session.reports:
            await asyncio.wait(set(session.reports), timeout=WAIT_S)


def store_billed(manager: ContextCompressionManager, session_id: str, due: list[ReportedUsage]) -> None:
    """Store what answers cost; what cannot be stored is lost and said so. Blocks."""
    for one in due:
        try:
            manager.observe_usage(session_id, one.usage, finish_reason=one.finish_reason, is_overflow=one.is_overflow)
        except Exception as error:  # noqa: BLE001 - figures that cannot be stored cost nothing but their use
            _tell_lost(error)


async def _run_quietly(record: Callable[[], Any]) -> None:
    try:
        await asyncio.to_thread(record)
    except Exception as error:  # noqa: BLE001 - figures that cannot be stored cost nothing but their use
        _tell_lost(error)


def _tell_lost(error: Exception) -> None:
    log.warning("a report was lost", extra={"fields": {"error": type(error).__name__}})
