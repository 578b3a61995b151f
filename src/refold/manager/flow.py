"""Flows: the manager's operations, written once and run by a sync or an async driver; retries and leases.

A flow is a generator that yields what it cannot do itself: a Pause, or an Await of a coroutine. The async driver
runs every step in a thread, so that nothing blocks the event loop, and lets a running step finish when it is cancelled:
a change is made whole or not at all. The lease ensures that only one process at a time changes what a session shows; a
heartbeat prolongs it while this process works.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, TypeVar

from refold.conversation import because
from refold.conversation.reason import Reason, ReasonKind
from refold.errors import ChangeRefused, LedgerError, SessionBusy
from refold.ledger.records import Batch, SessionRow
from refold.ledger.sql.ledger import Ledger

if TYPE_CHECKING:
    from refold.manager.store import Keeper

Result = TypeVar("Result")
# Attempts at one change, and the pauses between them: with many writing replicas, a slow one loses some rounds.
ROUNDS_MAX = 40
PAUSE_S, PAUSE_MAX_S, _GROWTH = 0.002, 0.1, 1.5
# An explanation of a refusal names at most this many ids of a kind.
_NAMED_MAX = 3
# The path and the edits that a change was made against.
Versions = tuple[int, int]
LEASE_S = 6.0
# Beats per lifetime of a lease: one may be late and another may fail, and the lease still holds.
BEATS = 3
HELD_MAX_S = 2 * 3_600.0
# The longest wait for a lease. Each attempt is a write: a long wait polls less often.
WAIT_S = 150.0
_PAUSE_S, _PAUSE_MAX_S = 0.02, 0.2


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait a little: another thread or process holds what this flow needs."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Await:
    """Run a coroutine to its end; the answer is its result or the exception it raised."""

    make: Callable[[], Awaitable[object]]


Step = Pause | Await
Flow = Generator[Step, Any, Result]


def run_flow(flow: Flow[Result]) -> Result:
    """Run a flow to its end in this thread."""
    reply: object = None
    try:
        while True:
            step = flow.send(reply)
            reply = None
            if isinstance(step, Pause):
                time.sleep(step.seconds)
            else:
                reply = run_blocking(partial(_answer, step))
    except StopIteration as done:
        result: Result = done.value
        return result
    finally:
        flow.close()


async def run_flow_async(flow: Flow[Result]) -> Result:
    """Run a flow to its end, its steps in threads and its questions on this event loop."""
    reply: object = None
    while True:
        step, ended = await _step_in_thread(flow, reply)
        if step is None:
            result: Result = ended
            return result
        try:
            reply = await _answer(step)
        except BaseException:
            # Cancelled while asking: nothing was committed. Locks and leases are released before we leave.
            await asyncio.shield(asyncio.to_thread(flow.close))
            raise


async def _step_in_thread(flow: Flow[Result], reply: object) -> tuple[Step | None, Any]:
    def advance() -> tuple[Step | None, Any]:
        try:
            return flow.send(reply), None
        except StopIteration as done:
            return None, done.value

    task = asyncio.ensure_future(asyncio.to_thread(advance))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        # The step is already running: let it finish, then close the flow.
        with suppress(Exception):
            await task
        await asyncio.to_thread(flow.close)
        raise


async def _answer(step: Step) -> object:
    if isinstance(step, Pause):
        return await asyncio.sleep(step.seconds, None)
    try:
        return await step.make()
    except Exception as error:  # noqa: BLE001 - the caller decides what a failure means
        return error


def run_blocking(make: Callable[[], Awaitable[object]]) -> object:
    """Run a coroutine from sync code, even if an event loop is running in this thread."""

    async def wait() -> object:
        return await make()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(wait())
    thread = ThreadPoolExecutor(1, "refold-ask")
    try:
        return thread.submit(asyncio.run, wait()).result()
    finally:
        thread.shutdown(wait=False)  # An interrupt does not wait for the answer.


def read_versions(row: SessionRow | None) -> Versions | None:
    """Return the versions of a session; None if there is no such session."""
    return None if row is None else (row.path_version, row.edits_version)


class Rounds:
    """The attempts at one change of a session."""

    def __init__(self, keeper: Keeper, session_id: str) -> None:
        self._keeper = keeper
        self._session_id = session_id
        self._begun = 0
        self._pause_s = PAUSE_S
        self._refused: Versions | None = None

    def begin(self) -> None:
        """Begin one more attempt; raise SessionBusy if there were too many."""
        self._begun += 1
        if self._begun > ROUNDS_MAX:
            raise SessionBusy(
                "session {session_id!r} was changed by others {rounds_max} times in a row; try again "
                "later, or let fewer processes work on one session",
                session_id=self._session_id,
                rounds_max=ROUNDS_MAX,
            )

    def lose(self) -> Pause:
        """Return the pause after another process was faster."""
        pause = Pause(self._pause_s * (0.5 + self._keeper.chance()))
        self._pause_s = min(PAUSE_MAX_S, self._pause_s * _GROWTH)
        return pause

    def refuse(self, seen: SessionRow, what: Reason) -> Pause:
        """Return the pause after the ledger refused a change made against ``seen``; the caller reloads and retries.

        Raise ChangeRefused, naming ``what``, if it refused the same before and the session has not changed since.
        """
        now = read_versions(self._keeper.ledger.read_session(self._session_id))
        if now != read_versions(seen):
            return self.lose()
        if self._refused == now:
            raise ChangeRefused(
                "{what}, although nobody changed session {session_id!r} in the meantime (path version "
                "{path_version}, edits version {edits_version}); nothing was changed: run 'refold "
                "verify', and 'refold verify --repair' for what it can rebuild",
                what=what,
                session_id=self._session_id,
                path_version=seen.path_version,
                edits_version=seen.edits_version,
            )
        self._refused = now
        return self.lose()


def explain_refusal(ledger: Ledger, session_id: str, batch: Batch) -> Reason:
    """Describe a refused compression, and which of its assumptions do not hold in the ledger."""
    covered = dict.fromkeys(message_id for edit in batch.edits for message_id in edit.covers)
    stored = {message.id: message for message in ledger.read_messages(session_id, list(covered))}
    over = {edit.edit.id for edit in ledger.read_edits(session_id) if not covered.keys().isdisjoint(edit.edit.covers)}
    expected = set(batch.expects)
    causes: Mapping[ReasonKind, list[str]] = {
        because.MISSING: [one for one in covered if one not in stored],
        because.FORGOTTEN: [one.id for one in stored.values() if one.is_forgotten and one.id not in batch.forgotten],
        because.UNSEEN: sorted(over - expected),
        because.STALE: sorted(expected - over),
    }
    found = [
        kind(count=len(ids), ids=" ".join(one[:12] for one in ids[:_NAMED_MAX])) for kind, ids in causes.items() if ids
    ]
    why = reduce(lambda first, second: because.BOTH(first=first, second=second), found or [because.UNCHANGED()])
    return because.REFUSED(messages=len(covered), edits=len(batch.edits), because=why)


class Leases:
    """Leases on sessions. Those that this process holds are prolonged until they are released or the process ends."""

    def __init__(self, ledger: Ledger, clock: Callable[[], float], seconds: float = LEASE_S) -> None:
        self.seconds = seconds
        self._ledger = ledger
        self._clock = clock
        self._held: dict[tuple[str, str], float] = {}
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def prolong(self, session_id: str, owner: str) -> bool:
        """Take or renew the lease on a session; False if another owner holds it."""
        return self._ledger.acquire_lease(session_id, owner, seconds=self.seconds, now=self._clock())

    def take(self, session_id: str, wait_s: float = WAIT_S, *, must: bool = False) -> Flow[str]:
        """Wait for the lease on a session; return its owner id, or "" (SessionBusy with ``must``) after ``wait_s``."""
        owner = uuid.uuid4().hex
        waited, pause = 0.0, _PAUSE_S
        while not self.prolong(session_id, owner):
            if waited >= wait_s:
                if not must:
                    return ""
                raise SessionBusy(
                    "another process has been compressing {session_id!r} for {wait_s:g} s; try again",
                    session_id=session_id,
                    wait_s=wait_s,
                )
            yield Pause(pause)
            waited, pause = waited + pause, min(_PAUSE_MAX_S, pause * 1.3)
        self._begin(session_id, owner)
        return owner

    def give(self, session_id: str, owner: str) -> None:
        """Release a lease; if that fails, the lease expires and the finished work is not affected."""
        # No beat is running when this returns, so a released lease stays released.
        self._reset_after_fork()
        with self._guard:
            self._held.pop((session_id, owner), None)
        with suppress(LedgerError):
            self._ledger.release_lease(session_id, owner)

    @contextmanager
    def held(self, session_id: str) -> Iterator[None]:
        """Hold the lease on a session in this thread."""
        owner = run_flow(self.take(session_id, must=True))
        try:
            yield
        finally:
            self.give(session_id, owner)

    def _begin(self, session_id: str, owner: str) -> None:
        self._reset_after_fork()
        with self._guard:
            self._held[session_id, owner] = time.monotonic()
            if self._thread is None:
                thread = threading.Thread(target=self._beat, name="refold-heartbeat", daemon=True)
                # Without a thread the lease lasts for its lifetime, longer than most folds; the commit checks it.
                with suppress(RuntimeError):
                    thread.start()
                    self._thread = thread

    def _reset_after_fork(self) -> None:
        # A child has neither the parent's threads nor its leases, and its copy of the lock may be held.
        if self._pid != os.getpid():
            self._held, self._guard, self._thread, self._pid = {}, threading.Lock(), None, os.getpid()

    def _beat(self) -> None:
        while True:
            time.sleep(self.seconds / BEATS)
            with self._guard:
                for (session_id, owner), since in list(self._held.items()):
                    is_ours = time.monotonic() - since < HELD_MAX_S
                    # A store that cannot be written now may be writable at the next beat; the commit checks again.
                    with suppress(LedgerError):
                        is_ours = is_ours and self.prolong(session_id, owner)
                    if not is_ours:
                        del self._held[session_id, owner]
                if not self._held:
                    self._thread = None
                    return
