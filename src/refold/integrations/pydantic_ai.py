"""Pydantic AI: a capability that keeps every model request inside its window.

    agent = Agent("openai:gpt-4o", capabilities=[Refold(workspace="work")])

Without ``session`` each conversation id is a session.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from refold.errors import ConfigError
from refold.formats import MessageSource
from refold.integrations import open_session
from refold.manager.managed import ManagedSession

try:
    from pydantic_ai import Tool
    from pydantic_ai import messages as m
    from pydantic_ai.capabilities import AbstractCapability
except ImportError as error:
    raise ConfigError(f"Refold needs pydantic-ai with capabilities, 2.0 or newer ({error})") from error

_HAS_PREPARE = hasattr(AbstractCapability, "prepare_model_request")


class PydanticCodec:
    """Converts Pydantic AI's messages to OpenAI messages, one for each part of a request, and back."""

    def to_raw(self, message: m.ModelMessage) -> list[dict[str, Any]]:
        """Return a message as OpenAI messages."""
        if isinstance(message, m.ModelRequest):
            return [_write_part(part) for part in message.parts]
        return [_write_response(message)]

    def from_raw(self, raw: dict[str, Any], source: MessageSource) -> m.ModelMessage:
        """Return the message for a raw one: a changed copy of its source, or a new message for a fold."""
        origin: Any = source.messages[0] if source.messages and source.kind != "fold" else None
        if raw["role"] == "assistant":
            if isinstance(origin, m.ModelResponse):
                return replace(origin, parts=list(_read_response(raw, origin)))
            return m.ModelResponse(parts=[m.TextPart(_read_text(raw["content"]))])
        if not isinstance(origin, m.ModelRequest):
            return m.ModelRequest(parts=[m.UserPromptPart(_read_text(raw["content"]))])
        return replace(origin, parts=[_read_part(raw, origin)])


class Refold(AbstractCapability[Any]):
    """Prepares every model request and stores every response. ``session_for(ctx)`` has undo, recall, status."""

    def __init__(self, session: str | None = None, *, context_tools: bool = False, **options: Any) -> None:
        super().__init__()
        self._name, self._has_tools = session, context_tools
        # The id is only known when an agent runs: this session is never used itself, only its manager.
        self._base = open_session(session or "unnamed", codec=PydanticCodec(), format="openai-chat", **options)
        self.manager = self._base.manager
        self._smaller: dict[str, dict[str, int]] = {}
        self.last_prepared: dict[str, Any] = {}

    def session_for(self, ctx: Any) -> ManagedSession:
        """Return the session of a run: the one that was named, or the run's conversation."""
        name = self._name or getattr(ctx, "conversation_id", None)
        if not name:
            raise ConfigError("name the session: Refold(session=…), or run the agent with a conversation_id")
        return self._base.named(str(name))

    def get_toolset(self) -> Any:
        """Return the context tools, if they are wanted; they need a session with a name."""
        if not self._has_tools:
            return None
        from pydantic_ai.toolsets import FunctionToolset

        return FunctionToolset(self._base.tools("pydantic_ai"))

    def _read(self, request_context: Any) -> dict[str, Any]:
        parameters = request_context.model_request_parameters
        tools = [
            {"type": "function", "function": {"name": one.name, "description": one.description or "",
             "parameters": one.parameters_json_schema}}
            for one in [*parameters.function_tools, *parameters.output_tools]
        ]  # fmt: skip
        return {
            "messages": request_context.messages,
            "system": "\n\n".join(part.content for part in getattr(parameters, "instruction_parts", None) or ()),
            "tools": tools or None,
            "model": getattr(request_context.model, "model_name", None),
        }

    def _write(self, session: ManagedSession, request_context: Any, prepared: Any) -> Any:
        self.last_prepared[session.id] = prepared
        return replace(request_context, messages=list(prepared.messages))

    if _HAS_PREPARE:

        async def prepare_model_request(self, ctx: Any, request_context: Any) -> Any:
            """Return the request of this attempt inside the window of the model that serves it."""
            session = self.session_for(ctx)
            options = {**self._read(request_context), **self._smaller.pop(session.id, {})}
            prepared = await session.prepare_async(**options)
            return self._write(session, request_context, prepared)

    else:

        async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> Any:
            """Send a request that fits; one that is refused as too long is answered once with a shorter one."""
            session = self.session_for(ctx)
            return await session.call_async(
                lambda prepared: handler(self._write(session, request_context, prepared)), **self._read(request_context)
            )

    async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:  # noqa: ARG002
        """Store a response with its usage."""
        usage = response.usage
        figures = {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        }
        await self.session_for(ctx).commit_async([response], figures if usage.input_tokens else None)
        return response

    async def on_model_request_error(self, ctx: Any, *, request_context: Any, error: Exception) -> Any:
        """Answer a request that was refused as too long with a shorter one, once."""
        session = self.session_for(ctx)
        last = self.last_prepared.get(session.id)
        if last is not None and getattr(request_context, "attempt", 2) == 1:
            smaller = await asyncio.to_thread(session.shrink, error, last)
            if smaller is not None:
                from pydantic_ai.exceptions import RetryModelRequest

                self._smaller[session.id] = smaller
                raise RetryModelRequest from error
        raise error


def make_tool(tool: Any) -> Any:
    """Return a context tool as a tool of Pydantic AI."""
    return Tool.from_schema(tool.run, tool.name, tool.description, dict(tool.schema))


def _write_part(part: Any) -> dict[str, Any]:
    if isinstance(part, m.SystemPromptPart):
        return {"role": "system", "content": part.content}
    if isinstance(part, m.UserPromptPart):
        is_text = isinstance(part.content, str)
        return {"role": "user", "content": part.content if is_text else [_write_content(one) for one in part.content]}
    if isinstance(part, m.ToolReturnPart):
        return {"role": "tool", "tool_call_id": part.tool_call_id, "content": part.model_response_str()}
    if isinstance(part, m.RetryPromptPart) and part.tool_name:
        return {"role": "tool", "tool_call_id": part.tool_call_id, "content": part.model_response()}
    text = part.model_response() if hasattr(part, "model_response") else str(getattr(part, "content", ""))
    return {"role": "user", "content": text}


def _write_content(one: Any) -> dict[str, Any]:
    if isinstance(one, str):
        return {"type": "text", "text": one}
    if isinstance(one, m.ImageUrl):
        return {"type": "image_url", "image_url": {"url": one.url}}
    if isinstance(one, m.BinaryContent):
        written = base64.b64encode(one.data).decode()
        return {"type": "image_url", "image_url": {"url": f"data:{one.media_type};base64,{written}"}}
    return {"type": getattr(one, "kind", "file"), "url": getattr(one, "url", "")}


def _write_response(message: m.ModelResponse) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, m.ThinkingPart):
            blocks.append({"type": "thinking", "thinking": part.content, "signature": part.signature or ""})
        elif isinstance(part, m.TextPart):
            blocks.append({"type": "text", "text": part.content})
    is_text = all(block["type"] == "text" for block in blocks)
    content: Any = "".join(block["text"] for block in blocks) if is_text else blocks
    calls = [
        {"id": part.tool_call_id, "type": "function",
         "function": {"name": part.tool_name, "arguments": part.args_as_json_str()}}
        for part in message.parts
        if isinstance(part, m.ToolCallPart)
    ]  # fmt: skip
    return {"role": "assistant", "content": content or None, **({"tool_calls": calls} if calls else {})}


def _read_part(raw: dict[str, Any], origin: m.ModelRequest) -> Any:
    """Return the part of a request that a raw message stands for, with its new content."""
    content = raw["content"]
    if raw["role"] == "tool":
        found = next(part for part in origin.parts if getattr(part, "tool_call_id", "") == raw["tool_call_id"])
        return replace(found, content=_read_text(content))
    kind = m.SystemPromptPart if raw["role"] == "system" else m.UserPromptPart
    parts = [part for part in origin.parts if isinstance(part, kind)]
    if not parts or raw["role"] == "system" or isinstance(content, str):
        return replace(parts[0], content=_read_text(content)) if parts else m.UserPromptPart(_read_text(content))
    others = iter([one for part in parts if not isinstance(part.content, str) for one in part.content
                   if not isinstance(one, str)])  # fmt: skip
    made = [block["text"] if block["type"] == "text" else next(others, _read_text([block])) for block in content]
    return replace(parts[0], content=made)


def _read_response(raw: dict[str, Any], origin: m.ModelResponse) -> Iterator[Any]:
    """Yield the parts of a response with the text and arguments of a raw message."""
    calls = {call["id"]: call["function"]["arguments"] for call in raw.get("tool_calls") or ()}
    text, is_said = _read_text(raw["content"]), False
    for part in origin.parts:
        if isinstance(part, m.TextPart):
            if text and not is_said:
                yield replace(part, content=text)
            is_said = True
        elif isinstance(part, m.ToolCallPart):
            if part.tool_call_id in calls:
                yield replace(part, args=json.loads(calls[part.tool_call_id]))
        else:
            yield part


def _read_text(content: Any) -> str:
    if isinstance(content, str) or content is None:
        return content or ""
    return "".join(str(block.get("text") or "") for block in content)
