"""The ports to a model: a ``Model`` that completes a prompt, and a ``ChatModel`` that streams a reply and calls tools.

Anything with ``complete(prompt)`` that returns an object with ``.content`` is a model, async or not. Its optional
parameters are found by inspecting its signature, not by trial: a call that fails half-way may already cost money.
Nothing here retries or waits.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from refold.formats.streamed import Delta, ToolCall

TOKENS_MAX = 2_000
TEMPERATURE = 0.2
TIMEOUT_S = 30.0
# Extra output tokens for a model whose hidden reasoning counts towards the same limit.
THINKING_TOKENS = 8_000
_SURROGATE = re.compile("[\ud800-\udfff]")

# Providers' finish reasons under one name each.
_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "eos": "stop",
    "completed": "stop",
    "complete": "stop",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_context_window_exceeded": "length",
    "incomplete": "length",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "safety": "content_filter",
    "recitation": "content_filter",
}


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's answer. ``finish_reason``: stop, length, tool_calls, content_filter, refusal, or the provider's own."""

    content: str
    finish_reason: str = "stop"
    usage: Mapping[str, Any] = field(default_factory=dict)


class Model(Protocol):
    """Completes a prompt. One call is one attempt; it raises a ProviderError, or whatever its client raises."""

    async def complete(
        self, prompt: str, *, system: str = "", tokens_max: int = TOKENS_MAX, temperature: float = TEMPERATURE
    ) -> Completion:
        """Return the model's answer to one prompt."""


class Completes(Protocol):
    """The minimal model: ``complete(prompt)``, awaitable or not, whose result has ``.content``."""

    def complete(self, prompt: str) -> Any:
        """Return or await an object with ``content``."""


class NamedModel:
    """A client that takes the name of a model with each call: ``complete(prompt, model=…)``."""

    def __init__(self, client: object, name: str) -> None:
        self._client = client
        self._name = name

    async def complete(self, prompt: str, **options: Any) -> Completion:
        """Return the answer of the named model."""
        return await call_model(self._client, prompt, **options, model=self._name)  # type: ignore[arg-type]


def takes_model(client: object) -> bool:
    """Return whether a client's ``complete`` takes the name of a model, by name or as any option."""
    return not {"model", "**"}.isdisjoint(_names_taken(getattr(client, "complete", None)))


async def call_model(model: Model | Completes, prompt: str, /, **options: Any) -> Completion:
    """Call a model of any shape with the options its ``complete`` accepts, and return a Completion."""
    complete: Any = model.complete
    system = options.get("system", "")
    taken = _names_taken(complete)
    if "**" not in taken:
        options = {name: value for name, value in options.items() if name in taken}
    if system and "system" not in options:
        prompt = f"{system}\n\n{prompt}"
    answer = complete(prompt, **options)
    if inspect.isawaitable(answer):
        answer = await answer
    return read_completion(answer)


def _names_taken(complete: object) -> set[str]:
    """Return the keyword names that a callable accepts; ``**`` is among them if it accepts any."""
    try:
        parameters = inspect.signature(complete).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return set()
    named = (p for p in parameters if p.kind not in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL))
    return {"**" if p.kind is p.VAR_KEYWORD else p.name for p in named}


def read_completion(answer: object) -> Completion:
    """Convert any answer to a Completion: a string, or an object with ``content``."""
    if isinstance(answer, str):
        return Completion(answer)
    content = getattr(answer, "content", None)
    reason, usage = getattr(answer, "finish_reason", None), getattr(answer, "usage", None)
    return Completion(
        content if isinstance(content, str) else "" if content is None else str(content),
        name_reason(reason) if isinstance(reason, str) and reason else "stop",
        usage if isinstance(usage, Mapping) else {},
    )


def name_reason(reason: str) -> str:
    """Return the common name of a provider's finish reason; an unknown one is returned unchanged."""
    return _REASONS.get(reason.lower(), reason.lower())


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The outcome of one tool call."""

    call: ToolCall
    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request. ``output_tokens`` limits the answer; None leaves the limit to the provider.

    ``calls_nothing``: the tools are there, as in the requests before it, and must not be called.
    """

    messages: Sequence[object]
    system: str = ""
    tools: Sequence[Mapping[str, Any]] = ()
    output_tokens: int | None = None
    chars_max: int = 2_000_000
    stall_s: float = 300.0
    temperature: float | None = None
    calls_nothing: bool = False


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A complete answer. ``message`` is stored as is; ``usage`` holds the provider's own fields."""

    message: dict[str, Any]
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish_reason: str = "stop"
    usage: Mapping[str, Any] = field(default_factory=dict)


class ChatModel(Protocol):
    """A chat model. ``wire`` names its message format; one call of ``stream`` is one attempt."""

    name: str
    wire: str

    def stream(self, request: ChatRequest) -> AsyncIterator[Delta | ChatReply]:
        """Yield deltas, then the complete reply; raise a ProviderError on failure."""

    def write_tools(self, tools: Sequence[Any]) -> list[dict[str, Any]]:
        """Return tool definitions in the provider's format."""

    def write_user(self, text: str) -> dict[str, Any]:
        """Return a user message."""

    def write_answer(self, text: str) -> dict[str, Any]:
        """Return a text-only assistant message."""

    def write_results(self, results: Sequence[ToolResult]) -> list[dict[str, Any]]:
        """Return the messages that carry the results of one step's calls."""

    async def aclose(self) -> None:
        """Close connections; the next request reopens them."""


def clean_text(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded as UTF-8."""
    return _SURROGATE.sub("�", text) if not text.isascii() and _SURROGATE.search(text) else text
