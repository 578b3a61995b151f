"""LangChain and LangGraph: a middleware that keeps every model call of an agent inside its window.

    agent = create_agent(model, tools, middleware=[RefoldMiddleware(session="s1", workspace="work")])

Without ``session`` each thread is a session, and each sub-agent a child of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from refold.formats import MessageSource, ModelReply
from refold.integrations import Adapter, MiddlewareAdapter, needs

with needs("RefoldMiddleware", "langchain 1.0"):
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import AIMessage, BaseMessage
    from langchain_core.messages.utils import convert_to_messages, convert_to_openai_messages
    from langchain_core.runnables.config import ensure_config
    from langchain_core.tools import StructuredTool
    from langchain_core.utils.function_calling import convert_to_openai_tool


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


class ThreadNames(Adapter):
    """Names a session after the thread of the run."""

    def find_name(self, *_: Any) -> str:
        """Return the running agent's thread; what a sub-agent sends is recognised by its messages."""
        found = (ensure_config().get("configurable") or {}).get("thread_id")
        return "" if found is None else str(found)


class RefoldMiddleware(ThreadNames, MiddlewareAdapter, AgentMiddleware):
    """Prepares every model call and stores every answer. ``refold`` is the session: undo, recall, status."""

    codec = LangChainCodec()

    @property
    def tools(self) -> list[StructuredTool]:
        """The context tools, if they are wanted."""
        return self.list_tools()

    def read_request(self, request: Any) -> dict[str, Any]:
        tools = [tool if isinstance(tool, dict) else convert_to_openai_tool(tool) for tool in request.tools]
        return {"system": request.system_prompt, "tools": tools, "model": name_model(request.model)}

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Send a request that fits and store the answer."""
        return self.refold.call(**self.ask(request, handler), reply=read_answer)

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """The same as ``wrap_model_call``, for async agents."""
        return await self.refold.call_async(**self.ask(request, handler), reply=read_answer)


def make_tool(tool: Any) -> StructuredTool:
    """Return a context tool as a LangChain tool."""
    known = {"name": tool.name, "description": tool.description, "args_schema": tool.arguments}
    return StructuredTool(**known, func=tool.run_now, coroutine=tool.run)


def read_answer(response: Any) -> ModelReply:
    """Return what to store of an answer: its messages of the model, and its usage."""
    found = [one for one in getattr(response, "result", [response]) if isinstance(one, AIMessage)]
    return ModelReply(found, next((one.usage_metadata for one in found if one.usage_metadata), None))


def name_model(model: Any) -> Any:
    """Return the name of the model behind a chat model."""
    return getattr(model, "model_name", None) or getattr(model, "model", None)
