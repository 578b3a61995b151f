"""OpenAI Agents SDK: a session that stores the conversation, and a run config that keeps requests inside the window.

session = RefoldSession("s1", workspace="work")
await Runner.run(agent, "Hello", session=session, run_config=session.run_config())
"""

from __future__ import annotations

from typing import Any

from refold.errors import ConfigError
from refold.integrations import find_local, needs
from refold.integrations.agents_models import AgentsAdapter, RefoldProvider, fit_run

with needs("RefoldSession", "openai-agents 0.3"):
    from agents import FunctionTool, RunConfig
    from agents.memory import SessionABC


class RefoldSession(SessionABC):
    """A session in refold's ledger. ``refold`` has undo, recall, status and tools."""

    def __init__(self, session_id: str, **options: Any) -> None:
        self.session_id, self.session_settings = session_id, None
        self.adapter = AgentsAdapter(session_id, **options)
        self.refold, self._items = self.adapter.refold, self.adapter.refold.root

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the stored items, all or the newest; raise ConfigError in a run that does not fit its requests."""
        running = find_local("run_config", "agents.")
        if running and not isinstance(getattr(running[0], "model_provider", None), RefoldProvider):
            raise ConfigError("this run would send everything: Runner.run(…, run_config=session.run_config())")
        return await self._items.messages_async(limit)

    async def add_items(self, items: list[Any]) -> None:
        """Store items; those that a request has already brought are not stored twice."""
        await self._items.append_async(items, may_overlap=True)

    async def pop_item(self) -> Any:
        """Take the newest item off the session."""
        return await self._items.pop_async()

    async def clear_session(self) -> None:
        """Empty the session; recall still finds what it held."""
        await self._items.truncate_async(0)

    def run_config(self, **options: Any) -> RunConfig:
        """Return the run config for this session; ``options`` are those of ``RunConfig``."""
        # What another filter leaves of the history has a session of its own: this one keeps every item.
        own, adapter = options.get("call_model_input_filter"), self.adapter
        adapter = adapter if own is None else adapter.renamed(f"{self.session_id}/filtered")
        # Old versions refuse a list as input unless a callback says how it joins the history.
        joined = {"session_input_callback": lambda history, new: [*history, *new]}
        return RunConfig(**{**joined, **fit_run(adapter, options)})


def make_tool(tool: Any) -> FunctionTool:
    """Return a context tool as a tool of the SDK."""

    async def invoke(_: Any, arguments: str) -> str:
        return str(await tool.run(**tool.read_arguments(arguments)))

    return FunctionTool(tool.name, tool.description, dict(tool.schema), invoke, strict_json_schema=False)
