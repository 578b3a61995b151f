"""The agent loop: prepare the context, ask the model, run its tools, until it makes no more calls.

The manager prepares every request, so it fits and is valid, and every message is stored before the next step. After
a cancellation or a crash the session is still valid for the provider: a call without a result gets one that says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from refold.agent import events
from refold.agent.ask import Asking, Run, settle
from refold.agent.context_tools import ContextTools
from refold.agent.models import find_endpoint, make_chat_model, speak
from refold.agent.tools import INTERRUPTED, AgentLimits, Approve, Runner, Tool, make_tools
from refold.errors import ConfigError
from refold.formats import parse_messages
from refold.formats.detect import make_format
from refold.formats.streamed import ToolCall
from refold.ledger.codec import load_json
from refold.llm.choose import name_conversation, store_place
from refold.llm.port import ChatModel, ChatReply, ToolResult, clean_text
from refold.manager import ContextCompressionManager

Callback = Callable[[events.AgentEvent], object]
TAIL_MAX = 200
LOST = "[interrupted: the program ended before this call had a result; it may have run. Check before calling it again.]"


class Agent:
    """A model, its tools and a session that never overflows the window.

    ``model`` is a ChatModel, or the name of one (``key`` and ``base_url`` say where). ``approve`` is asked before tools
    that need it; without it they are refused. ``on_compacted`` is called after every compression.
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
        """Call ``callback`` with every event of a kind; ``*`` is any. Its exceptions become warnings."""
        if kind != "*" and kind not in events.KINDS:
            raise ConfigError(f"there is no event {kind[:40]!r}; there are {', '.join(events.KINDS)}")
        self._callbacks.setdefault(kind, []).append(callback)

    @property
    def messages(self) -> list[object]:
        """The messages of the last request, in the provider's format."""
        prepared = self._asking.prepared
        return list(prepared.messages) if prepared is not None else []

    def write_tools(self) -> list[dict[str, Any]]:
        """Return the tool definitions in the provider's format; none once the server has rejected tools."""
        if getattr(self.model, "refuses_tools", False):
            return []
        return self.model.write_tools(list(self.tools.values()))

    async def run(self, prompt: str | None = None) -> AsyncIterator[events.AgentEvent]:
        """Run until the model is done, yielding events; a prompt of None continues the session.

        Closing the iterator or cancelling stops the run; the session can be continued.
        """
        if self._is_running:
            raise ConfigError(f"session {self.session_id!r} is already running in this agent; wait for it")
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[events.AgentEvent | None] = asyncio.Queue()

        def emit(event: events.AgentEvent) -> None:
            queue.put_nowait(event)
            self._call_back(event, queue)

        def listen(event: events.AgentEvent) -> None:
            with contextlib.suppress(RuntimeError):  # The event loop is closed.
                loop.call_soon_threadsafe(emit, event)

        self._is_running = True
        with events.listening(self.manager, self.session_id, listen):
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
                    # The session is made valid before the caller continues.
                    await asyncio.wait({task})
                    with contextlib.suppress(asyncio.CancelledError, Exception):
                        task.result()

    async def ask(self, prompt: str) -> str:
        answer = ""
        async for event in self.run(prompt):
            if isinstance(event, events.Finished):
                answer = event.text
        return answer

    def _call_back(self, event: events.AgentEvent, queue: asyncio.Queue[events.AgentEvent | None]) -> None:
        for callback in (*self._callbacks.get(event.kind, ()), *self._callbacks.get("*", ())):
            try:
                callback(event)
            except Exception as error:  # noqa: BLE001 - a listener must not break what it listens to
                queue.put_nowait(
                    events.Warned(f"a callback for {event.kind} failed: {type(error).__name__}: {error}"[:300])
                )

    async def _drive(self, prompt: str | None, run: Run) -> None:
        # Summaries go to this conversation's own model or to none.
        name_conversation(find_endpoint(self.model))
        try:
            await self._open(prompt, run)
            for run.step in range(1, self.limits.steps_max + 1):
                reply = await self._asking.ask(run)
                await self.append([reply.message])
                if not reply.calls:
                    run.emit(events.Finished(reply.text, reply.finish_reason, run.step))
                    return
                results = await self._run_calls(reply, run)
                if self._is_stuck(results, run):
                    why = f"the same calls had the same results {run.same} times in a row"
                    run.emit(events.Warned(f"stopped: {why}"))
                    run.emit(events.Finished(reply.text, "stuck", run.step))
                    return
            run.emit(events.Finished("", "steps", run.step))
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
                    run.emit(
                        events.Warned(f"{lost} calls had no result when the last run ended; the model is informed")
                    )
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
        """Append messages to the session; a cancellation waits for the write."""
        await settle(self.manager.append, self.session_id, messages, format=self.model.wire)

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
        made = [(result.call.name, result.call.arguments, result.text) for result in results]
        run.same = run.same + 1 if made == run.last else 1
        run.last = made
        return run.same >= self.limits.repeats_max


def close_pending(manager: ContextCompressionManager, session_id: str, model: ChatModel) -> int:
    """Append a result for every unanswered call at the session's end; return how many there were."""
    path = manager.ledger.read_path(session_id)
    stored = manager.ledger.read_messages(session_id, path.ids[-TAIL_MAX:])
    calls = find_pending([load_json(one.raw) for one in stored if one.raw], model.wire)
    if calls:
        results = [ToolResult(call, LOST, True) for call in calls]
        manager.append(session_id, model.write_results(results), format=model.wire)
    return len(calls)


def find_pending(messages: Sequence[object], wire: str) -> list[ToolCall]:
    """Return the unanswered calls of the last step; empty if anything but results follows them."""
    answered: set[str] = set()
    for message in reversed(parse_messages(make_format(wire), messages)):
        if message.role == "assistant":
            calls = (part for part in message.parts if part.kind == "call" and part.call_id not in answered)
            return [ToolCall(part.call_id or "", part.name, "") for part in calls]
        results = {part.call_id for part in message.parts if part.kind == "result"}
        if not results:
            return []
        answered |= results
    return []
