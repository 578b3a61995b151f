"""Pydantic AI: a capability that keeps every model request inside its window.

    agent = Agent("openai:gpt-4o", capabilities=[Refold(workspace="work")])

Without ``session`` each conversation id is a session.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from refold.errors import ConfigError
from refold.integrations import Adapter
from refold.integrations.parts import At, PartKind, PartsCodec, read_url, write_tool, write_url

try:
    from pydantic_ai import Tool, exceptions
    from pydantic_ai import messages as m
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.toolsets import FunctionToolset
except ImportError as error:
    raise ConfigError(f"Refold needs pydantic-ai with capabilities, 2.0 or newer ({error})") from error

_PARTS: TypeAdapter[Any] = TypeAdapter(m.ModelResponsePart | m.ModelRequestPart | m.UserContent)


def _write_response(part: Any) -> Any:
    return part.model_response_str() if isinstance(part, m.ToolReturnPart) else part.model_response()


def _read_binary(url: str) -> dict[str, Any]:
    media_type, written = read_url(url)
    return {"data": base64.b64decode(written), "media_type": media_type}


_TEXT = At("content", lambda part: part.content if isinstance(part.content, str) else None)
_ANSWERED = At("content", lambda part: _write_response(part) if part.tool_name else None)


class PydanticCodec(PartsCodec):
    """Converts Pydantic AI's messages to chat messages and back."""

    dump = staticmethod(partial(_PARTS.dump_python, mode="json"))
    load = staticmethod(lambda part: _PARTS.validate_python(part))
    kinds = (
        PartKind("text", str, text=At("text", str)),
        PartKind("text", m.UserPromptPart, text=_TEXT),
        PartKind("text", m.SystemPromptPart, text="content", role=At("", lambda _: "system")),
        PartKind("text", m.TextPart, text="content"),
        PartKind("thinking", m.ThinkingPart, thinking="content", signature="signature"),
        PartKind("call", m.ToolCallPart, id="tool_call_id", name="tool_name", arguments="args"),
        PartKind("result", m.ToolReturnPart, content=_ANSWERED, id="tool_call_id", name="tool_name"),
        PartKind("result", m.RetryPromptPart, content=_ANSWERED, id="tool_call_id", name="tool_name"),
        PartKind("text", m.RetryPromptPart, text=At("content", _write_response)),
        PartKind(
            "image_url", m.BinaryContent, url=At("", lambda one: write_url(one.media_type, one.data), _read_binary)
        ),
        PartKind("image_url", m.ImageUrl, url="url"),
    )

    def open(self, message: m.ModelMessage) -> tuple[str, list[Any]]:
        """Return a message's role and its parts; what a user says in several pieces is opened, too."""
        if isinstance(message, m.ModelResponse):
            return "assistant", list(message.parts)
        opened = [part.content if _is_listed(part) else [part] for part in message.parts]
        return "user", [one for part in opened for one in part]

    def close(self, role: str, parts: list[Any], origin: Any) -> m.ModelMessage:
        """Return a message with these parts."""
        if role == "assistant":
            made = [m.TextPart(part) if isinstance(part, str) else part for part in parts]
            return m.ModelResponse(made) if origin is None else replace(origin, parts=made)
        if role == "system":
            parts = [m.SystemPromptPart(part) if isinstance(part, str) else part for part in parts]
        pieces = [one for one in parts if not hasattr(one, "part_kind")]
        said = m.UserPromptPart(pieces[0] if len(pieces) == 1 and isinstance(pieces[0], str) else pieces)
        made = [part for part in parts if hasattr(part, "part_kind")] + ([said] if pieces else [])
        return m.ModelRequest(made) if origin is None else replace(origin, parts=made)


class Refold(Adapter, AbstractCapability[Any]):
    """Prepares every model request and stores every response. ``session_for(ctx)`` has undo, recall, status."""

    codec = PydanticCodec()

    def find_name(self, ctx: Any) -> str | None:
        """Return the id of the run's conversation."""
        return getattr(ctx, "conversation_id", None)

    def get_toolset(self) -> Any:
        """Return the context tools, if they are wanted; they need a session with a name."""
        return FunctionToolset(self.refold.tools("pydantic_ai")) if self._has_tools else None

    if hasattr(AbstractCapability, "prepare_model_request"):

        async def prepare_model_request(self, ctx: Any, request_context: Any) -> Any:
            """Return the request of this attempt inside the window of the model that serves it."""
            messages = await self.fit(self.session_for(ctx), _read(request_context))
            return replace(request_context, messages=messages)

        async def on_model_request_error(self, ctx: Any, *, request_context: Any, error: Exception) -> Any:
            """Answer a request that was refused as too long with a shorter one, once."""
            if request_context.attempt == 1 and await self.refit_later(self.session_for(ctx), error):
                raise exceptions.RetryModelRequest from error
            raise error

    else:

        async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> Any:
            """Send a request that fits; one that is refused as too long is answered once with a shorter one."""
            return await self.session_for(ctx).call_async(
                lambda prepared: handler(replace(request_context, messages=prepared.messages)), **_read(request_context)
            )

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
    asked = request_context.model_request_parameters
    return {
        "messages": request_context.messages,
        "system": "\n\n".join(part.content for part in getattr(asked, "instruction_parts", None) or ()),
        "tools": [
            write_tool(one.name, one.description, one.parameters_json_schema)
            for one in [*asked.function_tools, *asked.output_tools]
        ],
        "model": getattr(request_context.model, "model_name", None),
    }
