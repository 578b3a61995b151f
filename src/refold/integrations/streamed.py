"""Streamed answers: put together while they pass, so that the whole answer can be stored when the stream ends."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

from refold.formats.intake import to_plain
from refold.manager.managed import ManagedSession

Raw = dict[str, Any]
_LISTED = ("text", "thinking", "signature", "partial_json")


class StreamedReply:
    """An answer as its events bring it: chunks of chat completions, events of Responses or of Anthropic's messages."""

    def __init__(self) -> None:
        self.usage: Raw | None = None
        self.finish_reason: str | None = None
        self.is_ended = False  # Nothing that matters follows: many readers stop here.
        self._message: Raw = {}
        self._calls: dict[int, Raw] = {}
        self._blocks: dict[int, Raw] = {}
        self._response: Raw | None = None

    @property
    def is_done(self) -> bool:
        """True once the model has said all it has to say."""
        return self.finish_reason is not None or self._response is not None

    @property
    def reply(self) -> Any:
        """The whole answer, as ``session.commit`` takes it."""
        if self._response is not None:
            return self._response
        if self._blocks:
            return {"role": "assistant", "content": [_close(self._blocks[at]) for at in sorted(self._blocks)]}
        message = {"role": "assistant", "content": None, **self._message}
        if self._calls:
            message["tool_calls"] = [self._calls[at] for at in sorted(self._calls)]
        return message

    def add(self, event: Any) -> None:
        """Take one event in; what is not understood is left out."""
        raw = event if isinstance(event, dict) else to_plain(event)
        if not isinstance(raw, dict):
            return
        if "choices" in raw:
            self._add_chunk(raw)
        elif str(raw.get("type", "")).startswith("response."):
            if raw["type"] in ("response.completed", "response.incomplete"):
                self._response, self.is_ended = raw.get("response"), True
        else:
            self._add_event(raw)

    def _add_chunk(self, raw: Raw) -> None:
        self.usage = raw.get("usage") or self.usage
        self.is_ended = self.finish_reason is not None and not raw["choices"]
        for choice in raw["choices"]:
            if choice.get("index", 0):
                continue
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            for key, piece in (choice.get("delta") or {}).items():
                if key == "tool_calls":
                    for call in piece or ():
                        self._add_call(call)
                elif key != "role" and isinstance(piece, str) and piece:
                    self._message[key] = (self._message.get(key) or "") + piece

    def _add_call(self, piece: Raw) -> None:
        call = self._calls.setdefault(piece.get("index", 0), {"id": "", "type": "function", "function": {}})
        call["id"] = piece.get("id") or call["id"]
        for key, text in (piece.get("function") or {}).items():
            if isinstance(text, str):
                call["function"][key] = call["function"].get(key, "") + text

    def _add_event(self, raw: Raw) -> None:
        kind = raw.get("type")
        if kind == "message_start":
            self.usage = dict(raw["message"].get("usage") or {})
        elif kind == "content_block_start":
            self._blocks[raw["index"]] = dict(raw["content_block"])
        elif kind == "content_block_delta" and raw["index"] in self._blocks:
            block = self._blocks[raw["index"]]
            for key, piece in raw["delta"].items():
                if key in _LISTED and isinstance(piece, str):
                    block[key] = (block.get(key) or "") + piece
        elif kind == "message_stop":
            self.is_ended = True
        elif kind == "message_delta":
            self.finish_reason = raw["delta"].get("stop_reason") or self.finish_reason
            self.usage = {**(self.usage or {}), **(raw.get("usage") or {})}


def _close(block: Raw) -> Raw:
    """Return a block of Anthropic's with its input read, which comes as pieces of JSON."""
    if "partial_json" not in block:
        return block
    written = block.pop("partial_json")
    try:
        return {**block, "input": json.loads(written)}
    except ValueError:
        return {**block, "input": {}}


def follow(stream: Iterator[Any], session: ManagedSession) -> Iterator[Any]:
    """Yield a stream's events; store the answer as soon as it is whole, also if nobody reads on to the end."""
    reply, is_stored = StreamedReply(), False
    try:
        for event in stream:
            reply.add(event)
            if reply.is_ended and not is_stored:
                is_stored = True
                session.commit(reply.reply, reply.usage, finish_reason=reply.finish_reason)
            yield event
    finally:
        if reply.is_done and not is_stored:
            session.commit(reply.reply, reply.usage, finish_reason=reply.finish_reason)


async def follow_async(stream: AsyncIterator[Any], session: ManagedSession) -> AsyncIterator[Any]:
    """The same as ``follow``, for async streams."""
    reply, is_stored = StreamedReply(), False
    try:
        async for event in stream:
            reply.add(event)
            if reply.is_ended and not is_stored:
                is_stored = True
                await session.commit_async(reply.reply, reply.usage, finish_reason=reply.finish_reason)
            yield event
    finally:
        if reply.is_done and not is_stored:
            await session.commit_async(reply.reply, reply.usage, finish_reason=reply.finish_reason)


def store(answer: Any, session: ManagedSession) -> Any:
    """Store an answer and return it; a streamed one is stored when it ends, by the stream that is returned."""
    if hasattr(answer, "http_response"):  # A raw response of the providers' SDKs, which keeps what it parsed.
        store(answer.parse(), session)
    elif hasattr(answer, "_iterator"):  # A stream of the providers' SDKs, which applications know by its class.
        answer._iterator = follow(answer._iterator, session)
    elif hasattr(answer, "__next__"):
        return follow(answer, session)
    else:
        session.commit(answer)
    return answer


async def store_async(answer: Any, session: ManagedSession) -> Any:
    """The same as ``store``, for callers with an event loop."""
    if hasattr(answer, "http_response"):
        parsed = answer.parse()
        await store_async(await parsed if inspect.isawaitable(parsed) else parsed, session)
    elif hasattr(answer, "_iterator"):
        answer._iterator = follow_async(answer._iterator, session)
    elif hasattr(answer, "__anext__"):
        return follow_async(answer, session)
    else:
        await session.commit_async(answer)
    return answer
