"""Google's Agent Development Kit: a plugin that keeps every model request inside its window.

    runner = Runner(app=App(name="trip", root_agent=agent, plugins=[RefoldPlugin(workspace="work")]), …)

Without ``session`` each session of the kit is one of refold's, and each sub-agent has its own.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

from refold.errors import ConfigError
from refold.integrations import open_session
from refold.integrations.parts import Block, PartsCodec, read_text
from refold.manager.managed import ManagedSession

try:
    from google.adk.plugins.base_plugin import BasePlugin
    from google.adk.tools.base_tool import BaseTool
    from google.genai import types
except ImportError as error:
    raise ConfigError(f"RefoldPlugin needs google-adk 1.30 or newer ({error})") from error


class AdkCodec(PartsCodec):
    """Converts the contents of a request to chat messages and back; signatures and metadata of parts are kept."""

    def open(self, message: types.Content) -> tuple[str, list[types.Part]]:
        """Return a content's role and parts."""
        return "assistant" if message.role == "model" else "user", message.parts or []

    def close(self, role: str, parts: list[types.Part], origin: types.Content | None) -> types.Content:
        """Return a content with these parts."""
        if origin is not None:
            return origin.model_copy(update={"parts": parts})
        return types.Content(role="model" if role == "assistant" else "user", parts=parts)

    def read(self, part: types.Part) -> Block:
        """Return a part as a block."""
        call, result, media = part.function_call, part.function_response, part.inline_data
        if call is not None:
            return {"type": "call", "id": _read_id(call), "name": call.name, "arguments": json.dumps(call.args or {})}
        if result is not None and not result.parts:
            return {"type": "result", "id": _read_id(result), "name": result.name, "content": _read_result(result)}
        if part.thought and part.text:
            signature = base64.b64encode(part.thought_signature or b"").decode()
            return {"type": "thinking", "thinking": part.text, "signature": signature}
        if part.text:
            return {"type": "text", "text": part.text}
        if media is not None and media.data and (media.mime_type or "").startswith("image/"):
            written = base64.b64encode(media.data).decode()
            return {"type": "image_url", "image_url": {"url": f"data:{media.mime_type};base64,{written}"}}
        return {"type": "adk_part", "part": part.model_dump(mode="json", exclude_none=True)}

    def make(self, block: Block, origin: types.Part | None) -> types.Part:
        """Return the part for a block."""
        kind = block["type"]
        if kind == "call":
            found = origin.function_call if origin else types.FunctionCall(id=block["id"], name=block["name"])
            made = found.model_copy(update={"args": json.loads(block["arguments"])})
            return (origin or types.Part()).model_copy(update={"function_call": made})
        if kind == "result":
            named = {"id": block["id"], "name": block.get("name")}
            found = origin.function_response if origin else types.FunctionResponse(**named)
            made = found.model_copy(update={"response": {"result": read_text(block["content"])}})
            return (origin or types.Part()).model_copy(update={"function_response": made})
        if kind == "thinking":
            signature = base64.b64decode(block["signature"]) or None
            return types.Part(text=block["thinking"], thought=True, thought_signature=signature)
        if kind == "image_url":
            head, _, written = block["image_url"]["url"].partition(";base64,")
            return types.Part.from_bytes(data=base64.b64decode(written), mime_type=head.removeprefix("data:"))
        return types.Part.model_validate(block["part"]) if kind == "adk_part" else types.Part(text=block["text"])


class RefoldPlugin(BasePlugin):
    """Prepares every model request and stores every answer. ``session_for(ctx)`` has undo, recall, status."""

    def __init__(
        self,
        session: str | Callable[[Any], str] | None = None,
        *,
        context_tools: bool = False,
        name: str = "refold",
        **options: Any,
    ) -> None:
        super().__init__(name)
        self._session, self._has_tools = session, context_tools
        self._codec = AdkCodec()
        self._base = open_session("unnamed", codec=self._codec, format="openai-chat", **options)
        self.manager = self._base.manager
        self._sent: dict[str, tuple[dict[str, Any], Any]] = {}

    def session_for(self, ctx: Any) -> ManagedSession:
        """Return the session of a request: as named here or by the kit; that of a sub-agent ends with its name."""
        place = ctx.session
        named = self._session(ctx) if callable(self._session) else self._session
        agent = ctx._invocation_context.agent
        suffix = f"/{agent.name}" if getattr(agent, "parent_agent", None) is not None else ""
        return self._base.named(f"{named or f'{place.app_name}/{place.user_id}/{place.id}'}{suffix}")

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        """Make a request fit its window."""
        if getattr(llm_request, "previous_interaction_id", None):
            return  # The provider has the history; the request carries only what is new.
        session = self.session_for(callback_context)
        if self._has_tools:
            llm_request.append_tools(session.tools("adk"))
        given = _read_request(llm_request)
        prepared = await session.prepare_async(**given)
        self._sent[session.id] = given, prepared
        llm_request.contents = self._codec.gather(prepared)

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        """Store a whole answer with its usage."""
        content, usage = llm_response.content, llm_response.usage_metadata
        if llm_response.partial or not content or not content.parts:
            return
        figures = usage and {
            "prompt_tokens": usage.prompt_token_count or 0,
            "completion_tokens": usage.candidates_token_count or 0,
            "prompt_tokens_details": {"cached_tokens": usage.cached_content_token_count or 0},
        }
        await self.session_for(callback_context).commit_async([content], figures)

    async def on_model_error_callback(self, *, callback_context: Any, llm_request: Any, error: Exception) -> Any:
        """Answer a request that was refused as too long with a shorter one, once; this answer is not streamed."""
        session = self.session_for(callback_context)
        given, prepared = self._sent.pop(session.id, ({}, None))
        smaller = await asyncio.to_thread(session.shrink, error, prepared) if prepared is not None else None
        if smaller is None:
            return None
        llm_request.contents = self._codec.gather(await session.prepare_async(**{**given, **smaller}))
        model = callback_context._invocation_context.agent.canonical_model
        return [answer async for answer in model.generate_content_async(llm_request)][-1]


class ContextTool(BaseTool):
    """A context tool as a tool of the kit."""

    def __init__(self, tool: Any) -> None:
        super().__init__(name=tool.name, description=tool.description)
        self._tool = tool

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=dict(self._tool.schema)
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> str:  # noqa: ARG002 - the kit's names
        """Run the tool."""
        return str(await self._tool.run(**self._tool.read_arguments(json.dumps(args))))


def make_tool(tool: Any) -> BaseTool:
    """Return a context tool as a tool of the kit."""
    return ContextTool(tool)


def _read_request(request: Any) -> dict[str, Any]:
    config, model = request.config, request.model or ""
    system = config.system_instruction or ""
    declared = [one for tool in config.tools or () for one in getattr(tool, "function_declarations", None) or ()]
    return {
        "messages": list(request.contents),
        "system": system if isinstance(system, str) else "\n".join(part.text or "" for part in system.parts or ()),
        "tools": [{"type": "function", "function": one.model_dump(mode="json", exclude_none=True)} for one in declared]
        or None,
        "model": model.rpartition("/")[2] or None,
    }


def _read_id(holder: types.FunctionCall | types.FunctionResponse) -> str:
    # The kit makes ids for calls that came without one, after the answer was stored: these never count.
    return "" if (holder.id or "").startswith("adk-") else holder.id or ""


def _read_result(result: types.FunctionResponse) -> str:
    answer = result.response or {}
    text = answer.get("result")
    return text if len(answer) == 1 and isinstance(text, str) else json.dumps(answer, ensure_ascii=False, default=str)
