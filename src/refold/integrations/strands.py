"""Strands Agents: a plugin that keeps every model call inside its window.

    agent = Agent(model=model, tools=tools, plugins=[RefoldAgentPlugin("s1", workspace="work")])

Without ``session`` the agent's id is the session.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from refold.errors import ConfigError
from refold.integrations import open_session
from refold.integrations.parts import Block, PartsCodec, read_text
from refold.manager.managed import ManagedSession

try:
    from strands.middleware import InvokeModelStage
    from strands.plugins import Plugin
    from strands.tools.tools import PythonAgentTool
    from strands.types.session import decode_bytes_values, encode_bytes_values
except ImportError as error:
    raise ConfigError(f"RefoldAgentPlugin needs strands-agents 1.62 or newer ({error})") from error


class StrandsCodec(PartsCodec):
    """Converts Strands' messages to chat messages and back; tracking ids and metadata are kept."""

    def open(self, message: Block) -> tuple[str, list[Block]]:
        """Return a message's role and blocks."""
        return message["role"], message["content"]

    def close(self, role: str, parts: list[Block], origin: Block | None) -> Block:
        """Return a message with these blocks."""
        named = {"role": "assistant" if role == "assistant" else "user"} if origin is None else origin
        return {**named, "content": parts}

    def read(self, part: Block) -> Block:
        """Return a block of Strands as a block of the codec."""
        if "text" in part:
            return {"type": "text", "text": part["text"]}
        if "toolUse" in part:
            call = part["toolUse"]
            written = json.dumps(call["input"], ensure_ascii=False)
            return {"type": "call", "id": call["toolUseId"], "name": call["name"], "arguments": written}
        if "toolResult" in part:
            result = part["toolResult"]
            return {"type": "result", "id": result["toolUseId"], "content": _read_result(result["content"])}
        thought = part.get("reasoningContent", {}).get("reasoningText")
        if thought is not None:
            return {"type": "thinking", "thinking": thought["text"], "signature": thought.get("signature") or ""}
        if "bytes" in part.get("image", {}).get("source", {}):
            image = part["image"]
            written = base64.b64encode(image["source"]["bytes"]).decode()
            return {"type": "image_url", "image_url": {"url": f"data:image/{image['format']};base64,{written}"}}
        return {"type": "strands_block", "block": encode_bytes_values(part)}

    def make(self, block: Block, origin: Block | None) -> Block:
        """Return the block of Strands for a block."""
        kind = block["type"]
        if kind == "call":
            known = origin["toolUse"] if origin else {"toolUseId": block["id"], "name": block["name"]}
            return {"toolUse": {**known, "input": json.loads(block["arguments"])}}
        if kind == "result":
            known = origin["toolResult"] if origin else {"toolUseId": block["id"], "status": "success"}
            return {"toolResult": {**known, "content": [{"text": read_text(block["content"])}]}}
        if kind == "thinking":
            thought = {"text": block["thinking"], "signature": block["signature"]}
            return {"reasoningContent": {"reasoningText": thought}}
        if kind == "image_url":
            head, _, written = block["image_url"]["url"].partition(";base64,")
            source = {"bytes": base64.b64decode(written)}
            return {"image": {"format": head.removeprefix("data:image/"), "source": source}}
        return decode_bytes_values(block["block"]) if kind == "strands_block" else {"text": block["text"]}


class RefoldAgentPlugin(Plugin):
    """Prepares every model call and stores every answer. ``session_for(agent)`` has undo, recall, status."""

    name = "refold"

    def __init__(
        self, session: str | Callable[[Any], str] | None = None, *, context_tools: bool = False, **options: Any
    ) -> None:
        super().__init__()
        self._session, self._has_tools = session, context_tools
        self._codec = StrandsCodec()
        self._base = open_session("unnamed", codec=self._codec, format="openai-chat", **options)
        self.manager = self._base.manager

    def session_for(self, agent: Any) -> ManagedSession:
        """Return the session of an agent: as named here, or by the agent's id."""
        named = self._session(agent) if callable(self._session) else self._session
        return self._base.named(named or agent.agent_id)

    def init_agent(self, agent: Any) -> None:
        """Put the middleware, and the context tools if they are wanted, into an agent."""
        agent.add_middleware(InvokeModelStage, self.call_model)
        if self._has_tools:
            agent.tool_registry.process_tools(self.session_for(agent).tools("strands"))

    async def call_model(self, context: Any, next_fn: Callable[[Any], Any]) -> AsyncIterator[Any]:
        """Send a request that fits and store the answer."""
        session = self.session_for(context.agent)
        events = session.stream_async(
            lambda prepared: next_fn(context.replace(messages=self._codec.gather(prepared))), **_read_request(context)
        )
        async for event in events:
            if isinstance(event, InvokeModelStage.result_event):
                await session.commit_async([event.message], _read_usage(event.usage))
            yield event


def make_tool(tool: Any) -> PythonAgentTool:
    """Return a context tool as a tool of Strands."""

    async def run(tool_use: Any, **_: Any) -> Any:
        text = await tool.run(**tool.read_arguments(json.dumps(tool_use["input"])))
        return {"toolUseId": tool_use["toolUseId"], "status": "success", "content": [{"text": str(text)}]}

    spec = {"name": tool.name, "description": tool.description, "inputSchema": {"json": dict(tool.schema)}}
    return PythonAgentTool(tool.name, spec, run)


def _read_request(context: Any) -> dict[str, Any]:
    system = context.system_prompt or ""
    tools = [
        {"type": "function", "function": {"name": one["name"], "description": one["description"],
         "parameters": one["inputSchema"]["json"]}}
        for one in context.tool_specs or ()
    ]  # fmt: skip
    return {
        "messages": context.messages,
        "system": system if isinstance(system, str) else "\n".join(block.get("text", "") for block in system),
        "tools": tools or None,
        "model": context.model.get_config().get("model_id"),
    }


def _read_result(content: list[Block]) -> Any:
    """Return a tool's result as text, or as blocks if it carries more than text."""
    if all("text" in block or "json" in block for block in content):
        return "\n".join(
            block["text"] if "text" in block else json.dumps(block["json"], ensure_ascii=False) for block in content
        )
    return [
        {"type": "text", "text": block["text"]}
        if "text" in block
        else {"type": "strands_block", "block": encode_bytes_values(block)}
        for block in content
    ]


def _read_usage(usage: Any) -> dict[str, Any] | None:
    if not usage or not usage.get("inputTokens"):
        return None
    cached = usage.get("cacheReadInputTokens") or 0
    return {
        "prompt_tokens": usage["inputTokens"],
        "completion_tokens": usage["outputTokens"],
        "prompt_tokens_details": {"cached_tokens": cached},
    }
