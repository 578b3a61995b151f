"""Runs the tool calls of one step concurrently, each with a time-out and an output limit.

Every outcome, errors included, becomes a result for the model; no tool can end the run. A tool that never returns is
abandoned in a daemon thread.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from refold.agent.events import AgentEvent, ToolFinished, ToolStarted
from refold.agent.limits import AgentLimits
from refold.agent.tools import ArgumentError, Tool, write_output
from refold.conversation.reason import Language, detect_language
from refold.errors import RefoldError
from refold.llm.port import ToolCall, ToolResult

Approve = Callable[[ToolCall, Tool], "bool | Awaitable[bool]"]
Emit = Callable[[AgentEvent], None]
INTERRUPTED = "[interrupted by the user: this call has no result, and may have run in part]"
_ERROR_CHARS_MAX = 2_000


@dataclass(frozen=True)
class Runner:
    """Runs calls against a set of tools."""

    tools: Mapping[str, Tool]
    limits: AgentLimits
    approve: Approve | None = None
    language: Language | None = None

    async def run_calls(self, calls: Sequence[ToolCall], emit: Emit, done: dict[str, ToolResult]) -> list[ToolResult]:
        """Return a result for each call, in order; ``done`` collects them and keeps them if this is cancelled."""
        gate = asyncio.Semaphore(self.limits.calls_at_once_max)

        async def run(number: int, call: ToolCall) -> None:
            async with gate:
                if number >= self.limits.calls_per_step_max:
                    text = f"not run: {self.limits.calls_per_step_max} calls in one step are the limit"
                    done[call.id] = ToolResult(call, text, True)
                    return
                emit(ToolStarted(call.id, call.name, call.arguments))
                tool, refusal = await self._admit(call)
                started = time.monotonic()  # The time for approval is not the tool's.
                whole, is_error = await self._run_one(call, tool) if tool is not None else (refusal, True)
                text = cut_output(whole, self.limits.tool_chars_max, self.language)
                done[call.id] = ToolResult(call, text, is_error)
                seconds = time.monotonic() - started
                emit(ToolFinished(call.id, call.name, text, is_error, seconds, len(whole)))

        async with asyncio.TaskGroup() as group:
            for number, call in enumerate(calls):
                group.create_task(run(number, call))
        return [done[call.id] for call in calls]

    async def _admit(self, call: ToolCall) -> tuple[Tool | None, str]:
        """Return the tool to run, or None and the message for the model."""
        tool = self.tools.get(call.name)
        if tool is None:
            near = get_close_matches(call.name, self.tools, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            return None, f"there is no tool {call.name[:80]!r}.{hint} Tools: {', '.join(self.tools) or 'none'}"
        try:
            tool.read_arguments(call.arguments)
        except ArgumentError as error:
            return None, str(error)
        if tool.asks and not await self._is_approved(call, tool):
            return None, "the user did not agree to this call; it was not run. Ask what to do instead."
        return tool, ""

    async def _run_one(self, call: ToolCall, tool: Tool) -> tuple[str, bool]:
        timeout = tool.timeout_s or self.limits.tool_timeout_s
        try:
            arguments = tool.read_arguments(call.arguments)
            return write_output(await _call_bounded(tool.call, arguments, timeout)), False
        except TimeoutError:
            return f"the tool did not return within {timeout:g} s and was given up", True
        except RefoldError as error:
            return str(error), True
        except Exception as error:  # noqa: BLE001 - a tool may raise anything; the model sees it
            return f"{type(error).__name__}: {error}"[:_ERROR_CHARS_MAX], True

    async def _is_approved(self, call: ToolCall, tool: Tool) -> bool:
        if self.approve is None:
            return False
        answer = self.approve(call, tool)
        return bool(await answer) if inspect.isawaitable(answer) else bool(answer)


async def _call_bounded(function: Callable[..., Any], arguments: dict[str, Any], timeout_s: float) -> object:
    """Return the tool's result or raise TimeoutError; a call that does not end is abandoned."""
    if inspect.iscoroutinefunction(function):
        task: asyncio.Future[Any] = asyncio.ensure_future(function(**arguments))
    else:
        task = _start_thread(function, arguments)
    try:
        finished, _ = await asyncio.wait({task}, timeout=timeout_s)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not finished:
        # Not awaited: a tool that ignores its cancellation would block us for ever.
        task.cancel()
        raise TimeoutError
    result = task.result()
    return await result if inspect.isawaitable(result) else result


def _start_thread(function: Callable[..., Any], arguments: dict[str, Any]) -> asyncio.Future[Any]:
    """Run a function in its own daemon thread: a pool would wait for it at exit."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(value: object, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    def work() -> None:
        value: object = None
        failure: BaseException | None = None
        try:
            value = function(**arguments)
        except StopIteration as error:
            failure = RuntimeError(f"StopIteration: {error}")  # A future cannot carry it.
        except BaseException as error:  # noqa: BLE001 - handed over to the event loop
            failure = error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
        if not loop.is_closed():
            try:
                loop.call_soon_threadsafe(settle, value, failure)
            except RuntimeError:
                return  # The loop has closed.

    threading.Thread(target=work, name=f"refold-tool-{getattr(function, '__name__', '')}", daemon=True).start()
    return future


def cut_output(text: str, chars_max: int, language: Language | None = None) -> str:
    """Cut an output to its limit: head, a marker with the number of missing characters, tail.

    The marker is in the conversation's language, or the output's if that is unknown.
    """
    if len(text) <= chars_max:
        return text
    room = max(0, chars_max - 60)
    head = _after_line(text, room // 2)
    tail = _next_line(text, len(text) - (room - room // 2))
    is_chinese = (language or detect_language([text[:2_000] + text[-2_000:]])) == "zh"
    missing = tail - head
    marker = f"... [截断 {missing} 字符] ..." if is_chinese else f"... [truncated {missing} characters] ..."
    joint = "" if text[:head].endswith("\n") or not head else "\n"
    return f"{text[:head]}{joint}{marker}\n{text[tail:]}"


def _after_line(text: str, at: int) -> int:
    """Return the start of the line at a position if it is near, so that the head ends with a whole line."""
    return text.rfind("\n", max(0, at - 2_000), at) + 1 or at


def _next_line(text: str, at: int) -> int:
    """Return the start of the next line if it is near."""
    return text.find("\n", at, min(len(text) - 1, at + 2_000)) + 1 or at
