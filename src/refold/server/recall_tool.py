"""A recall tool that the gateway adds to requests and answers itself, so that an agent can read folded content.

The tool is appended to the client's tools from the first request on, so the cached prefix stays the same. When the
model calls it, the gateway asks the model again with the result and relays only the final answer: the client never sees
the call. Calls of the client's tools in the same answer are dropped; the model repeats them when it has the result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import aiohttp
import orjson

from refold.agent.context_tools import PAGE_CHARS, Texts
from refold.errors import HandleUnknown, LedgerError
from refold.formats.streamed import StreamedAnswer, ToolCall, list_objects, read_arguments
from refold.manager import ContextCompressionManager
from refold.server.body import Unreadable, add_to_array, dump_json, parse_json
from refold.server.recall_stream import AnthropicStream, ChatStream, RecallStream, ResponsesStream
from refold.server.request import Send, Watch, choose_response_headers
from refold.server.upstream import BrokenOff, relay_answer
from refold.server.wires import Wire
from refold.tokens import counter_for

NAME = "refold_recall"
ROUNDS_MAX = 3
# Tokens of all results of one turn; if less than the minimum is left in the window, no result is shown.
RESULT_TOKENS_MAX, RESULT_TOKENS_MIN = 4_000, 120
# How many calls of one answer are answered; the result of the others says to call again.
CALLS_MAX, PASSAGES_MAX, QUERY_CHARS_MAX = 4, 5, 2_000
# A margin, because the result and its frame may exceed our count.
ROOM_SHARE = 0.9
ANSWER_BYTES_MAX = 16_000_000
_DESCRIPTION = (
    "Search everything said earlier in this conversation, including parts that are no longer shown. "
    "Give a query (a few exact words, a name or a number), or a handle such as m:4f2a91c3 to read that original, "
    "from a character offset on."
)
_PARAMETERS = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "handle": {"type": "string"}, "offset": {"type": "integer"}},
    "additionalProperties": False,
}
_FUNCTION = {"name": NAME, "description": _DESCRIPTION, "parameters": _PARAMETERS}


@dataclass(frozen=True, slots=True)
class RecallCall:
    """A call of the recall tool."""

    id: str
    query: str
    handle: str
    offset: int

    @classmethod
    def read(cls, call: ToolCall) -> RecallCall:
        """Return a call with the arguments that are usable: words to look for, or a handle and where to begin."""
        arguments = read_arguments(call.arguments)
        query, handle, offset = (arguments.get(name) for name in ("query", "handle", "offset"))
        return cls(
            call.id,
            query.strip()[:QUERY_CHARS_MAX] if isinstance(query, str) else "",
            handle.strip()[:100] if isinstance(handle, str) else "",
            offset if isinstance(offset, int) and 0 <= offset < 1_000_000_000 else 0,
        )


def find_calls(answer: StreamedAnswer) -> list[RecallCall]:
    """Return the recall calls of an answer."""
    return [RecallCall.read(call) for call in answer.calls if call.name == NAME]


class TurnRecalls:
    """Answers the recall calls of one turn from a session, within the room that its window has left."""

    def __init__(self, manager: ContextCompressionManager, session_id: str, tokens_sent: int, model: str) -> None:
        self._manager = manager
        self._session_id = session_id
        self._tokens_sent = tokens_sent
        self._count = counter_for(model or None, manager.config.tokenizer).count_text
        self._left: int | None = None

    @cached_property
    def texts(self) -> Texts:
        """Our sentences in the language of the conversation; English if it cannot be read."""
        try:
            return Texts(self._manager.find_language(self._session_id))
        except LedgerError:
            return Texts("en")

    def answer(self, calls: Sequence[RecallCall]) -> dict[str, str]:
        """Return the results of the calls of one answer, by the ids of the calls. Blocks."""
        if self._left is None:
            self._left = min(RESULT_TOKENS_MAX, self._find_room())
        results: dict[str, str] = {}
        for call in calls[:CALLS_MAX]:
            results[call.id] = found = self._answer_one(call, self._left)
            self._left -= self._count(found)
        return results | {call.id: self.texts("one_at_a_time") for call in calls[CALLS_MAX:] if call.id not in results}

    def refuse(self, results: dict[str, str]) -> dict[str, str]:
        """Return results without content: the provider refused those with it as too long."""
        self._left = 0
        return dict.fromkeys(results, self.texts("no_room"))

    def _find_room(self) -> int:
        """Return how many tokens the results may have; the maximum if the session cannot be read: it has no results."""
        try:
            now = self._manager.status(self._session_id)
        except LedgerError:
            return RESULT_TOKENS_MAX
        # A full view still leaves part of what is reserved for the answer.
        return int(max((now.hard - self._tokens_sent) * ROOM_SHARE, (now.window - now.hard) / 2))

    def _answer_one(self, call: RecallCall, tokens_max: int) -> str:
        if tokens_max < RESULT_TOKENS_MIN:
            return self.texts("no_room")
        if call.handle:
            return self._read_page(call.handle, call.offset, tokens_max)
        return self._search(call.query, tokens_max) if call.query else self.texts("empty_query")

    def _search(self, query: str, tokens_max: int) -> str:
        """Return the passages about a query; fewer and shorter ones until they and their frame fit."""
        for share in (0.8, 0.5, 0.2):
            try:
                room = int(tokens_max * share)
                found = self._manager.recall(self._session_id, query, PASSAGES_MAX, tokens_max=room)
            except LedgerError:
                return self.texts("nothing_yet")
            if not found:
                return self.texts("not_recalled", query=query[:80])
            shown = self.texts.recalled(query, found, f"{NAME}(handle)", self._session_id)
            if self._count(shown) <= tokens_max:
                return shown
        return self.texts("no_room")

    def _read_page(self, handle: str, offset: int, tokens_max: int) -> str:
        """Return a page of an original that is as long as the room allows."""
        try:
            text = self._manager.expand(self._session_id, handle, offset, PAGE_CHARS + 1)
        except (HandleUnknown, LedgerError) as error:
            return self.texts("unknown_handle", handle=handle, why=str(error))
        if not text:
            return self.texts("past_the_end", handle=handle, offset=offset)
        size = min(len(text), PAGE_CHARS)
        while size > 1:
            shown = self.texts.page(handle, text[:size], offset, has_more=len(text) > size)
            tokens = self._count(shown)
            if tokens <= tokens_max:
                return shown
            size = min(size - 1, int(size * tokens_max / tokens * ROOM_SHARE))
        return self.texts("no_room")


class RecallTool(ABC):
    """The recall tool in one wire format. ``no_choice`` forbids every tool, ``stream`` relays a streamed answer."""

    definition: ClassVar[dict[str, Any]]
    no_choice: ClassVar[object] = "none"
    stream: ClassVar[type[RecallStream]]

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    @abstractmethod
    def write_exchange(self, answer: dict[str, Any], results: dict[str, str]) -> list[Any]:
        """Return the answer, without calls of other tools, and the results, as messages of the next request."""

    def add_to(self, body: bytes) -> bytes | None:
        """Return a request with the tool at the end of its tools; None if it has none, or one of that name."""
        is_taken = f'"{NAME}"'.encode() in body
        return None if is_taken else add_to_array(body, "tools", orjson.dumps(self.definition))

    def follow_up(self, body: bytes, exchange: list[Any], *, is_last: bool) -> bytes:
        """Return the next request of the turn; the last one may call no tool."""
        request = parse_json(body)
        key = self.wire.key
        found = request[key]
        messages = [{"role": "user", "content": found}] if isinstance(found, str) else found
        request[key] = [*messages, *exchange]
        if is_last:
            request["tool_choice"] = self.no_choice
        elif request.get("tool_choice") not in (None, "auto", {"type": "auto"}):
            # The forced tool has been called; forcing it again would never end.
            del request["tool_choice"]
        return dump_json(request)


class _ChatTool(RecallTool):
    definition: ClassVar[dict[str, Any]] = {"type": "function", "function": _FUNCTION}
    stream = ChatStream

    def write_exchange(self, answer: dict[str, Any], results: dict[str, str]) -> list[Any]:
        calls = [call for call in list_objects(answer.get("tool_calls")) if call.get("id") in results]
        said = {"role": "assistant", "content": answer.get("content"), "tool_calls": calls}
        return [said, *({"role": "tool", "tool_call_id": one, "content": text} for one, text in results.items())]


class _AnthropicTool(RecallTool):
    definition: ClassVar[dict[str, Any]] = {"name": NAME, "description": _DESCRIPTION, "input_schema": _PARAMETERS}
    no_choice: ClassVar[object] = {"type": "none"}
    stream = AnthropicStream

    def write_exchange(self, answer: dict[str, Any], results: dict[str, str]) -> list[Any]:
        blocks = [
            block
            for block in list_objects(answer.get("content"))
            if block.get("type") != "tool_use" or block.get("id") in results
        ]
        said = [{"type": "tool_result", "tool_use_id": one, "content": text} for one, text in results.items()]
        return [{"role": "assistant", "content": blocks}, {"role": "user", "content": said}]


class _ResponsesTool(RecallTool):
    definition: ClassVar[dict[str, Any]] = {"type": "function", **_FUNCTION}
    stream = ResponsesStream

    def write_exchange(self, answer: dict[str, Any], results: dict[str, str]) -> list[Any]:
        items = [
            item
            for item in list_objects(answer.get("output"))
            if not str(item.get("type")).endswith("_call") or item.get("call_id") in results
        ]
        items = _drop_unusable_thoughts(items, is_stored=answer.get("store") is not False)
        outputs = [{"type": "function_call_output", "call_id": one, "output": text} for one, text in results.items()]
        return [*items, *outputs]


def _drop_unusable_thoughts(items: list[Any], *, is_stored: bool) -> list[Any]:
    """Return the items without reasoning that the provider would refuse: it needs the item after it, and its text."""
    kept: list[Any] = []
    for item in reversed(items):
        is_thought = item.get("type") == "reasoning"
        leads_on = bool(kept) and kept[-1].get("type") != "reasoning"
        if not is_thought or (leads_on and (is_stored or item.get("encrypted_content"))):
            kept.append(item)
    return kept[::-1]


class TurnRelay:
    """Relays the answers of one turn to the client as one answer."""

    def __init__(
        self,
        tool: RecallTool,
        response: aiohttp.ClientResponse,
        send: Send,
        watch: Watch,
        own: Sequence[tuple[bytes, bytes]],
    ) -> None:
        self._wire = tool.wire
        self._stream = tool.stream(tool.wire) if response.content_type == "text/event-stream" else None
        self._response = response
        self._send = send
        self._watch = watch
        self._own = own
        self._whole = bytearray()
        self._size = 0
        self.has_begun = False

    @property
    def shown_id(self) -> str:
        """The id of the answer that the client sees, if later requests refer to it."""
        return self._stream.shown_id if self._stream is not None else ""

    async def read(self, response: aiohttp.ClientResponse, head: bytes) -> StreamedAnswer:
        """Read an answer to its end and return it; relay what is certain to belong to the client."""
        try:
            await self._take(head)
            async for chunk in response.content.iter_any():
                await self._take(chunk)
        except (aiohttp.ServerTimeoutError, aiohttp.SocketTimeoutError):
            raise BrokenOff("the upstream stalled") from None
        except (aiohttp.ClientError, ConnectionError) as error:
            raise BrokenOff(f"the upstream broke off ({type(error).__name__})") from None
        if self._stream is not None:
            return self._stream.answer
        answer = self._wire.answer()
        with suppress(Unreadable):
            whole = parse_json(bytes(self._whole))  # Without loss: the answer is sent back with the results.
            answer.add_whole(whole if isinstance(whole, dict) else {})
        return answer

    async def _take(self, chunk: bytes) -> None:
        if self._stream is not None:
            await self._give(self._stream.feed(chunk), is_last=False)
        else:
            self._whole += chunk
        if len(self._whole) > ANSWER_BYTES_MAX:
            raise BrokenOff("the answer is too long to be read")

    def go_on(self) -> None:
        """Drop the answer that was read, which the next one replaces."""
        self._whole.clear()
        if self._stream is not None:
            self._stream.go_on()

    async def finish(self) -> int:
        """Relay the rest; return the bytes of the whole answer."""
        await self._give(self._stream.release() if self._stream is not None else bytes(self._whole), is_last=True)
        return self._size

    async def fail(self, response: aiohttp.ClientResponse) -> None:
        """Relay the error of a further request of the turn; break off if the answer has begun."""
        if self.has_begun:
            raise BrokenOff(f"the upstream answered a recall with {response.status}")
        await relay_answer(response, self._send, self._watch, own=self._own)

    async def _give(self, data: bytes, *, is_last: bool) -> None:
        if not data and not is_last:
            return
        if not self.has_begun:
            self.has_begun = True
            chosen = choose_response_headers(self._response.raw_headers)
            headers = [pair for pair in chosen if pair[0] != b"content-length"]
            if is_last:
                headers.append((b"content-length", str(len(data)).encode()))
            start = {"type": "http.response.start", "status": 200, "headers": [*headers, *self._own]}
            await self._watch.give(self._send, start)
        self._size += len(data)
        await self._watch.give(self._send, {"type": "http.response.body", "body": data, "more_body": not is_last})


_TOOLS: dict[str, Callable[[Wire], RecallTool]] = {
    "openai-chat": _ChatTool,
    "openai-responses": _ResponsesTool,
    "anthropic": _AnthropicTool,
}


def make_recall_tool(wire: Wire) -> RecallTool:
    """Return the recall tool of a wire format."""
    return _TOOLS[wire.name](wire)
