"""A conversation as it lies in a file or a request: a bare list, a request body, or rows.

Reading finds the messages and what stands beside them; writing puts other messages into the same wrapping. The
object that came in is never changed, and fields that are not ours go through untouched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from refold.conversation.message import ROOT, Format, Message
from refold.errors import FormatError
from refold.formats.block import name_type
from refold.formats.canonical import Volatile
from refold.formats.detect import RESPONSES, detect, make_format

Wrapping = Literal["list", "body", "row"]
_OWN_FIELDS = frozenset(("messages", "input", "system", "instructions", "tools", "model"))


@dataclass(frozen=True, slots=True)
class Shape:
    """How the messages were wrapped: ``body`` is the request around them, ``key`` the field they stood in."""

    wrapping: Wrapping = "list"
    key: str = ""
    body: dict[str, Any] | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Conversation:
    """The messages of a request, what stands beside them, and how to wrap them again."""

    format: Format
    messages: list[object]
    system: object = None
    tools: object = None
    model: str = ""
    rest: dict[str, Any] = field(default_factory=dict)
    shape: Shape = field(default_factory=Shape)


def read_conversation(obj: object, name: str | None = None, *, volatile: Volatile | None = None) -> Conversation:
    """Read a list of messages, a request body, or rows of JSONL; raise FormatError that says what is wrong."""
    if isinstance(obj, list | tuple):
        rows = list(obj)
        bodies = [at for at, row in enumerate(rows) if _is_body(row)]
        if not bodies:
            return Conversation(detect(rows, name=name, volatile=volatile), rows)
        if len(rows) == 1:
            return _read_body(rows[0], "row", name, volatile)
        raise FormatError(f"row {bodies[0]} of {len(rows)} is a whole conversation; give one conversation at a time")
    if isinstance(obj, dict):
        if _is_body(obj):
            return _read_body(obj, "body", name, volatile)
        keys = ", ".join(list(map(str, obj))[:8]) or "no fields"
        raise FormatError(f"no messages in this object (it has {keys}); give a list of messages or a request body")
    raise FormatError(f"a conversation is a list of messages or a request body, not {name_type(obj)}")


def write_conversation(conversation: Conversation, messages: Sequence[object]) -> object:
    """Return these messages wrapped as the conversation was."""
    shape = conversation.shape
    if shape.body is None:
        return list(messages)
    inner: object = list(messages)
    if shape.text is not None and len(messages) == 1 and messages[0] is conversation.messages[0]:
        inner = shape.text
    body = {**shape.body, shape.key: inner}
    return [body] if shape.wrapping == "row" else body


def parse_messages(
    form: Format, raws: Iterable[object], parent: str = ROOT, *, start: int = 0, where: str = "messages"
) -> list[Message]:
    """Read provider messages into a chain. ``start`` is the place of the first, for what errors say."""
    messages: list[Message] = []
    for at, raw in enumerate(raws, start):
        message = form.parse(raw, parent, f"{where}[{at}]")
        parent = message.id
        messages.append(message)
    return messages


def _is_body(value: object) -> bool:
    if not isinstance(value, dict) or "role" in value:
        return False
    return "messages" in value or ("input" in value and "type" not in value)


def _read_body(body: dict[str, Any], wrapping: Wrapping, name: str | None, volatile: Volatile | None) -> Conversation:
    key = "messages" if "messages" in body else "input"
    inner = body[key]
    text = inner if key == "input" and isinstance(inner, str) else None
    if text is not None:
        inner = [{"role": "user", "content": text}]
    if not isinstance(inner, list):
        raise FormatError(f"{key} is {name_type(inner)}, expected a list of messages")
    system = body.get("system" if key == "messages" else "instructions")
    tools = body.get("tools")
    if key == "input":
        form = make_format(name or RESPONSES, volatile)
    else:
        form = detect(inner, system, tools, name, volatile=volatile)
    model = body.get("model")
    return Conversation(
        form,
        list(inner),
        system,
        tools,
        model if isinstance(model, str) else "",
        {key: value for key, value in body.items() if key not in _OWN_FIELDS},
        Shape(wrapping, key, body, text),
    )
