"""Flows: the manager's operations, written once and run by a sync or an async driver.

A flow is a generator that yields what it cannot do itself: a Question to a model, a Pause, an Await of a coroutine. The
async driver runs every step in a thread, so counting and folding never block the event loop, and it lets a step finish
when it is cancelled: a change is made whole or not at all (S3.8). ``Rounds`` limits how often a change is retried after
another process was faster (L9).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

from refold.conversation import because
from refold.conversation.reason import Reason, ReasonKind
from refold.errors import ChangeRefused, SessionBusy
from refold.ledger.port import Ledger
from refold.ledger.records import Batch, SessionRow
from refold.llm.summariser import Summariser
from refold.stages.stage import Ask

if TYPE_CHECKING:
    from refold.manager.store import Keeper


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Question:
    """Ask the model that writes the summaries of this conversation."""

    ask: Ask
    summariser: Summariser


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait a little: somebody else has what we need."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Await:
    """Run a coroutine to its end; the answer is its result or the exception it raised."""

    make: Callable[[], Awaitable[object]]


Step = Question | Pause | Await


Flow = Generator[Step, Any, Result]


def run_flow(flow: Flow[Result]) -> Result:
    """Run a flow to its end in this thread."""
    reply: object = None
    try:
        while True:
            step = flow.send(reply)
            reply = _answer(step)
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
            reply = await _answer_async(step)
        except BaseException:
            # Cancelled while asking: nothing was committed. Locks and leases are given back before we go.
            await asyncio.shield(asyncio.to_thread(flow.close))
            raise


async def _step_in_thread(flow: Flow[Result], reply: object) -> tuple[Step | None, Any]:
    task = asyncio.ensure_future(asyncio.to_thread(_advance, flow, reply))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        # The step is already running: it ends as it would have, then the flow is closed.
        with suppress(Exception):
            await task
        await asyncio.to_thread(flow.close)
        raise


def _advance(flow: Flow[Result], reply: object) -> tuple[Step | None, Any]:
    try:
        return flow.send(reply), None
    except StopIteration as done:
        return None, done.value


def wait_out(flow: Flow[Result]) -> Result:
    """Run a flow that only pauses, in this thread."""
    try:
        while True:
            step = next(flow)
            assert isinstance(step, Pause), "this flow asks for more than time"
            time.sleep(step.seconds)
    except StopIteration as done:
        result: Result = done.value
        return result


def _answer(step: Step) -> object:
    if isinstance(step, Question):
        return run_blocking(lambda: step.summariser.answer(step.ask))
    if isinstance(step, Await):
        return run_blocking(lambda: _settle(step))
    time.sleep(step.seconds)
    return None


async def _answer_async(step: Step) -> object:
    if isinstance(step, Question):
        return await step.summariser.answer(step.ask)
    if isinstance(step, Await):
        return await _settle(step)
    await asyncio.sleep(step.seconds)
    return None


async def _settle(step: Await) -> object:
    try:
        return await step.make()
    except Exception as error:  # noqa: BLE001 - the caller decides what a failure means
        return error


def run_blocking(make: Callable[[], Awaitable[object]]) -> object:
    """Run a coroutine from sync code, also where an event loop is running in this thread."""

    async def wait() -> object:
        return await make()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(wait())
    results: list[object] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            results.append(asyncio.run(wait()))
        except BaseException as error:  # noqa: BLE001 - handed over to the caller's thread
            failures.append(error)

    thread = threading.Thread(target=work, name="refold-ask")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


# Many replicas may write at once: a slower one loses some rounds before it succeeds.
ROUNDS_MAX = 40
PAUSE_S, PAUSE_MAX_S = 0.002, 0.1
_GROWTH = 1.5
_NAMED_MAX = 3


# The path and the edits that a change was made against.
Versions = tuple[int, int]


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
        """Begin one more attempt; SessionBusy if there were too many."""
        self._begun += 1
        if self._begun > ROUNDS_MAX:
            raise SessionBusy(
                f"session {self._session_id!r} was changed by others {ROUNDS_MAX} times in a row; try again later, or "
                "let fewer processes work on one session"
            )

    def lose(self) -> Pause:
        """Return how long to wait after somebody else was faster."""
        pause = Pause(self._pause_s * (0.5 + self._keeper.chance()))
        self._pause_s = min(PAUSE_MAX_S, self._pause_s * _GROWTH)
        return pause

    def refuse(self, seen: SessionRow, what: Reason) -> Pause:
        """Return how long to wait after the record refused what was made against ``seen``; the caller reads all anew.

        ChangeRefused, naming ``what``, if it refused the same before and the session has not changed since.
        """
        now = read_versions(self._keeper.ledger.read_session(self._session_id))
        if now != read_versions(seen):
            return self.lose()
        if self._refused == now:
            raise ChangeRefused(
                f"{what}, although nobody changed session {self._session_id!r} in the meantime "
                f"(path version {seen.path_version}, edits version {seen.edits_version}); nothing was changed: "
                f"run 'refold verify', and 'refold verify --repair' for what it can rebuild"
            )
        self._refused = now
        return self.lose()


def explain_refusal(ledger: Ledger, session_id: str, batch: Batch) -> Reason:
    """Return what a compression is, and which of the things it depends on are not so in the ledger."""
    covered = dict.fromkeys(message_id for edit in batch.edits for message_id in edit.covers)
    stored = {one.id: one for one in ledger.read_messages(session_id, list(covered))}
    over = {one.edit.id for one in ledger.read_edits(session_id) if not covered.keys().isdisjoint(one.edit.covers)}
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
