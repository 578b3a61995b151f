"""Anthropic messages: the system prompt is separate, calls and results are blocks.

A result in a user message may become a string. Tools that the provider runs itself (web search, code execution) keep
their blocks, which are signed or encrypted: such a pair is opaque and linked by its id. A message with a provider's own
compaction is sealed. Thinking is never rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from refold.conversation.message import Message, Part, Role, Spoken, chain_id, read_text
from refold.formats.block import (
    DROPPED,
    Raw,
    change_list,
    check_changes,
    find_pair_faults,
    has_content,
    join_texts,
    make_arguments,
    read_list,
    read_object,
    read_role,
    read_str,
    read_system,
    str_or_empty,
    write_text_block,
)
from refold.formats.canonical import Volatile, digest_message

ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
CALL_TYPES = frozenset(("tool_use", "mcp_tool_use"))
# Results that may hold a plain string. Those of server tools may not.
RESULT_TYPES = frozenset(("tool_result", "mcp_tool_result"))
_MEDIA_TYPES = frozenset(("image", "document", "container_upload"))


class Anthropic:
    """The messages format."""

    name = "anthropic"

    def __init__(self, volatile: Volatile | None = None) -> None:
        self._volatile = volatile

    def parse(self, raw: object, parent: str = "", where: str = "message", *, digest: str = "") -> Message:
        """Read one message; raise FormatError that names ``where`` if it is not one."""
        holder = read_object(raw, where)
        role = read_role(holder, ROLES, self.name, where)
        # Compute the digest first: it refuses nesting that would overflow the reader's stack.
        digest = digest or digest_message(holder, self._volatile, where)
        parts = _read_parts(holder, where)
        return Message(raw, role, parts, digest, chain_id(parent, digest), is_sealed=any(map(_is_compaction, parts)))

    def parse_parts(self, raw: object) -> tuple[Part, ...]:
        """Read the parts of an object that this format made."""
        return _read_parts(read_object(raw, "message"), "message")

    def render(self, message: Message, changes: Mapping[int, str | None]) -> object | None:
        """Return the message with parts replaced or left out; None if nothing is left."""
        if not changes:
            return message.raw
        check_changes(message, changes)
        if not has_content(message.parts, changes):
            return None
        raw = read_object(message.raw, "message")
        content = raw["content"]
        if isinstance(content, str):
            return {**raw, "content": changes[0]}
        new = {at: _change_block(message.parts[at], content[at], text) for at, text in changes.items()}
        return {**raw, "content": change_list(content, new)}

    def write_summary(self, text: str, role: Role) -> object:
        """Return a message that carries a summary."""
        return {"role": "assistant" if role == "assistant" else "user", "content": text}

    def allow_role(self, wanted: Role, before: Role | None, after: Role | None) -> Role:
        """Return the role a summary may have: assistant between two user messages if wanted, else user."""
        # Next to an assistant message the provider would merge the two, and thinking would no longer come first.
        return "assistant" if wanted == "assistant" and before == "user" and after == "user" else "user"

    def find_faults(self, items: Sequence[Spoken]) -> list[str]:
        """Return what the provider would reject, one short stable line each."""
        faults = find_pair_faults(items)
        if items and items[0].role != "user":
            faults.append(f"first message is from {items[0].role}")
        for at, item in enumerate(items):
            faults += _find_message_faults(item, is_last=at == len(items) - 1)
        return faults

    def read_system(self, system: object) -> str:
        """Return the text of a system prompt that is passed apart from the messages."""
        return read_system(system)


def place_messages(wire: str, messages: Sequence[Any]) -> list[Any]:
    """Return messages without an Anthropic system message where none is accepted.

    One may follow a user message if an assistant message or nothing comes next. A fold can leave it elsewhere: before
    the record, or beside another one. It then becomes a user message, marked as a reminder.
    """
    if wire != Anthropic.name:
        return list(messages)
    roles = [message.get("role") if isinstance(message, dict) else None for message in messages]
    placed: list[Any] = []
    for at, message in enumerate(messages):
        is_before_reply = at + 1 == len(messages) or roles[at + 1] == "assistant"
        is_after_user = bool(placed) and isinstance(placed[-1], dict) and placed[-1].get("role") == "user"
        if roles[at] == "system" and not (is_before_reply and is_after_user):
            opening = {"type": "text", "text": "<system-reminder>"}
            closing = {"type": "text", "text": "</system-reminder>"}
            content = message.get("content") or []
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            message = {"role": "user", "content": [opening, *blocks, closing]}
        placed.append(message)
    return placed


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


def _read_parts(raw: Raw, where: str) -> tuple[Part, ...]:
    content = raw.get("content")
    if isinstance(content, str):
        return (Part("text", content),) if content else ()
    if content is None:
        return ()
    blocks = read_list(content, f"{where}.content")
    return tuple([_read_block(block, f"{where}.content[{at}]") for at, block in enumerate(blocks)])


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
    return Part("opaque", name=str_or_empty(block.get("name")), call_id=str_or_empty(link), payload=block)


def _read_result(block: Raw, where: str) -> Part:
    content = block.get("content")
    call_id = read_str(block, "tool_use_id", where)
    is_error = block.get("is_error") is True
    if content is None or isinstance(content, str):
        return Part("result", content or "", call_id=call_id, payload=block, is_error=is_error)
    blocks = read_list(content, f"{where}.content")
    parts = [_read_block(inner, f"{where}.content[{at}]") for at, inner in enumerate(blocks)]
    inside = tuple(part for part in parts if part.kind != "text")
    texts = join_texts(part for part in parts if part.kind == "text")
    return Part("result", texts, call_id=call_id, payload=block, inside=inside, is_error=is_error)


def _read_document(block: Raw) -> str:
    """Return the words of a document that is given as text; empty for images and files."""
    source = block.get("source")
    if isinstance(source, dict) and source.get("type") == "text" and isinstance(source.get("data"), str):
        return str(source["data"])
    return ""


def _change_block(part: Part, block: Raw, text: str | None) -> object:
    if part.kind == "result":
        return {**block, "content": text}
    if part.kind == "call":
        return {**block, "input": make_arguments(text or "")}
    if not text:
        return DROPPED
    return write_text_block("text", text, block) if part.kind == "media" else {**block, "text": text}


def _is_compaction(part: Part) -> bool:
    return part.kind == "opaque" and "compaction" in _type_of(part)


def _type_of(part: Part) -> str:
    payload = part.payload
    kind = payload.get("type") if isinstance(payload, dict) else None
    return kind if isinstance(kind, str) else ""
