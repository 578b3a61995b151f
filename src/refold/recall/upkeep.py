"""Work in the background: queues of sessions with a worker thread each, for the recall index and for reading ahead.

A fold reads every message that it covers: sentences, calls, results, exact values, secrets. What was read is kept in
bounded memos, so reading a message early costs nothing twice. Sessions far from their next compression are not read.

The thread starts with the first job and ends a little after the last: to open the ledger again takes longer than most
jobs. Nothing here is stored: a process that ends loses only the job in progress.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import ClassVar, Generic, TypeVar

from refold.conversation.message import Message
from refold.errors import RefoldError
from refold.llm.redact import find_secrets
from refold.reading.advance import read_ahead

WAITING_MAX = 1_000
_PAUSE_S = 0.01
# Reading begins when a session has used this share of the tokens at which it is compressed.
READ_SHARE = 0.5
# New messages are read with the request that brings them, at most so many: a backlog is read little by little.
READ_MAX = 24
LINGER_S = 2.0  # An idle thread waits so long for another job.
Job = TypeVar("Job")


class SessionQueue(ABC, Generic[Job]):
    """Jobs for sessions, at most one waiting for each, done one after the other."""

    thread_name: ClassVar[str]

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._running: tuple[str, Job] | None = None
        self._stopped: tuple[str, Job] | None = None
        self._guard = threading.Condition(threading.Lock())
        self._is_closing = False
        # The thread that takes jobs, None once the queue is empty; and the newest one, which may not have ended yet.
        self._worker: threading.Thread | None = None
        self._last: threading.Thread | None = None

    @abstractmethod
    def _do(self, session_id: str, job: Job) -> bool:
        """Do a job, or a part of it; False puts it back to the end of the queue."""

    def is_busy(self, session_id: str | None = None) -> bool:
        """Return whether work for a session, or for any, is in progress or waiting."""
        with self._guard:
            is_any = self._is_working() and (bool(self._jobs) or self._running is not None)
            return is_any if session_id is None else self._has(session_id)

    def join(self, session_id: str | None = None, seconds: float = 60.0) -> bool:
        """Wait until the work for a session, or all of it, is done; False after ``seconds``."""
        until = time.monotonic() + seconds
        while self.is_busy(session_id):
            if time.monotonic() >= until:
                return False
            time.sleep(_PAUSE_S)
        return True

    def close(self) -> None:
        """Withdraw what is waiting, and wait for the job in progress, which is not put back."""
        with self._guard:
            self._jobs.clear()
            self._stopped, self._is_closing = self._running, True
            self._guard.notify()
        # A thread closes its connection to a ledger when it ends. Until then the newest changes may be in the log only.
        if self.join() and self._last is not None and self._last is not threading.current_thread():
            self._last.join()

    def _is_working(self) -> bool:
        # A child process has a copy of this object, but not its thread.
        return self._worker is not None and self._worker.is_alive()

    def _waits(self, session_id: str) -> bool:
        return self._is_working() and session_id in self._jobs

    def _has(self, session_id: str) -> bool:
        running = self._running[0] if self._running is not None else None
        return self._is_working() and (session_id in self._jobs or session_id == running)

    def _add(self, session_id: str, job: Job) -> bool:
        """Queue a job; False if too many are waiting, or no thread can be started. The caller holds the guard."""
        if len(self._jobs) >= WAITING_MAX:
            return False
        if not self._is_working():
            self._running, self._is_closing = None, False
            worker = threading.Thread(target=self._work, name=self.thread_name, daemon=True)
            try:
                worker.start()  # It waits for the guard.
            except RuntimeError:
                return False
            self._worker = self._last = worker
        self._jobs[session_id] = job
        self._guard.notify()
        return True

    def _work(self) -> None:
        while True:
            with self._guard:
                if not self._jobs and not self._is_closing:
                    self._guard.wait(LINGER_S)
                if not self._jobs:
                    self._worker = None
                    return
                self._running = session_id, job = self._jobs.popitem(last=False)
            is_done = True
            try:
                is_done = self._do(session_id, job)
            finally:
                with self._guard:
                    if not is_done and self._running is not self._stopped:
                        self._jobs.setdefault(session_id, job)
                    self._running = None


class Upkeep(SessionQueue[None]):
    """Calls ``slice_of(session_id)`` for each session it was asked to update, in turn, until it returns True."""

    thread_name = "refold-recall"

    def __init__(self, slice_of: Callable[[str], bool], complain: Callable[[str, str], None] | None = None) -> None:
        super().__init__()
        self._slice_of = slice_of
        self._complain = complain or (lambda _session, _problem: None)

    def ask(self, session_id: str) -> bool:
        """Queue a session for an update; False if too many are waiting already."""
        with self._guard:
            return self._waits(session_id) or self._add(session_id, None)

    def _do(self, session_id: str, job: None) -> bool:  # noqa: ARG002 - the session says it all
        """Do one slice; True if it was the last, or if it failed: a failed one is repeated only on request."""
        try:
            return self._slice_of(session_id)
        except RefoldError as error:
            self._complain(session_id, f"the recall index was not updated: {error}")
        except Exception as error:  # noqa: BLE001 - a worker must outlive whatever one session does to it
            self._complain(session_id, f"the recall index failed: {type(error).__name__}: {error}"[:300])
        return True


class ReadAhead(SessionQueue[list[Message]]):
    """The messages of one manager's sessions that are to be read."""

    thread_name = "refold-read-ahead"

    def ask(self, session_id: str, messages: Sequence[Message]) -> bool:
        """Queue messages; False if others of this session, or too many sessions, are waiting."""
        with self._guard:
            return not self._waits(session_id) and self._add(session_id, list(messages))

    def _do(self, session_id: str, job: list[Message]) -> bool:  # noqa: ARG002 - the messages say it all
        with suppress(Exception):  # The fold reads these messages again, and reports what is wrong with them.
            read_ahead(job)
            find_secrets(part.text for message in job for part in message.parts if part.text)
        return True
