"""Microsoft's Agent Framework: a chat middleware that keeps every model request inside its window.

    agent = Agent(client, tools=tools, middleware=[RefoldChatMiddleware("s1", workspace="work")])

Without ``session`` each session of the agent is one of refold's.
"""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from refold.errors import ConfigError
from refold.integrations import open_session
from refold.integrations.parts import Block, PartsCodec, read_text
from refold.manager.managed import ManagedSession
from refold.prepared import PreparedContext

try:
    from agent_framework import ChatMiddleware, ChatResponse, Content, FunctionTool, Message, ResponseStream
except ImportError as error:
    raise ConfigError(f"RefoldChatMiddleware needs agent-framework-core 1.0 or newer ({error})") from error


class AgentFrameworkCodec(PartsCodec):
    """Converts the framework's messages to chat messages and back; ids, authors and properties are kept."""

    def open(self, message: Message) -> tuple[str, list[Content]]:
        """Return a message's role and contents."""
        return str(message.role), message.contents

    def close(self, role: str, parts: list[Content], origin: Message | None) -> Message:
        """Return a message with these contents."""
        if origin is None:
            return Message(role, parts)
        made = copy.copy(origin)
        made.contents = parts
        return made

    def read(self, part: Content) -> Block:
        """Return a content as a block."""
        if part.type == "text":
            return {"type": "text", "text": part.text or ""}
        if part.type == "text_reasoning" and part.text:
            return {"type": "thinking", "thinking": part.text, "signature": part.protected_data or ""}
        if part.type == "function_call" and not getattr(part, "informational_only", False):
            given = part.arguments or {}
            written = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
            return {"type": "call", "id": part.call_id or "", "name": part.name, "arguments": written}
        if part.type == "function_result":
            return {"type": "result", "id": part.call_id or "", "content": _read_result(part)}
        if part.type in ("data", "uri") and (part.media_type or "").startswith("image/"):
            return {"type": "image_url", "image_url": {"url": part.uri}}
        return {"type": "af_content", "content": part.to_dict()}

    def make(self, block: Block, origin: Content | None) -> Content:
        """Return the content for a block."""
        kind = block["type"]
        if kind == "call":
            made = copy.copy(origin) or Content.from_function_call(block["id"], block["name"])
            made.arguments = block["arguments"]
            return made
        if kind == "result":
            made = Content.from_function_result(block["id"], result=read_text(block["content"]))
            if origin is not None:
                made.additional_properties = origin.additional_properties
            return made
        if kind == "thinking":
            return Content.from_text_reasoning(text=block["thinking"], protected_data=block["signature"] or None)
        if kind == "image_url":
            url = block["image_url"]["url"]
            return Content.from_uri(url, media_type=url.partition(";")[0].removeprefix("data:") or "image/png")
        return Content.from_dict(block["content"]) if kind == "af_content" else Content.from_text(block["text"])


class RefoldChatMiddleware(ChatMiddleware):
    """Prepares every model request and stores every answer. ``session_for(context)`` has undo, recall, status."""

    def __init__(self, session: str | Callable[[Any], str] | None = None, **options: Any) -> None:
        self._session = session
        self._codec = AgentFrameworkCodec()
        self._base = open_session("unnamed", codec=self._codec, format="openai-chat", **options)
        self.manager = self._base.manager

    def session_for(self, context: Any) -> ManagedSession:
        """Return the session of a request: as named here, or that of the agent's run."""
        named = self._session(context) if callable(self._session) else self._session
        found = named or getattr(getattr(context, "session", None), "session_id", None)
        if not found:
            raise ConfigError("name the session: RefoldChatMiddleware(…), or run the agent with a session")
        return self._base.named(found)

    @property
    def tools(self) -> list[FunctionTool]:
        """The context tools, for the agent's list of tools; they need a session with a name."""
        if not isinstance(self._session, str):
            raise ConfigError("the context tools need a session with a name: RefoldChatMiddleware(…)")
        return self._base.named(self._session).tools("agent_framework")

    async def process(self, context: Any, call_next: Callable[[], Any]) -> None:
        """Send a request that fits and store the answer."""
        options = context.options or {}
        if options.get("conversation_id"):
            await call_next()  # The provider has the history; the request carries only what is new.
            return
        session, given = self.session_for(context), _read_request(context, options)

        async def send(prepared: PreparedContext) -> Any:
            context.messages = self._codec.gather(prepared)
            await call_next()
            return context.result

        async def stream(prepared: PreparedContext) -> AsyncIterator[Any]:
            updates = await send(prepared)
            async for update in updates:
                yield update
            await _commit(session, await updates.get_final_response())

        if context.stream:
            context.result = ResponseStream(session.stream_async(stream, **given), finalizer=ChatResponse.from_updates)
        else:
            await _commit(session, await session.call_async(send, **given))


def make_tool(tool: Any) -> FunctionTool:
    """Return a context tool as a tool of the framework."""

    async def run(**arguments: Any) -> str:
        return str(await tool.run(**tool.read_arguments(json.dumps(arguments))))

    return FunctionTool(name=tool.name, description=tool.description, func=run, input_model=dict(tool.schema))


async def _commit(session: ManagedSession, answer: Any) -> None:
    usage: Any = answer.usage_details or {}
    figures = {
        "prompt_tokens": usage.get("input_token_count"),
        "completion_tokens": usage.get("output_token_count") or 0,
        "prompt_tokens_details": {"cached_tokens": usage.get("cache_read_input_token_count") or 0},
    }
    await session.commit_async(list(answer.messages), figures if figures["prompt_tokens"] else None)


def _read_request(context: Any, options: Any) -> dict[str, Any]:
    tools = [one.to_json_schema_spec() for one in options.get("tools") or () if hasattr(one, "to_json_schema_spec")]
    return {
        "messages": list(context.messages),
        "system": options.get("instructions") or "",
        "tools": tools or None,
        "model": options.get("model") or getattr(context.client, "model", None),
    }


def _read_result(part: Content) -> Any:
    """Return a tool's result as text, or as blocks if it carries more than text."""
    items = part.items or ()
    if all(item.type == "text" for item in items):
        return "\n".join(item.text or "" for item in items) if items else str(part.result or "")
    return [
        {"type": "text", "text": item.text}
        if item.type == "text"
        else {"type": "af_content", "content": item.to_dict()}
        for item in items
    ]
