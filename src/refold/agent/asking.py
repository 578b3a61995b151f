"""Asking the model once: prepare a context that fits, stream the answer, observe what it cost; and what may go wrong.

Retries are for what time mends. An overflow is answered with a compression that asks no model, and with a request that
differs from the refused one. An answer cut off because the window was full is asked for again (S4.6).
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from refold.agent import events as told
from refold.agent.overflow import Lowered, digest_messages, judge_window, step_down
from refold.agent.wire import ChatReply, ChatRequest, Delta
from refold.budget import Budget
from refold.errors import ContextOverflow, RateLimited, Unavailable
from refold.manager.usage import read_usage
from refold.prepared import PreparedContext

if TYPE_CHECKING:
    from refold.agent.loop import Agent

Result = TypeVar("Result")
CUT_OFF = "[interrupted by the user before the answer was complete]"
OUTPUT_TOKENS_MIN = 256
# So many events may wait for a reader before the model's stream is read on.
EVENTS_WAITING_MAX = 1_000


@dataclass
class Run:
    """What one run knows of itself."""

    emit: Callable[[told.AgentEvent], None]
    step: int = 0
    pieces: list[str] = field(default_factory=list)
    same: int = 0
    last: object = None
    waiting: Callable[[], int] = lambda: 0


class Asking:
    """Asks an agent's model on behalf of its session."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.prepared: PreparedContext | None = None
        self._written: list[dict[str, Any]] = []
        self._written_in = ""

    async def _prepare(self) -> PreparedContext:
        tools = self.write_tools()
        self.prepared = await self.agent.manager.prepare_context(
            self.agent.session_id,
            None,
            self.agent.system,
            tools=tools or None,
            model=self.agent.model.name,
            format=self.agent.model.wire,
        )
        return self.prepared

    def write_tools(self) -> list[dict[str, Any]]:
        """Return the tools as they are offered; written once, so that every request has the same."""
        if self._written_in != self.agent.model.wire:
            self._written = self.agent.model.write_tools(list(self.agent.tools.values()))
            self._written_in = self.agent.model.wire
        return [] if getattr(self.agent.model, "refuses_tools", False) else self._written

    async def ask(self, run: Run) -> ChatReply:
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
                if attempts > self.agent.manager.config.max_compaction_attempts:
                    raise ContextOverflow(
                        f"{error} ({attempts - 1} compressions did not help)", tokens_max=error.tokens_max
                    ) from None
                prepared = await self._recover(error, prepared, run)
                continue
            await self._observe(reply, run)
            if reply.finish_reason == "length" and attempts < self.agent.manager.config.max_compaction_attempts:
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
        output = self.agent.limits.output_tokens
        if output is None and getattr(self.agent.model, "limits_output", False):
            output = max(OUTPUT_TOKENS_MIN, reserve)
        return ChatRequest(
            prepared.messages,
            self.agent.system,
            prepared.tools if isinstance(prepared.tools, list) else [],
            output,
            self.agent.limits.answer_chars_max,
            self.agent.limits.answer_stall_s,
        )

    async def _try(self, request: ChatRequest, run: Run) -> ChatReply:
        """Ask, again if that may help; time mends what is Unavailable, never what is wrong."""
        for attempt in range(1, self.agent.limits.attempts_max + 1):
            run.pieces = []
            try:
                return await self._stream(request, run)
            except (RateLimited, Unavailable) as error:
                if attempt == self.agent.limits.attempts_max:
                    raise
                pause = min(
                    self.agent.limits.delay_max_s, self.agent.limits.delay_s * 2.0 ** (attempt - 1)
                ) * random.uniform(1, 1.25)
                asked = getattr(error, "retry_after_s", None) or 0.0
                if asked > self.agent.limits.delay_max_s * 3:
                    raise
                run.emit(told.Retrying(str(error), max(pause, asked)))
                await asyncio.sleep(max(pause, asked))
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _stream(self, request: ChatRequest, run: Run) -> ChatReply:
        answer = self.agent.model.stream(request)
        try:
            async for item in answer:
                if isinstance(item, ChatReply):
                    return item
                self._take_piece(item, run)
                while run.waiting() > EVENTS_WAITING_MAX:
                    await asyncio.sleep(0.01)
            raise Unavailable(f"{self.agent.model.name} ended its answer without one; try again")
        except asyncio.CancelledError:
            said = "".join(run.pieces)
            await self.agent.append(
                [self.agent.model.write_answer(f"{said}\n\n{CUT_OFF}" if said.strip() else CUT_OFF)]
            )
            raise
        finally:
            if inspect.isasyncgen(answer):
                await answer.aclose()

    def _take_piece(self, item: Delta, run: Run) -> None:
        if item.kind == "thinking":
            run.emit(told.ThinkingDelta(item.text))
        else:
            run.pieces.append(item.text)
            run.emit(told.TextDelta(item.text))

    async def _recover(self, error: ContextOverflow, prepared: PreparedContext, run: Run) -> PreparedContext:
        """Return a context that is smaller than the refused one; raise if there is none."""
        refused = digest_messages(prepared.messages)
        budget = _budget_of(prepared)
        lowered = judge_window(error, prepared.total_tokens, budget)
        if lowered is not None:
            await self._lower(lowered, run)
        run.emit(told.Retrying("the provider says that the request is too long; it is compressed and sent again"))
        fresh = await self._prepare_refused()
        if digest_messages(fresh.messages) == refused:
            await self._lower(step_down(prepared.total_tokens, budget), run)
            fresh = await self._prepare_refused()
        if digest_messages(fresh.messages) == refused:
            raise ContextOverflow(
                f"{error}; nothing is left to compress, and what was refused is not sent again",
                tokens_max=error.tokens_max,
            )
        return fresh

    async def _prepare_refused(self) -> PreparedContext:
        """Prepare again after a refusal: the manager compresses, and asks no model for it."""
        await settle(self._observe_overflow)
        return await self._prepare()

    async def _lower(self, lowered: Lowered, run: Run) -> None:
        agent = self.agent
        await settle(agent.manager.set_window, agent.session_id, agent.model.name, lowered.after)
        run.emit(told.WindowLowered(self.agent.model.name, lowered.before, lowered.after, lowered.reason))

    def _observe_overflow(self) -> None:
        self.agent.manager.observe_usage(self.agent.session_id, 0, is_overflow=True)

    async def _observe(self, reply: ChatReply, run: Run) -> None:
        figures = read_usage(dict(reply.usage)) if reply.usage else {}
        if figures.get("input_tokens"):
            run.emit(
                told.UsageReported(
                    figures["input_tokens"],
                    figures["output_tokens"],
                    figures["cache_read_tokens"],
                    self.agent.model.name,
                )
            )
        elif reply.finish_reason != "length":
            return
        await settle(self._observe_now, dict(reply.usage), reply.finish_reason)

    def _observe_now(self, usage: dict[str, Any], reason: str) -> None:
        self.agent.manager.observe_usage(self.agent.session_id, usage, finish_reason=reason)


def _budget_of(prepared: PreparedContext) -> Budget:
    assert prepared.report is not None, "the manager reports on every context it prepares"
    return prepared.report.budget


async def settle(work: Callable[..., Result], *arguments: object) -> Result:
    """Run what writes in a thread, to its end also when we are cancelled: a change is made whole or not at all."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
