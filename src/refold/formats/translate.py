"""Translates one chat format into the other, for a session that was started with a model of the other kind.

The ledger is never translated: a session stays in the format that it began in, with its originals and edits. The
translation is made for each request, keeps every word in order and every call with its result, and omits what the other
side cannot read: thinking with its signature, and media it has no form for, which leave a name in brackets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from refold.formats.canonical import parse_arguments

Raw = dict[str, Any]
EMPTY = "(empty)"
INVALID = "invalid_json"
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_DATA_URL = re.compile(r"data:([\w/+.-]+);base64,(.*)", re.DOTALL)


def can_translate(source: str, target: str) -> bool:
    """Return whether messages of one format can be written in another."""
    return source == target or (source, target) in _WAYS


def translate_messages(messages: Sequence[Any], source: str, target: str) -> list[Any]:
    """Return messages in another format, as a request that its provider accepts."""
    return list(messages) if source == target else _WAYS[source, target](messages)


def translate_tools(tools: Sequence[Mapping[str, Any]], source: str, target: str) -> list[Raw]:
    """Return tools in another format."""
    if source == target:
        return [dict(tool) for tool in tools]
    if target == "anthropic":
        functions = [tool["function"] for tool in tools]
        return [
            {"name": one["name"], "description": one.get("description", ""), "input_schema": one["parameters"]}
            for one in functions
        ]
    return [
        {
            "type": "function",
            "function": {
                "name": tool["name"],
                "description": tool.get("description", ""),
                "parameters": tool["input_schema"],
            },
        }
        for tool in tools
    ]


class _CallIds:
    """Gives each call a valid unique id, and each result the id of the call it answers, by position."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._open: dict[str, list[str]] = {}

    def call(self, call_id: str) -> str:
        new = call_id if _ID.fullmatch(call_id) else f"call_{len(self._seen)}"
        number = 0
        while new in self._seen:
            number += 1
            new = f"{call_id[:40] if _ID.fullmatch(call_id) else 'call'}_{len(self._seen)}_{number}"
        self._seen.add(new)
        self._open.setdefault(call_id, []).append(new)
        return new

    def answer(self, call_id: str) -> str:
        waiting = self._open.get(call_id)
        return waiting.pop(0) if waiting else call_id


def _to_anthropic(messages: Sequence[Any]) -> list[Raw]:
    out: list[Raw] = []
    ids = _CallIds()
    for message in messages:
        role = message.get("role")
        if role in ("tool", "function"):
            text = _read_text(message.get("content"))
            answered = ids.answer(str(message.get("tool_call_id") or message.get("name") or ""))
            result: Raw = {"type": "tool_result", "tool_use_id": answered, "content": text}
            _add_blocks(out, "user", [result])
        elif role == "assistant":
            blocks = _write_blocks(message.get("content") or message.get("refusal"))
            calls = [_write_use(call, ids) for call in _read_calls(message)]
            # An empty assistant message still takes its turn.
            _add_blocks(out, "assistant", [*blocks, *calls] or [{"type": "text", "text": EMPTY}])
        else:
            _add_blocks(out, "user", _write_blocks(message.get("content")) or [{"type": "text", "text": EMPTY}])
    if out and out[0]["role"] != "user":
        out.insert(0, {"role": "user", "content": [{"type": "text", "text": EMPTY}]})
    return out


def _add_blocks(out: list[Raw], role: str, blocks: list[Raw]) -> None:
    """Add a message; the results of one step make one."""
    if not blocks:
        return
    last = out[-1] if out else None
    if last is not None and last["role"] == role and blocks[0]["type"] == last["content"][-1]["type"] == "tool_result":
        last["content"] += blocks
    else:
        out.append({"role": role, "content": blocks})


def _write_blocks(content: object) -> list[Raw]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content.strip() else []
    blocks: list[Raw] = []
    for part in content if isinstance(content, list) else ():
        if not isinstance(part, dict):
            continue
        if part.get("type") == "image_url":
            blocks.append(_write_image_block(part))
        elif (text := str(part.get("text") or part.get("refusal") or "")).strip():
            blocks.append({"type": "text", "text": text})
        elif part.get("type") not in ("text", "refusal"):
            blocks.append({"type": "text", "text": f"[{part.get('type')}]"})
    return blocks


def _write_image_block(part: Raw) -> Raw:
    image = part.get("image_url")
    url = str(image.get("url", "") if isinstance(image, dict) else image)
    if found := _DATA_URL.fullmatch(url):
        return {"type": "image", "source": {"type": "base64", "media_type": found[1], "data": found[2]}}
    return {"type": "image", "source": {"type": "url", "url": url}}


def _read_calls(message: Raw) -> list[Raw]:
    """Return the calls of a message; the older function_call pairs by the function's name."""
    listed = [call for call in message.get("tool_calls") or () if isinstance(call, dict)]
    old = message.get("function_call")
    if isinstance(old, dict):
        listed.append({"id": str(old.get("name") or ""), "function": old})
    return listed


def _write_use(call: Raw, ids: _CallIds) -> Raw:
    function = call.get("function") or {}
    written = str(function.get("arguments") or "{}")
    given = parse_arguments(written)
    return {
        "type": "tool_use",
        "id": ids.call(str(call.get("id", ""))),
        "name": str(function.get("name") or "unnamed"),
        "input": given if isinstance(given, dict) else {INVALID: written},
    }


def _to_openai(messages: Sequence[Any]) -> list[Raw]:
    out: list[Raw] = []
    ids = _CallIds()
    for message in messages:
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
        if message.get("role") == "assistant":
            out.append(_write_assistant(blocks, ids))
            continue
        rest: list[Raw] = []
        for block in blocks:
            if block.get("type") == "tool_result":
                answered = ids.answer(str(block.get("tool_use_id", "")))
                out.append({"role": "tool", "tool_call_id": answered, "content": _read_text(block.get("content"))})
            else:
                rest += _write_part(block)
        if rest:
            out.append({"role": "user", "content": _join_texts(rest)})
    return out


def _write_assistant(blocks: Sequence[Raw], ids: _CallIds) -> Raw:
    texts = [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]
    calls = [
        {
            "id": ids.call(str(block.get("id", ""))),
            "type": "function",
            "function": {
                "name": str(block.get("name", "")),
                "arguments": json.dumps(block.get("input") or {}, ensure_ascii=False),
            },
        }
        for block in blocks
        if block.get("type") == "tool_use"
    ]
    text = "\n\n".join(filter(str.strip, texts))
    message: Raw = {"role": "assistant", "content": text or (None if calls else EMPTY)}
    return {**message, "tool_calls": calls} if calls else message


def _write_part(block: Raw) -> list[Raw]:
    kind = block.get("type")
    if kind == "text":
        return [{"type": "text", "text": str(block.get("text", ""))}]
    source = block.get("source")
    if kind == "image" and isinstance(source, dict):
        url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
        return [{"type": "image_url", "image_url": {"url": url}}]
    return [] if kind in ("thinking", "redacted_thinking") else [{"type": "text", "text": f"[{kind}]"}]


def _join_texts(parts: list[Raw]) -> str | list[Raw]:
    """Return the content of a message: one string if it is only text."""
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def _read_text(content: object) -> str:
    """Return the words of a result."""
    if isinstance(content, list):
        pieces = [
            str(one.get("text") or f"[{one.get('type')}]") if isinstance(one, dict) else str(one) for one in content
        ]
        return "\n".join(pieces)
    return "" if content is None else str(content)


_WAYS: dict[tuple[str, str], Callable[[Sequence[Any]], list[Raw]]] = {
    ("openai-chat", "anthropic"): _to_anthropic,
    ("anthropic", "openai-chat"): _to_openai,
}
