"""Microsoft's Agent Framework: a chat middleware that keeps every model request inside its window.

    agent = Agent(client, tools=tools, middleware=[RefoldChatMiddleware("s1", workspace="work")])

Without ``session`` each session of the agent is one of refold's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from refold.formats import ModelReply
from refold.integrations import Adapter, needs
from refold.integrations.parts import At, Block, PartKind, PartsCodec, read_url
from refold.prepared import PreparedContext

with needs("RefoldChatMiddleware", "agent-framework-core 1.0"):
    from agent_framework import ChatMiddleware, ChatResponse, Content, FunctionTool, Message, ResponseStream


def _write_result(text: str) -> Block:
    return {name: getattr(Content.from_function_result("", result=text), name) for name in ("result", "items")}


_RESULT = At("", lambda part: part.get("items") or part.get("result"), _write_result)
_NAME = At("name", lambda part: None if part.get("informational_only") else part["name"])
_IMAGE = At("", lambda part: part.get("uri"), lambda url: Content.from_uri(url, media_type=read_url(url)[0]).to_dict())


class AgentFrameworkCodec(PartsCodec):
    """Converts the framework's messages to chat messages and back; ids, authors and properties are kept."""

    message, field = Message, "contents"
    dump, load = staticmethod(Content.to_dict), staticmethod(Content.from_dict)
    kinds = (
        PartKind("text", None, {"type": "text"}, text="text"),
        PartKind("thinking", None, {"type": "text_reasoning"}, thinking="text", signature="protected_data"),
        PartKind("call", None, {"type": "function_call"}, name=_NAME, id="call_id", arguments="arguments"),
        PartKind("result", None, {"type": "function_result"}, id="call_id", content=_RESULT),
        PartKind("image_url", url=_IMAGE, media_type="media_type"),
    )


class RefoldChatMiddleware(Adapter, ChatMiddleware):
    """Prepares every model request and stores every answer. ``session_for(context)`` has undo, recall, status."""

    codec, session_at = AgentFrameworkCodec(), "session.session_id"

    async def process(self, context: Any, call_next: Callable[[], Any]) -> None:
        """Send a request that fits and store the answer."""

        async def send(fit: PreparedContext) -> Any:
            context.messages = fit.messages
            await call_next()
            return context.result

        if (context.options or {}).get("conversation_id"):
            await call_next()  # The provider has the history; the request carries only what is new.
        elif context.stream:
            gather = ChatResponse.from_updates
            updates = self.session_for(context).stream_async(send, gather=gather, **_read_request(context))
            context.result = ResponseStream(updates, finalizer=gather)
        else:
            await self.session_for(context).call_async(send, **_read_request(context))


def make_tool(tool: Any) -> FunctionTool:
    """Return a context tool as a tool of the framework."""
    return FunctionTool(func=tool.function, name=tool.name, description=tool.description, input_model=dict(tool.schema))


def _read_request(context: Any) -> dict[str, Any]:
    given = context.options or {}
    known = {"messages": list(context.messages), "system": given.get("instructions") or "", "tools": given.get("tools")}
    model = given.get("model") or getattr(context.client, "model", None)
    return {**known, "model": model, "reply": lambda answer: ModelReply(list(answer.messages), answer.usage_details)}
