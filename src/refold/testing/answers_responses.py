"""A reply as OpenAI's Responses interface writes it, whole and as events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from refold.testing.answers_chat import ARGUMENT_CHARS, CREATED, cut_pieces
from refold.testing.script import ScriptedReply, ScriptedUsage

Raw = dict[str, Any]
ID = "resp_scripted"
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def write_usage(usage: ScriptedUsage) -> Raw:
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input + usage.output,
    }


def write_answer(reply: ScriptedReply, usage: ScriptedUsage, model: str) -> Raw:
    """Return the whole answer."""
    cut = _INCOMPLETE.get(reply.reason)
    return {
        "id": reply.id or ID,
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
        "usage": write_usage(usage),
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


def write_events(reply: ScriptedReply, usage: ScriptedUsage, request: Raw) -> Iterator[tuple[str, Raw]]:
    """Yield the numbered events: created, each item with its parts and deltas, completed or incomplete."""
    for number, event in enumerate(_list_events(reply, usage, request)):
        yield event["type"], {**event, "sequence_number": number}


def _list_events(reply: ScriptedReply, usage: ScriptedUsage, request: Raw) -> Iterator[Raw]:
    whole = write_answer(reply, usage, str(request.get("model", "")))
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
