"""Replies in the form of each wire: one whole answer, or the events of a stream. ``WIRES`` has the three wires.

Shapes follow the providers' public references, down to the order of events. Ids and times are fixed, so that two runs
give the same bytes. Nothing here knows about HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from refold.testing.script import ScriptedReply, ScriptedUsage

Raw = dict[str, Any]
# Events by name; the end of a stream may be a bare word.
Events = Iterator[tuple[str, Raw | str]]
WriteAnswer = Callable[[ScriptedReply, ScriptedUsage, str], Raw]
WriteEvents = Callable[[ScriptedReply, ScriptedUsage, Raw], Events]

RESPONSE_ID = "resp_scripted"
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def write_responses_answer(reply: ScriptedReply, usage: ScriptedUsage, model: str) -> Raw:
    cut = _INCOMPLETE.get(reply.reason)
    return {
        "id": reply.id or RESPONSE_ID,
        "object": "response",
        "created_at": CREATED,
        "model": model,
        "status": "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": cut} if cut else None,
        "instructions": None,
        "metadata": {},
        "output": list(_write_items(reply)),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": usage.input,
            "input_tokens_details": {"cached_tokens": usage.cached},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.input + usage.output,
        },
    }


def _write_items(reply: ScriptedReply) -> Iterator[Raw]:
    if reply.thinking:
        summary = [{"type": "summary_text", "text": reply.thinking}]
        yield {"type": "reasoning", "id": f"rs_{reply.id or 'scripted'}", "summary": summary}
    if reply.text or not reply.calls:
        part: Raw = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        if reply.is_refusal:
            part = {"type": "refusal", "refusal": reply.text}
        made = {"type": "message", "id": f"msg_{reply.id or 'scripted'}", "status": "completed", "role": "assistant"}
        yield {**made, "content": [part]}
    for at, call in enumerate(reply.calls):
        yield {
            "type": "function_call",
            "id": f"fc_{reply.id or 'scripted'}_{at}",
            "call_id": call.id or f"call_scripted_{at}",
            "name": call.name,
            "arguments": call.arguments_text,
            "status": "completed",
        }


def write_responses_events(reply: ScriptedReply, usage: ScriptedUsage, request: Raw) -> Events:
    """Yield the numbered events: created, each item with its parts and deltas, completed or incomplete."""
    for number, event in enumerate(_list_events(reply, usage, request)):
        yield event["type"], {**event, "sequence_number": number}


def _list_events(reply: ScriptedReply, usage: ScriptedUsage, request: Raw) -> Iterator[Raw]:
    whole = write_responses_answer(reply, usage, str(request.get("model", "")))
    start = {**whole, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    yield {"type": "response.created", "response": start}
    yield {"type": "response.in_progress", "response": start}
    for index, item in enumerate(whole["output"]):
        empty: dict[str, Raw] = {
            "reasoning": {"summary": []},
            "message": {"content": []},
            "function_call": {"arguments": ""},
        }
        opened = {**item, **empty[item["type"]]}
        if "status" in opened:
            opened["status"] = "in_progress"
        yield {"type": "response.output_item.added", "output_index": index, "item": opened}
        yield from _list_inner(item, {"item_id": item["id"], "output_index": index})
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{whole['status']}", "response": whole}


def _list_inner(item: Raw, place: Raw) -> Iterator[Raw]:
    if item["type"] == "function_call":
        for piece in cut_pieces(item["arguments"], ARGUMENT_CHARS):
            yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
        done = {"name": item["name"], "arguments": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **place, **done}
    elif item["type"] == "reasoning":
        part, place = item["summary"][0], {**place, "summary_index": 0}
        yield {"type": "response.reasoning_summary_part.added", **place, "part": {**part, "text": ""}}
        for piece in cut_pieces(part["text"]):
            yield {"type": "response.reasoning_summary_text.delta", **place, "delta": piece}
        yield {"type": "response.reasoning_summary_text.done", **place, "text": part["text"]}
        yield {"type": "response.reasoning_summary_part.done", **place, "part": part}
    else:
        part, place = item["content"][0], {**place, "content_index": 0}
        kind, key = ("refusal", "refusal") if part["type"] == "refusal" else ("output_text", "text")
        yield {"type": "response.content_part.added", **place, "part": {**part, key: ""}}
        for piece in cut_pieces(part[key]):
            yield {"type": f"response.{kind}.delta", **place, "delta": piece, "logprobs": []}
        yield {"type": f"response.{kind}.done", **place, key: part[key], "logprobs": []}
        yield {"type": "response.content_part.done", **place, "part": part}


MESSAGE_ID = "msg_scripted"
SIGNATURE = "c2NyaXB0ZWQtc2lnbmF0dXJl"
_ANTHROPIC_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


def write_anthropic_answer(reply: ScriptedReply, usage: ScriptedUsage, model: str) -> Raw:
    return {
        "id": reply.id or MESSAGE_ID,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": list(_write_blocks(reply)),
        "stop_reason": _ANTHROPIC_REASONS.get(reply.reason, reply.reason),
        "stop_sequence": None,
        "usage": {
            "input_tokens": usage.input - usage.cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.cached,
            "output_tokens": usage.output,
        },
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
    """Return arguments as an object; this wire cannot carry anything else in a whole answer."""
    try:
        value = json.loads(arguments)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"text": arguments}


def write_anthropic_events(reply: ScriptedReply, usage: ScriptedUsage, request: Raw) -> Events:
    """Yield the events: start, ping, each block in its deltas, the stop reason, the end."""
    for event in _list_anthropic(reply, usage, request):
        yield event["type"], event


def _list_anthropic(reply: ScriptedReply, usage: ScriptedUsage, request: Raw) -> Iterator[Raw]:
    whole = write_anthropic_answer(reply, usage, str(request.get("model", "")))
    start = {**whole, "content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}
    yield {"type": "message_start", "message": start}
    for index, block in enumerate(whole["content"]):
        call = next(
            (c for at, c in enumerate(reply.calls) if block.get("id") == (c.id or f"toolu_scripted_{at}")), None
        )
        yield {"type": "content_block_start", "index": index, "content_block": _open_block(block)}
        if index == 0:
            yield {"type": "ping"}
        for delta in _write_deltas(block, call.arguments_text if call else ""):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": usage.output}}
    yield {"type": "message_stop"}


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


CHAT_ID = "chatcmpl-scripted"
CREATED = 1_767_225_600
PIECE_CHARS = 12
ARGUMENT_CHARS = 7
PIECES_MAX = 400
_CHAT_REASONS = {"refusal": "stop"}


def cut_pieces(text: str, chars: int = PIECE_CHARS) -> Iterator[str]:
    """Yield a text in pieces of a few characters each; a giant text in larger pieces, so that tests stay short."""
    step = max(chars, -(-len(text) // PIECES_MAX))
    for at in range(0, len(text), step):
        yield text[at : at + step]


def write_chat_usage(usage: ScriptedUsage) -> Raw:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }


def write_chat_answer(reply: ScriptedReply, usage: ScriptedUsage, model: str) -> Raw:
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
    reason = _CHAT_REASONS.get(reply.reason, reply.reason)
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    return {
        "id": reply.id or CHAT_ID,
        "object": "chat.completion",
        "created": CREATED,
        "model": model,
        "choices": [choice],
        "usage": write_chat_usage(usage),
    }


def write_chat_events(reply: ScriptedReply, usage: ScriptedUsage, request: Raw) -> Events:
    """Yield the chunks: role, words, fragments of calls, finish reason and, if asked for, usage; then the end."""

    def chunk(delta: Raw, reason: str | None = None) -> tuple[str, Raw]:
        choices = [{"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}]
        return "", {**opening, "choices": choices}

    opening = {
        "id": reply.id or CHAT_ID,
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
    yield chunk({}, _CHAT_REASONS.get(reply.reason, reply.reason))
    if (request.get("stream_options") or {}).get("include_usage"):
        yield "", {**opening, "choices": [], "usage": write_chat_usage(usage)}
    yield "", "[DONE]"


def write_json(payload: object) -> str:
    """Return JSON that any encoding can carry: a lone surrogate has no UTF-8 form, but JSON can escape it."""
    text = json.dumps(payload, ensure_ascii=False)
    return text if text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text) else json.dumps(payload)


def encode_event(name: str, data: Raw | str) -> bytes:
    """Return a server-sent event as bytes; ``name`` is empty where the wire has none."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {data if isinstance(data, str) else write_json(data)}\n\n".encode()


# How each wire answers whole, and the events of its stream.
WIRES: dict[str, tuple[WriteAnswer, WriteEvents]] = {
    "openai-chat": (write_chat_answer, write_chat_events),
    "openai-responses": (write_responses_answer, write_responses_events),
    "anthropic": (write_anthropic_answer, write_anthropic_events),
}
