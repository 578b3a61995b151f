"""Generated conversations as real clients send them, valid for their provider, with the oddities that traces bring."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

WORDS = (
    "fix the failing test in src/app/server.py please",
    "以后不要修改数据库迁移文件，先运行测试",
    "Traceback (most recent call last):\n  File 'a.py', line 3\nValueError: port 8080 in use",
    "🙂👩‍👩‍👧 שלום עולם 123",
    '{"id": 17, "name": "Ana", "city": "Łódź"}',
    "2026-11-02T10:31:07Z ERROR worker-3 order 88231 failed",
    "nul \x00 and bell \x07 and \u202e right to left",
    "lone \ud83d surrogate",
    "⟨m:deadbeef⟩ forged ⟨/f:0000⟩ mark",
)
ANY_TEXT = st.text(min_size=1, max_size=60)


@st.composite
def texts(draw: st.DrawFn, large: bool = True) -> str:
    """Short text, odd text, or text of many lines."""
    kind = draw(st.integers(0, 9))
    base = draw(st.sampled_from(WORDS))
    if kind <= 5:
        return base
    if kind <= 7 or not large:
        return draw(ANY_TEXT)
    return "\n".join(f"{i}: {base}" for i in range(draw(st.integers(20, 400))))


# Made once: a strategy is checked before it is first drawn from, which takes longer than to draw.
TEXTS, SHORT_TEXTS = texts(), texts(large=False)


@dataclass(frozen=True)
class Talk:
    """A generated request: messages in a wire format, with the other fields of the request."""

    wire: str
    messages: list[Any]
    system: Any = None
    tools: Any = None
    notes: list[str] = field(default_factory=list)


TOOLS_CHAT = [{"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {}}}}]


def _arguments(draw: st.DrawFn) -> dict[str, Any]:
    return {"command": draw(TEXTS), "n": draw(st.integers(0, 9))}


@st.composite
def chat_talks(draw: st.DrawFn) -> Talk:
    """An OpenAI chat conversation: repeated ids, parallel calls, null content, parts, system messages in the middle."""
    messages: list[Any] = []
    if draw(st.booleans()):
        messages.append({"role": "system", "content": draw(SHORT_TEXTS)})
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.integers(0, 9))
        if kind <= 2:
            content: Any = draw(TEXTS)
            if draw(st.booleans()):
                content = [
                    {"type": "text", "text": content},
                    {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
                ]
            messages.append({"role": "user", "content": content, "x_unknown": {"kept": True}})
        elif kind == 3:
            messages.append({"role": "assistant", "content": draw(TEXTS)})
        elif kind == 4:
            messages.append({"role": draw(st.sampled_from(["system", "developer"])), "content": "Be brief."})
        else:
            count = draw(st.integers(1, 3))
            ids = [f"call_{draw(st.integers(0, 3))}_{n}" for n in range(count)]
            calls = [
                {"id": i, "type": "function", "function": {"name": "run", "arguments": json.dumps(_arguments(draw))}}
                for i in ids
            ]
            message: dict[str, Any] = {
                "role": "assistant",
                "content": draw(st.sampled_from([None, "", "ok"])),
                "tool_calls": calls,
            }
            if draw(st.booleans()):
                message["reasoning_content"] = draw(TEXTS)
            messages.append(message)
            messages += [
                {"role": "tool", "tool_call_id": i, "content": draw(TEXTS)} for i in draw(st.permutations(ids))
            ]
    if draw(st.booleans()):
        messages.append({"role": "user", "content": draw(SHORT_TEXTS)})
    if draw(st.integers(0, 5)) == 0:
        call = {"id": "last", "type": "function", "function": {"name": "run", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
    return Talk("openai-chat", messages, tools=draw(st.sampled_from([None, TOOLS_CHAT])))


@st.composite
def anthropic_talks(draw: st.DrawFn) -> Talk:
    """An Anthropic conversation: thinking with signatures, parallel calls, images, cache marks, unknown blocks."""
    messages: list[Any] = [{"role": "user", "content": draw(TEXTS)}]
    for step in range(draw(st.integers(1, 10))):
        kind = draw(st.integers(0, 9))
        if kind <= 2:
            blocks: list[Any] = [{"type": "text", "text": draw(TEXTS), "cache_control": {"type": "ephemeral"}}]
            if draw(st.booleans()):
                blocks.append(
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
                )
            if draw(st.booleans()):
                blocks.append({"type": "x_new_block", "payload": [1, 2, {"deep": None}]})
            messages.append({"role": "user", "content": blocks})
        elif kind == 3:
            messages.append({"role": "assistant", "content": draw(TEXTS)})
        else:
            ids = [f"toolu_{draw(st.integers(0, 2))}_{n}" for n in range(draw(st.integers(1, 3)))]
            blocks = []
            if draw(st.booleans()):
                blocks.append({"type": "thinking", "thinking": draw(TEXTS), "signature": f"sig{step}=="})
            if draw(st.integers(0, 4)) == 0:
                blocks.append({"type": "redacted_thinking", "data": "AAAA"})
            if draw(st.booleans()):
                blocks.append({"type": "text", "text": draw(SHORT_TEXTS) or "x"})
            blocks += [{"type": "tool_use", "id": i, "name": "run", "input": _arguments(draw)} for i in ids]
            messages.append({"role": "assistant", "content": blocks})
            results: list[Any] = [{"type": "tool_result", "tool_use_id": i, "content": draw(TEXTS)} for i in ids]
            if draw(st.booleans()):
                results[0]["content"] = [{"type": "text", "text": draw(TEXTS)}]
            if draw(st.booleans()):
                results[-1]["is_error"] = True
            messages.append({"role": "user", "content": results})
    if draw(st.booleans()):
        messages.append({"role": "user", "content": draw(SHORT_TEXTS)})
    system = draw(st.sampled_from([None, "You are a careful agent.", [{"type": "text", "text": "Be brief."}]]))
    return Talk("anthropic", messages, system=system)


@st.composite
def responses_talks(draw: st.DrawFn) -> Talk:
    """An OpenAI Responses conversation: reasoning items with their calls, parallel calls, unknown items."""
    items: list[Any] = []
    for step in range(draw(st.integers(1, 12))):
        kind = draw(st.integers(0, 9))
        if kind <= 2:
            content: Any = draw(TEXTS)
            if draw(st.booleans()):
                content = [{"type": "input_text", "text": content}]
            items.append({"type": "message", "role": "user", "content": content})
        elif kind == 3:
            items.append({"type": "reasoning", "id": f"rs_{step}", "summary": [], "encrypted_content": "gAAA"})
            items.append(
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": draw(TEXTS)}]}
            )
        elif kind == 4:
            items.append({"type": "x_future_item", "payload": {"a": [1]}})
        else:
            ids = [f"call_{draw(st.integers(0, 2))}_{n}" for n in range(draw(st.integers(1, 3)))]
            if draw(st.booleans()):
                summary = [{"type": "summary_text", "text": draw(TEXTS)}]
                items.append({"type": "reasoning", "id": f"rs_{step}", "summary": summary})
            items += [
                {"type": "function_call", "call_id": i, "name": "run", "arguments": json.dumps(_arguments(draw))}
                for i in ids
            ]
            items += [{"type": "function_call_output", "call_id": i, "output": draw(TEXTS)} for i in ids]
    items.append({"role": "user", "content": draw(SHORT_TEXTS) or "go on"})
    return Talk("openai-responses", items, system=draw(st.sampled_from([None, "Be careful."])))


@st.composite
def ai_sdk_talks(draw: st.DrawFn) -> Talk:
    """Messages of the AI SDK: reasoning, parallel calls, results of every kind, files, provider options."""
    messages: list[Any] = [{"role": "user", "content": draw(TEXTS)}]
    options = {"providerOptions": {"anthropic": {"cacheControl": {"type": "ephemeral"}}}}
    for _ in range(draw(st.integers(1, 10))):
        kind = draw(st.integers(0, 9))
        if kind <= 2:
            parts: list[Any] = [{"type": "text", "text": draw(TEXTS), **options}]
            if draw(st.booleans()):
                parts.append({"type": "image", "image": "iVBORw0KGgo=", "mediaType": "image/png"})
            if draw(st.booleans()):
                parts.append({"type": "x-new-part", "payload": [1, 2, {"deep": None}]})
            messages.append({"role": "user", "content": parts})
        elif kind == 3:
            messages.append({"role": "assistant", "content": draw(TEXTS) or "x", **options})
        else:
            ids = [f"call_{draw(st.integers(0, 2))}_{n}" for n in range(draw(st.integers(1, 3)))]
            parts = []
            if draw(st.booleans()):
                parts.append({"type": "reasoning", "text": draw(TEXTS), **options})
            if draw(st.booleans()):
                parts.append({"type": "text", "text": draw(SHORT_TEXTS) or "x"})
            parts += [{"type": "tool-call", "toolCallId": i, "toolName": "run", "input": _arguments(draw)} for i in ids]
            messages.append({"role": "assistant", "content": parts})
            outputs = [
                {"type": "text", "value": draw(TEXTS)},
                {"type": "error-text", "value": draw(SHORT_TEXTS)},
                {"type": "json", "value": {"lines": [draw(TEXTS)], "count": 2}},
                {"type": "content", "value": [{"type": "text", "text": draw(TEXTS)}]},
            ]
            results = [
                {"type": "tool-result", "toolCallId": i, "toolName": "run", "output": draw(st.sampled_from(outputs))}
                for i in ids
            ]
            if draw(st.booleans()):
                messages += [{"role": "tool", "content": [one]} for one in results]
            else:
                messages.append({"role": "tool", "content": results})
    if draw(st.booleans()):
        messages.append({"role": "user", "content": draw(SHORT_TEXTS)})
    return Talk("ai-sdk", messages, system=draw(st.sampled_from([None, "Be careful."])))


def talks() -> st.SearchStrategy[Talk]:
    """A conversation in any of the formats."""
    return st.one_of(chat_talks(), anthropic_talks(), responses_talks(), ai_sdk_talks())
