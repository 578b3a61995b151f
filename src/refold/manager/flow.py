"""Flows: what the manager does, written once, run by a sync or an async driver.

A flow is a generator. It yields what it cannot do by itself: a Question to a model, a Pause, an Await of somebody's
coroutine. The async driver runs every step in a thread, so that counting and folding never hold up an event loop, and
lets a step finish when it is cancelled: a change is made whole or not at all (S3.8).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from refold.llm.summariser import Summariser
from refold.stages.stage import Ask

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
    except Exception as error:  # noqa: BLE001 - whoever asked decides what a failure means
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
