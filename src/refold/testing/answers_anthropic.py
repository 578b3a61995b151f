"""A reply as Anthropic's messages write it, whole and as events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from refold.testing.answers_chat import ARGUMENT_CHARS, cut_pieces
from refold.testing.script import ScriptedReply, ScriptedUsage

Raw = dict[str, Any]
ID = "msg_scripted"
SIGNATURE = "c2NyaXB0ZWQtc2lnbmF0dXJl"
_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


def write_usage(usage: ScriptedUsage) -> Raw:
    return {
        "input_tokens": usage.input - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
    }


def write_answer(reply: ScriptedReply, usage: ScriptedUsage, model: str) -> Raw:
    """Return the whole answer."""
    return {
        "id": reply.id or ID,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": list(_write_blocks(reply)),
        "stop_reason": _REASONS.get(reply.reason, reply.reason),
        "stop_sequence": None,
        "usage": write_usage(usage),
    }


def _write_blocks(reply: ScriptedReply) -> Iterator[Raw]:
    if reply.thinking:
        yield {"type": "thinking", "thinking": reply.thinking, "signature": SIGNATURE}
    if reply.text:
        yield {"type": "text", "text": reply.text}
    for at, call in enumerate(reply.calls):
        made = {"type": "tool_use", "id": call.id or f"toolu_scripted_{at}", "name": call.name}
        yield {**made, "input": _read_input(call.arguments_text)}


def _read_input(arguments: str) -> Raw:
    """Return arguments as a table; this wire cannot carry anything else in a whole answer."""
    try:
        value = json.loads(arguments)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"text": arguments}


def write_events(reply: ScriptedReply, usage: ScriptedUsage, request: Raw) -> Iterator[tuple[str, Raw]]:
    """Yield the events: start, ping, each block in its deltas, the stop reason, the end."""
    whole = write_answer(reply, usage, str(request.get("model", "")))
    start = {**whole, "content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}
    yield _name({"type": "message_start", "message": start})
    for index, block in enumerate(whole["content"]):
        call = next(
            (c for at, c in enumerate(reply.calls) if block.get("id") == (c.id or f"toolu_scripted_{at}")), None
        )
        yield _name({"type": "content_block_start", "index": index, "content_block": _open_block(block)})
        if index == 0:
            yield _name({"type": "ping"})
        for delta in _write_deltas(block, call.arguments_text if call else ""):
            yield _name({"type": "content_block_delta", "index": index, "delta": delta})
        yield _name({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield _name({"type": "message_delta", "delta": delta, "usage": {"output_tokens": usage.output}})
    yield _name({"type": "message_stop"})


def _name(event: Raw) -> tuple[str, Raw]:
    return str(event["type"]), event


def _open_block(block: Raw) -> Raw:
    empty: dict[str, Raw] = {
        "text": {"text": ""},
        "thinking": {"thinking": "", "signature": ""},
        "tool_use": {"input": {}},
    }
    return {**block, **empty[block["type"]]}


def _write_deltas(block: Raw, arguments: str) -> Iterator[Raw]:
    if block["type"] == "text":
        for piece in cut_pieces(block["text"]):
            yield {"type": "text_delta", "text": piece}
    elif block["type"] == "thinking":
        for piece in cut_pieces(block["thinking"]):
            yield {"type": "thinking_delta", "thinking": piece}
        yield {"type": "signature_delta", "signature": block["signature"]}
    else:
        for piece in cut_pieces(arguments, ARGUMENT_CHARS):
            yield {"type": "input_json_delta", "partial_json": piece}
