"""What the loop says to a model and hears from it, in words that no provider owns; and the port that a provider fills.

A reply carries the assistant's message as the provider will want it back: the loop stores it untouched.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call as the model wrote it; ``arguments`` is text that may be no JSON at all."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call came to."""

    call: ToolCall
    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of an answer while it comes in."""

    kind: Literal["text", "thinking"]
    text: str


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request. ``output_tokens`` is the room for the answer, or None to let the provider choose."""

    messages: Sequence[object]
    system: str = ""
    tools: Sequence[Mapping[str, Any]] = ()
    output_tokens: int | None = None
    chars_max: int = 2_000_000
    stall_s: float = 300.0


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A whole answer. ``message`` is what is stored; ``usage`` what the provider reported, in its own names."""

    message: dict[str, Any]
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish_reason: str = "stop"
    usage: Mapping[str, Any] = field(default_factory=dict)


class ChatModel(Protocol):
    """A model that talks. ``wire`` names the format of its messages; one call of ``stream`` is one attempt."""

    name: str
    wire: str

    def stream(self, request: ChatRequest) -> AsyncIterator[Delta | ChatReply]:
        """Yield pieces, then the whole reply; raise a ProviderError if there is none."""
        ...

    def write_tools(self, tools: Sequence[Any]) -> list[dict[str, Any]]:
        """Return tools as the provider takes them."""
        ...

    def write_user(self, text: str) -> dict[str, Any]:
        """Return a user's message."""
        ...

    def write_answer(self, text: str) -> dict[str, Any]:
        """Return an assistant's message that is text alone."""
        ...

    def write_results(self, results: Sequence[ToolResult]) -> list[dict[str, Any]]:
        """Return the messages that carry the results of one step's calls."""
        ...

    async def aclose(self) -> None:
        """Close connections; the next request opens them again."""
        ...


def clean_text(text: str) -> str:
    """Return text that has a UTF-8 form: a lone surrogate has none, and no client can send it."""
    return _SURROGATE.sub("�", text) if not text.isascii() and _SURROGATE.search(text) else text


def name_calls(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Return calls with ids that differ within the step; weak servers send none, or one for all."""
    seen: set[str] = set()
    named: list[ToolCall] = []
    for number, call in enumerate(calls):
        call_id = call.id or f"call_{number}"
        while call_id in seen:
            call_id = f"{call_id}_{number}"
        seen.add(call_id)
        named.append(ToolCall(call_id, call.name or "unnamed", call.arguments))
    return tuple(named)
