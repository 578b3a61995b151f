"""Anthropic's messages. Blocks go back as they came: thinking with its signature, calls with their input.

Chats ask for prompt caching with every request: a session's prefix is stable, so nearly all of it is a cache hit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from refold.llm.client import NO_KEY, AnthropicWriting, ProviderClient, ReplyCollector, count_whole, make_http_client
from refold.llm.port import ChatReply, ChatRequest, Delta, ToolCall, Usage, name_reason

URL = "https://api.anthropic.com"
OUTPUT_TOKENS = 8_000
INVALID = "invalid_json"
_CACHE, _TEMPERATURE = "cache_control", "temperature"
_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


@dataclass
class AnthropicModel(AnthropicWriting, ProviderClient):
    """A model behind Anthropic's messages."""

    url: str = field(default=URL, repr=False)
    wire: str = field(default="anthropic", init=False)

    library: ClassVar[str] = "anthropic"
    limits_output: ClassVar[bool] = True

    def _make_client(self, library: Any, timeout: Any) -> Any:
        return library.AsyncAnthropic(
            api_key=self.key or NO_KEY,
            base_url=self.url.rstrip("/").removesuffix("/v1"),
            timeout=timeout,
            max_retries=0,
            http_client=make_http_client(library),
        )

    def _write_body(self, request: ChatRequest) -> dict[str, Any]:
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
        # A single prompt is never read from the cache again; writing it there costs extra.
        is_chat = request.temperature is None
        if is_chat and _CACHE not in self._rejected:
            body[_CACHE] = {"type": "ephemeral"}
        if not is_chat and _TEMPERATURE not in self._rejected:
            # Recent SDKs dropped the parameter; many models still accept it.
            body["extra_body"] = {_TEMPERATURE: request.temperature}
        return body

    def _find_rejected(self, error: Exception, body: Mapping[str, Any]) -> str:
        # Reasoning models accept no temperature; servers that only resemble Anthropic's may not cache.
        optional = {_CACHE: _CACHE, "extra_body": _TEMPERATURE}
        return next((name for sent, name in optional.items() if sent in body and name in str(error)), "")

    async def _create(self, client: Any, body: dict[str, Any]) -> Any:
        return await client.messages.create(**body)

    def _make_collector(self, chars_max: int) -> ReplyCollector:
        return BlockCollector(chars_max)

    def _read_usage(self, usage: Mapping[str, Any]) -> Usage:
        cached = count_whole(usage.get("cache_read_input_tokens"))
        written = count_whole(usage.get("cache_creation_input_tokens"))
        total = count_whole(usage.get("input_tokens")) + cached + written
        return Usage(total, count_whole(usage.get("output_tokens")), cached)


@dataclass
class BlockCollector(ReplyCollector):
    """Collects the blocks of one message by their index."""

    blocks: dict[int, dict[str, Any]] = field(default_factory=dict)
    inputs: dict[int, list[str]] = field(default_factory=dict)

    def take(self, event: Any) -> list[Delta]:
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
        blocks = payload["content"]
        if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
            raise TypeError("content is not a list of blocks")
        self.blocks = dict(enumerate(blocks))
        self.reason = str(payload.get("stop_reason") or "end_turn")
        self.usage = dict(payload.get("usage") or {})
        return self.finish()

    def finish(self) -> ChatReply:
        if self.is_full:
            self.reason = "max_tokens"
        self.check_end()
        calls: list[ToolCall] = []
        kept: list[dict[str, Any]] = []
        for index in sorted(self.blocks):
            block = self.blocks[index]
            if block.get("type") == "tool_use":
                block, call = self._close_call(index, block)
                calls.append(call)
            # The provider rejects blank text and thinking that was cut off when they are sent back.
            is_cut = block.get("type") == "thinking" and not block.get("signature")
            if not is_cut and not (block.get("type") == "text" and not str(block.get("text") or "").strip()):
                kept.append(block)
        text = "".join(str(block.get("text") or "") for block in kept if block.get("type") == "text")
        message = {"role": "assistant", "content": kept or [{"type": "text", "text": "(no answer)"}]}
        return ChatReply(message, text, tuple(calls), name_reason(self.reason), self.usage)

    def _close_call(self, index: int, block: dict[str, Any]) -> tuple[dict[str, Any], ToolCall]:
        """Return a call's block with its input parsed; the provider accepts only an object there."""
        written = "".join(self.inputs.get(index, ())) or json.dumps(block.get("input") or {}, ensure_ascii=False)
        try:
            value = json.loads(written)
        except (ValueError, RecursionError):
            value = None
        given = value if isinstance(value, dict) else {INVALID: written[:2_000]}
        return {**block, "input": given}, ToolCall(str(block.get("id")), str(block.get("name")), written)
