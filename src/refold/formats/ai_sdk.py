"""Vercel's AI SDK: ``ModelMessage[]``, what an agent in TypeScript holds. Calls and results are parts in camelCase.

Results are in messages of the role ``tool``, several in one. A call that the provider runs itself keeps its parts as
they are: such a pair is opaque and linked by its id, and so are a request for approval and its answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from refold.conversation.message import Message, Part, Role, Spoken, read_text, write_json
from refold.formats.block import (
    Raw,
    WireFormat,
    change_block,
    change_list,
    find_pair_faults,
    make_arguments,
    read_content,
    read_object,
    read_output,
    read_role,
    read_str,
    str_or_empty,
)

ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_MEDIA_TYPES = frozenset(("image", "file", "image-data", "image-url", "file-data", "file-url", "media"))


class AiSdk(WireFormat):
    """The messages of the AI SDK."""

    name = "ai-sdk"

    def _read_role(self, raw: Raw, where: str) -> Role:
        return read_role(raw, ROLES, self.name, where)

    def _read_parts(self, raw: Raw, where: str) -> tuple[Part, ...]:
        own = frozenset() if raw.get("role") == "tool" else _list_run(raw.get("content"))
        return read_content(raw.get("content"), f"{where}.content", lambda block, place: _read_block(block, place, own))

    def _change(self, message: Message, raw: Raw, changes: Mapping[int, str | None]) -> object:
        content = raw["content"]
        if isinstance(content, str):
            return {**raw, "content": changes[0]}
        new = {at: _change_block(message.parts[at], content[at], text) for at, text in changes.items()}
        return {**raw, "content": change_list(content, new)}

    def write_summary(self, text: str, role: Role) -> object:
        return {"role": self.allow_role(role, None, None), "content": text}

    def allow_role(self, wanted: Role, before: Role | None, after: Role | None) -> Role:  # noqa: ARG002
        """Return the role a summary may have: some providers take system messages at the beginning only."""
        return "assistant" if wanted == "assistant" else "user"

    def find_faults(self, items: Sequence[Spoken]) -> list[str]:
        faults = find_pair_faults(items)
        homes = {"call": "assistant", "thinking": "assistant", "result": "tool"}
        for item in items:
            wrong = [part for part in item.parts if homes.get(part.kind, item.role) != item.role]
            faults += [f"{part.kind} in {item.role} message {part.call_id}" for part in wrong]
            faults += [f"empty {item.role} message"] if not item.parts and item.role in ("assistant", "tool") else []
        return faults


def _list_run(content: object) -> frozenset[str]:
    """Return the ids of the calls in an assistant message that the provider runs: their results are in it, too."""
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    is_run = (block.get("providerExecuted") or block.get("type") == "tool-result" for block in blocks)
    return frozenset(str_or_empty(block.get("toolCallId")) for block, one in zip(blocks, is_run, strict=True) if one)


def _read_block(block: object, where: str, own: frozenset[str] = frozenset()) -> Part:
    holder = read_object(block, where)
    kind = str_or_empty(holder.get("type"))
    call_id = str_or_empty(holder.get("toolCallId"))
    if kind == "text":
        return Part("text", read_str(holder, "text", where), payload=holder)
    if kind == "reasoning":
        return Part("thinking", read_str(holder, "text", where), payload=holder)
    if kind in ("tool-call", "tool-result") and call_id in own:
        return Part("opaque", name=str_or_empty(holder.get("toolName")), call_id=call_id, payload=holder)
    if kind == "tool-call":
        name = read_str(holder, "toolName", where)
        return Part("call", read_text(holder.get("input")), name, read_str(holder, "toolCallId", where), holder)
    if kind == "tool-result":
        return _read_result(holder, where)
    if kind in ("tool-approval-request", "tool-approval-response"):
        return Part("opaque", call_id=read_str(holder, "approvalId", where), payload=holder)
    return Part("media" if kind in _MEDIA_TYPES else "opaque", payload=holder)


def _read_result(block: Raw, where: str) -> Part:
    output = read_object(block.get("output"), f"{where}.output")
    kind, value = str_or_empty(output.get("type")), output.get("value")
    inside: tuple[Part, ...] = ()
    if kind == "content":
        text, inside = read_output(value, f"{where}.output.value", _read_block)
    elif kind == "execution-denied":
        text = read_str(output, "reason", f"{where}.output")
    else:
        text = value if isinstance(value, str) else write_json(value)
    name, call_id = read_str(block, "toolName", where), read_str(block, "toolCallId", where)
    return Part("result", text, name, call_id, block, inside, is_error=kind.startswith("error"))


def _change_block(part: Part, block: Raw, text: str | None) -> object:
    if part.kind == "result":
        kept = {name: one for name, one in block["output"].items() if name == "providerOptions"}
        return {**block, "output": {"type": "error-text" if part.is_error else "text", "value": text or "", **kept}}
    if part.kind == "call":
        return {**block, "input": make_arguments(text or "")}
    return change_block(part, block, text)
