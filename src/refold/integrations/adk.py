"""Google's Agent Development Kit: a plugin that keeps every model request inside its window.

    runner = Runner(app=App(name="trip", root_agent=agent, plugins=[RefoldPlugin(workspace="work")]), …)

Without ``session`` each session of the kit is one of refold's, and each sub-agent has its own.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, ClassVar

from pydantic import TypeAdapter

from refold.integrations import Adapter, needs
from refold.integrations.parts import At, PartKind, PartsCodec
from refold.manager.managed import ManagedSession

with needs("RefoldPlugin", "google-adk 1.30"):
    from google.adk.plugins.base_plugin import BasePlugin
    from google.adk.tools.function_tool import FunctionTool
    from google.genai import types


_RESULT = At("response", wrapped="result")
_TEXT = At("text", lambda part: part.get("text") or None)


class AdkCodec(PartsCodec):
    """Converts the contents of a request to chat messages and back; signatures and metadata of parts are kept."""

    message, field, made_ids = types.Content, "parts", "adk-"
    roles: ClassVar = {"assistant": "model", "tool": "user", "system": "user"}
    parts = TypeAdapter(types.Part)
    kinds = (
        PartKind("call", at="function_call", name="name", id="id", arguments="args"),
        PartKind("result", None, {"parts": None}, at="function_response", name="name", id="id", content=_RESULT),
        PartKind("thinking", None, {"thought": True}, thinking=_TEXT, signature="thought_signature"),
        PartKind("text", text=_TEXT),
        PartKind("image_url", at="inline_data", data="data", media_type="mime_type"),
    )


class RefoldPlugin(Adapter, BasePlugin):
    """Prepares every model request and stores every answer. ``session_for(ctx)`` has undo, recall, status."""

    codec, arguments = AdkCodec(), MappingProxyType({"name": "refold"})

    def session_for(self, ctx: Any) -> ManagedSession:
        """Return the session of a request; that of a sub-agent ends with its name."""
        agent, found = ctx._invocation_context.agent, super().session_for(ctx)
        return found if getattr(agent, "parent_agent", None) is None else found.named(f"{found.id}/{agent.name}")

    def find_name(self, ctx: Any) -> str:
        """Return the name of the kit's session."""
        return f"{ctx.session.app_name}/{ctx.session.user_id}/{ctx.session.id}"

    async def _fit(self, ctx: Any, request: Any) -> None:
        """Make a request fit its window; one whose history the provider has carries only what is new."""
        beside = {"tools": request.config.tools, "model": request.model}
        if not getattr(request, "previous_interaction_id", None):
            prepare = self.session_for(ctx).prepare_async
            request.contents = (await prepare(request.contents, request.config.system_instruction, **beside)).messages

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        """Add the context tools, if they are wanted, and make the request fit its window."""
        llm_request.append_tools(self.list_tools(callback_context))
        await self._fit(callback_context, llm_request)

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        """Store a whole answer with its usage."""
        if not llm_response.partial and llm_response.content:
            await self.session_for(callback_context).commit_async([llm_response.content], llm_response.usage_metadata)

    async def on_model_error_callback(self, *, callback_context: Any, llm_request: Any, error: Exception) -> Any:
        """Answer a request that was refused as too long with a shorter one, once; this answer is not streamed."""
        if not await self.session_for(callback_context).refuse_async(error):
            return None
        await self._fit(callback_context, llm_request)
        model = callback_context._invocation_context.agent.canonical_model
        return [answer async for answer in model.generate_content_async(llm_request)][-1]


def make_tool(tool: Any) -> FunctionTool:
    """Return a context tool as a tool of the kit."""
    return FunctionTool(tool.function)
