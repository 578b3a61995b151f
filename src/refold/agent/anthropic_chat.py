"""Talks through Anthropic's messages. Blocks go back as they came: thinking with its signature, calls with their input.

The official client is imported with the first request. Prompt caching is asked for with every request: a session's
prefix is stable, so that nearly all of it is read from the cache.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar

from refold.agent.client import ChatClient, Collected
from refold.agent.wire import ChatReply, ChatRequest, Delta, ToolCall
from refold.agent.writing import AnthropicWriting
from refold.errors import Unavailable
from refold.llm.anthropic import URL
from refold.llm.client import NO_KEY
from refold.llm.model import name_reason

OUTPUT_TOKENS = 8_000
INVALID = "invalid_json"
_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


@dataclass
class AnthropicChat(AnthropicWriting, ChatClient):
    """A model behind Anthropic's messages. ``streams=False`` asks for whole answers."""

    url: str = field(default=URL, repr=False)
    caches: bool = True
    wire: str = field(default="anthropic", init=False)

    library: ClassVar[str] = "anthropic"
    limits_output: ClassVar[bool] = True

    def _make_client(self, library: Any, **shared: Any) -> Any:
        url = self.url.rstrip("/").removesuffix("/v1")
        return library.AsyncAnthropic(api_key=self.key or NO_KEY, base_url=url, max_retries=0, **shared)

    def _collect(self, chars_max: int) -> Collected:
        return MessageCollected(chars_max)

    async def _send(self, library: Any, request: ChatRequest) -> Any:
        body: dict[str, Any] = {
            "model": self.name,
            "max_tokens": request.output_tokens or OUTPUT_TOKENS,
            "messages": list(request.messages),
            "stream": self.streams,
        }
        if request.system:
            body["system"] = request.system
        if request.tools:
            body["tools"] = list(request.tools)
        if self.caches:
            body["cache_control"] = {"type": "ephemeral"}
        try:
            return await self._client.messages.create(**body)
        except library.BadRequestError as error:
            # Servers that only resemble Anthropic's may not know it.
            if not self.caches or "cache_control" not in str(error):
                raise
            self.caches = False
            del body["cache_control"]
            return await self._client.messages.create(**body)


@dataclass
class MessageCollected(Collected):
    """A message while it comes in: its blocks by index."""

    blocks: dict[int, dict[str, Any]] = field(default_factory=dict)
    inputs: dict[int, list[str]] = field(default_factory=dict)

    def take(self, event: Any) -> list[Delta]:
        """Take one event of the stream; return what a reader may see of it."""
        if event.type == "message_start":
            self.usage = event.message.usage.model_dump(exclude_none=True)
        elif event.type == "content_block_start":
            self.blocks[event.index] = event.content_block.model_dump(exclude_none=True)
        elif event.type == "content_block_delta":
            return self._take_delta(event.index, event.delta)
        elif event.type == "message_delta":
            self.reason = event.delta.stop_reason or self.reason
            self.usage |= event.usage.model_dump(exclude_none=True)
        return []

    def _take_delta(self, index: int, delta: Any) -> list[Delta]:
        block = self.blocks.setdefault(index, {"type": "text", "text": ""})
        if delta.type == "input_json_delta":
            self.inputs.setdefault(index, []).append(delta.partial_json)
            self.chars += len(delta.partial_json)
            return []
        name = _DELTAS.get(delta.type)
        if name is None:
            return []
        piece = getattr(delta, name)
        block[name] = (block.get(name) or "") + piece
        self.chars += len(piece)
        if name == "signature" or not piece:
            return []
        return [Delta("thinking" if name == "thinking" else "text", piece)]

    def read_whole(self, payload: Any) -> ChatReply:
        """Return a whole answer, already parsed."""
        blocks = payload.get("content") if isinstance(payload, dict) else None
        if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
            raise Unavailable("the provider answered 200 with something that is no message; try again")
        self.blocks = dict(enumerate(blocks))
        self.reason = str(payload.get("stop_reason") or "end_turn")
        self.usage = dict(payload.get("usage") or {})
        return self.finish()

    def finish(self) -> ChatReply:
        """Return the reply; raise Unavailable if the stream ended before the model did."""
        if self.is_full:
            self.reason = "max_tokens"
        if not self.reason:
            raise Unavailable("the answer broke off before its end; try again")
        calls: list[ToolCall] = []
        kept: list[dict[str, Any]] = []
        for index in sorted(self.blocks):
            block = self.blocks[index]
            if block.get("type") == "tool_use":
                block, call = self._close_call(index, block)
                calls.append(call)
            # Blocks that the provider would refuse to read again: blank text, thinking that was cut off.
            is_cut = block.get("type") == "thinking" and not block.get("signature")
            if not is_cut and not (block.get("type") == "text" and not str(block.get("text") or "").strip()):
                kept.append(block)
        text = "".join(str(block.get("text") or "") for block in kept if block.get("type") == "text")
        message = {"role": "assistant", "content": kept or [{"type": "text", "text": "(no answer)"}]}
        return ChatReply(message, text, tuple(calls), name_reason(self.reason), self.usage)

    def _close_call(self, index: int, block: dict[str, Any]) -> tuple[dict[str, Any], ToolCall]:
        """Return a call's block with its input parsed; the provider takes a table and nothing else."""
        written = "".join(self.inputs.get(index, ())) or json.dumps(block.get("input") or {}, ensure_ascii=False)
        try:
            value = json.loads(written)
        except ValueError:
            value = None
        given = value if isinstance(value, dict) else {INVALID: written[:2_000]}
        return {**block, "input": given}, ToolCall(str(block.get("id")), str(block.get("name")), written)
