"""OpenAI chat completions, and compatible servers (DeepSeek, OpenRouter, LiteLLM, vLLM, Ollama).

Parts are in this order: thinking fields, content, other answers (refusal, audio), calls. A tool message is one result.
The format never moves content between messages and never adds a missing field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from refold.conversation.message import Message, Part, Role, Spoken, read_text, write_json
from refold.errors import FormatError
from refold.formats.block import (
    Found,
    Raw,
    WireFormat,
    change_block,
    change_list,
    find_pair_faults,
    read_list,
    read_object,
    read_openai_block,
    read_output,
    read_role,
    read_str,
    str_or_empty,
    write_arguments,
)

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
# The fields in which the dialects return the model's thinking; a field is removed as a whole.
_THINKING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
_MEDIA_TYPES = frozenset(("image_url", "input_audio", "file", "video_url", "audio_url", "image"))


class OpenAIChat(WireFormat):
    """The chat completions format."""

    name = "openai-chat"

    def _read_role(self, raw: Raw, where: str) -> Role:
        return read_role(raw, ROLES, self.name, where)

    def _read_name(self, raw: Raw) -> str:
        return str_or_empty(raw.get("name"))

    def _read_parts(self, raw: Raw, where: str) -> tuple[Part, ...]:
        return tuple([part for part, _ in _find_parts(raw, self._read_role(raw, where), where)])

    def _change(self, message: Message, raw: Raw, changes: Mapping[int, str | None]) -> object:
        if message.role == "tool":
            return {**raw, "content": changes[0]}
        new = dict(raw)
        lists: dict[str, dict[int, object]] = {}
        for at, (part, (field, index)) in enumerate(_find_parts(raw, message.role, "message")):
            if at not in changes:
                continue
            text = changes[at]
            if index is not None:
                lists.setdefault(field, {})[index] = _change_element(part, raw[field][index], text)
            elif part.kind == "call":
                new[field] = {**raw[field], "arguments": write_arguments(text or "")}
            elif text or field == "content":
                new[field] = text
            else:
                del new[field]
        for field, elements in lists.items():
            new[field] = change_list(raw[field], elements)
        if not new.get("content") and raw.get("content"):
            # Beside calls the provider wants null; without them an assistant message must have a string.
            new["content"] = None if new.get("tool_calls") or new.get("function_call") else ""
        return new

    def write_summary(self, text: str, role: Role) -> object:
        return {"role": self.allow_role(role, None, None), "content": text}

    def allow_role(self, wanted: Role, before: Role | None, after: Role | None) -> Role:  # noqa: ARG002
        """Return the role a summary may have: any but that of a tool."""
        return "user" if wanted == "tool" else wanted

    def find_faults(self, items: Sequence[Spoken]) -> list[str]:
        faults = find_pair_faults(items)
        faults += ["empty assistant message" for item in items if item.role == "assistant" and not item.parts]
        for item in items:
            wrong = [part for part in item.parts if part.kind in ("call", "thinking") and item.role != "assistant"]
            faults += [f"{part.kind} in {item.role} message {part.call_id}" for part in wrong]
        return faults


def _find_parts(raw: Raw, role: Role, where: str) -> Found:
    """Return every part with its place, in the order of part numbers."""
    content = raw.get("content")
    if role == "tool":
        return [(_read_result(raw, content, where), ("content", None))]
    found: Found = []
    has_more = len(raw) > 2 or "content" not in raw  # A message of calls alone may come without content.
    if role == "assistant" and has_more:
        found += _find_thinking(raw)
    if content:
        if isinstance(content, str):
            found.append((Part("text", content), ("content", None)))
        else:
            blocks = read_list(content, f"{where}.content")
            found += [(_read_block(b, f"{where}.content[{at}]"), ("content", at)) for at, b in enumerate(blocks)]
    elif content is not None and content != "" and not isinstance(content, list):
        read_list(content, f"{where}.content")
    if has_more:
        found += _find_answers(raw, where)
    return found


def _find_thinking(raw: Raw) -> Found:
    found: Found = []
    for field in _THINKING_FIELDS:
        value = raw.get(field)
        if value:
            found.append((Part("thinking", _read_thinking(value), payload=value), (field, None)))
    return found


def _read_thinking(value: object) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return write_json(value)
    blocks = [block for block in value if isinstance(block, dict)]
    texts = (block.get("thinking") or block.get("text") or block.get("summary") for block in blocks)
    return "\n".join(text for text in texts if isinstance(text, str))


def _find_answers(raw: Raw, where: str) -> Found:
    found: Found = []
    if raw.get("refusal"):
        found.append((Part("text", read_str(raw, "refusal", where)), ("refusal", None)))
    if raw.get("audio"):
        found.append((Part("opaque", payload=raw["audio"]), ("audio", None)))
    if raw.get("tool_calls") is not None:
        calls = read_list(raw["tool_calls"], f"{where}.tool_calls")
        found += [(_read_call(c, f"{where}.tool_calls[{at}]"), ("tool_calls", at)) for at, c in enumerate(calls)]
    if raw.get("function_call") is not None:
        call = read_object(raw["function_call"], f"{where}.function_call")
        name = read_str(call, "name", f"{where}.function_call")
        # The older protocol has no ids: a result names its function.
        found.append((Part("call", read_text(call.get("arguments")), name, name, call), ("function_call", None)))
    return found


def _read_call(call: object, where: str) -> Part:
    holder = read_object(call, where)
    call_id = read_str(holder, "id", where)
    if holder.get("function") is not None:
        function = read_object(holder["function"], f"{where}.function")
        name = read_str(function, "name", f"{where}.function")
        return Part("call", read_text(function.get("arguments")), name, call_id, holder)
    if holder.get("custom") is not None:
        custom = read_object(holder["custom"], f"{where}.custom")
        return Part("call", read_str(custom, "input", where), read_str(custom, "name", where), call_id, holder)
    raise FormatError(
        "{where} has neither function nor custom; a call names what it calls: add one of them", where=where
    )


def _read_result(raw: Raw, content: Any, where: str) -> Part:
    name = str_or_empty(raw.get("name"))
    call_id = read_str(raw, "tool_call_id", where) or (name if raw.get("role") == "function" else "")
    text, inside = read_output(content, f"{where}.content", _read_block)
    return Part("result", text, name, call_id, raw, inside)


def _read_block(block: object, where: str) -> Part:
    return read_openai_block(block, where, texts=("text",), media=_MEDIA_TYPES)


def _change_element(part: Part, element: Raw, text: str | None) -> object:
    if part.kind == "call":
        if element.get("function") is not None:
            return {**element, "function": {**element["function"], "arguments": write_arguments(text or "")}}
        return {**element, "custom": {**element["custom"], "input": text}}
    return change_block(part, element, text)
