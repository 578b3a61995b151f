"""What an answer cost goes back to the manager: in threads, after the answer, before the session's next request.

A report speaks of the context that was prepared last. One that comes after another request was prepared is left out:
it would teach the counter nonsense.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from refold.errors import RefoldError
from refold.ledger.ledger import Event
from refold.llm.overflow import find_overflow
from refold.manager import ContextCompressionManager
from refold.server.answered import Answered
from refold.server.identity import KnownSession
from refold.server.managers import Managers
from refold.server.outgoing import Outgoing

log = logging.getLogger("refold.server")
WAIT_S = 5.0
# An agent's next request often follows at once: then one thread does both.
LINGER_S = 0.02


class Reporter:
    """Takes in what answers cost, and what went wrong."""

    def __init__(self, managers: Managers) -> None:
        self._managers = managers
        self._running: set[asyncio.Task[None]] = set()
        self._due: dict[str, KnownSession] = {}

    def observe(self, outgoing: Outgoing, answered: Answered) -> None:
        """Take in what an answer cost."""
        session = outgoing.session
        if session is None or outgoing.is_failed_open or not (answered.has_usage or answered.error_text):
            return
        if session.generation != outgoing.generation:
            return  # Another request was prepared since.
        manager = outgoing.manager or self._managers.main
        session.due.append(lambda: _observe(session, manager, answered))
        self._due[session.id] = session
        asyncio.get_running_loop().call_later(LINGER_S, self._flush, session)

    def take_due(self, session: KnownSession) -> list[Callable[[], None]]:
        """Return what is still to be stored for a session; who takes it stores it."""
        due, session.due = session.due, []
        self._due.pop(session.id, None)
        return due

    def _flush(self, session: KnownSession) -> None:
        if due := self.take_due(session):
            self.start(session, lambda: run_all(due))

    def tell_failure(self, session: KnownSession, error: Exception) -> None:
        """Log a failure of ours, without content: our own errors may name places, others only their kind."""
        said = str(error)[:300] if isinstance(error, RefoldError) else ""
        log.error("failed open", extra={"fields": {"session": session.id, "error": type(error).__name__, "said": said}})
        ledger = self._managers.main.ledger

        def record() -> None:
            event = Event("failed", time.time(), {"reason": f"failed open: {type(error).__name__}", "by": "gateway"})
            if ledger.read_session(session.id) is not None:
                ledger.add_event(session.id, event)

        self.start(session, record)

    def start(self, session: KnownSession, record: Callable[[], object]) -> asyncio.Task[None]:
        """Run something for a session in a thread; its next request waits for it."""
        task = asyncio.ensure_future(_run_quietly(record))
        for tasks in (session.reports, self._running):
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        return task

    async def run(self, session: KnownSession, record: Callable[[], object]) -> None:
        """Run something for a session and wait for it, but not for ever."""
        await asyncio.wait({self.start(session, record)}, timeout=WAIT_S)

    async def drain(self) -> None:
        """Wait until everything that is due or was started is done, but not for ever."""
        for session in list(self._due.values()):
            self._flush(session)
        if self._running:
            await asyncio.wait(set(self._running), timeout=WAIT_S)

    async def wait(self, session: KnownSession) -> None:
        """Wait until all that was started for a session is done, but not for ever."""
        if session.reports:
            await asyncio.wait(set(session.reports), timeout=WAIT_S)


def run_all(records: list[Callable[[], None]]) -> None:
    """Store what is due; what cannot be stored is lost and said so."""
    for record in records:
        try:
            record()
        except Exception as error:  # noqa: BLE001 - figures that cannot be stored cost nothing but their use
            log.warning("a report was lost", extra={"fields": {"error": type(error).__name__}})


def _observe(session: KnownSession, manager: ContextCompressionManager, answered: Answered) -> None:
    if answered.has_usage:
        manager.observe_usage(session.id, answered.usage, finish_reason=answered.finish_reason or None)
    elif find_overflow(answered.error_text) is not None:
        manager.observe_usage(session.id, 0, is_overflow=True)


async def _run_quietly(record: Callable[[], Any]) -> None:
    try:
        await asyncio.to_thread(record)
    except Exception as error:  # noqa: BLE001 - figures that cannot be stored cost nothing but their use
        log.warning("a report was lost", extra={"fields": {"error": type(error).__name__}})
