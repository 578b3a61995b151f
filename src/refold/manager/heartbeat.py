"""The heartbeat: while this process works under a lease, the lease is prolonged; when the process dies, it is not.

So a lease can be short whatever takes long under it (a model that hangs, a giant session), and a process that was
killed stops the others for a few seconds only, on this machine or another. One thread per manager beats for all its
leases; it ends when nothing is held any more. It never takes a lease back that somebody else has, and it stops by
itself for a holder that never ends (L9).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from refold.errors import LedgerError

# Beats per lifetime of a lease: one may be late, another may fail, and it still holds.
BEATS = 3
HELD_MAX_S = 2 * 3_600.0

# Prolongs the lease of an owner on a session; False if it is somebody else's now.
Prolong = Callable[[str, str], bool]


class Heartbeat:
    """Prolongs the leases that this process holds, for as long as it lives and they are wanted."""

    def __init__(self, prolong: Prolong, lifetime_s: Callable[[], float]) -> None:
        self._prolong = prolong
        self._lifetime_s = lifetime_s
        self._held: dict[tuple[str, str], float] = {}
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def begin(self, session_id: str, owner: str) -> None:
        """Keep a lease that was just taken."""
        self._start_anew_after_fork()
        with self._guard:
            self._held[session_id, owner] = time.monotonic()
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, name="refold-heartbeat", daemon=True)
                self._thread.start()

    def end(self, session_id: str, owner: str) -> None:
        """Keep it no longer. When this returns no beat is under way: what is given back now stays given back."""
        self._start_anew_after_fork()
        with self._guard:
            self._held.pop((session_id, owner), None)

    def _start_anew_after_fork(self) -> None:
        # A child has neither the parent's threads nor its leases, and a lock as it was in the middle of anything.
        if self._pid != os.getpid():
            self._held, self._guard, self._thread, self._pid = {}, threading.Lock(), None, os.getpid()

    def _beat(self) -> None:
        while True:
            time.sleep(self._lifetime_s() / BEATS)
            with self._guard:
                for session_id, owner in list(self._held):
                    self._beat_once(session_id, owner)
                if not self._held:
                    self._thread = None
                    return

    def _beat_once(self, session_id: str, owner: str) -> None:
        is_ours = time.monotonic() - self._held[session_id, owner] < HELD_MAX_S
        if is_ours:
            # A store that cannot be written now may be by the next beat; the commit asks once more in any case.
            with suppress(LedgerError):
                is_ours = self._prolong(session_id, owner)
        if not is_ours:
            del self._held[session_id, owner]
