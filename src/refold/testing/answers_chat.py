"""A reply as OpenAI's chat completions write it, whole and as chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from refold.testing.script import ScriptedReply, ScriptedUsage

Raw = dict[str, Any]
ID = "chatcmpl-scripted"
CREATED = 1_767_225_600
PIECE_CHARS = 12
ARGUMENT_CHARS = 7
PIECES_MAX = 400
_REASONS = {"refusal": "stop"}


def cut_pieces(text: str, chars: int = PIECE_CHARS) -> Iterator[str]:
    """Yield a text in pieces, a few characters each; a giant one in larger pieces, so that a test stays short."""
    step = max(chars, -(-len(text) // PIECES_MAX))
    for at in range(0, len(text), step):
        yield text[at : at + step]


def write_usage(usage: ScriptedUsage) -> Raw:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }


def write_answer(reply: ScriptedReply, usage: ScriptedUsage, model: str) -> Raw:
    """Return the whole answer."""
    message: Raw = {"role": "assistant", "content": None, "refusal": None}
    if reply.is_refusal:
        message["refusal"] = reply.text
    elif reply.text or not reply.calls:
        message["content"] = reply.text
    if reply.thinking:
        message["reasoning_content"] = reply.thinking
    if reply.calls:
        message["tool_calls"] = [
            {
                "id": call.id or f"call_scripted_{at}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments_text},
            }
            for at, call in enumerate(reply.calls)
        ]
    reason = _REASONS.get(reply.reason, reply.reason)
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    return {
        "id": reply.id or ID,
        "object": "chat.completion",
        "created": CREATED,
        "model": model,
        "choices": [choice],
        "usage": write_usage(usage),
    }


def write_events(reply: ScriptedReply, usage: ScriptedUsage, request: Raw) -> Iterator[tuple[str, Raw]]:
    """Yield the chunks: role, words, fragments of calls, finish reason and, if asked for, usage."""

    def chunk(delta: Raw, reason: str | None = None) -> tuple[str, Raw]:
        choices = [{"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}]
        return "", {**opening, "choices": choices}

    opening = {
        "id": reply.id or ID,
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": str(request.get("model", "")),
    }
    yield chunk({"role": "assistant", "content": ""})
    for piece in cut_pieces(reply.thinking):
        yield chunk({"reasoning_content": piece})
    for piece in cut_pieces(reply.text):
        yield chunk({"refusal" if reply.is_refusal else "content": piece})
    for at, call in enumerate(reply.calls):
        first = {"index": at, "id": call.id or f"call_scripted_{at}", "type": "function"}
        yield chunk({"tool_calls": [{**first, "function": {"name": call.name, "arguments": ""}}]})
        for piece in cut_pieces(call.arguments_text, ARGUMENT_CHARS):
            yield chunk({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
    yield chunk({}, _REASONS.get(reply.reason, reply.reason))
    if (request.get("stream_options") or {}).get("include_usage"):
        yield "", {**opening, "choices": [], "usage": write_usage(usage)}
