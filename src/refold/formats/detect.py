"""Detects the wire format of a conversation, and finds its messages in a file or request: a list, a body, or rows.

Strong signs exist in one format only (a tool_use block, a tool_calls field, a function_call item); weak signs are
merely more common in one. Plain messages with a role and a string are OpenAI chat unless the system prompt or the tools
say otherwise. Detection never raises for a message that a format would refuse anyway.

``read_conversation`` finds the messages and the fields beside them; ``write_conversation`` puts other messages into the
same wrapping. The input object is never changed, and unknown fields pass through untouched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import chain, repeat
from typing import Any

from refold.conversation.message import ROOT, Format, Message
from refold.errors import FormatError
from refold.formats.ai_sdk import AiSdk
from refold.formats.anthropic import Anthropic
from refold.formats.block import name_type
from refold.formats.openai_chat import OpenAIChat
from refold.formats.openai_responses import OpenAIResponses

CHAT, ANTHROPIC, RESPONSES, AI_SDK = OpenAIChat.name, Anthropic.name, OpenAIResponses.name, AiSdk.name
_FORMATS: dict[str, Format] = {one.name: one for one in (OpenAIChat(), Anthropic(), OpenAIResponses(), AiSdk())}
NAMES = tuple(_FORMATS)
_ALIASES = {"openai": CHAT, "chat": CHAT, "claude": ANTHROPIC, "responses": RESPONSES}

_STRONG_BLOCKS = {
    **dict.fromkeys(("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"), ANTHROPIC),
    **dict.fromkeys(("mcp_tool_use", "mcp_tool_result", "web_search_tool_result", "compaction"), ANTHROPIC),
    **dict.fromkeys(("input_text", "output_text", "input_image", "input_file"), RESPONSES),
    **dict.fromkeys(("tool-call", "tool-result", "tool-approval-request", "tool-approval-response"), AI_SDK),
    **dict.fromkeys(("reasoning", "reasoning-file"), AI_SDK),
}
_WEAK_BLOCKS = {
    **dict.fromkeys(("image", "document", "search_result"), ANTHROPIC),
    **dict.fromkeys(("image_url", "input_audio", "file", "refusal"), CHAT),
}
_CHAT_ROLES = frozenset(("tool", "function"))
_CHAT_FIELDS = frozenset(("tool_calls", "function_call", "tool_call_id"))

# (format, whether only this format has it, what and where it is)
_Sign = tuple[str, bool, str]


def make_format(name: str) -> Format:
    """Return the format of this name; raise FormatError if there is none."""
    if (known := _FORMATS.get(_ALIASES.get(name, name))) is not None:
        return known
    near = get_close_matches(str(name), [*NAMES, *_ALIASES], 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise FormatError(
        "format {name!r} is unknown; use one of {listed}{hint}", name=str(name)[:40], listed=", ".join(NAMES), hint=hint
    )


def detect(messages: Sequence[object], system: object = None, tools: object = None, name: str | None = None) -> Format:
    """Return the format of these messages, or the one called ``name``; raise FormatError if they mix two formats."""
    given: object = messages
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise FormatError("messages must be a list of messages, not {kind}", kind=type(given).__name__)
    if name is not None:
        return make_format(name)
    strong: dict[str, str] = {}
    weak: dict[str, str] = {}
    for form, is_strong, what in _find_signs(messages, tools):
        (strong if is_strong else weak).setdefault(form, what)
        if len(strong) > 1:
            signs = " but ".join(f"{found} ({form})" for form, found in strong.items())
            raise FormatError(
                "the conversation mixes formats: {signs}; convert it, or name the format it is in", signs=signs
            )
    if strong:
        return make_format(next(iter(strong)))
    return make_format(_choose_weak(weak, messages, system))


def _choose_weak(weak: dict[str, str], messages: Sequence[object], system: object) -> str:
    for form in (RESPONSES, ANTHROPIC):
        if form in weak:
            return form
    first = messages[0] if messages else None
    leads_with_system = isinstance(first, dict) and first.get("role") in ("system", "developer")
    # Only chat has its system prompt as the first message.
    return ANTHROPIC if system is not None and CHAT not in weak and not leads_with_system else CHAT


def _find_signs(messages: Sequence[object], tools: object) -> Iterator[_Sign]:
    for at, message in enumerate(messages):
        if not isinstance(message, dict):
            continue
        role, content = message.get("role"), message.get("content")
        if isinstance(role, str) and role in _CHAT_ROLES and not _has_results(content):
            yield CHAT, True, f"messages[{at}] has role {role}"
        kind = message.get("type")
        if isinstance(kind, str) and (kind != "message" or "role" in message):
            yield RESPONSES, True, f"messages[{at}] is an item of type {kind[:40]}"
        if not _CHAT_FIELDS.isdisjoint(message):
            field = next(key for key in message if key in _CHAT_FIELDS)
            if message[field] is not None:
                yield CHAT, True, f"messages[{at}] has {field}"
        if "providerOptions" in message:
            yield AI_SDK, True, f"messages[{at}] has providerOptions"
        if isinstance(content, list):
            yield from _find_block_signs(content, f"messages[{at}]")
    yield from _find_tool_signs(tools)


def _has_results(content: object) -> bool:
    """Return whether a message of a tool is one of the AI SDK, whose results are parts."""
    kinds = [one.get("type") for one in content if isinstance(one, dict)] if isinstance(content, list) else []
    return any(kind in _STRONG_BLOCKS and _STRONG_BLOCKS[kind] == AI_SDK for kind in kinds if isinstance(kind, str))


def _find_block_signs(content: list[object], where: str) -> Iterator[_Sign]:
    for at, block in enumerate(content):
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(kind, str):
            continue
        if isinstance(block, dict) and ("mediaType" in block or "providerOptions" in block):
            yield AI_SDK, True, f"{where}.content[{at}] has a field of the AI SDK"
        elif kind in _STRONG_BLOCKS:
            yield _STRONG_BLOCKS[kind], True, f"{where}.content[{at}] is of type {kind}"
        elif kind in _WEAK_BLOCKS:
            yield _WEAK_BLOCKS[kind], False, f"{where}.content[{at}] is of type {kind}"


def _find_tool_signs(tools: object) -> Iterator[_Sign]:
    for at, tool in enumerate(tools if isinstance(tools, list | tuple) else ()):
        if not isinstance(tool, dict):
            continue
        if "input_schema" in tool:
            yield ANTHROPIC, False, f"tools[{at}] has input_schema"
        elif isinstance(tool.get("function"), dict):
            yield CHAT, False, f"tools[{at}] has function"
        elif tool.get("type") == "function" and "name" in tool:
            yield RESPONSES, False, f"tools[{at}] is flat"


@dataclass(frozen=True, slots=True, eq=False)
class Conversation:
    """Messages and the fields beside them; ``body`` is the request around them, ``is_row`` if it was in a list."""

    format: Format
    messages: list[object]
    system: object = None
    tools: object = None
    model: str = ""
    body: dict[str, Any] | None = None
    is_row: bool = False


def read_conversation(obj: object, name: str | None = None) -> Conversation:
    """Read a list of messages, a request body, or rows of JSONL; raise a FormatError that says what is wrong."""
    if isinstance(obj, list | tuple):
        rows = list(obj)
        bodies = [at for at, row in enumerate(rows) if _is_body(row)]
        if not bodies:
            return Conversation(detect(rows, name=name), rows)
        if len(rows) == 1:
            return replace(_read_body(rows[0], name), is_row=True)
        raise FormatError(
            "row {row} of {count} is a whole conversation; give one conversation at a time",
            row=bodies[0],
            count=len(rows),
        )
    if isinstance(obj, dict):
        if _is_body(obj):
            return _read_body(obj, name)
        keys = ", ".join(list(map(str, obj))[:8]) or "no fields"
        raise FormatError(
            "no messages in this object (it has {keys}); give a list of messages or a request body", keys=keys
        )
    raise FormatError("a conversation is a list of messages or a request body, not {kind}", kind=name_type(obj))


def write_conversation(conversation: Conversation, messages: Sequence[object]) -> object:
    """Return these messages wrapped as the conversation was."""
    if conversation.body is None:
        return list(messages)
    key = _find_key(conversation.body)
    inner = conversation.body[key]
    if not isinstance(inner, str) or len(messages) != 1 or messages[0] is not conversation.messages[0]:
        inner = list(messages)
    body = {**conversation.body, key: inner}
    return [body] if conversation.is_row else body


def parse_messages(
    form: Format, raws: Iterable[object], parent: str = ROOT, *, start: int = 0, digests: Iterable[str] = ()
) -> list[Message]:
    """Read provider messages into a chain. ``start`` is the index of the first, ``digests`` are known hashes."""
    messages: list[Message] = []
    known = chain(digests, repeat(""))
    for at, (raw, digest) in enumerate(zip(raws, known, strict=False), start):
        messages.append(form.parse(raw, parent, f"messages[{at}]", digest=digest))
        parent = messages[-1].id
    return messages


def _is_body(value: object) -> bool:
    if not isinstance(value, dict) or "role" in value:
        return False
    return "messages" in value or ("input" in value and "type" not in value)


def _find_key(body: dict[str, Any]) -> str:
    return "messages" if "messages" in body else "input"


def _read_body(body: dict[str, Any], name: str | None) -> Conversation:
    key = _find_key(body)
    inner = body[key]
    if key == "input" and isinstance(inner, str):
        inner = [{"role": "user", "content": inner}]
    if not isinstance(inner, list):
        raise FormatError("{key} is {kind}, expected a list of messages", key=key, kind=name_type(inner))
    system = body.get("system" if key == "messages" else "instructions")
    tools = body.get("tools")
    form = make_format(name or RESPONSES) if key == "input" else detect(inner, system, tools, name)
    model = body["model"] if isinstance(body.get("model"), str) else ""
    return Conversation(form, list(inner), system, tools, model, body)
