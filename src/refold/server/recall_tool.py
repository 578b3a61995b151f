"""A recall tool that the gateway adds to requests and answers itself: an agent gets back what was folded away.

The tool is appended to the client's tools from the first request on, so the cached prefix stays the same. When the
model calls it, the gateway looks the answer up in the session, asks the model again with the result, and relays only
the final answer: the client never sees the call, and its next request does not contain it. If the model calls the
client's own tools in the same answer, those calls are dropped and the model repeats them with the result at hand.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import aiohttp
import orjson

from refold.agent.context_tools import ContextTools
from refold.manager import ContextCompressionManager
from refold.server.body import Unreadable, add_to_array, dump_json, parse_json
from refold.server.recall_stream import (
    AnthropicStream,
    ChatStream,
    RecallStream,
    ResponsesStream,
    list_of,
    read_arguments,
)
from refold.server.request import Send, Watch, choose_response_headers
from refold.server.upstream import AnswerReader, BrokenOff, relay_answer
from refold.server.wires import Wire

NAME = "refold_recall"
ROUNDS_MAX = 3
RESULT_CHARS_MAX = 12_000
ANSWER_BYTES_MAX = 16_000_000
_DESCRIPTION = (
    "Search everything said earlier in this conversation, including parts that are no longer shown. "
    "Give a query (a few exact words, a name or a number) or a handle such as m:4f2a91c3 from a placeholder."
)
_PARAMETERS = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "handle": {"type": "string"}},
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class RecallCall:
    """A call of the recall tool."""

    id: str
    arguments: dict[str, Any]

    def answer(self, manager: ContextCompressionManager, session_id: str) -> str:
        """Return what the session holds about it. Blocks."""
        tools = ContextTools(manager, session_id)
        handle, query = self.arguments.get("handle"), self.arguments.get("query")
        if isinstance(handle, str) and handle.strip():
            return tools.context_expand(handle.strip()[:100])[:RESULT_CHARS_MAX]
        return tools.context_recall(query if isinstance(query, str) else "")[:RESULT_CHARS_MAX]


class RecallTool(ABC):
    """The recall tool in one wire format."""

    no_choice: ClassVar[object] = "none"

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    @property
    @abstractmethod
    def definition(self) -> dict[str, Any]:
        """The tool as a request lists it."""

    @abstractmethod
    def find_calls(self, answer: dict[str, Any]) -> list[RecallCall]:
        """Return the recall calls of a whole answer."""

    @abstractmethod
    def write_exchange(self, answer: dict[str, Any], results: dict[str, str]) -> list[Any]:
        """Return the answer, without calls of other tools, and the results, as messages of the next request."""

    @abstractmethod
    def make_stream(self) -> RecallStream:
        """Return what reads and relays a streamed answer."""

    def add_to(self, body: bytes) -> bytes | None:
        """Return a request with the tool at the end of its tools; None if it has none, or one of that name."""
        definition = orjson.dumps(self.definition)
        if f'"{NAME}"'.encode() in body:
            return None
        return add_to_array(body, "tools", definition)

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
            # A forced tool was called already; forcing it again would never end.
            del request["tool_choice"]
        return dump_json(request)


# Chat completions.


class _ChatTool(RecallTool):
    @property
    def definition(self) -> dict[str, Any]:
        return {
            "type": "function",
            "function": {"name": NAME, "description": _DESCRIPTION, "parameters": _PARAMETERS},
        }

    def find_calls(self, answer: dict[str, Any]) -> list[RecallCall]:
        return [
            RecallCall(str(call.get("id")), read_arguments(call["function"].get("arguments")))
            for call in list_of(_find_message(answer).get("tool_calls"))
            if isinstance(call, dict)
            and isinstance(call.get("function"), dict)
            and call["function"].get("name") == NAME
        ]

    def write_exchange(self, answer: dict[str, Any], results: dict[str, str]) -> list[Any]:
        message = _find_message(answer)
        calls = [call for call in list_of(message.get("tool_calls")) if call.get("id") in results]
        said = {"role": "assistant", "content": message.get("content"), "tool_calls": calls}
        return [said, *({"role": "tool", "tool_call_id": one, "content": text} for one, text in results.items())]

    def make_stream(self) -> RecallStream:
        return ChatStream()


def _find_message(answer: dict[str, Any]) -> dict[str, Any]:
    choices = list_of(answer.get("choices"))
    message = choices[0].get("message") if choices and isinstance(choices[0], dict) else None
    return message if isinstance(message, dict) else {}


# Anthropic messages.


class _AnthropicTool(RecallTool):
    no_choice = {"type": "none"}  # noqa: RUF012 - never changed

    @property
    def definition(self) -> dict[str, Any]:
        return {"name": NAME, "description": _DESCRIPTION, "input_schema": _PARAMETERS}

    def find_calls(self, answer: dict[str, Any]) -> list[RecallCall]:
        return [
            RecallCall(str(block.get("id")), read_arguments(block.get("input")))
            for block in list_of(answer.get("content"))
            if isinstance(block, dict) and block.get("type") == "tool_use" and block.get("name") == NAME
        ]

    def write_exchange(self, answer: dict[str, Any], results: dict[str, str]) -> list[Any]:
        blocks = [
            block
            for block in list_of(answer.get("content"))
            if block.get("type") != "tool_use" or block.get("id") in results
        ]
        said = [{"type": "tool_result", "tool_use_id": one, "content": text} for one, text in results.items()]
        return [{"role": "assistant", "content": blocks}, {"role": "user", "content": said}]

    def make_stream(self) -> RecallStream:
        return AnthropicStream()


# Responses.


class _ResponsesTool(RecallTool):
    @property
    def definition(self) -> dict[str, Any]:
        return {"type": "function", "name": NAME, "description": _DESCRIPTION, "parameters": _PARAMETERS}

    def find_calls(self, answer: dict[str, Any]) -> list[RecallCall]:
        return [
            RecallCall(str(item.get("call_id")), read_arguments(item.get("arguments")))
            for item in list_of(answer.get("output"))
            if isinstance(item, dict) and item.get("type") == "function_call" and item.get("name") == NAME
        ]

    def write_exchange(self, answer: dict[str, Any], results: dict[str, str]) -> list[Any]:
        items = [
            item
            for item in list_of(answer.get("output"))
            if not str(item.get("type")).endswith("_call") or item.get("call_id") in results
        ]
        outputs = [{"type": "function_call_output", "call_id": one, "output": text} for one, text in results.items()]
        return [*items, *outputs]

    def make_stream(self) -> RecallStream:
        return ResponsesStream()


class TurnRelay:
    """Relays the answers of one turn to the client as if they were one."""

    def __init__(
        self,
        tool: RecallTool,
        response: aiohttp.ClientResponse,
        send: Send,
        watch: Watch,
        own: Sequence[tuple[bytes, bytes]],
    ) -> None:
        self._stream = tool.make_stream() if response.content_type == "text/event-stream" else None
        self._response = response
        self._send = send
        self._watch = watch
        self._own = own
        self._whole = bytearray()
        self._size = 0
        self.has_begun = False

    @property
    def answer(self) -> dict[str, Any]:
        """The whole answer that was read last."""
        return self._stream.answer if self._stream is not None else _read_answer(bytes(self._whole))

    @property
    def shown_id(self) -> str:
        """The id of the answer that the client sees, if later requests refer to it."""
        return self._stream.shown_id if self._stream is not None else ""

    async def read(self, response: aiohttp.ClientResponse, head: bytes, reader: AnswerReader) -> None:
        """Read an answer to its end; relay what is certain to belong to the client."""
        try:
            await self._take(head, reader)
            async for chunk in response.content.iter_any():
                await self._take(chunk, reader)
        except (aiohttp.ServerTimeoutError, aiohttp.SocketTimeoutError):
            raise BrokenOff("the upstream stalled") from None
        except (aiohttp.ClientError, ConnectionError) as error:
            raise BrokenOff(f"the upstream broke off ({type(error).__name__})") from None

    async def _take(self, chunk: bytes, reader: AnswerReader) -> None:
        reader.feed(chunk)
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
        """Relay an error that a further request of the turn had; break off if the answer has begun."""
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


def _read_answer(body: bytes) -> dict[str, Any]:
    """Return a whole answer; empty if it is not JSON."""
    try:
        answer = parse_json(body)
    except Unreadable:
        return {}
    return answer if isinstance(answer, dict) else {}
