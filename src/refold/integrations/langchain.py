"""LangChain, LangGraph and deepagents: a middleware that keeps every model call inside its window.

    agent = create_agent(model, tools, middleware=[RefoldMiddleware(session="s1", workspace="work")])

Without ``session`` each thread is a session, and each sub-agent a session of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from refold.formats import MessageSource, ModelReply
from refold.integrations import MiddlewareAdapter, needs

with needs("RefoldMiddleware", "langchain 1.0"):
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import AIMessage, BaseMessage
    from langchain_core.messages.utils import convert_to_messages, convert_to_openai_messages
    from langchain_core.tools import StructuredTool
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.config import get_config


class LangChainCodec:
    """Converts LangChain messages to OpenAI messages and back; ids, artifacts and metadata are kept."""

    def to_raw(self, message: BaseMessage) -> list[dict[str, Any]]:
        """Return a message as OpenAI messages."""
        return list(convert_to_openai_messages([message]))

    def from_raw(self, raw: dict[str, Any], source: MessageSource) -> BaseMessage:
        """Return the message for a raw one: a changed copy of its source, or a new message for a fold."""
        made = convert_to_messages([raw])[0]
        origin: Any = source.messages[0] if source.messages else None
        if source.kind == "fold" or type(origin) is not type(made):
            return made
        calls = {"tool_calls": made.tool_calls} if isinstance(made, AIMessage) else {}
        return origin.model_copy(update={"content": made.content, **calls})


class RefoldMiddleware(MiddlewareAdapter, AgentMiddleware):
    """Prepares every model call and stores every answer. ``refold`` is the session: undo, recall, status."""

    codec = LangChainCodec()

    @property
    def tools(self) -> list[StructuredTool]:
        """The context tools, if they are wanted."""
        return self.list_tools()

    def find_name(self) -> str:
        """Return the running agent's thread, and its namespace if it is a sub-agent."""
        found: Mapping[str, Any] = get_config().get("configurable") or {}
        # The last part of a namespace is the node that runs; what is before it is the agent's own.
        parent = str(found.get("checkpoint_ns") or "").rpartition("|")[0]
        suffix = f"-{hashlib.blake2b(parent.encode(), digest_size=6).hexdigest()}" if parent else ""
        return f"{found['thread_id']}{suffix}" if found.get("thread_id") else ""

    def read_request(self, request: Any) -> dict[str, Any]:
        tools = [tool if isinstance(tool, dict) else convert_to_openai_tool(tool) for tool in request.tools]
        model = getattr(request.model, "model_name", None) or getattr(request.model, "model", None)
        return {"system": request.system_prompt, "tools": tools, "model": model}

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Send a request that fits and store the answer."""
        return self.refold.call(**self.ask(request, handler), reply=_read_answer)

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """The same as ``wrap_model_call``, for async agents."""
        return await self.refold.call_async(**self.ask(request, handler), reply=_read_answer)


def make_tool(tool: Any) -> StructuredTool:
    """Return a context tool as a LangChain tool."""
    known = {"name": tool.name, "description": tool.description, "args_schema": tool.arguments}
    return StructuredTool(**known, func=tool.run_now, coroutine=tool.run)


def _read_answer(response: Any) -> ModelReply:
    found = [one for one in getattr(response, "result", [response]) if isinstance(one, AIMessage)]
    return ModelReply(found, next((one.usage_metadata for one in found if one.usage_metadata), None))
