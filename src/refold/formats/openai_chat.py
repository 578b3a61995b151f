"""OpenAI chat completions, and compatible servers (DeepSeek, OpenRouter, LiteLLM, vLLM, Ollama).

Parts are in this order: thinking fields, content, other answers (refusal, audio), calls. A tool message is one result.
The format never moves anything between messages and never fills in a missing field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from refold.conversation.message import Message, Part, Role, Spoken, chain_id, read_text, write_json
from refold.errors import FormatError
from refold.formats.block import (
    DROPPED,
    Found,
    Raw,
    change_list,
    check_changes,
    find_pair_faults,
    has_content,
    join_texts,
    read_list,
    read_object,
    read_role,
    read_str,
    read_system,
    str_or_empty,
    write_arguments,
    write_text_block,
)
from refold.formats.canonical import Volatile, digest_message

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
# Where the dialects put the model's thinking; a field is removed whole.
_THINKING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
_MEDIA_TYPES = frozenset(("image_url", "input_audio", "file", "video_url", "audio_url", "image"))


class OpenAIChat:
    """The chat completions format."""

    name = "openai-chat"

    def __init__(self, volatile: Volatile | None = None) -> None:
        self._volatile = volatile

    def parse(self, raw: object, parent: str = "", where: str = "message", *, digest: str = "") -> Message:
        """Read one message; raise FormatError that names ``where`` if it is not one."""
        holder = read_object(raw, where)
        role = read_role(holder, ROLES, self.name, where)
        parts = tuple([part for part, _ in _find_parts(holder, role, where)])
        digest = digest or digest_message(holder, self._volatile, where)
        return Message(raw, role, parts, digest, chain_id(parent, digest), _read_name(holder))

    def parse_parts(self, raw: object) -> tuple[Part, ...]:
        """Read the parts of an object that this format made."""
        holder = read_object(raw, "message")
        return tuple(part for part, _ in _find_parts(holder, read_role(holder, ROLES, self.name, "message"), "message"))

    def render(self, message: Message, changes: Mapping[int, str | None]) -> object | None:
        """Return the message with parts replaced or left out; None if nothing is left."""
        if not changes:
            return message.raw
        check_changes(message, changes)
        if not has_content(message.parts, changes):
            return None
        raw = read_object(message.raw, "message")
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
        """Return a message that carries a summary."""
        return {"role": self.allow_role(role, None, None), "content": text}

    def allow_role(self, wanted: Role, before: Role | None, after: Role | None) -> Role:  # noqa: ARG002
        """Return the role a summary may have: any but that of a tool."""
        return "user" if wanted == "tool" else wanted

    def find_faults(self, items: Sequence[Spoken]) -> list[str]:
        """Return what the provider would reject, one short stable line each."""
        faults = find_pair_faults(items)
        faults += ["empty assistant message" for item in items if item.role == "assistant" and not item.parts]
        for item in items:
            wrong = [part for part in item.parts if part.kind in ("call", "thinking") and item.role != "assistant"]
            faults += [f"{part.kind} in {item.role} message {part.call_id}" for part in wrong]
        return faults

    def read_system(self, system: object) -> str:
        """Return the text of a system prompt that is passed apart from the messages."""
        return read_system(system)


def _read_name(raw: Raw) -> str:
    return str_or_empty(raw.get("name"))


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
    name = _read_name(raw)
    call_id = read_str(raw, "tool_call_id", where) or (name if raw.get("role") == "function" else "")
    if content is None or isinstance(content, str):
        return Part("result", content or "", name, call_id, raw)
    blocks = read_list(content, f"{where}.content")
    parts = [_read_block(block, f"{where}.content[{at}]") for at, block in enumerate(blocks)]
    texts = join_texts(part for part in parts if part.kind == "text")
    return Part("result", texts, name, call_id, raw, tuple(part for part in parts if part.kind != "text"))


def _read_block(block: object, where: str) -> Part:
    holder = read_object(block, where)
    kind = str_or_empty(holder.get("type"))
    if kind == "text":
        return Part("text", read_str(holder, "text", where), payload=holder)
    if kind == "refusal":
        return Part("text", read_str(holder, "refusal", where), payload=holder)
    return Part("media" if kind in _MEDIA_TYPES else "opaque", payload=holder)


def _change_element(part: Part, element: Raw, text: str | None) -> object:
    if part.kind == "call":
        if element.get("function") is not None:
            return {**element, "function": {**element["function"], "arguments": write_arguments(text or "")}}
        return {**element, "custom": {**element["custom"], "input": text}}
    if not text:
        return DROPPED
    if part.kind == "media":
        return write_text_block("text", text, element)
    return {**element, ("refusal" if element.get("type") == "refusal" else "text"): text}
