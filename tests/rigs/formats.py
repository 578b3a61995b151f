"""Hand-written conversations in each format, with the shapes that real clients send."""

from __future__ import annotations

from typing import Any

from refold.conversation.message import Message
from refold.formats import make_format

Raw = dict[str, Any]


def parse(name: str, raw: object) -> Message:
    """Read one message in the named format."""
    return make_format(name).parse(raw)


def kinds(message: Message) -> list[str]:
    """Return the kinds of a message's parts, in order."""
    return [part.kind for part in message.parts]


def chat_call(call_id: str = "call_1", arguments: str = '{"city": "Łódź"}') -> Raw:
    return {"id": call_id, "type": "function", "function": {"name": "weather", "arguments": arguments}}


def chat_step(*ids: str, content: Any = None) -> list[Raw]:
    """One assistant message with these calls, and their results."""
    results = [{"role": "tool", "tool_call_id": i, "content": f"result of {i}"} for i in ids]
    return [{"role": "assistant", "content": content, "tool_calls": [chat_call(i) for i in ids]}, *results]


def claude_step(*ids: str) -> list[Raw]:
    """One assistant message with thinking and calls, and the user message that brings their results."""
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "sig=="}
    uses = [{"type": "tool_use", "id": i, "name": "run", "input": {"cmd": "ls"}} for i in ids]
    results = [{"type": "tool_result", "tool_use_id": i, "content": f"result of {i}"} for i in ids]
    return [{"role": "assistant", "content": [thinking, *uses]}, {"role": "user", "content": results}]


def responses_step(*ids: str, reasoning: str = "rs_1") -> list[Raw]:
    """A reasoning item, the calls it led to, and their outputs."""
    thought = {"type": "reasoning", "id": reasoning, "summary": [{"type": "summary_text", "text": "Hm."}]}
    calls = [{"type": "function_call", "call_id": i, "name": "run", "arguments": "{}"} for i in ids]
    return [thought, *calls, *({"type": "function_call_output", "call_id": i, "output": f"result of {i}"} for i in ids)]


IMAGE_CHAT = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
IMAGE_CLAUDE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
IMAGE_RESPONSES = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
