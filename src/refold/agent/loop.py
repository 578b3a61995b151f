"""The loop: prepare, ask the model, run its tools, observe what it cost, until it has no more calls.

Every request is prepared by the manager, so it fits and is valid; whatever is said is stored before the next step.
Cancelled or killed at any moment, the session stays one that a provider accepts. No provider's format is known here.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from refold.agent import events as told
from refold.agent.asking import Asking, Run, settle
from refold.agent.choosing import find_endpoint, make_chat_model
from refold.agent.context_tools import ContextTools
from refold.agent.hub import find_hub
from refold.agent.limits import AgentLimits
from refold.agent.pending import close_pending
from refold.agent.running import INTERRUPTED, Approve, Runner
from refold.agent.tools import Tool, make_tools
from refold.agent.translating import speak
from refold.agent.wire import ChatModel, ChatReply, ToolResult, clean_text
from refold.errors import ConfigError
from refold.llm.conversation_model import name_conversation, store_place
from refold.manager import ContextCompressionManager

Callback = Callable[[told.AgentEvent], object]


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
        self._asking = Asking(self)
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
        prepared = self._asking.prepared
        return list(prepared.messages) if prepared is not None else []

    def write_tools(self) -> list[dict[str, Any]]:
        """Return the tools as the model is offered them, in its provider's format."""
        return self._asking.write_tools()

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
            task = asyncio.ensure_future(self._drive(prompt, Run(emit, waiting=queue.qsize)))
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

    async def _drive(self, prompt: str | None, run: Run) -> None:
        # For all that this run begins: summaries are written by the model that is talked to, or by nobody's.
        name_conversation(find_endpoint(self.model))
        try:
            await self._open(prompt, run)
            for run.step in range(1, self.limits.steps_max + 1):
                reply = await self._asking.ask(run)
                await self.append([reply.message])
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

    async def _open(self, prompt: str | None, run: Run) -> None:
        if not self._is_checked:
            row = self.manager.ledger.read_session(self.session_id)
            if row is not None and row.wire and row.messages:
                self.model = speak(self.model, row.wire, self.session_id)
            if row is not None:
                lost = await settle(close_pending, self.manager, self.session_id, self.model)
                if lost:
                    run.emit(told.Warned(f"{lost} calls had no result when the last run ended; the model is told"))
            self._is_checked = True
        if prompt is not None:
            text = clean_text(prompt)
            if not text.strip():
                raise ConfigError("the prompt is empty; say what is to be done")
            await self.append([self.model.write_user(text)])
            await settle(store_place, self.manager.ledger, self.session_id, find_endpoint(self.model))
            await settle(self._take_window)

    def _take_window(self) -> None:
        """Use the window that the model itself reports, unless the settings name one or this session has one."""
        window = getattr(self.model, "window", None)
        if not isinstance(window, int) or self.manager.config.window is not None:
            return
        if self.manager.find_window(self.session_id, self.model.name) is None:
            self.manager.set_window(self.session_id, self.model.name, window)

    async def append(self, messages: Sequence[dict[str, Any]]) -> None:
        """Store messages at the session's end, whole also when we are cancelled."""
        await settle(self._append_now, messages)

    def _append_now(self, messages: Sequence[dict[str, Any]]) -> None:
        self.manager.append(self.session_id, messages, format=self.model.wire)

    async def _run_calls(self, reply: ChatReply, run: Run) -> list[ToolResult]:
        done: dict[str, ToolResult] = {}
        try:
            runner = Runner(self.tools, self.limits, self.approve, await settle(self.context.find_language))
            results = await runner.run_calls(reply.calls, run.emit, done)
        except asyncio.CancelledError:
            left = [done.get(call.id) or ToolResult(call, INTERRUPTED, True) for call in reply.calls]
            await self.append(self.model.write_results(left))
            raise
        await self.append(self.model.write_results(results))
        return results

    def _is_stuck(self, results: Sequence[ToolResult], run: Run) -> bool:
        made = [(one.call.name, one.call.arguments, one.text) for one in results]
        run.same = run.same + 1 if made == run.last else 1
        run.last = made
        return run.same >= self.limits.repeats_max


__all__ = ["Agent"]
