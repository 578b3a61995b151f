"""The port: what a model is to refold, and how one of any shape is called.

Anything with ``complete(prompt)`` that answers with ``.content`` will do (S0.4), async or not. What else it takes is
found by looking, not by trying: a call that failed half-way may have cost money. Nothing here retries or waits.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Protocol

TOKENS_MAX = 2_000
TEMPERATURE = 0.2  # S3.3
TIMEOUT_S = 30.0  # S3.3
# Room for a model that thinks out of sight before it answers, and is billed by the same limit.
THINKING_TOKENS = 8_000

# One word per reason, whichever provider said it.
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
class Usage:
    """Tokens as the provider reported them; ``cached`` is the part of ``input`` read from its cache."""

    input: int = 0
    output: int = 0
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model answered. ``finish_reason``: stop, length, tool_calls, content_filter, refusal, or its own word."""

    content: str
    finish_reason: str = "stop"
    usage: Usage | None = None


class Model(Protocol):
    """Answers a prompt. One call is one attempt; it raises a ProviderError, or whatever its client raises."""

    async def complete(
        self, prompt: str, *, system: str = "", tokens_max: int = TOKENS_MAX, temperature: float = TEMPERATURE
    ) -> Completion:
        """Return the model's answer to one prompt."""
        ...


class Completes(Protocol):
    """The least that can be handed in: ``complete(prompt)``, awaitable or not, with ``.content`` in its answer."""

    def complete(self, prompt: str) -> Any:
        """Return or await an object with ``content``."""
        ...


async def call_model(
    model: Model | Completes, prompt: str, *, system: str = "", tokens_max: int, temperature: float
) -> Completion:
    """Return the answer of a model of any shape, read into ours; what its ``complete`` does not take is left out."""
    complete: Any = model.complete
    options = {"system": system, "tokens_max": tokens_max, "temperature": temperature}
    taken = _names_taken(complete)
    if taken is not None:
        options = {name: value for name, value in options.items() if name in taken}
    if system and "system" not in options:
        prompt = f"{system}\n\n{prompt}"
    answer = complete(prompt, **options)
    if inspect.isawaitable(answer):
        answer = await answer
    return read_completion(answer)


def _names_taken(complete: object) -> set[str] | None:
    """Return the keywords that a callable takes; None for any."""
    try:
        parameters = inspect.signature(complete).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return set()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}


def read_completion(answer: object) -> Completion:
    """Return any answer in our shape: a string, or an object with ``content`` and perhaps the rest."""
    if isinstance(answer, Completion):
        return Completion(answer.content, name_reason(answer.finish_reason), answer.usage)
    if isinstance(answer, str):
        return Completion(answer)
    content = getattr(answer, "content", None)
    reason = getattr(answer, "finish_reason", None)
    usage = getattr(answer, "usage", None)
    return Completion(
        content if isinstance(content, str) else "" if content is None else str(content),
        name_reason(reason) if isinstance(reason, str) and reason else "stop",
        usage if isinstance(usage, Usage) else None,
    )


def name_reason(reason: str) -> str:
    """Return a finish reason in our words; one we do not know stays as it is."""
    return _REASONS.get(reason.lower(), reason.lower())
