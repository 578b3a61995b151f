"""The client shared by all providers: one attempt, streamed through the official SDK, bounded in time and size.

A provider's module reads its events; the writers here produce tools and messages in each provider's format. ``stream``
serves chats; ``complete`` collects a stream and serves summaries. A parameter that a server rejects is left out from
then on, and a model that spends its whole output limit on reasoning gets extra room. The caller retries
(``errors.py``).
"""

from __future__ import annotations

import asyncio
import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, Generic, TypeVar

from refold.errors import ConfigError, ProviderError, Unavailable
from refold.formats.streamed import Delta, StreamedAnswer
from refold.llm.errors import classify, show_url
from refold.llm.port import (
    TEMPERATURE,
    THINKING_TOKENS,
    TIMEOUT_S,
    TOKENS_MAX,
    ChatReply,
    ChatRequest,
    Completion,
    ToolResult,
)

NO_KEY = "none"  # The SDKs insist on a key; local servers need none.
CONNECT_S = 15.0
# One round for each parameter that may be rejected, and one for reasoning.
ROUNDS_MAX = 6
# No tokenizer's tokens are longer than this on average; a longer answer means that the server ignores our limit.
CHARS_PER_TOKEN_MAX = 16
CHARS_FREE = 1_000
# Bytes accepted before they form an event or a body: a line without end, blanks, a huge error page.
BYTES_MAX = 16_000_000
# Lines that form no event cost the SDKs far more than their bytes: they copy the buffer for each one.
LINE_BYTES = 1_000
_METER = "refold_meter"
AnswerT = TypeVar("AnswerT", bound=StreamedAnswer)
_NOT_EVENTS = ("text/html", "application/xhtml", "text/xml", "application/xml")


@dataclass
class ProviderClient(ABC, Generic[AnswerT]):
    """A model at an address. ``timeout_s`` bounds ``complete``."""

    name: str
    key: str = field(default="", repr=False)
    url: str = field(default="", repr=False)
    timeout_s: float = TIMEOUT_S
    window: int | None = None
    # Parameters that the server rejected.
    _rejected: set[str] = field(default_factory=set, init=False, repr=False, compare=False)
    _needs_room: bool = field(default=False, init=False, repr=False, compare=False)
    _client: Any = field(default=None, init=False, repr=False, compare=False)

    # Names of the SDK, of its client, and of the client's resource.
    library: ClassVar[str]
    client: ClassVar[str]
    resource: ClassVar[str]

    @property
    def source(self) -> str:
        """Model and address for messages, without secrets."""
        return f"{self.name} @ {show_url(self.url)}"

    async def complete(
        self, prompt: str, *, system: str = "", tokens_max: int = TOKENS_MAX, temperature: float = TEMPERATURE
    ) -> Completion:
        """Return the answer to one prompt; raise a ProviderError on failure. Any event loop may call it."""
        request = ChatRequest([{"role": "user", "content": prompt}], system, temperature=temperature)
        return await self.follow(request, tokens_max)

    async def follow(self, request: ChatRequest, tokens_max: int) -> Completion:
        """Return the answer to a request, whole, with at most so many tokens; raise a ProviderError on failure."""
        library = await load_library(self.library)
        try:
            async with asyncio.timeout(self.timeout_s), await self._open(library, self.timeout_s) as client:
                while True:
                    room = THINKING_TOKENS if self._needs_room else 0
                    output = tokens_max + room
                    chars = output * CHARS_PER_TOKEN_MAX + CHARS_FREE
                    request = replace(request, output_tokens=output, chars_max=chars, stall_s=self.timeout_s)
                    reply = await self._collect_reply(library, client, request)
                    if room or reply.text or reply.finish_reason != "length":
                        break
                    self._needs_room = True
        except TimeoutError:
            raise Unavailable(
                "{source} did not answer within {timeout_s:g} s", source=self.source, timeout_s=self.timeout_s
            ) from None
        except Exception as error:  # noqa: BLE001 - the SDK and its HTTP library raise many types
            raise classify(error, source=self.source, secrets=(self.key,)) from None
        reason = "tool_calls" if reply.calls and not reply.text else reply.finish_reason
        return Completion(reply.text, reason, reply.usage)

    def on_wire(self, wire: str) -> ProviderClient[Any] | None:
        """Return a client of the same model for another kind of messages; None if there is none."""
        return self if wire == getattr(self, "wire", "") else None

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta | ChatReply]:
        """Yield deltas, then the complete reply. Connections stay open until ``aclose``."""
        library = await load_library(self.library)
        if self._client is None:
            self._client = await self._open(library, library.Timeout(request.stall_s, connect=CONNECT_S))
        try:
            async with aclosing(self._exchange(library, self._client, request)) as items:
                async for item in items:
                    yield item
        except TimeoutError:
            raise Unavailable(
                "{source} sent nothing for {stall_s:g} s", source=self.source, stall_s=request.stall_s
            ) from None
        except Exception as error:  # noqa: BLE001 - the SDK and its HTTP library raise many types
            raise classify(error, source=self.source, secrets=(self.key,)) from None

    async def _collect_reply(self, library: Any, client: Any, request: ChatRequest) -> ChatReply:
        async with aclosing(self._exchange(library, client, request)) as items:
            async for item in items:
                if isinstance(item, ChatReply):
                    return item
        raise Unavailable("{source} closed the stream without an answer; try again", source=self.source)

    async def _exchange(self, library: Any, client: Any, request: ChatRequest) -> AsyncGenerator[Delta | ChatReply]:
        response = await self._send(library, client, request)
        answer = self._make_answer()
        # We read raw events: the SDKs' own collectors have no size limit.
        async with response:
            kind = response.response.headers.get("content-type", "")
            if kind.lower().startswith(_NOT_EVENTS):
                page = kind.partition(";")[0]
                raise ProviderError(
                    "{source} answered with a web page ({page}); is the address right?", source=self.source, page=page
                )
            if kind.startswith("application/json"):  # The server ignored ``stream``.
                yield self._read_body(answer, await response.response.aread())
                return
            events = _read_events(response)
            while answer.chars <= request.chars_max:
                async with asyncio.timeout(request.stall_s):
                    try:
                        event = await anext(events)
                    except StopAsyncIteration:
                        break
                for piece in answer.add(event.to_dict(exclude_none=True, warnings=False)):
                    yield piece
        if answer.chars > request.chars_max:
            answer.finish_reason = "length"
        elif not answer.finish_reason:  # A dropped connection looks like an end, too.
            raise Unavailable("the answer broke off before its end; try again")
        yield self._write_reply(answer)

    def _read_body(self, answer: AnswerT, body: bytes) -> ChatReply:
        """Return the reply in a body that is not a stream; raise Unavailable if it holds none."""
        found = "a body that is not a completion" if body.strip() else "an empty body"
        try:
            payload = json.loads(body)
            self._check_whole(payload)
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            raise Unavailable("the provider answered 200 with {found}; try again", found=found) from None
        answer.add_whole(payload)
        answer.finish_reason = answer.finish_reason or "stop"
        return self._write_reply(answer)

    async def _send(self, library: Any, client: Any, request: ChatRequest) -> Any:
        """Send a request, without the parameters that the server rejects."""
        for _ in range(ROUNDS_MAX):
            body = self._write_body(request)
            try:
                return await attrgetter(self.resource)(client).create(**body)
            except library.BadRequestError as error:
                rejected = self._find_rejected(error, body)
                if not rejected:
                    raise
                self._rejected.add(rejected)
        raise ProviderError("{source} rejects every form of the request; use another model", source=self.source)

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    @property
    def _base_url(self) -> str:
        return self.url

    async def _open(self, library: Any, timeout: Any) -> Any:
        """Return the SDK's async client. Key and URL are passed in, so it never reads them from the environment."""

        def make() -> Any:
            client = getattr(library, self.client)(
                api_key=self.key or NO_KEY,
                base_url=self._base_url,
                timeout=timeout,
                max_retries=0,
                http_client=make_http_client(library),
            )
            attrgetter(self.resource)(client)  # The SDK imports a resource when it is first used.
            return client

        return await asyncio.to_thread(make)

    @abstractmethod
    def _write_body(self, request: ChatRequest) -> dict[str, Any]:
        """Return the request's body without the parameters in ``_rejected``."""

    @abstractmethod
    def _find_rejected(self, error: Exception, body: Mapping[str, Any]) -> str:
        """Return the optional parameter that a 400 response rejects; empty if it is about something else."""

    @abstractmethod
    def _make_answer(self) -> AnswerT:
        """Return an empty answer, to which the events of a stream are added."""

    @abstractmethod
    def _check_whole(self, payload: Any) -> None:
        """Raise LookupError, TypeError or AttributeError if a payload is not a whole answer."""

    @abstractmethod
    def _write_reply(self, answer: AnswerT) -> ChatReply:
        """Return the complete reply."""


@dataclass(slots=True)
class _Meter:
    """Bytes received since the last event."""

    bytes: int = 0


def make_http_client(library: Any) -> Any:
    """Return the SDK's HTTP client with a limit on bytes that form no event or body."""

    async def bound(response: Any) -> None:
        meter = response.extensions[_METER] = _Meter()
        read = response.aiter_bytes
        line_bytes = 0 if response.headers.get("content-type", "").startswith("application/json") else LINE_BYTES

        async def read_bounded(chunk_size: int | None = None) -> AsyncIterator[bytes]:
            async for chunk in read(chunk_size):
                meter.bytes += len(chunk) + line_bytes * chunk.count(b"\n")
                if meter.bytes > BYTES_MAX:
                    raise Unavailable("the provider sends data without end that forms no answer; try again")
                yield chunk

        response.aiter_bytes = read_bounded

    kind = library.DefaultAsyncHttpxClient
    return kind(event_hooks={"response": [bound]}, verify=_read_authorities(kind.__base__.__module__.partition(".")[0]))


@cache
def _read_authorities(http_library: str) -> Any:
    """Return the certificate authorities as the SDK's HTTP library reads them, once: each client would take 40 ms."""
    return importlib.import_module(http_library).create_ssl_context()


async def _read_events(stream: Any) -> AsyncIterator[Any]:
    """Yield the events of an SDK's stream; each event resets the byte limit."""
    meter: _Meter = stream.response.extensions[_METER]
    async for event in stream:
        meter.bytes = 0
        yield event


async def load_library(name: str) -> Any:
    """Import an SDK in a thread, because it takes seconds; raise ConfigError if it is not installed."""
    try:
        return await asyncio.to_thread(importlib.import_module, name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != name:
            raise
        raise ConfigError("the library '{name}' is not installed; pip install 'refold[llm]'", name=name) from None


class OpenAIWriting:
    """Messages of chat completions."""

    wire: str = "openai-chat"

    def write_tools(self, tools: Sequence[Any]) -> list[dict[str, Any]]:
        return [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
            }
            for tool in tools
        ]

    def write_user(self, text: str) -> dict[str, Any]:
        return {"role": "user", "content": text}

    def write_answer(self, text: str) -> dict[str, Any]:
        return {"role": "assistant", "content": text}

    def write_results(self, results: Sequence[ToolResult]) -> list[dict[str, Any]]:
        return [{"role": "tool", "tool_call_id": result.call.id, "content": result.text} for result in results]


class AnthropicWriting(OpenAIWriting):
    """Messages of Anthropic."""

    wire: str = "anthropic"

    def write_tools(self, tools: Sequence[Any]) -> list[dict[str, Any]]:
        return [{"name": tool.name, "description": tool.description, "input_schema": tool.schema} for tool in tools]

    def write_answer(self, text: str) -> dict[str, Any]:
        return {"role": "assistant", "content": [{"type": "text", "text": text}]}

    def write_results(self, results: Sequence[ToolResult]) -> list[dict[str, Any]]:
        """Return one user message with all results, as the provider wants them."""
        blocks = [
            {
                "type": "tool_result",
                "tool_use_id": result.call.id,
                "content": result.text,
                **({"is_error": True} if result.is_error else {}),
            }
            for result in results
        ]
        return [{"role": "user", "content": blocks}]


WRITINGS = {one.wire: one for one in (OpenAIWriting(), AnthropicWriting())}
