"""OpenAI Agents SDK: a session that stores the conversation, and a run config that keeps requests inside the window.

session = RefoldSession("s1", workspace="work")
await Runner.run(agent, "Hello", session=session, run_config=session.run_config())
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from refold.errors import ConfigError
from refold.formats import ModelReply
from refold.integrations import open_session
from refold.manager.managed import ManagedSession

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
        provider = RefoldProvider(options.pop("model_provider", None) or MultiProvider(), self.refold)
        # Old versions refuse a list as input unless a callback says how it joins the history.
        options.setdefault("session_input_callback", lambda history, new: [*history, *new])
        return RunConfig(call_model_input_filter=self.fit, model_provider=provider, **options)

    async def fit(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the input of a model that no provider looked up inside the window; others fit it themselves."""
        asked, model = data.model_data, data.agent.model
        if not isinstance(model, Model):
            return asked
        given = {"tools": _write_tools(data.agent.tools), "model": getattr(model, "model", None)}
        prepared = await self.refold.prepare_async(list(asked.input), asked.instructions or "", **given)
        return ModelInputData(input=prepared.messages, instructions=asked.instructions)


class RefoldProvider(ModelProvider):
    """Looks models up in another provider; their requests fit their window."""

    def __init__(self, inner: ModelProvider, session: ManagedSession) -> None:
        self._inner, self._session = inner, session

    def get_model(self, model_name: str | None) -> Model:
        """Return the model of the other provider, inside the window."""
        return FittedModel(self._inner.get_model(model_name), self._session)


class FittedModel(Model):
    """A model whose requests fit; one that is refused as too long is answered once with a shorter one."""

    def __init__(self, inner: Model, session: ManagedSession) -> None:
        self._inner, self._session = inner, session

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **named: Any) -> Any:  # noqa: A002
        """Return the model's answer."""
        send = self._inner.get_response
        return await self._session.call_async(
            lambda fit: send(system_instructions, fit.messages, *rest, **named),
            **self._read(system_instructions, input, rest, named),
        )

    def stream_response(self, system_instructions: Any, input: Any, *rest: Any, **named: Any) -> Any:  # noqa: A002
        """Yield the model's events."""
        send = self._inner.stream_response
        return self._session.stream_async(
            lambda fit: send(system_instructions, fit.messages, *rest, **named),
            **self._read(system_instructions, input, rest, named),
        )

    def _read(self, system: Any, messages: Any, rest: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        tools = rest[1] if rest else named["tools"]  # They follow the model's settings.
        known = {"system": system or "", "tools": _write_tools(tools), "model": getattr(self._inner, "model", None)}
        return {"messages": messages, "reply": _read_usage, **known}


def _read_usage(answer: Any) -> ModelReply | None:
    """Return the usage of an answer or of its last event; the items are stored by the session."""
    usage = getattr(getattr(answer, "response", answer), "usage", None)
    return ModelReply([], usage) if usage else None


def make_tool(tool: Any) -> FunctionTool:
    """Return a context tool as a tool of the SDK."""

    async def invoke(_: Any, arguments: str) -> str:
        return str(await tool.run(**tool.read_arguments(arguments)))

    return FunctionTool(tool.name, tool.description, dict(tool.schema), invoke, strict_json_schema=False)


def _write_tools(tools: Iterable[Any]) -> list[dict[str, Any]]:
    known = [tool for tool in tools if isinstance(tool, FunctionTool)]
    return [{"type": "function", "name": one.name, "description": one.description, "parameters": one.params_json_schema}
            for one in known]  # fmt: skip
