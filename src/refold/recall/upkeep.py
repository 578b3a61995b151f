"""Upkeep: brings the index and the vectors of sessions up to date in the background.

Each manager has one worker thread, which ends when nothing is left to do. It works in slices, so that no session keeps
the others waiting, and stores every slice: a process that ends loses only the slice in progress. A failure here fails
no request: a search catches up by itself, and a request reads from the ledger what is not indexed yet.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from refold.errors import RefoldError

WAITING_MAX = 1_000


class Upkeep:
    """Calls ``slice_of(session_id)`` for the sessions it was asked to update, until each returns True."""

    def __init__(self, slice_of: Callable[[str], bool], complain: Callable[[str, str], None] | None = None) -> None:
        self._slice_of = slice_of
        self._complain = complain
        self._waiting: OrderedDict[str, None] = OrderedDict()
        self._guard = threading.Lock()
        self._worker: threading.Thread | None = None
        self._stops = threading.Event()

    def ask(self, session_id: str) -> bool:
        """Queue a session for an update; False if too many are waiting already."""
        with self._guard:
            if session_id in self._waiting:
                return True
            if len(self._waiting) >= WAITING_MAX:
                return False
            self._waiting[session_id] = None
            if self._worker is None:
                self._stops.clear()
                self._worker = threading.Thread(target=self._work, name="refold-recall", daemon=True)
                self._worker.start()
            return True

    def is_busy(self) -> bool:
        """Return whether work is in progress or waiting."""
        with self._guard:
            return self._worker is not None

    def join(self, seconds: float = 60.0) -> bool:
        """Wait until nothing is left to do; False after ``seconds``."""
        with self._guard:
            worker = self._worker
        if worker is not None:
            worker.join(seconds)
        return not self.is_busy()

    def close(self) -> None:
        """Stop after the slice in progress. The rest is done the next time somebody asks."""
        self._stops.set()
        with self._guard:
            self._waiting.clear()
        self.join()

    def _work(self) -> None:
        while True:
            with self._guard:
                if not self._waiting or self._stops.is_set():
                    self._worker = None
                    return
                session_id, _ = self._waiting.popitem(last=False)
            is_done = self._do_slice(session_id)
            with self._guard:
                if not is_done and not self._stops.is_set():
                    # Back to the end of the queue: the others come first.
                    self._waiting.setdefault(session_id)

    def _do_slice(self, session_id: str) -> bool:
        """Do one slice; True if it was the last, or if it failed: a failed one is tried again only when asked for."""
        try:
            return self._slice_of(session_id)
        except RefoldError as error:
            self._tell(session_id, f"the index of recall was not brought up to date: {error}")
        except Exception as error:  # noqa: BLE001 - a worker must outlive whatever one session does to it
            self._tell(session_id, f"the index of recall failed: {type(error).__name__}: {error}"[:300])
        return True

    def _tell(self, session_id: str, problem: str) -> None:
        if self._complain is not None:
            self._complain(session_id, problem)
