"""Anthropic messages: the system prompt is separate, calls and results are blocks.

A result in a user message may become a string. Tools that the provider runs itself (web search, code execution) keep
their blocks, which are signed or encrypted: such a pair is opaque and linked by its id. A message with a provider's own
compaction is sealed. Thinking is never rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from refold.conversation.message import Message, Part, Role, Spoken, read_text
from refold.formats.block import (
    Raw,
    WireFormat,
    change_block,
    change_list,
    drop_marks,
    find_pair_faults,
    make_arguments,
    read_content,
    read_object,
    read_output,
    read_role,
    read_str,
    str_or_empty,
)

ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
CALL_TYPES = frozenset(("tool_use", "mcp_tool_use"))
# Results that may hold a plain string. Those of server tools may not.
RESULT_TYPES = frozenset(("tool_result", "mcp_tool_result"))
_MEDIA_TYPES = frozenset(("image", "document", "container_upload"))
_TOOL_CHANGES = frozenset(("tool_addition", "tool_removal"))


class Anthropic(WireFormat):
    """The messages format."""

    name = "anthropic"

    def _read_role(self, raw: Raw, where: str) -> Role:
        return read_role(raw, ROLES, self.name, where)

    def _read_parts(self, raw: Raw, where: str) -> tuple[Part, ...]:
        return read_content(raw.get("content"), f"{where}.content", _read_block)

    def _is_sealed(self, raw: Raw, parts: Sequence[Part]) -> bool:  # noqa: ARG002
        return any(part.kind == "opaque" and "compaction" in _type_of(part) for part in parts)

    def _change(self, message: Message, raw: Raw, changes: Mapping[int, str | None]) -> object:
        content = raw["content"]
        if isinstance(content, str):
            return {**raw, "content": changes[0]}
        new = {at: _change_block(message.parts[at], content[at], text) for at, text in changes.items()}
        return {**raw, "content": change_list(content, new)}

    def write_summary(self, text: str, role: Role) -> object:
        return {"role": "assistant" if role == "assistant" else "user", "content": text}

    def allow_role(self, wanted: Role, before: Role | None, after: Role | None) -> Role:
        """Return the role a summary may have: assistant between two user messages if wanted, else user."""
        # Next to an assistant message the provider would merge the two, and thinking would no longer come first.
        return "assistant" if wanted == "assistant" and before == "user" and after == "user" else "user"

    def find_faults(self, items: Sequence[Spoken]) -> list[str]:
        faults = find_pair_faults(items)
        if items and items[0].role != "user":
            faults.append(f"first message is from {items[0].role}")
        for at, item in enumerate(items):
            faults += _find_message_faults(item, is_last=at == len(items) - 1)
        return faults


def place_messages(wire: str, messages: Sequence[Any]) -> list[Any]:
    """Return messages without an Anthropic system message where none is accepted.

    One may follow a user message if an assistant message or nothing comes next. A fold can leave it elsewhere: before
    the record, or beside another one. Its words then become a user message, marked as a reminder, and its changes of
    the tools move to the next place that takes a system message.
    """
    if wire != Anthropic.name:
        return list(messages)
    roles = [message.get("role") if isinstance(message, dict) else None for message in messages]
    placed: list[Any] = []
    waiting: list[Any] = []
    for at, message in enumerate(messages):
        is_before_reply = at + 1 == len(messages) or roles[at + 1] == "assistant"
        is_after_user = bool(placed) and _is_users(placed[-1])
        if roles[at] == "system" and not (is_before_reply and is_after_user):
            # It was the newest message once, and had a mark of the cache then; a provider takes only few.
            words, changes = _split_system(drop_marks(message))
            waiting += changes
            opening, closing = _write_text("<system-reminder>"), _write_text("</system-reminder>")
            placed += [{"role": "user", "content": [opening, *words, closing]}] if words else []
        elif roles[at] == "system" and waiting:
            words, changes = _split_system(message)
            placed.append({**message, "content": [*waiting, *changes, *words]})
            waiting = []
        else:
            placed.append(message)
        if waiting and is_before_reply and placed and _is_users(placed[-1]):
            placed.append({"role": "system", "content": waiting})
            waiting = []
    return placed


def _split_system(message: Any) -> tuple[list[Any], list[Any]]:
    """Return the words of a system message, and its blocks that add or remove tools."""
    content = message.get("content") or []
    blocks = [_write_text(content)] if isinstance(content, str) else content
    split: tuple[list[Any], list[Any]] = ([], [])
    for block in blocks:
        split[isinstance(block, dict) and block.get("type") in _TOOL_CHANGES].append(block)
    return split


def _is_users(message: object) -> bool:
    return isinstance(message, dict) and message.get("role") == "user"


def _write_text(text: str) -> Raw:
    return {"type": "text", "text": text}


def _find_message_faults(item: Spoken, *, is_last: bool) -> list[str]:
    parts, role = item.parts, item.role
    if not parts:
        return [] if is_last and role == "assistant" else [f"empty {role} message"]
    faults = [f"empty text block in {role} message" for part in parts if part.kind == "text" and not part.text.strip()]
    if role == "assistant" and parts[-1].kind == "thinking":
        faults.append("assistant message ends in thinking")
    is_leading = True
    for part in parts:
        if part.kind == "call" and role != "assistant":
            faults.append(f"call in {role} message {part.call_id}")
        elif part.kind == "thinking" and role != "assistant":
            faults.append(f"thinking in {role} message")
        elif part.kind == "result" and _type_of(part) == "tool_result":
            if role != "user":
                faults.append(f"result in {role} message {part.call_id}")
            elif not is_leading:
                faults.append(f"result not first in its message {part.call_id}")
        is_leading = is_leading and part.kind == "result"
    return faults


def _read_block(block: object, where: str) -> Part:
    holder = read_object(block, where)
    kind = str_or_empty(holder.get("type"))
    if kind == "text":
        return Part("text", read_str(holder, "text", where), payload=holder)
    if kind == "thinking":
        return Part("thinking", read_str(holder, "thinking", where), payload=holder)
    if kind == "redacted_thinking":
        return Part("thinking", payload=holder)
    if kind in CALL_TYPES:
        call_id = read_str(holder, "id", where)
        return Part("call", read_text(holder.get("input")), read_str(holder, "name", where), call_id, holder)
    if kind in RESULT_TYPES:
        return _read_result(holder, where)
    if kind in _MEDIA_TYPES:
        return Part("media", _read_document(holder), payload=holder)
    return _read_opaque(holder, kind)


def _read_opaque(block: Raw, kind: str) -> Part:
    """Read a block of the provider's own, or one that did not exist when this was written."""
    link = None
    if kind == "server_tool_use":
        link = block.get("id")
    elif kind.endswith("_tool_result"):
        link = block.get("tool_use_id")
    found = block.get("content")
    loads = _list_references(found.get("tool_references") if isinstance(found, dict) else None)
    return Part("opaque", name=str_or_empty(block.get("name")), call_id=str_or_empty(link), payload=block, loads=loads)


def _read_result(block: Raw, where: str) -> Part:
    text, inside = read_output(block.get("content"), f"{where}.content", _read_block)
    call_id, is_error = read_str(block, "tool_use_id", where), block.get("is_error") is True
    loads = _list_references(block.get("content")) if inside else ()
    return Part("result", text, call_id=call_id, payload=block, inside=inside, is_error=is_error, loads=loads)


def _list_references(blocks: object) -> tuple[str, ...]:
    """Return the names of the deferred tools that these blocks show to the model."""
    found = [block for block in blocks if _is_reference(block)] if isinstance(blocks, list) else []
    return tuple(str_or_empty(one.get("tool_name")) for one in found)


def _is_reference(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_reference"


def _read_document(block: Raw) -> str:
    """Return the words of a document that is given as text; empty for images and files."""
    source = block.get("source")
    if isinstance(source, dict) and source.get("type") == "text" and isinstance(source.get("data"), str):
        return str(source["data"])
    return ""


def _change_block(part: Part, block: Raw, text: str | None) -> object:
    if part.kind == "result":
        references = [one for one in block["content"] if _is_reference(one)] if part.loads else []
        said = [{"type": "text", "text": text}] if text else []
        return {**block, "content": [*said, *references] if references else text}
    if part.kind == "call":
        return {**block, "input": make_arguments(text or "")}
    return change_block(part, block, text)


def _type_of(part: Part) -> str:
    payload = part.payload
    kind = payload.get("type") if isinstance(payload, dict) else None
    return kind if isinstance(kind, str) else ""
