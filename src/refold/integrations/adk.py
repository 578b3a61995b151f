"""Google's Agent Development Kit: a plugin that keeps every model request inside its window.

    runner = Runner(app=App(name="trip", root_agent=agent, plugins=[RefoldPlugin(workspace="work")]), …)

Without ``session`` each session of the kit is one of refold's, and each sub-agent has its own.
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any, ClassVar

from refold.errors import ConfigError
from refold.formats import ModelReply
from refold.formats.intake import to_plain
from refold.integrations import Adapter
from refold.integrations.parts import At, Block, PartKind, PartsCodec, image_at
from refold.manager.managed import ManagedSession

try:
    from google.adk.plugins.base_plugin import BasePlugin
    from google.adk.tools.function_tool import FunctionTool
    from google.genai import types
except ImportError as error:
    raise ConfigError(f"RefoldPlugin needs google-adk 1.30 or newer ({error})") from error


def _id_at(place: str) -> At:
    # The kit makes ids for calls that came without one, after the answer was stored: these never count.
    found = At(f"{place}.id")
    return At(found.path, lambda part: "" if (found.take(part) or "").startswith("adk-") else found.take(part))


def _read_result(part: Block) -> str | None:
    found = part.get("function_response")
    if found is None or "parts" in found:
        return None
    text = found.get("response", {}).get("result")
    is_text = isinstance(text, str) and len(found["response"]) == 1
    return text if is_text else json.dumps(found.get("response", {}), ensure_ascii=False, default=str)


_TEXT = At("text", lambda part: part.get("text") or None)


class AdkCodec(PartsCodec):
    """Converts the contents of a request to chat messages and back; signatures and metadata of parts are kept."""

    message, field = types.Content, "parts"
    roles: ClassVar = {"assistant": "model", "tool": "user", "system": "user"}
    kinds = (
        PartKind("call", name="function_call.name", id=_id_at("function_call"), arguments="function_call.args"),
        PartKind(
            "result",
            content=At("function_response.response", _read_result, lambda text: {"result": text}),
            name="function_response.name",
            id=_id_at("function_response"),
        ),
        PartKind("thinking", None, {"thought": True}, thinking=_TEXT, signature="thought_signature"),
        PartKind("text", text=_TEXT),
        PartKind("image_url", url=image_at("inline_data", "mime_type", "data")),
    )

    def dump(self, part: types.Part) -> Any:
        """Return a part as JSON."""
        return part.model_dump(mode="json", exclude_none=True)

    def load(self, part: Any) -> types.Part:
        """Return the part that was dumped."""
        return types.Part.model_validate_json(json.dumps(part))


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

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        """Make a request fit its window."""
        if getattr(llm_request, "previous_interaction_id", None):
            return  # The provider has the history; the request carries only what is new.
        session = self.session_for(callback_context)
        if self._has_tools:
            llm_request.append_tools(session.tools("adk"))
        llm_request.contents = await self.fit(session, _read_request(llm_request))

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        """Store a whole answer with its usage."""
        if not llm_response.partial and llm_response.content and llm_response.content.parts:
            answer = ModelReply([llm_response.content], llm_response.usage_metadata)
            await self.session_for(callback_context).commit_async(answer)

    async def on_model_error_callback(self, *, callback_context: Any, llm_request: Any, error: Exception) -> Any:
        """Answer a request that was refused as too long with a shorter one, once; this answer is not streamed."""
        contents = await self.refit(self.session_for(callback_context), error)
        if contents is None:
            return None
        llm_request.contents = contents
        model = callback_context._invocation_context.agent.canonical_model
        return [answer async for answer in model.generate_content_async(llm_request)][-1]


def make_tool(tool: Any) -> FunctionTool:
    """Return a context tool as a tool of the kit."""
    return FunctionTool(tool.function)


def _read_request(request: Any) -> dict[str, Any]:
    config = request.config
    system = config.system_instruction or ""
    declared = [one for tool in config.tools or () for one in getattr(tool, "function_declarations", None) or ()]
    return {
        "messages": list(request.contents),
        "system": system if isinstance(system, str) else "\n".join(part.text or "" for part in system.parts or ()),
        "tools": [{"type": "function", "function": to_plain(one)} for one in declared],
        "model": (request.model or "").rpartition("/")[2] or None,
    }
