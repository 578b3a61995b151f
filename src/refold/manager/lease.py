"""The lease: one at a time changes what a session's view shows, over all processes.

It runs out by itself within seconds, so a process that died stops nobody for long; one that lives keeps it by its
heartbeat, however long a model takes. One that ran out and that nobody took is prolonged. Waiting has an end (L9).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from refold.errors import LedgerError, SessionBusy
from refold.manager.flow import Flow, Pause, wait_out
from refold.manager.keeper import Keeper

WAIT_S = 150.0
# Each look is a write: who waits long looks less often.
_PAUSE_S, _PAUSE_MAX_S = 0.02, 0.2


def take_lease(keeper: Keeper, session_id: str, wait_s: float) -> Flow[str]:
    """Wait for the lease on a session; return who owns it now, or nothing if it could not be had in time."""
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
