"""Upkeep: a session's index and its vectors, brought up to date beside the conversation.

One thread per manager, which ends when there is nothing left to do. It works in slices, so that no session keeps the
others waiting, and every slice is stored: a process that ends loses nothing but the slice at hand. Nothing here answers
a question, and nothing that fails here fails one: whoever asks catches up by themselves.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from refold.errors import RefoldError

WAITING_MAX = 1_000


class Upkeep:
    """Does ``slice_of(session_id)`` for the sessions that were named, until each says that it is done."""

    def __init__(self, slice_of: Callable[[str], bool], complain: Callable[[str, str], None] | None = None) -> None:
        self._slice_of = slice_of
        self._complain = complain
        self._waiting: OrderedDict[str, None] = OrderedDict()
        self._guard = threading.Lock()
        self._worker: threading.Thread | None = None
        self._stops = threading.Event()

    def ask(self, session_id: str) -> bool:
        """Have a session brought up to date soon; False if too many are waiting already."""
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
        """Tell whether something is under way or waiting."""
        with self._guard:
            return self._worker is not None

    def join(self, seconds: float = 60.0) -> bool:
        """Wait until nothing is left to do; False if that took longer."""
        with self._guard:
            worker = self._worker
        if worker is not None:
            worker.join(seconds)
        return not self.is_busy()

    def close(self) -> None:
        """End after the slice at hand. What is left is done when somebody asks again."""
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
                    # To the end of the row: the others have their turn first.
                    self._waiting.setdefault(session_id)

    def _do_slice(self, session_id: str) -> bool:
        """Do one slice; True if none is left, or it failed: then it is tried again when somebody asks, not over and
        over."""
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
