"""Anthropic's messages. Blocks are sent back unchanged: thinking with its signature, calls with their input.

Chats ask for prompt caching with every request: a session's prefix is stable, so nearly all of it is a cache hit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from refold.formats.streamed import BlockAnswer, read_arguments
from refold.llm.client import AnthropicWriting, ProviderClient
from refold.llm.port import ChatReply, ChatRequest, name_reason

URL = "https://api.anthropic.com"
OUTPUT_TOKENS = 8_000
INVALID = "invalid_json"
_CACHE, _TEMPERATURE = "cache_control", "temperature"


@dataclass
class AnthropicModel(AnthropicWriting, ProviderClient[BlockAnswer]):
    """A model behind Anthropic's messages."""

    url: str = field(default=URL, repr=False)
    wire: str = field(default="anthropic", init=False)

    library: ClassVar[str] = "anthropic"
    client: ClassVar[str] = "AsyncAnthropic"
    resource: ClassVar[str] = "messages"
    limits_output: ClassVar[bool] = True

    @property
    def _base_url(self) -> str:
        return self.url.rstrip("/").removesuffix("/v1")

    def _write_body(self, request: ChatRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.name,
            "max_tokens": request.output_tokens or OUTPUT_TOKENS,
            "messages": list(request.messages),
            "stream": True,
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

    def _make_answer(self) -> BlockAnswer:
        return BlockAnswer()

    def _check_whole(self, payload: Any) -> None:
        if not isinstance(payload["content"], list) or not all(isinstance(one, dict) for one in payload["content"]):
            raise TypeError("content is not a list of blocks")

    def _write_reply(self, answer: BlockAnswer) -> ChatReply:
        kept: list[dict[str, Any]] = []
        for block, written in answer.list_blocks():
            kind = block.get("type")
            if kind == "tool_use":
                # The provider accepts only an object as input.
                block["input"] = read_arguments(written, {INVALID: written[:2_000]})
            # The provider rejects blank text and thinking that was cut off when they are sent back.
            is_cut = kind == "thinking" and not block.get("signature")
            if not is_cut and not (kind == "text" and not str(block.get("text") or "").strip()):
                kept.append(block)
        text = "".join(str(block.get("text") or "") for block in kept if block.get("type") == "text")
        message = {"role": "assistant", "content": kept or [{"type": "text", "text": "(no answer)"}]}
        return ChatReply(message, text, tuple(answer.calls), name_reason(answer.finish_reason), answer.usage)
