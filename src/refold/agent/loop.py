"""The loop: prepare, ask the model, run its tools, observe what it cost, until it has no more calls.

Every request is prepared by the manager, so it fits and is valid; whatever is said is stored before the next step.
Cancelled or killed at any moment, the session stays one that a provider accepts. No provider's format is known here.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from refold.agent import events as told
from refold.agent.context_tools import ContextTools
from refold.agent.hub import find_hub
from refold.agent.limits import AgentLimits
from refold.agent.overflow import (
    Lowered,
    digest_messages,
    judge_window,
    lower_window,
    restore_window,
    step_down,
    without_summariser,
)
from refold.agent.pending import close_pending
from refold.agent.running import INTERRUPTED, Approve, Runner
from refold.agent.tools import Tool, make_tools
from refold.agent.wire import ChatModel, ChatReply, ChatRequest, Delta, ToolResult, clean_text
from refold.errors import ConfigError, ContextOverflow, RateLimited, Unavailable
from refold.manager import ContextCompressionManager
from refold.manager.controls import read_usage
from refold.prepared import PreparedContext

Result = TypeVar("Result")
Callback = Callable[[told.AgentEvent], object]
CUT_OFF = "[interrupted by the user before the answer was complete]"
OUTPUT_TOKENS_MIN = 256
# So many events may wait for a reader before the model's stream is read on.
EVENTS_WAITING_MAX = 1_000


@dataclass
class _Run:
    """What one run knows of itself."""

    emit: Callable[[told.AgentEvent], None]
    step: int = 0
    pieces: list[str] = field(default_factory=list)
    same: int = 0
    last: object = None
    waiting: Callable[[], int] = lambda: 0


class Agent:
    """A model, its tools and a session that never runs out of window.

    ``model`` is a ChatModel, or the name of one (``key`` and ``base_url`` say where). ``approve`` is asked before tools
    that need it; without it they are refused. ``on_compacted`` hears of every compression (S4.7), ``on`` of anything.
    """

    def __init__(
        self,
        model: ChatModel | str,
        tools: Iterable[Callable[..., Any] | Tool] = (),
        manager: ContextCompressionManager | None = None,
        *,
        session_id: str = "",
        system: str = "",
        key: str = "",
        base_url: str = "",
        limits: AgentLimits | None = None,
        approve: Approve | None = None,
        context_tools: bool = True,
        on_compacted: Callback | None = None,
    ) -> None:
        if isinstance(model, str):
            from refold.agent.choosing import make_chat_model

            model = make_chat_model(model, key=key, url=base_url)
        self.model: ChatModel = model
        self.manager = manager if manager is not None else ContextCompressionManager()
        self.session_id = session_id or f"agent-{uuid.uuid4().hex[:12]}"
        self.system = clean_text(system)
        self.limits = limits or AgentLimits()
        self.context = ContextTools(self.manager, self.session_id)
        own = self.context.list_tools() if context_tools else []
        self.tools = make_tools([*tools, *own])
        self.approve = approve
        self._callbacks: dict[str, list[Callback]] = {}
        self._written: list[dict[str, Any]] = []
        self._prepared: PreparedContext | None = None
        self._is_checked = False
        self._is_running = False
        if on_compacted is not None:
            self.on("compacted", on_compacted)

    def on(self, kind: str, callback: Callback) -> None:
        """Call ``callback`` with every event of a kind; ``*`` is any. What it raises is told as a warning."""
        if kind != "*" and kind not in told.KINDS:
            raise ConfigError(f"there is no event {kind[:40]!r}; there are {', '.join(told.KINDS)}")
        self._callbacks.setdefault(kind, []).append(callback)

    @property
    def messages(self) -> list[object]:
        """What the model saw with the last request, in the provider's format (S4.7)."""
        return list(self._prepared.messages) if self._prepared is not None else []

    async def run(self, prompt: str | None = None) -> AsyncIterator[told.AgentEvent]:
        """Work on a request until it is done, telling what happens; None goes on where the session stands.

        Closing the iterator or cancelling stops the run; the session can be gone on with.
        """
        if self._is_running:
            raise ConfigError(f"session {self.session_id!r} is already running in this agent; wait for it")
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[told.AgentEvent | None] = asyncio.Queue()

        def emit(event: told.AgentEvent) -> None:
            queue.put_nowait(event)
            self._call_back(event, queue)

        def hear(event: told.AgentEvent) -> None:
            with contextlib.suppress(RuntimeError):  # The loop is gone: nobody reads any more.
                loop.call_soon_threadsafe(emit, event)

        self._is_running = True
        with find_hub(self.manager).hearing(self.session_id, hear):
            task = asyncio.ensure_future(self._drive(prompt, _Run(emit, waiting=queue.qsize)))
            task.add_done_callback(lambda _: queue.put_nowait(None))
            try:
                while (event := await queue.get()) is not None:
                    yield event
                task.result()
            finally:
                self._is_running = False
                if not task.done():
                    task.cancel()
                    # Waited for: the session is put in order before whoever stopped us goes on.
                    await asyncio.wait({task})
                    with contextlib.suppress(asyncio.CancelledError, Exception):
                        task.result()

    async def ask(self, prompt: str) -> str:
        """Run to the end and return the answer."""
        answer = ""
        async for event in self.run(prompt):
            if isinstance(event, told.Finished):
                answer = event.text
        return answer

    def _call_back(self, event: told.AgentEvent, queue: asyncio.Queue[told.AgentEvent | None]) -> None:
        for callback in (*self._callbacks.get(event.kind, ()), *self._callbacks.get("*", ())):
            try:
                callback(event)
            except Exception as error:  # noqa: BLE001 - a listener must not break what it listens to
                queue.put_nowait(
                    told.Warned(f"a callback for {event.kind} failed: {type(error).__name__}: {error}"[:300])
                )

    async def _drive(self, prompt: str | None, run: _Run) -> None:
        try:
            await self._open(prompt, run)
            for run.step in range(1, self.limits.steps_max + 1):
                reply = await self._ask(run)
                await self._append([reply.message])
                if not reply.calls:
                    run.emit(told.Finished(reply.text, reply.finish_reason, run.step))
                    return
                results = await self._run_calls(reply, run)
                if self._is_stuck(results, run):
                    why = f"the same calls had the same results {run.same} times in a row"
                    run.emit(told.Warned(f"stopped: {why}"))
                    run.emit(told.Finished(reply.text, "stuck", run.step))
                    return
            run.emit(told.Finished("", "steps", run.step))
        finally:
            await self.model.aclose()

    async def _open(self, prompt: str | None, run: _Run) -> None:
        if not self._is_checked:
            row = self.manager.ledger.read_session(self.session_id)
            if row is not None and row.wire and row.messages and row.wire != self.model.wire:
                raise ConfigError(
                    f"session {self.session_id!r} is in the format {row.wire}, the model {self.model.name!r} speaks "
                    f"{self.model.wire}; take a model of the same kind, or a new session"
                )
            if row is not None:
                lost = await _settle(close_pending, self.manager, self.session_id, self.model)
                if lost:
                    run.emit(told.Warned(f"{lost} calls had no result when the last run ended; the model is told"))
                await _settle(restore_window, self.manager, self.session_id, self.model.name)
            self._is_checked = True
        if prompt is not None:
            text = clean_text(prompt)
            if not text.strip():
                raise ConfigError("the prompt is empty; say what is to be done")
            await self._append([self.model.write_user(text)])

    async def _append(self, messages: Sequence[dict[str, Any]]) -> None:
        await _settle(self._append_now, messages)

    def _append_now(self, messages: Sequence[dict[str, Any]]) -> None:
        self.manager.append(self.session_id, messages, format=self.model.wire)

    async def _prepare(self) -> PreparedContext:
        if not self._written:
            self._written = self.model.write_tools(list(self.tools.values()))
        tools = [] if getattr(self.model, "refuses_tools", False) else self._written
        self._prepared = await self.manager.prepare_context(
            self.session_id,
            None,
            self.system,
            tools=tools or None,
            model=self.model.name,
            format=self.model.wire,
        )
        return self._prepared

    async def _ask(self, run: _Run) -> ChatReply:
        """Return the model's next answer; compress and ask again where the window was the problem."""
        prepared = await self._prepare()
        budget = _budget_of(prepared)
        run.emit(told.StepStarted(run.step, prepared.total_tokens, budget.hard, budget.soft, budget.window))
        attempts = 0
        while True:
            try:
                reply = await self._try(self._make_request(prepared), run)
            except ContextOverflow as error:
                attempts += 1
                if attempts > self.manager.config.max_compaction_attempts:
                    raise ContextOverflow(
                        f"{error} ({attempts - 1} compressions did not help)", tokens_max=error.tokens_max
                    ) from None
                prepared = await self._recover(error, prepared, run)
                continue
            await self._observe(reply, run)
            if reply.finish_reason == "length" and attempts < self.manager.config.max_compaction_attempts:
                attempts += 1
                fresh = await self._prepare()  # S4.6: the manager knows whether the window was the reason.
                if fresh.report is not None and fresh.report.stages:
                    run.emit(told.Retrying("the answer was cut off because the window was full"))
                    prepared = fresh
                    continue
            return reply

    def _make_request(self, prepared: PreparedContext) -> ChatRequest:
        budget, report = _budget_of(prepared), prepared.report
        reserve = budget.window - round(budget.hard * (1.0 + (report.margin if report else 0.0)))
        output = self.limits.output_tokens
        if output is None and self.model.wire == "anthropic":
            output = max(OUTPUT_TOKENS_MIN, reserve)
        return ChatRequest(
            prepared.messages,
            self.system,
            prepared.tools if isinstance(prepared.tools, list) else [],
            output,
            self.limits.answer_chars_max,
            self.limits.answer_stall_s,
        )

    async def _try(self, request: ChatRequest, run: _Run) -> ChatReply:
        """Ask, again if that may help; time mends what is Unavailable, never what is wrong."""
        for attempt in range(1, self.limits.attempts_max + 1):
            run.pieces = []
            try:
                return await self._stream(request, run)
            except (RateLimited, Unavailable) as error:
                if attempt == self.limits.attempts_max:
                    raise
                pause = min(self.limits.delay_max_s, self.limits.delay_s * 2.0 ** (attempt - 1)) * random.uniform(
                    1, 1.25
                )
                asked = getattr(error, "retry_after_s", None) or 0.0
                if asked > self.limits.delay_max_s * 3:
                    raise
                run.emit(told.Retrying(str(error), max(pause, asked)))
                await asyncio.sleep(max(pause, asked))
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _stream(self, request: ChatRequest, run: _Run) -> ChatReply:
        answer = self.model.stream(request)
        try:
            async for item in answer:
                if isinstance(item, ChatReply):
                    return item
                self._take_piece(item, run)
                while run.waiting() > EVENTS_WAITING_MAX:
                    await asyncio.sleep(0.01)
            raise Unavailable(f"{self.model.name} ended its answer without one; try again")
        except asyncio.CancelledError:
            said = "".join(run.pieces)
            await self._append([self.model.write_answer(f"{said}\n\n{CUT_OFF}" if said.strip() else CUT_OFF)])
            raise
        finally:
            if inspect.isasyncgen(answer):
                await answer.aclose()

    def _take_piece(self, item: Delta, run: _Run) -> None:
        if item.kind == "thinking":
            run.emit(told.ThinkingDelta(item.text))
        else:
            run.pieces.append(item.text)
            run.emit(told.TextDelta(item.text))

    async def _recover(self, error: ContextOverflow, prepared: PreparedContext, run: _Run) -> PreparedContext:
        """Return a context that is smaller than the refused one; raise if there is none."""
        refused = digest_messages(prepared.messages)
        budget = _budget_of(prepared)
        lowered = judge_window(error, prepared.total_tokens, budget)
        if lowered is not None:
            await self._lower(lowered, run)
        await _settle(self._observe_overflow)
        run.emit(told.Retrying("the provider says that the request is too long; it is compressed and sent again"))
        with without_summariser(self.manager):
            fresh = await self._prepare()
            if digest_messages(fresh.messages) != refused:
                return fresh
            await self._lower(step_down(prepared.total_tokens, budget), run)
            fresh = await self._prepare()
        if digest_messages(fresh.messages) == refused:
            raise ContextOverflow(
                f"{error}; nothing is left to compress, and what was refused is not sent again",
                tokens_max=error.tokens_max,
            )
        return fresh

    async def _lower(self, lowered: Lowered, run: _Run) -> None:
        await _settle(lower_window, self.manager, self.session_id, self.model.name, lowered)
        run.emit(told.WindowLowered(self.model.name, lowered.before, lowered.after, lowered.reason))

    def _observe_overflow(self) -> None:
        self.manager.observe_usage(self.session_id, 0, is_overflow=True)

    async def _observe(self, reply: ChatReply, run: _Run) -> None:
        figures = read_usage(dict(reply.usage)) if reply.usage else {}
        if figures.get("input_tokens"):
            run.emit(
                told.UsageReported(
                    figures["input_tokens"],
                    figures["output_tokens"],
                    figures["cache_read_tokens"],
                    self.model.name,
                )
            )
        elif reply.finish_reason != "length":
            return
        await _settle(self._observe_now, dict(reply.usage), reply.finish_reason)

    def _observe_now(self, usage: dict[str, Any], reason: str) -> None:
        self.manager.observe_usage(self.session_id, usage, finish_reason=reason)

    async def _run_calls(self, reply: ChatReply, run: _Run) -> list[ToolResult]:
        done: dict[str, ToolResult] = {}
        try:
            runner = Runner(self.tools, self.limits, self.approve)
            results = await runner.run_calls(reply.calls, run.emit, done)
        except asyncio.CancelledError:
            left = [done.get(call.id) or ToolResult(call, INTERRUPTED, True) for call in reply.calls]
            await self._append(self.model.write_results(left))
            raise
        await self._append(self.model.write_results(results))
        return results

    def _is_stuck(self, results: Sequence[ToolResult], run: _Run) -> bool:
        made = [(one.call.name, one.call.arguments, one.text) for one in results]
        run.same = run.same + 1 if made == run.last else 1
        run.last = made
        return run.same >= self.limits.repeats_max


def _budget_of(prepared: PreparedContext) -> Any:
    assert prepared.report is not None, "the manager reports on every context it prepares"
    return prepared.report.budget


async def _settle(work: Callable[..., Result], *arguments: object) -> Result:
    """Run what writes in a thread, to its end also when we are cancelled: a change is made whole or not at all."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


__all__ = ["Agent"]
