"""OpenAI Agents SDK: a session that stores the conversation, and a run config that keeps requests inside the window.

session = RefoldSession("s1", workspace="work")
await Runner.run(agent, "Hello", session=session, run_config=session.run_config())
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from refold.formats import ModelReply
from refold.integrations import MethodAdapter, needs

with needs("RefoldSession", "openai-agents 0.3"):
    from agents import FunctionTool, Model, ModelProvider, MultiProvider, RunConfig
    from agents.memory import SessionABC
    from agents.run import CallModelData, ModelInputData


class AgentsAdapter(MethodAdapter):
    """Fits the requests of a model."""

    format, argument = "openai-responses", "input"
    methods: ClassVar = {"get_response": "call_async", "stream_response": "stream_async"}

    def read_request(self, owner: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        return {**super().read_request(owner, options), "system": options["system_instructions"] or ""}

    def watch(self, owner: Any, options: Mapping[str, Any]) -> Callable[[Any], ModelReply | None]:  # noqa: ARG002
        """Return a reader of usage, which an answer or its last event has; the session gets the items."""
        return lambda one: ModelReply([], getattr(getattr(one, "response", one), "usage", None))


class RefoldSession(SessionABC):
    """A session in refold's ledger. ``refold`` has undo, recall, status and tools."""

    def __init__(self, session_id: str, **options: Any) -> None:
        self.session_id, self.session_settings = session_id, None
        self.adapter = AgentsAdapter(session_id, **options)
        self.refold = self.adapter.refold

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the stored items, all or the newest."""
        return await self.refold.messages_async(limit)

    async def add_items(self, items: list[Any]) -> None:
        """Store items; those that a request has already brought are not stored twice."""
        await self.refold.append_async(items, may_overlap=True)

    async def pop_item(self) -> Any:
        """Take the newest item off the session."""
        return await self.refold.pop_async()

    async def clear_session(self) -> None:
        """Empty the session; recall still finds what it held."""
        await self.refold.truncate_async(0)

    def run_config(self, **options: Any) -> RunConfig:
        """Return the run config for this session; ``options`` are those of ``RunConfig``."""
        provider = RefoldProvider(options.pop("model_provider", None) or MultiProvider(), self.adapter)
        # Old versions refuse a list as input unless a callback says how it joins the history.
        options.setdefault("session_input_callback", lambda history, new: [*history, *new])
        return RunConfig(call_model_input_filter=self.fit, model_provider=provider, **options)

    async def fit(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the input of a model that no provider looked up inside the window; others fit it themselves."""
        asked, agent = data.model_data, data.agent
        if isinstance(agent.model, Model):
            beside = {"tools": agent.tools, "model": getattr(agent.model, "model", None)}
            asked.input = (await self.refold.prepare_async(asked.input, asked.instructions or "", **beside)).messages
        return asked


class RefoldProvider(ModelProvider):
    """Looks models up in another provider; their requests fit their window."""

    def __init__(self, inner: ModelProvider, adapter: AgentsAdapter) -> None:
        self._inner, self._adapter = inner, adapter

    def get_model(self, model_name: str | None) -> Model:
        """Return the model of the other provider, inside the window."""
        return self._adapter.fit_methods(self._inner.get_model(model_name))


def make_tool(tool: Any) -> FunctionTool:
    """Return a context tool as a tool of the SDK."""

    async def invoke(_: Any, arguments: str) -> str:
        return str(await tool.run(**tool.read_arguments(arguments)))

    return FunctionTool(tool.name, tool.description, dict(tool.schema), invoke, strict_json_schema=False)
