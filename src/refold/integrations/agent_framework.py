"""Microsoft's Agent Framework: a chat middleware that keeps every model request inside its window.

    agent = Agent(client, tools=tools, middleware=[RefoldChatMiddleware("s1", workspace="work")])

Without ``session`` each session of the agent is one of refold's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from refold.errors import ConfigError
from refold.formats import ModelReply
from refold.integrations import Adapter
from refold.integrations.parts import At, Block, PartKind, PartsCodec, read_url
from refold.prepared import PreparedContext

try:
    from agent_framework import ChatMiddleware, ChatResponse, Content, FunctionTool, Message, ResponseStream
except ImportError as error:
    raise ConfigError(f"RefoldChatMiddleware needs agent-framework-core 1.0 or newer ({error})") from error


def _read_result(part: Block) -> Any:
    """Return a tool's result as text, or as blocks if it carries more than text."""
    items = part.get("items") or ()
    if all(item["type"] == "text" for item in items):
        return "\n".join(item["text"] or "" for item in items) if items else str(part.get("result") or "")
    return [
        {"type": "text", "text": item["text"]} if item["type"] == "text" else {"type": "part", "part": item}
        for item in items
    ]


def _write_result(text: str) -> Block:
    return {name: getattr(Content.from_function_result("", result=text), name) for name in ("result", "items")}


def _read_image(part: Block) -> str | None:
    return part["uri"] if (part.get("media_type") or "").startswith("image/") else None


def _write_image(url: str) -> Any:
    return Content.from_uri(url, media_type=read_url(url)[0] or "image/png").to_dict()


_NAME = At("name", lambda part: None if part.get("informational_only") else part["name"])


class AgentFrameworkCodec(PartsCodec):
    """Converts the framework's messages to chat messages and back; ids, authors and properties are kept."""

    message, field = Message, "contents"
    dump, load = staticmethod(Content.to_dict), staticmethod(Content.from_dict)
    kinds = (
        PartKind("text", None, {"type": "text"}, text="text"),
        PartKind("thinking", None, {"type": "text_reasoning"}, thinking="text", signature="protected_data"),
        PartKind("call", None, {"type": "function_call"}, name=_NAME, id="call_id", arguments="arguments"),
        PartKind(
            "result", None, {"type": "function_result"}, id="call_id", content=At("", _read_result, _write_result)
        ),
        PartKind("image_url", url=At("", _read_image, _write_image)),
    )


class RefoldChatMiddleware(Adapter, ChatMiddleware):
    """Prepares every model request and stores every answer. ``session_for(context)`` has undo, recall, status."""

    codec = AgentFrameworkCodec()

    def find_name(self, context: Any) -> str | None:
        """Return the id of the session that the agent runs with."""
        return getattr(getattr(context, "session", None), "session_id", None)

    @property
    def tools(self) -> list[FunctionTool]:
        """The context tools, for the agent's list of tools; they need a session with a name."""
        return self.refold.tools("agent_framework")

    async def process(self, context: Any, call_next: Callable[[], Any]) -> None:
        """Send a request that fits and store the answer."""
        options = context.options or {}
        if options.get("conversation_id"):
            await call_next()  # The provider has the history; the request carries only what is new.
            return

        async def send(prepared: PreparedContext) -> Any:
            context.messages = prepared.messages
            await call_next()
            return context.result

        async def stream(prepared: PreparedContext) -> AsyncIterator[Any]:
            updates = await send(prepared)
            async for update in updates:
                yield update
            await session.commit_async(_read_answer(await updates.get_final_response()))

        session, request = self.session_for(context), _read_request(context, options)
        if context.stream:
            updates = session.stream_async(stream, **request)
            context.result = ResponseStream(updates, finalizer=ChatResponse.from_updates)
        else:
            await session.call_async(send, reply=_read_answer, **request)


def make_tool(tool: Any) -> FunctionTool:
    """Return a context tool as a tool of the framework."""
    known = {"name": tool.name, "description": tool.description, "input_model": dict(tool.schema)}
    return FunctionTool(func=tool.function, **known)


def _read_answer(answer: Any) -> ModelReply:
    return ModelReply(list(answer.messages), answer.usage_details)


def _read_request(context: Any, options: Any) -> dict[str, Any]:
    return {
        "messages": list(context.messages),
        "system": options.get("instructions") or "",
        "tools": [one.to_json_schema_spec() for one in options.get("tools") or () if isinstance(one, FunctionTool)],
        "model": options.get("model") or getattr(context.client, "model", None),
    }
