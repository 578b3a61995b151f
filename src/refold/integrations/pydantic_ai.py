"""Pydantic AI: a capability that keeps every model request inside its window.

    agent = Agent("openai:gpt-4o", capabilities=[Refold(workspace="work")])

Without ``session`` each conversation id is a session.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Any, ClassVar

from pydantic import TypeAdapter

from refold.integrations import MiddlewareAdapter, needs
from refold.integrations.parts import At, PartKind, PartsCodec

with needs("Refold", "pydantic-ai 2.0"):
    from pydantic_ai import Tool, exceptions
    from pydantic_ai import messages as m
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.toolsets import FunctionToolset

_SAID = At("content", lambda part: (getattr(part, "model_response_str", None) or part.model_response)())


class PydanticCodec(PartsCodec):
    """Converts Pydantic AI's messages to chat messages and back."""

    field, mark, classes = "parts", "part_kind", {"assistant": m.ModelResponse, "user": m.ModelRequest}
    holders: ClassVar = {"assistant": m.TextPart, "system": m.SystemPromptPart, "user": m.UserPromptPart}
    parts = TypeAdapter(m.ModelResponsePart | m.ModelRequestPart | m.UserContent)
    kinds = (
        PartKind("text", str),
        PartKind("text", (m.UserPromptPart, m.TextPart), text="content"),
        PartKind("text", m.SystemPromptPart, text="content", role=At("", lambda _: "system")),
        PartKind("thinking", m.ThinkingPart, thinking="content", signature="signature"),
        PartKind("call", m.ToolCallPart, name="tool_name", id="tool_call_id", arguments="args"),
        PartKind("result", (m.ToolReturnPart, m.RetryPromptPart), name="tool_name", id="tool_call_id", content=_SAID),
        PartKind("text", m.RetryPromptPart, text=_SAID),
        PartKind("image_url", m.BinaryContent, data=At("data", write=b64decode), media_type="media_type"),
        PartKind("image_url", m.ImageUrl, url="url"),
    )


class Refold(MiddlewareAdapter, AbstractCapability[Any]):
    """Prepares every model request and stores every response. ``session_for(ctx)`` has undo, recall, status."""

    codec, session_at = PydanticCodec(), "conversation_id"

    def read_request(self, request: Any) -> dict[str, Any]:
        asked, model = request.model_request_parameters, At("model.model_name").take(request)
        tools = [*asked.function_tools, *asked.output_tools]
        return {"system": At("instruction_parts").take(asked), "tools": tools, "model": model}

    def get_toolset(self) -> Any:
        """Return the context tools, if they are wanted; they need a session with a name."""
        return FunctionToolset(self.list_tools()) if self._has_tools else None

    async def on_model_request_error(self, ctx: Any, *, request_context: Any, error: Exception) -> Any:
        """Have a request that was refused as too long sent again, once; the next attempt fits the smaller window."""
        if getattr(request_context, "attempt", 0) == 1 and await self.session_for(ctx).refuse_async(error):
            raise exceptions.RetryModelRequest from error
        raise error

    if hasattr(AbstractCapability, "prepare_model_request"):

        async def prepare_model_request(self, ctx: Any, request_context: Any) -> Any:
            """Return the request of this attempt inside the window of the model that serves it."""
            return await self.fit(request_context, ctx)

    else:

        async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> Any:
            """Send a request inside its window, in versions that have no hook for each attempt."""
            return await self.session_for(ctx).call_async(**self.ask(request_context, handler))

    async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:  # noqa: ARG002
        """Store a response with its usage."""
        await self.session_for(ctx).commit_async([response], response.usage)
        return response


def make_tool(tool: Any) -> Any:
    """Return a context tool as a tool of Pydantic AI."""
    return Tool.from_schema(tool.run, tool.name, tool.description, dict(tool.schema))
