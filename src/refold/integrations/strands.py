"""Strands Agents: a plugin that keeps every model call inside its window.

    agent = Agent(model=model, tools=tools, plugins=[RefoldAgentPlugin("s1", workspace="work")])

Without ``session`` the agent's id is the session.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar

from refold.errors import ConfigError
from refold.formats import ModelReply
from refold.integrations import Adapter
from refold.integrations.parts import At, Block, PartKind, PartsCodec, image_at, read_text, write_tool

try:
    from strands.middleware import InvokeModelStage
    from strands.plugins import Plugin
    from strands.tools.tools import PythonAgentTool
    from strands.types.session import decode_bytes_values, encode_bytes_values
except ImportError as error:
    raise ConfigError(f"RefoldAgentPlugin needs strands-agents 1.62 or newer ({error})") from error


class StrandsCodec(PartsCodec):
    """Converts Strands' messages to chat messages and back; tracking ids and metadata are kept."""

    message, field = dict, "content"
    roles: ClassVar = {"tool": "user", "system": "user"}
    dump, load = staticmethod(encode_bytes_values), staticmethod(decode_bytes_values)
    kinds = (
        PartKind("text", text="text"),
        PartKind("call", name="toolUse.name", id="toolUse.toolUseId", arguments="toolUse.input"),
        PartKind(
            "result",
            id="toolResult.toolUseId",
            content=At(
                "toolResult.content", lambda part: _read_result(part["toolResult"]), lambda text: [{"text": text}]
            ),
        ),
        PartKind(
            "thinking",
            thinking="reasoningContent.reasoningText.text",
            signature="reasoningContent.reasoningText.signature",
        ),
        PartKind("image_url", url=image_at("image", "format", "source.bytes.data", "image/")),
    )


class RefoldAgentPlugin(Adapter, Plugin):
    """Prepares every model call and stores every answer. ``session_for(agent)`` has undo, recall, status."""

    name, codec = "refold", StrandsCodec()

    def find_name(self, agent: Any) -> str:
        """Return the agent's id."""
        return str(agent.agent_id)

    def init_agent(self, agent: Any) -> None:
        """Put the middleware, and the context tools if they are wanted, into an agent."""
        agent.add_middleware(InvokeModelStage, self.call_model)
        if self._has_tools:
            agent.tool_registry.process_tools(self.session_for(agent).tools("strands"))

    def call_model(self, context: Any, next_fn: Callable[[Any], Any]) -> AsyncIterator[Any]:
        """Send a request that fits and store the answer."""
        return self.session_for(context.agent).stream_async(
            lambda prepared: next_fn(context.replace(messages=prepared.messages)),
            reply=_read_answer,
            messages=context.messages,
            system=read_text(context.system_prompt),
            tools=[write_tool(one["name"], one["description"], one["inputSchema"]) for one in context.tool_specs or ()],
            model=context.model.get_config().get("model_id"),
        )


def make_tool(tool: Any) -> PythonAgentTool:
    """Return a context tool as a tool of Strands."""

    async def run(tool_use: Any, **_: Any) -> Any:
        text = await tool.run(**tool.read_arguments(tool_use["input"]))
        return {"toolUseId": tool_use["toolUseId"], "status": "success", "content": [{"text": text}]}

    spec = {"name": tool.name, "description": tool.description, "inputSchema": {"json": dict(tool.schema)}}
    return PythonAgentTool(tool.name, spec, run)


def _read_answer(event: Any) -> ModelReply | None:
    return ModelReply([event.message], event.usage) if isinstance(event, InvokeModelStage.result_event) else None


def _read_result(result: Block) -> Any:
    """Return a tool's result as text, or as blocks if it carries more than text."""
    texts = [block["text"] if "text" in block else json.dumps(block["json"], ensure_ascii=False)
             for block in result["content"] if "text" in block or "json" in block]  # fmt: skip
    if len(texts) == len(result["content"]):
        return "\n".join(texts)
    return [{"type": "text", "text": block["text"]} if "text" in block
            else {"type": "part", "part": encode_bytes_values(block)} for block in result["content"]]  # fmt: skip
