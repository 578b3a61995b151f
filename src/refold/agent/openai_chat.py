"""Talks through OpenAI's chat completions, and with everything that speaks them: Ollama, vLLM, llama.cpp, DeepSeek …

The official client is imported with the first request. A parameter that a server turns out not to take is left out from
then on; a server that answers a request for a stream with one JSON body is read all the same.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from refold.agent.wire import ChatReply, ChatRequest, Delta, ToolCall, ToolResult, name_calls
from refold.errors import Unavailable
from refold.llm.errors import classify, show_url
from refold.llm.model import name_reason
from refold.llm.reading import check_kind, load_library

URL = "https://api.openai.com/v1"
NO_KEY = "none"
CONNECT_S = 15.0
_OPTIONAL = ("stream_options", "max_completion_tokens", "max_tokens", "tools")
_OTHER_NAME = {"max_completion_tokens": "max_tokens", "max_tokens": "max_completion_tokens"}
_NOT_TAKEN = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|unknown|unexpected|not permitted|extra (?:input|field)", re.I
)


@dataclass
class OpenAIChat:
    """A model behind an OpenAI-compatible address. ``streams=False`` asks for whole answers."""

    name: str
    key: str = field(default="", repr=False)
    url: str = field(default=URL, repr=False)
    streams: bool = True
    wire: str = field(default="openai-chat", init=False)
    _refused: set[str] = field(default_factory=set, init=False, repr=False)
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
        library = await load_library("openai")
        response = await self._send(library, request)
        collected = Collected(request.chars_max)
        if not self.streams:
            yield collected.read_whole(response.model_dump())
            return
        async with response:
            kind = response.response.headers.get("content-type", "")
            check_kind(kind, self.source)
            if kind.startswith("application/json"):
                yield collected.read_body(await response.response.aread())
                return
            chunks = aiter(response)
            while not collected.is_full:
                async with asyncio.timeout(request.stall_s):
                    try:
                        chunk = await anext(chunks)
                    except StopAsyncIteration:
                        break
                for piece in collected.take_chunk(chunk):
                    yield piece
        yield collected.finish()

    async def _send(self, library: Any, request: ChatRequest) -> Any:
        if self._client is None:
            self._client = library.AsyncOpenAI(
                api_key=self.key or NO_KEY,
                base_url=self.url,
                timeout=library.Timeout(request.stall_s, connect=CONNECT_S),
                max_retries=0,
            )
        body = self._write_body(request)
        for _ in _OPTIONAL:
            try:
                return await self._client.chat.completions.create(**self._adapt(body))
            except library.BadRequestError as error:
                if not self._learn(error, body):
                    raise
        return await self._client.chat.completions.create(**self._adapt(body))

    def _write_body(self, request: ChatRequest) -> dict[str, Any]:
        system = [{"role": "system", "content": request.system}] if request.system else []
        body: dict[str, Any] = {"model": self.name, "messages": [*system, *request.messages], "stream": self.streams}
        if self.streams:
            body["stream_options"] = {"include_usage": True}
        if request.tools:
            body["tools"] = list(request.tools)
        if request.output_tokens is not None:
            limit = "max_completion_tokens" if self.url.startswith(URL) else "max_tokens"
            body[limit] = request.output_tokens
        return body

    def _adapt(self, body: dict[str, Any]) -> dict[str, Any]:
        sent: dict[str, Any] = {}
        for name, value in body.items():
            other = _OTHER_NAME.get(name, "")
            if name not in self._refused:
                sent[name] = value
            elif other and other not in self._refused:
                sent[other] = value
        return sent

    def _learn(self, error: Any, body: dict[str, Any]) -> bool:
        """Note which parameter was refused; False if the error is about something else."""
        text, named = str(error), getattr(error, "param", None)
        if not _NOT_TAKEN.search(text):
            return False
        for name in _OPTIONAL:
            is_sent = name in self._adapt(body)
            if is_sent and (named == name or (named is None and re.search(rf"\b{name}\b", text))):
                self._refused.add(name)
                return True
        return False

    @property
    def refuses_tools(self) -> bool:
        """True once the server has said that it takes no tools."""
        return "tools" in self._refused

    def write_tools(self, tools: Sequence[Any]) -> list[dict[str, Any]]:
        """Return tools as chat completions take them."""
        return [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
            }
            for tool in tools
        ]

    def write_user(self, text: str) -> dict[str, Any]:
        """Return a user's message."""
        return {"role": "user", "content": text}

    def write_answer(self, text: str) -> dict[str, Any]:
        """Return an assistant's message that is text alone."""
        return {"role": "assistant", "content": text}

    def write_results(self, results: Sequence[ToolResult]) -> list[dict[str, Any]]:
        """Return one tool message for each result."""
        return [{"role": "tool", "tool_call_id": one.call.id, "content": one.text} for one in results]

    async def aclose(self) -> None:
        """Close connections; the next request opens them again."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


@dataclass
class Collected:
    """An answer while it comes in, bounded by ``chars_max``."""

    chars_max: int
    text: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    calls: dict[int, list[str]] = field(default_factory=dict)
    reason: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    chars: int = 0

    @property
    def is_full(self) -> bool:
        return self.chars > self.chars_max

    def take_chunk(self, chunk: Any) -> list[Delta]:
        """Take one event of the stream; return what a reader may see of it."""
        if getattr(chunk, "usage", None) is not None:
            self.usage = chunk.usage.model_dump()
        shown: list[Delta] = []
        for choice in (chunk.choices or [])[:1]:
            delta = choice.delta
            if delta is not None:
                shown = self._take_delta(delta)
            self.reason = choice.finish_reason or self.reason
        return shown

    def _take_delta(self, delta: Any) -> list[Delta]:
        shown: list[Delta] = []
        thought = getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None)
        if isinstance(thought, str):
            self.thinking.append(thought)
            shown.append(Delta("thinking", thought))
        if delta.content:
            self.text.append(delta.content)
            shown.append(Delta("text", delta.content))
        if getattr(delta, "refusal", None):
            self.refusal.append(delta.refusal)
            shown.append(Delta("text", delta.refusal))
        for call in delta.tool_calls or ():
            self._take_call(call)
        self.chars += sum(len(piece.text) for piece in shown)
        return shown

    def _take_call(self, call: Any) -> None:
        # Some servers leave the index out, and send each call whole.
        index = call.index if call.index is not None else len(self.calls)
        made = self.calls.setdefault(index, ["", "", ""])
        function = call.function
        made[0] = made[0] or call.id or ""
        if function is not None:
            made[1] += function.name or ""
            made[2] += function.arguments or ""
            self.chars += len(function.arguments or "")

    def read_body(self, body: bytes) -> ChatReply:
        """Return the answer of a server that does not stream; raise Unavailable if it is none."""
        import json

        try:
            payload = json.loads(body)
        except ValueError:
            payload = None
        return self.read_whole(payload)

    def read_whole(self, payload: Any) -> ChatReply:
        """Return a whole answer, already parsed."""
        try:
            choice = payload["choices"][0]
            message = choice["message"]
            self.text = [message.get("content") or ""]
            self.refusal = [message.get("refusal") or ""]
            for at, call in enumerate(message.get("tool_calls") or ()):
                function = call.get("function") or {}
                self.calls[at] = [call.get("id") or "", function.get("name") or "", function.get("arguments") or ""]
        except (KeyError, IndexError, TypeError, AttributeError):
            raise Unavailable("the provider answered 200 with something that is no completion; try again") from None
        self.reason = str(choice.get("finish_reason") or "stop")
        usage = payload.get("usage")
        self.usage = dict(usage) if isinstance(usage, Mapping) else {}
        return self.finish()

    def finish(self) -> ChatReply:
        """Return the reply; raise Unavailable if the stream ended before the model did."""
        if self.is_full:
            self.reason = "length"
        if not self.reason:
            raise Unavailable("the answer broke off before its end; try again")
        calls = name_calls([ToolCall(*self.calls[at]) for at in sorted(self.calls)])
        text, refusal = "".join(self.text), "".join(self.refusal)
        message: dict[str, Any] = {"role": "assistant", "content": text or refusal or (None if calls else "")}
        if calls:
            # Servers whose models think between calls want the thought back with them.
            if self.thinking:
                message["reasoning_content"] = "".join(self.thinking)
            message["tool_calls"] = [
                {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments or "{}"}}
                for one in calls
            ]
        reason = "refusal" if refusal and not text else name_reason(self.reason)
        return ChatReply(message, text or refusal, calls, reason, self.usage)
