"""One request to the model: prepare a context that fits, stream the answer, record its usage, recover from errors.

Only transient errors are retried. After an overflow the model's window is smaller than announced: the smaller value is
used from then on, also when the session is reopened. The context is compressed without a model, and the next request
differs from the rejected one. An answer that was cut off is requested again if that led to a compression.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import orjson

from refold.agent import events
from refold.budget import Budget
from refold.errors import ContextOverflow, ProviderError, Sentence, Unavailable, find_sentence
from refold.llm.errors import choose_pause
from refold.llm.port import ChatReply, ChatRequest
from refold.manager.usage import read_usage
from refold.prepared import PreparedContext

if TYPE_CHECKING:
    from refold.agent.loop import Agent

Result = TypeVar("Result")
CUT_OFF = "[interrupted by the user before the answer was complete]"
OUTPUT_TOKENS_MIN = 256
# The stream pauses while this many events wait for the reader.
EVENTS_WAITING_MAX = 1_000


@dataclass
class Run:
    """State of one run."""

    emit: Callable[[events.AgentEvent], None]
    step: int = 0
    same: int = 0
    last: object = None
    waiting: Callable[[], int] = lambda: 0


class Asking:
    """Sends an agent's requests."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.prepared: PreparedContext | None = None

    async def _prepare(self) -> PreparedContext:
        self.prepared = await self.agent.manager.prepare_context(
            self.agent.session_id,
            None,
            self.agent.system,
            tools=self.agent.write_tools() or None,
            model=self.agent.model.name,
            format=self.agent.model.wire,
        )
        return self.prepared

    async def ask(self, run: Run) -> ChatReply:
        """Return the model's next answer; compress and retry if the window was the problem."""
        prepared = await self._prepare()
        budget = _budget_of(prepared)
        run.emit(events.StepStarted(run.step, prepared.total_tokens, budget.hard, budget.soft, budget.window))
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
                fresh = await self._prepare()  # The manager knows whether a compression can help.
                if fresh.report is not None and fresh.report.stages:
                    run.emit(events.Retrying(Sentence("the answer was cut off at its length limit")))
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
        """Send a request, again after transient errors."""
        limits = self.agent.limits
        for number in range(1, limits.attempts_max + 1):
            try:
                return await self._stream(request, run)
            except ProviderError as error:
                pause = choose_pause(error, number, limits.delay_s, limits.delay_max_s)
                if pause is None or number == limits.attempts_max or pause > limits.delay_max_s * 3:
                    raise
                run.emit(events.Retrying(find_sentence(error), pause))
                await asyncio.sleep(pause)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _stream(self, request: ChatRequest, run: Run) -> ChatReply:
        answer, pieces = self.agent.model.stream(request), list[str]()
        try:
            async for item in answer:
                if isinstance(item, ChatReply):
                    return item
                if item.kind == "thinking":
                    run.emit(events.ThinkingDelta(item.text))
                else:
                    pieces.append(item.text)
                    run.emit(events.TextDelta(item.text))
                while run.waiting() > EVENTS_WAITING_MAX:
                    await asyncio.sleep(0.01)
            raise Unavailable(f"{self.agent.model.name} closed the stream without an answer; try again")
        except asyncio.CancelledError:
            said = "".join(pieces)
            await self.agent.append(
                [self.agent.model.write_answer(f"{said}\n\n{CUT_OFF}" if said.strip() else CUT_OFF)]
            )
            raise
        finally:
            if inspect.isasyncgen(answer):
                await answer.aclose()

    async def _recover(self, error: ContextOverflow, prepared: PreparedContext, run: Run) -> PreparedContext:
        """Return a smaller context than the rejected one; raise ContextOverflow if nothing is left to compress."""
        refused = digest_messages(prepared.messages)
        lowered = await settle(self.agent.manager.refuse, self.agent.session_id, error)
        if lowered is not None:
            run.emit(events.WindowLowered(lowered.model, lowered.before, lowered.after, lowered.reason))
        why = Sentence("the provider rejected the request as too long; compressing and retrying")
        run.emit(events.Retrying(why))
        fresh = await self._prepare()
        if digest_messages(fresh.messages) == refused:
            raise ContextOverflow(
                f"{error}; nothing is left to compress, and the rejected request is not sent again",
                tokens_max=error.tokens_max,
            )
        return fresh

    async def _observe(self, reply: ChatReply, run: Run) -> None:
        figures = read_usage(dict(reply.usage)) if reply.usage else {}
        if figures.get("input_tokens"):
            run.emit(
                events.UsageReported(
                    figures["input_tokens"],
                    figures["output_tokens"],
                    figures["cache_read_tokens"],
                    self.agent.model.name,
                )
            )
        elif reply.finish_reason != "length":
            return
        manager, usage = self.agent.manager, dict(reply.usage)
        await settle(manager.observe_usage, self.agent.session_id, usage, finish_reason=reply.finish_reason)


def _budget_of(prepared: PreparedContext) -> Budget:
    assert prepared.report is not None, "the manager reports on every context it prepares"
    return prepared.report.budget


async def settle(work: Callable[..., Result], *arguments: object, **named: object) -> Result:
    """Run a write in a thread and wait for it even if cancelled, so that it is never half done."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *arguments, **named))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def digest_messages(messages: Sequence[object]) -> bytes:
    """Return a digest that identifies a request."""
    return hashlib.blake2b(orjson.dumps(messages), digest_size=16).digest()
