"""Strands Agents: a plugin that keeps every model call inside its window.

    agent = Agent(model=model, tools=tools, plugins=[RefoldAgentPlugin("s1", workspace="work")])

Without ``session`` the agent's id is the session.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar

from refold.formats import ModelReply
from refold.integrations import MiddlewareAdapter, needs
from refold.integrations.parts import At, PartKind, PartsCodec

with needs("RefoldAgentPlugin", "strands-agents 1.62"):
    from strands.middleware import InvokeModelStage
    from strands.plugins import Plugin
    from strands.tools.tools import PythonAgentTool
    from strands.types.session import decode_bytes_values, encode_bytes_values


_FORMAT = At("format", write=lambda kind: kind.removeprefix("image/"))
_BYTES = {"source.bytes.__bytes_encoded__": True}


class StrandsCodec(PartsCodec):
    """Converts Strands' messages to chat messages and back; tracking ids and metadata are kept."""

    message, field = dict, "content"
    roles: ClassVar = {"tool": "user", "system": "user"}
    dump, load = staticmethod(encode_bytes_values), staticmethod(decode_bytes_values)
    kinds = (
        PartKind("text", text="text"),
        PartKind("text", text="json"),
        PartKind("call", at="toolUse", name="name", id="toolUseId", arguments="input"),
        PartKind("result", at="toolResult", id="toolUseId", content=At("content", write=lambda text: [{"text": text}])),
        PartKind("thinking", at="reasoningContent.reasoningText", thinking="text", signature="signature"),
        PartKind("image_url", None, _BYTES, at="image", data="source.bytes.data", media_type=_FORMAT),
    )


class RefoldAgentPlugin(MiddlewareAdapter, Plugin):
    """Prepares every model call and stores every answer. ``session_for(agent)`` has undo, recall, status."""

    name, codec, session_at = "refold", StrandsCodec(), "agent_id"

    def init_agent(self, agent: Any) -> None:
        """Put the middleware, and the context tools if they are wanted, into an agent."""
        agent.add_middleware(InvokeModelStage, self._call_model)
        agent.tool_registry.process_tools(self.list_tools(agent))

    def _call_model(self, context: Any, next_fn: Callable[[Any], Any]) -> AsyncIterator[Any]:
        """Send a request that fits and store the answer."""
        return self.session_for(context.agent).stream_async(**self.ask(context, next_fn), reply=_read_answer)

    def read_request(self, request: Any) -> dict[str, Any]:
        model = request.model.get_config().get("model_id")
        return {"system": request.system_prompt, "tools": request.tool_specs, "model": model}


def make_tool(tool: Any) -> PythonAgentTool:
    """Return a context tool as a tool of Strands."""

    async def run(tool_use: Any, **_: Any) -> Any:
        text = await tool.run(**tool.read_arguments(tool_use["input"]))
        return {"toolUseId": tool_use["toolUseId"], "status": "success", "content": [{"text": text}]}

    spec = {"name": tool.name, "description": tool.description, "inputSchema": {"json": dict(tool.schema)}}
    return PythonAgentTool(tool.name, spec, run)


def _read_answer(event: Any) -> ModelReply | None:
    return ModelReply([event.message], event.usage) if isinstance(event, InvokeModelStage.result_event) else None
