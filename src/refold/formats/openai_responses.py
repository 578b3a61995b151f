"""OpenAI Responses: a conversation is a list of items, and one step of the assistant is several of them.

A reasoning item is folded together with the items after it; the provider refuses one without the other. Items that the
provider runs itself are opaque; those that come in pairs (a computer call and its screenshot) are linked by their id.
Compactions and references are sealed. ``previous_response_id`` is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from refold.conversation.message import Message, Part, Role, Spoken, read_text
from refold.errors import FormatError
from refold.formats.block import (
    Raw,
    WireFormat,
    change_block,
    change_list,
    find_pair_faults,
    join_texts,
    read_content,
    read_list,
    read_openai_block,
    read_output,
    read_role,
    read_str,
    str_or_empty,
    write_arguments,
)

ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
_TEXT_TYPES = frozenset(("input_text", "output_text", "text", "summary_text", "reasoning_text"))
_MEDIA_TYPES = frozenset(("input_image", "input_file", "input_audio", "computer_screenshot"))
_RESULT_TYPES = frozenset(("function_call_output", "custom_tool_call_output", "local_shell_call_output"))
# The field that holds a call's arguments, by type of item.
_CALL_FIELDS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
_SEALED_TYPES = frozenset(("item_reference", "compaction", "compaction_summary", "context_compaction"))
# The field that links two items of the provider's own tools, by type; others use call_id.
_LINK_FIELDS = {"mcp_approval_request": "id", "mcp_approval_response": "approval_request_id"}


class OpenAIResponses(WireFormat):
    """The Responses format."""

    name = "openai-responses"
    system_field = "instructions"

    def render(self, message: Message, changes: Mapping[int, str | None]) -> object | None:
        """Return the item with its changes. Reasoning with an id stays: without it the provider refuses the rest."""
        is_linked = bool(message.parts) and message.parts[0].kind == "thinking" and bool(message.parts[0].call_id)
        rendered = super().render(message, changes)
        return message.raw if is_linked else rendered

    def _read_role(self, raw: Raw, where: str) -> Role:
        kind = _read_type(raw, where)
        if kind == "message":
            return read_role(raw, ROLES, self.name, where)
        return "tool" if kind.endswith(("_output", "_response")) else "assistant"

    def _read_parts(self, raw: Raw, where: str) -> tuple[Part, ...]:
        return _read_item(raw, _read_type(raw, where), where)

    def _is_sealed(self, raw: Raw, parts: Sequence[Part]) -> bool:  # noqa: ARG002
        return _read_type(raw, "message") in _SEALED_TYPES

    def _change(self, message: Message, raw: Raw, changes: Mapping[int, str | None]) -> object:
        kind = _read_type(raw, "message")
        if kind in _RESULT_TYPES:
            return {**raw, "output": changes[0]}
        if kind in _CALL_FIELDS:
            return {**raw, _CALL_FIELDS[kind]: _change_call(raw, kind, changes[0] or "")}
        content = raw["content"]
        if isinstance(content, str):
            return {**raw, "content": changes[0]}
        own = "output_text" if message.role == "assistant" else "input_text"
        new = {at: change_block(message.parts[at], content[at], text, own) for at, text in changes.items()}
        return {**raw, "content": change_list(content, new)}

    def write_summary(self, text: str, role: Role) -> object:
        allowed = self.allow_role(role, None, None)
        return {"type": "message", "role": allowed, "content": [{"type": "input_text", "text": text}]}

    def allow_role(self, wanted: Role, before: Role | None, after: Role | None) -> Role:  # noqa: ARG002
        """Return the role a summary may have: the system's or the user's."""
        return "system" if wanted == "system" else "user"

    def find_faults(self, items: Sequence[Spoken]) -> list[str]:
        faults = find_pair_faults(items, is_spread=True)
        for at, item in enumerate(items):
            if any(part.kind == "thinking" for part in item.parts):
                after = items[at + 1] if at + 1 < len(items) else None
                if after is None or after.role != "assistant":
                    faults.append(f"reasoning without what follows it {item.parts[0].call_id}".rstrip())
            elif not item.parts and item.role == "assistant":
                faults.append("empty assistant message")
        return faults


def _read_type(raw: Raw, where: str) -> str:
    kind = raw.get("type")
    if kind is None:
        if "role" in raw:
            return "message"
        if isinstance(raw.get("id"), str):
            return "item_reference"
        raise FormatError("{where} has neither type nor role; an item needs one of them", where=where)
    if not isinstance(kind, str):
        raise FormatError(
            "{where}.type is {kind!r}; it must be the name of an item's type", where=where, kind=str(kind)[:40]
        )
    return kind


def _read_item(raw: Raw, kind: str, where: str) -> tuple[Part, ...]:
    if kind == "message":
        return read_content(raw.get("content"), f"{where}.content", _read_block)
    if kind == "reasoning":
        return (_read_reasoning(raw, where),)
    if kind in _CALL_FIELDS:
        text = read_text(raw.get(_CALL_FIELDS[kind]))
        name = read_str(raw, "name", where) or ("local_shell" if kind == "local_shell_call" else "")
        return (Part("call", text, name, read_str(raw, "call_id", where), raw),)
    if kind in _RESULT_TYPES:
        return (_read_result(raw, where),)
    link, found = raw.get(_LINK_FIELDS.get(kind, "call_id")), raw.get("tools")
    # The result of a search for tools: the model can use them only while it is in view.
    tools = found if kind == "tool_search_output" and isinstance(found, list) else ()
    loads = tuple(str_or_empty(tool.get("name")) for tool in tools if isinstance(tool, dict))
    return (Part("opaque", "", str_or_empty(raw.get("name")), str_or_empty(link), raw, loads=loads),)


def _read_block(block: object, where: str) -> Part:
    return read_openai_block(block, where, texts=_TEXT_TYPES, media=_MEDIA_TYPES)


def _read_reasoning(raw: Raw, where: str) -> Part:
    """Read a reasoning item. Its id becomes the call_id: thinking with an id belongs to the item after it."""
    texts: list[Part] = []
    for field in ("summary", "content"):
        texts += read_content(read_list(raw.get(field) or [], f"{where}.{field}"), f"{where}.{field}", _read_block)
    return Part("thinking", join_texts(texts), call_id=read_str(raw, "id", where), payload=raw)


def _read_result(raw: Raw, where: str) -> Part:
    call_id = read_str(raw, "call_id", where) or read_str(raw, "id", where)
    text, inside = read_output(raw.get("output"), f"{where}.output", _read_block)
    return Part("result", text, "", call_id, raw, inside)


def _change_call(raw: Raw, kind: str, text: str) -> object:
    if kind == "function_call":
        return write_arguments(text)
    if kind == "custom_tool_call":
        return text  # Free text by the protocol.
    # A shell call has a fixed shape: only the command may change.
    action = raw.get("action")
    return {**(action if isinstance(action, dict) else {"type": "exec", "env": {}}), "command": [text]}
