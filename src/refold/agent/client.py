"""What the clients of all providers share: a stream with a limit on silence, whole answers, errors of one tree.

A provider's own file says how a request is written and how its answer is read; nothing here knows a format.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from refold.agent.wire import ChatReply, ChatRequest, Delta
from refold.errors import Unavailable
from refold.llm.errors import classify, show_url
from refold.llm.reading import check_kind, load_library, make_http_client, read_events

CONNECT_S = 15.0


@dataclass
class Collected(ABC):
    """An answer while it comes in, bounded by ``chars_max``."""

    chars_max: int
    reason: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    chars: int = 0

    @property
    def is_full(self) -> bool:
        """True once the answer is longer than allowed."""
        return self.chars > self.chars_max

    @abstractmethod
    def take(self, event: Any) -> list[Delta]:
        """Take one event of the stream; return what a reader may see of it."""

    def read_body(self, body: bytes) -> ChatReply:
        """Return the answer of a server that does not stream; raise Unavailable if it is none."""
        try:
            payload = json.loads(body)
        except ValueError:
            payload = None
        return self.read_whole(payload)

    @abstractmethod
    def read_whole(self, payload: Any) -> ChatReply:
        """Return a whole answer, already parsed."""

    @abstractmethod
    def finish(self) -> ChatReply:
        """Return the reply; raise Unavailable if the stream ended before the model did."""


@dataclass
class ChatClient(ABC):
    """A model behind an address. ``streams=False`` asks for whole answers."""

    name: str
    key: str = field(default="", repr=False)
    url: str = field(default="", repr=False)
    streams: bool = True
    _client: Any = field(default=None, init=False, repr=False)

    library: ClassVar[str]

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
        library = await load_library(self.library)
        if self._client is None:
            timeout = library.Timeout(request.stall_s, connect=CONNECT_S)
            self._client = self._make_client(library, timeout=timeout, http_client=make_http_client(library))
        response = await self._send(library, request)
        collected = self._collect(request.chars_max)
        if not self.streams:
            yield collected.read_whole(response.model_dump(exclude_none=True))
            return
        async with response:
            kind = response.response.headers.get("content-type", "")
            check_kind(kind, self.source)
            if kind.startswith("application/json"):
                yield collected.read_body(await response.response.aread())
                return
            events = read_events(response)
            while not collected.is_full:
                async with asyncio.timeout(request.stall_s):
                    try:
                        event = await anext(events)
                    except StopAsyncIteration:
                        break
                for piece in collected.take(event):
                    yield piece
        yield collected.finish()

    @abstractmethod
    def _make_client(self, library: Any, **shared: Any) -> Any:
        """Return the official client, with what is the same for all."""

    @abstractmethod
    async def _send(self, library: Any, request: ChatRequest) -> Any:
        """Send a request once and return the response."""

    @abstractmethod
    def _collect(self, chars_max: int) -> Collected:
        """Return what an answer is collected in."""

    async def aclose(self) -> None:
        """Close connections; the next request opens them again."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
