"""Turns OpenAI chat messages into a valid Anthropic request or Responses input, so that one session tests all formats.

For tests, replays and examples only. The engine never converts: it edits what came in. A conversion keeps every word,
its order and the pairing of calls; ids that repeat are made new where a provider wants them unique.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

Raw = dict[str, Any]
_EMPTY = "(empty)"


def to_anthropic(messages: Sequence[Raw], tools: Sequence[Raw] | None = None) -> Raw:
    """Return an Anthropic request body with the same conversation; results of one step share a user message."""
    system: list[Raw] = []
    out: list[Raw] = []
    ids = _Ids("toolu")
    for message in messages:
        role = message["role"]
        if role in ("system", "developer"):
            if out:
                _append(out, "user", _texts(message))
            else:
                system += _texts(message)
        elif role in ("tool", "function"):
            result: Raw = {"type": "tool_result", "tool_use_id": ids.answer(message.get("tool_call_id", ""))}
            _append(out, "user", [{**result, "content": _plain_text(message)}])
        elif role == "assistant":
            _append(out, "assistant", [*_texts(message), *_tool_uses(message, ids)])
        else:
            _append(out, "user", _texts(message) or [{"type": "text", "text": _EMPTY}])
    if out and out[0]["role"] != "user":
        out.insert(0, {"role": "user", "content": _EMPTY})
    body: Raw = {"messages": out}
    if system:
        body["system"] = system
    if tools:
        body["tools"] = [_anthropic_tool(tool) for tool in tools]
    return body


def to_responses(messages: Sequence[Raw], tools: Sequence[Raw] | None = None, *, reasoning: bool = False) -> Raw:
    """Return a Responses request body with the same conversation; with reasoning items before each step if asked."""
    items: list[Raw] = []
    for at, message in enumerate(messages):
        role = message["role"]
        if role in ("tool", "function"):
            call_id = message.get("tool_call_id", "")
            items.append({"type": "function_call_output", "call_id": call_id, "output": _plain_text(message)})
            continue
        step = list(_response_items(message))
        if reasoning and role == "assistant" and step:
            summary = [{"type": "summary_text", "text": f"Thinking about step {at}."}]
            items.append({"type": "reasoning", "id": f"rs_{at}", "summary": summary, "encrypted_content": "Z0FB" * 20})
        items += step
    body: Raw = {"input": items}
    if tools:
        body["tools"] = [{"type": "function", **tool["function"]} if "function" in tool else tool for tool in tools]
    return body


class _Ids:
    """Gives each call an id of its own and each result the id of the call it answers, by position."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._count = 0
        self._open: dict[str, list[str]] = {}

    def call(self, call_id: str) -> str:
        self._count += 1
        new = f"{self._prefix}_{self._count:06d}"
        self._open.setdefault(call_id, []).append(new)
        return new

    def answer(self, call_id: str) -> str:
        waiting = self._open.get(call_id)
        return waiting.pop(0) if waiting else f"{self._prefix}_unknown"


def _append(out: list[Raw], role: str, blocks: list[Raw]) -> None:
    """Add blocks; those of one role in a row make one message, except that words after results start another."""
    if not blocks:
        return
    last = out[-1] if out else None
    is_result = blocks[0]["type"] == "tool_result"
    if last is not None and last["role"] == role and is_result and last["content"][-1]["type"] == "tool_result":
        last["content"] += blocks
    else:
        out.append({"role": role, "content": blocks})


def _texts(message: Raw) -> list[Raw]:
    text = _plain_text(message)
    return [{"type": "text", "text": text}] if text.strip() else []


def _plain_text(message: Raw) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(block.get("text") or "" for block in content if isinstance(block, dict))
    return content or ""


def _tool_uses(message: Raw, ids: _Ids) -> Iterator[Raw]:
    for call in message.get("tool_calls") or []:
        function = call["function"]
        yield {
            "type": "tool_use",
            "id": ids.call(call.get("id", "")),
            "name": function["name"],
            "input": _read_input(function.get("arguments")),
        }


def _read_input(arguments: object) -> Raw:
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"text": str(arguments)}


def _anthropic_tool(tool: Raw) -> Raw:
    function = tool.get("function", tool)
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    return {"name": function.get("name", ""), "description": function.get("description", ""), "input_schema": schema}


def _response_items(message: Raw) -> Iterator[Raw]:
    role = message["role"]
    text = _plain_text(message)
    if text or role != "assistant":
        kind = "output_text" if role == "assistant" else "input_text"
        yield {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
    for call in message.get("tool_calls") or []:
        function = call["function"]
        arguments = function.get("arguments") or "{}"
        yield {"type": "function_call", "call_id": call.get("id", ""), "name": function["name"], "arguments": arguments}
