"""Collects a streamed answer: pieces of text up to a limit, why it ended, what it cost.

A stream is read to its finish reason or not believed: a connection that closes early looks like an end, too. An answer
far over what was asked for is cut and says so; nothing that a server sends can make us hold more than the limit.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from refold.errors import ConfigError, ProviderError, Unavailable
from refold.llm.model import Completion, Usage, name_reason

# No tokenizer has tokens longer than this on average; beyond it the server ignores our limit.
CHARS_PER_TOKEN_MAX = 16
CHARS_FREE = 1_000
# What may come in before it makes one event, or a whole body: a line without end, blanks, an error of gigabytes.
BYTES_MAX = 16_000_000
# Lines that make no event cost the clients far more than their bytes: they copy all of them for each one.
LINE_BYTES = 1_000
_METER = "refold_meter"
_NOT_EVENTS = ("text/html", "application/xhtml", "text/xml", "application/xml")


@dataclass(slots=True)
class Collected:
    """An answer while it comes in. ``is_full`` tells the reader to stop."""

    tokens_max: int
    pieces: list[str] = field(default_factory=list)
    chars: int = 0
    reason: str = ""
    usage: Usage | None = None
    is_refusal: bool = False
    has_calls: bool = False

    @property
    def is_full(self) -> bool:
        return self.chars > self.tokens_max * CHARS_PER_TOKEN_MAX + CHARS_FREE

    def add(self, text: str | None) -> None:
        """Take a piece of the answer."""
        if text:
            self.pieces.append(text)
            self.chars += len(text)

    def finish(self) -> Completion:
        """Return the answer, or raise Unavailable if it has no end."""
        content = "".join(self.pieces)
        if self.is_full:
            return Completion(content, "length", self.usage)
        if not self.reason:
            raise Unavailable("the answer broke off before its end; try again")
        reason = name_reason(self.reason)
        if self.is_refusal:
            reason = "refusal"
        elif self.has_calls and not content:
            reason = "tool_calls"
        return Completion(content, reason, self.usage)


def check_kind(kind: str, source: str) -> None:
    """Raise ProviderError if an answer is a web page: then the address is not that of a model."""
    if kind.lower().startswith(_NOT_EVENTS):
        raise ProviderError(f"{source} answered with a web page ({kind.partition(';')[0]}); is the address right?")


@dataclass(slots=True)
class _Meter:
    """How many bytes came in since the last event."""

    bytes: int = 0


def make_http_client(library: Any) -> Any:
    """Return what an official client sends with: its own, with a limit on what is read before it makes sense.

    The clients collect a line, an event, an error's body for as long as it comes; this ends it.
    """

    async def bound(response: Any) -> None:
        meter = response.extensions[_METER] = _Meter()
        read = response.aiter_bytes
        line_bytes = 0 if response.headers.get("content-type", "").startswith("application/json") else LINE_BYTES

        async def read_bounded(chunk_size: int | None = None) -> AsyncIterator[bytes]:
            async for chunk in read(chunk_size):
                meter.bytes += len(chunk) + line_bytes * chunk.count(b"\n")
                if meter.bytes > BYTES_MAX:
                    raise Unavailable("the provider sends without end, and nothing that makes an answer; try again")
                yield chunk

        response.aiter_bytes = read_bounded

    return library.DefaultAsyncHttpxClient(event_hooks={"response": [bound]})


async def read_events(stream: Any) -> AsyncIterator[Any]:
    """Yield the events of an official client's stream; each one starts the count of bytes again."""
    meter: _Meter = stream.response.extensions[_METER]
    async for event in stream:
        meter.bytes = 0
        yield event


def name_body(body: bytes) -> str:
    """Return what a body is that is no answer."""
    return "something that is no completion" if body.strip() else "an empty body"


async def load_library(name: str) -> Any:
    """Import a client's library without stopping the event loop (it takes seconds); ConfigError if it is absent."""
    try:
        return await asyncio.to_thread(importlib.import_module, name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != name:
            raise
        raise ConfigError(f"the library '{name}' is not installed; pip install 'refold[llm]'") from None
