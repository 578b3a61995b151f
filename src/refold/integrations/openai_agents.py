"""OpenAI Agents SDK: a session that stores the conversation, and a run config that keeps requests inside the window.

session = RefoldSession("s1", workspace="work")
await Runner.run(agent, "Hello", session=session, run_config=session.run_config())
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from refold.errors import ConfigError
from refold.integrations import open_session
from refold.prepared import PreparedContext

try:
    from agents import FunctionTool, Model, ModelProvider, MultiProvider, RunConfig
    from agents.memory import SessionABC
    from agents.run import CallModelData, ModelInputData
except ImportError as error:
    raise ConfigError(f"RefoldSession needs openai-agents 0.3 or newer ({error})") from error


class RefoldSession(SessionABC):
    """A session in refold's ledger. ``refold`` has undo, recall, status and tools."""

    def __init__(self, session_id: str, **options: Any) -> None:
        self.session_id, self.session_settings = session_id, None
        self.refold = open_session(session_id, format="openai-responses", **options)
        self._asked: list[Any] = []
        self._sent: PreparedContext | None = None

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the stored items, all or the newest."""
        items = await asyncio.to_thread(self.refold.messages)
        return items if limit is None else items[max(0, len(items) - limit) :]

    async def add_items(self, items: list[Any]) -> None:
        """Store items; those that a request has already brought are not stored twice."""
        stored = await self.get_items(len(items))
        known = max((n for n in range(len(items) + 1) if stored[len(stored) - n :] == items[:n]), default=0)
        if items[known:]:
            await self.refold.append_async(items[known:])

    async def pop_item(self) -> Any:
        """Take the newest item off the session."""
        return await asyncio.to_thread(self.refold.pop)

    async def clear_session(self) -> None:
        """Empty the session; recall still finds what it held."""
        await asyncio.to_thread(self.refold.truncate, 0)

    def run_config(self, **options: Any) -> RunConfig:
        """Return the run config for this session; ``options`` are those of ``RunConfig``."""
        provider = RefoldProvider(options.pop("model_provider", None) or MultiProvider(), self)
        # Old versions refuse a list as input unless a callback says how it joins the history.
        options.setdefault("session_input_callback", lambda history, new: [*history, *new])
        return RunConfig(call_model_input_filter=self.fit, model_provider=provider, **options)

    async def fit(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the input of a model call inside the window."""
        self._asked = list(data.model_data.input)
        tools = [_write_tool(tool) for tool in data.agent.tools if isinstance(tool, FunctionTool)]
        model = data.agent.model if isinstance(data.agent.model, str) else getattr(data.agent.model, "model", None)
        system = data.model_data.instructions or ""
        prepared = await self.refold.prepare_async(self._asked, system, tools=tools or None, model=model)
        self._sent = prepared
        return ModelInputData(input=list(prepared.messages), instructions=data.model_data.instructions)

    async def refit(self, error: Exception) -> list[Any] | None:
        """Return a smaller input after the provider refused the last one as too long; None for other errors."""
        sent = self._sent
        smaller = await asyncio.to_thread(self.refold.shrink, error, sent) if sent is not None else None
        if sent is None or smaller is None:
            return None
        prepared = await self.refold.prepare_async(self._asked, sent.system, tools=sent.tools, **smaller)
        return list(prepared.messages)


class RefoldProvider(ModelProvider):
    """Looks models up in another provider, and watches their answers for usage and refusals."""

    def __init__(self, inner: ModelProvider, session: RefoldSession) -> None:
        self._inner, self._session = inner, session

    def get_model(self, model_name: str | None) -> Model:
        """Return the model of the other provider, watched."""
        return WatchedModel(self._inner.get_model(model_name), self._session)


class WatchedModel(Model):
    """A model whose usage is recorded, and whose refusal of a long request is answered once with a shorter one."""

    def __init__(self, inner: Model, session: RefoldSession) -> None:
        self._inner, self._session = inner, session

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **named: Any) -> Any:  # noqa: A002
        """Return the model's answer."""
        try:
            answer = await self._inner.get_response(system_instructions, input, *rest, **named)
        except Exception as error:
            smaller = await self._session.refit(error)
            if smaller is None:
                raise
            answer = await self._inner.get_response(system_instructions, smaller, *rest, **named)
        await self._observe(answer.usage)
        return answer

    async def stream_response(
        self,
        system_instructions: Any,
        input: Any,  # noqa: A002 - the SDK's name
        *rest: Any,
        **named: Any,
    ) -> AsyncIterator[Any]:
        """Yield the model's events."""
        given: Any = input
        for _ in range(2):
            is_begun = False
            try:
                async for event in self._inner.stream_response(system_instructions, given, *rest, **named):
                    is_begun = True
                    if event.type == "response.completed" and event.response.usage is not None:
                        await self._observe(event.response.usage)
                    yield event
                return
            except Exception as error:
                smaller = None if is_begun or given is not input else await self._session.refit(error)
                if smaller is None:
                    raise
                given = smaller

    async def _observe(self, usage: Any) -> None:
        details = usage.input_tokens_details
        cached = getattr(details, "cached_tokens", 0) or 0
        figures = {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "input_tokens_details": {"cached_tokens": cached},
        }
        await self._session.refold.commit_async([], figures)


def make_tool(tool: Any) -> FunctionTool:
    """Return a context tool as a tool of the SDK."""

    async def invoke(_: Any, arguments: str) -> str:
        return str(await tool.run(**tool.read_arguments(arguments)))

    return FunctionTool(tool.name, tool.description, dict(tool.schema), invoke, strict_json_schema=False)


def _write_tool(tool: FunctionTool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.params_json_schema,
    }
