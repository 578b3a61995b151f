"""Puts a streamed chat completion together, as an application does."""

from typing import Any


def gather_chat(chunks: Any) -> dict[str, Any]:
    """Return the message of a streamed answer, as an application puts it together."""
    text, calls = "", {}
    for chunk in chunks:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for piece in choice.delta.tool_calls or ():
                call = calls.setdefault(
                    piece.index, {"id": piece.id, "type": "function", "function": {"arguments": ""}}
                )
                if piece.function.name:
                    call["function"]["name"] = piece.function.name
                call["function"]["arguments"] += piece.function.arguments or ""
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    return {**message, "tool_calls": list(calls.values())} if calls else message
