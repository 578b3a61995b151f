"""Collects a streamed answer: pieces of text up to a limit, why it ended, what it cost.

A stream is read to its finish reason or not believed: a connection that closes early looks like an end, too. An answer
far over what was asked for is cut and says so; nothing that a server sends can make us hold more than the limit.
"""

from __future__ import annotations

import asyncio
import importlib
from dataclasses import dataclass, field
from typing import Any

from refold.errors import ConfigError, ProviderError, Unavailable
from refold.llm.model import Completion, Usage, name_reason

# No tokenizer has tokens longer than this on average; beyond it the server ignores our limit.
CHARS_PER_TOKEN_MAX = 16
CHARS_FREE = 1_000
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


async def load_library(name: str) -> Any:
    """Import a client's library without stopping the event loop (it takes seconds); ConfigError if it is absent."""
    try:
        return await asyncio.to_thread(importlib.import_module, name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != name:
            raise
        raise ConfigError(f"the library '{name}' is not installed; pip install 'refold[llm]'") from None
