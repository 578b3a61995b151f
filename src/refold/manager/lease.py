"""The lease: only one process at a time changes what a session shows.

A lease expires within seconds, so a process that died blocks nobody for long. A heartbeat renews the leases of a living
process, however long a model takes. Every wait has a limit (L9).
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from refold.errors import LedgerError, SessionBusy
from refold.manager.flow import Flow, Pause, wait_out

if TYPE_CHECKING:
    from refold.manager.store import Keeper


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
        self._reset_after_fork()
        with self._guard:
            self._held[session_id, owner] = time.monotonic()
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, name="refold-heartbeat", daemon=True)
                self._thread.start()

    def end(self, session_id: str, owner: str) -> None:
        """Keep it no longer. When this returns no beat is under way: what is given back now stays given back."""
        self._reset_after_fork()
        with self._guard:
            self._held.pop((session_id, owner), None)

    def _reset_after_fork(self) -> None:
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


WAIT_S = 150.0
# Each attempt is a write: a long wait polls less often.
_PAUSE_S, _PAUSE_MAX_S = 0.02, 0.2


def take_lease(keeper: Keeper, session_id: str, wait_s: float) -> Flow[str]:
    """Wait for the lease on a session; return its owner id, or an empty string if it was not free in time."""
    owner = uuid.uuid4().hex
    waited, pause = 0.0, _PAUSE_S
    while not keeper.prolong(session_id, owner):
        if waited >= wait_s:
            return ""
        yield Pause(pause)
        waited, pause = waited + pause, min(_PAUSE_MAX_S, pause * 1.3)
    keeper.heartbeat.begin(session_id, owner)
    return owner


def give_lease(keeper: Keeper, session_id: str, owner: str) -> None:
    """Give a lease back; if that fails it runs out by itself, and what was done does not fail by it."""
    keeper.heartbeat.end(session_id, owner)
    with suppress(LedgerError):
        keeper.ledger.release_lease(session_id, owner)


@contextmanager
def leased(keeper: Keeper, session_id: str) -> Iterator[None]:
    """Hold the lease on a session in this thread."""
    owner = wait_out(take_lease(keeper, session_id, WAIT_S))
    if not owner:
        raise SessionBusy(f"another process has been compressing {session_id!r} for {WAIT_S:g} s; try again")
    try:
        yield
    finally:
        give_lease(keeper, session_id, owner)
