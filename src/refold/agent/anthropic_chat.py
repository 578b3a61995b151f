"""Talks through Anthropic's messages. Blocks go back as they came: thinking with its signature, calls with their input.

The official client is imported with the first request. Prompt caching is asked for with every request: a session's
prefix is stable, so that nearly all of it is read from the cache.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from refold.agent.wire import ChatReply, ChatRequest, Delta, ToolCall, ToolResult
from refold.errors import Unavailable
from refold.llm.errors import classify, show_url
from refold.llm.model import name_reason
from refold.llm.reading import check_kind, load_library

URL = "https://api.anthropic.com"
NO_KEY = "none"
CONNECT_S = 15.0
OUTPUT_TOKENS = 8_000
INVALID = "invalid_json"
_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


@dataclass
class AnthropicChat:
    """A model behind Anthropic's messages. ``streams=False`` asks for whole answers."""

    name: str
    key: str = field(default="", repr=False)
    url: str = field(default=URL, repr=False)
    streams: bool = True
    caches: bool = True
    wire: str = field(default="anthropic", init=False)
    _client: Any = field(default=None, init=False, repr=False)

    @property
    def source(self) -> str:
        """Model and address as messages name them, without anything secret."""
        return f"{self.name} at {show_url(self.url)}"

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta | ChatReply]:
        """Yield pieces, then the whole reply."""
        try:
            async for item in self._stream(request):
                yield item
        except TimeoutError:
            raise Unavailable(f"{self.source} sent nothing for {request.stall_s:g} s") from None
        except Exception as error:  # noqa: BLE001 - the client's errors, and those of what it stands on
            raise classify(error, source=self.source, secrets=(self.key,)) from None

    async def _stream(self, request: ChatRequest) -> AsyncIterator[Delta | ChatReply]:
        library = await load_library("anthropic")
        response = await self._send(library, request)
        collected = Collected(request.chars_max)
        if not self.streams:
            yield collected.read_whole(response.model_dump(exclude_none=True))
            return
        async with response:
            kind = response.response.headers.get("content-type", "")
            check_kind(kind, self.source)
            if kind.startswith("application/json"):
                yield collected.read_body(await response.response.aread())
                return
            events = aiter(response)
            while not collected.is_full:
                async with asyncio.timeout(request.stall_s):
                    try:
                        event = await anext(events)
                    except StopAsyncIteration:
                        break
                piece = collected.take_event(event)
                if piece is not None:
                    yield piece
        yield collected.finish()

    async def _send(self, library: Any, request: ChatRequest) -> Any:
        if self._client is None:
            self._client = library.AsyncAnthropic(
                api_key=self.key or NO_KEY,
                base_url=self.url.rstrip("/").removesuffix("/v1"),
                timeout=library.Timeout(request.stall_s, connect=CONNECT_S),
                max_retries=0,
            )
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

    def write_tools(self, tools: Sequence[Any]) -> list[dict[str, Any]]:
        """Return tools as messages take them."""
        return [{"name": tool.name, "description": tool.description, "input_schema": tool.schema} for tool in tools]

    def write_user(self, text: str) -> dict[str, Any]:
        """Return a user's message."""
        return {"role": "user", "content": text}

    def write_answer(self, text: str) -> dict[str, Any]:
        """Return an assistant's message that is text alone."""
        return {"role": "assistant", "content": [{"type": "text", "text": text}]}

    def write_results(self, results: Sequence[ToolResult]) -> list[dict[str, Any]]:
        """Return one user message with all results, as the provider wants them."""
        blocks = [
            {
                "type": "tool_result",
                "tool_use_id": one.call.id,
                "content": one.text,
                **({"is_error": True} if one.is_error else {}),
            }
            for one in results
        ]
        return [{"role": "user", "content": blocks}]

    async def aclose(self) -> None:
        """Close connections; the next request opens them again."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


@dataclass
class Collected:
    """An answer while it comes in: its blocks by index, bounded by ``chars_max``."""

    chars_max: int
    blocks: dict[int, dict[str, Any]] = field(default_factory=dict)
    inputs: dict[int, list[str]] = field(default_factory=dict)
    reason: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    chars: int = 0

    @property
    def is_full(self) -> bool:
        return self.chars > self.chars_max

    def take_event(self, event: Any) -> Delta | None:
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
        return None

    def _take_delta(self, index: int, delta: Any) -> Delta | None:
        block = self.blocks.setdefault(index, {"type": "text", "text": ""})
        if delta.type == "input_json_delta":
            self.inputs.setdefault(index, []).append(delta.partial_json)
            self.chars += len(delta.partial_json)
            return None
        name = _DELTAS.get(delta.type)
        if name is None:
            return None
        piece = getattr(delta, name)
        block[name] = (block.get(name) or "") + piece
        self.chars += len(piece)
        if name == "signature" or not piece:
            return None
        return Delta("thinking" if name == "thinking" else "text", piece)

    def read_body(self, body: bytes) -> ChatReply:
        """Return the answer of a server that does not stream; raise Unavailable if it is none."""
        try:
            payload = json.loads(body)
        except ValueError:
            payload = None
        return self.read_whole(payload)

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
