"""Pydantic AI: a capability that keeps every model request inside its window.

    agent = Agent("openai:gpt-4o", capabilities=[Refold(workspace="work")])

Without ``session`` each conversation id is a session.
"""

from __future__ import annotations

from base64 import b64decode
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

from pydantic import TypeAdapter

from refold.integrations import Adapter, needs
from refold.integrations.parts import At, PartKind, PartsCodec

with needs("Refold", "pydantic-ai 2.0"):
    from pydantic_ai import Tool, exceptions
    from pydantic_ai import messages as m
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.toolsets import FunctionToolset

_PARTS: TypeAdapter[Any] = TypeAdapter(m.ModelResponsePart | m.ModelRequestPart | m.UserContent)
_RETURNED, _RETRY = At("content", m.ToolReturnPart.model_response_str), At("content", m.RetryPromptPart.model_response)
_IS_PER_ATTEMPT = hasattr(AbstractCapability, "prepare_model_request")


class PydanticCodec(PartsCodec):
    """Converts Pydantic AI's messages to chat messages and back."""

    dump = staticmethod(partial(_PARTS.dump_python, mode="json"))
    load = staticmethod(lambda part: _PARTS.validate_python(part))
    kinds = (
        PartKind("text", str),
        PartKind("text", m.UserPromptPart, text="content"),
        PartKind("text", m.SystemPromptPart, text="content", role=At("", lambda _: "system")),
        PartKind("text", m.TextPart, text="content"),
        PartKind("thinking", m.ThinkingPart, thinking="content", signature="signature"),
        PartKind("call", m.ToolCallPart, name="tool_name", id="tool_call_id", arguments="args"),
        PartKind("result", m.ToolReturnPart, name="tool_name", id="tool_call_id", content=_RETURNED),
        PartKind("result", m.RetryPromptPart, name="tool_name", id="tool_call_id", content=_RETRY),
        PartKind("text", m.RetryPromptPart, text=_RETRY),
        PartKind("image_url", m.BinaryContent, data=At("data", write=b64decode), media_type="media_type"),
        PartKind("image_url", m.ImageUrl, url="url"),
    )

    def open(self, message: m.ModelMessage) -> tuple[str, list[Any]]:
        """Return a message's role and its parts; what a user says in several pieces is opened, too."""
        role = "assistant" if isinstance(message, m.ModelResponse) else "user"
        return role, [one for part in message.parts for one in (part.content if _is_listed(part) else [part])]

    def close(self, role: str, parts: list[Any], origin: Any) -> m.ModelMessage:
        """Return a message with these parts."""
        kind = {"assistant": m.TextPart, "system": m.SystemPromptPart}.get(role, m.UserPromptPart)
        made: list[Any] = []
        for is_part, group in groupby(parts, lambda part: hasattr(part, "part_kind")):
            held = list(group)
            made += held if is_part else [kind(held[0] if held[1:] == [] and isinstance(held[0], str) else held)]
        whole = m.ModelResponse if role == "assistant" else m.ModelRequest
        return whole(made) if origin is None else replace(origin, parts=made)


class Refold(Adapter, AbstractCapability[Any]):
    """Prepares every model request and stores every response. ``session_for(ctx)`` has undo, recall, status."""

    codec = PydanticCodec()

    def find_name(self, ctx: Any) -> str | None:
        """Return the id of the run's conversation."""
        return getattr(ctx, "conversation_id", None)

    def get_toolset(self) -> Any:
        """Return the context tools, if they are wanted; they need a session with a name."""
        return FunctionToolset(self.list_tools()) if self._has_tools else None

    async def prepare_model_request(self, ctx: Any, request_context: Any) -> Any:
        """Return the request of this attempt inside the window of the model that serves it."""
        prepared = await self.session_for(ctx).prepare_async(**_read(request_context))
        return replace(request_context, messages=prepared.messages)

    async def on_model_request_error(self, ctx: Any, *, request_context: Any, error: Exception) -> Any:
        """Have a request that was refused as too long sent again, once; the next attempt fits the smaller window."""
        if _IS_PER_ATTEMPT and request_context.attempt == 1 and await self.session_for(ctx).refuse_async(error):
            raise exceptions.RetryModelRequest from error
        raise error

    async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> Any:
        """Do the same in versions that have no hook for each attempt."""
        if _IS_PER_ATTEMPT:
            return await handler(request_context)
        session, send = self.session_for(ctx), lambda fit: handler(replace(request_context, messages=fit.messages))
        return await session.call_async(send, **_read(request_context))

    async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:  # noqa: ARG002
        """Store a response with its usage."""
        await self.session_for(ctx).commit_async([response], response.usage)
        return response


def make_tool(tool: Any) -> Any:
    """Return a context tool as a tool of Pydantic AI."""
    return Tool.from_schema(tool.run, tool.name, tool.description, dict(tool.schema))


def _is_listed(part: Any) -> bool:
    return isinstance(part, m.UserPromptPart) and not isinstance(part.content, str)


def _read(request_context: Any) -> dict[str, Any]:
    asked, model = request_context.model_request_parameters, getattr(request_context.model, "model_name", None)
    system = "\n\n".join(part.content for part in getattr(asked, "instruction_parts", None) or ())
    tools = [*asked.function_tools, *asked.output_tools]
    return {"messages": request_context.messages, "system": system, "tools": tools, "model": model}
