"""Reads what passes between a framework and its model: the pieces of an answer, the messages of a request."""

import functools
import inspect
import types
from typing import Any


def watch_method(thing: Any, method: str) -> list[Any]:
    """Return a list that holds the messages of the last call of an object's method."""
    sent: list[Any] = []
    kind = type(thing)
    inner = getattr(kind, method)
    signature = inspect.signature(inner)

    @functools.wraps(inner)
    def watched(*given: Any, **options: Any) -> Any:
        sent[:] = signature.bind(*given, **options).arguments["messages"]
        return inner(*given, **options)

    made = types.new_class(kind.__name__, (kind,), exec_body=lambda space: space.update({method: watched}))
    object.__setattr__(thing, "__class__", made)
    return sent


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
