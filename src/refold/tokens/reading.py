"""Reads provider messages for counting only: OpenAI chat, Anthropic and Responses dicts into role, parts and name.

The formats read the same shapes for editing and reject what is wrong with them. A counter is handed anything and
must never fail: what has no known shape counts as the JSON it is. Nothing here is used to build a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from refold.conversation.message import Part, read_text

_ROLES = {"developer": "system", "function": "tool"}
_THINKING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
_TEXT_TYPES = ("text", "input_text", "output_text", "summary_text", "reasoning_text")
_CALL_TYPES = ("tool_use", "mcp_tool_use")
_RESULT_TYPES = ("tool_result", "mcp_tool_result")
_MEDIA_TYPES = frozenset(
    (
        *("image", "image_url", "input_image", "video_url", "audio_url", "input_audio"),
        *("document", "file", "input_file", "container_upload", "computer_screenshot"),
    )
)
# Items of the Responses interface that stand where others have messages: what a call's own words are called.
_CALL_FIELDS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
_OUTPUT_TYPES = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
_DEPTH_MAX = 8  # A result holds no result; whoever nests them thousands deep wants to see us fall over.


def read_messages(messages: object) -> Iterable[object]:
    """Return the messages of a list, or the one message that was handed over without its list."""
    if isinstance(messages, (list, tuple)):
        return messages
    return () if messages is None else (messages,)


def read_message(message: object) -> tuple[str, list[Part], str]:
    """Return role, parts and name of a provider's message, whatever its shape."""
    if not isinstance(message, Mapping):
        return "", list(_read_content(message)), ""
    if message.get("role") is None and isinstance(message.get("type"), str):
        return _read_item(message)
    role = read_text(message.get("role"))
    role = _ROLES.get(role, role)
    content = message.get("content")
    if role == "tool":
        parts = [_read_result(content)]
    else:
        parts = [*_read_thinking(message), *_read_content(content), *_read_answers(message)]
    name = message.get("name")
    return role, parts, name if isinstance(name, str) else ""


def _read_item(item: Mapping[object, object]) -> tuple[str, list[Part], str]:
    kind = str(item["type"])
    if kind in _OUTPUT_TYPES:
        return "tool", [_read_result(item.get("output"))], ""
    if kind in _CALL_FIELDS:
        name = read_text(item.get("name")) or ("local_shell" if kind == "local_shell_call" else "")
        return "assistant", [Part("call", read_text(item.get(_CALL_FIELDS[kind])), name)], ""
    if kind == "reasoning":
        texts = [part.text for field in ("summary", "content") for part in _read_content(item.get(field))]
        return "assistant", [Part("thinking", "\n".join(filter(None, texts)), payload=item)], ""
    return "tool" if kind.endswith(("_output", "_response")) else "assistant", [Part("opaque", payload=item)], ""


def _read_content(content: object, depth: int = 0) -> Iterator[Part]:
    if isinstance(content, (list, tuple)):
        for block in content:
            yield _read_block(block, depth)
    elif isinstance(content, Mapping):
        yield _read_block(content, depth)
    elif content is not None:
        yield Part("text", read_text(content))


def _read_block(block: object, depth: int) -> Part:
    if not isinstance(block, Mapping):
        return Part("text", read_text(block))
    kind = block.get("type")
    if not isinstance(kind, str):
        return Part("opaque", payload=block)
    if kind in _TEXT_TYPES:
        return Part("text", read_text(block.get("text")))
    if kind == "refusal":
        return Part("text", read_text(block.get("refusal")))
    if kind in ("thinking", "redacted_thinking"):
        return Part("thinking", read_text(block.get("thinking")), payload=block)
    if kind in _CALL_TYPES:
        return Part("call", read_text(block.get("input")), read_text(block.get("name")))
    if kind in _RESULT_TYPES and depth < _DEPTH_MAX:
        return _read_result(block.get("content"), depth + 1)
    if kind in _MEDIA_TYPES:
        return Part("media", _read_document(block), payload=block)
    return Part("opaque", payload=block)


def _read_result(content: object, depth: int = 0) -> Part:
    parts = list(_read_content(content, depth))
    text = "\n".join(part.text for part in parts if part.kind == "text" and part.text)
    return Part("result", text, inside=tuple(part for part in parts if part.kind != "text"))


def _read_document(block: Mapping[object, object]) -> str:
    """Return the words of a document that is given as text."""
    source = block.get("source")
    if isinstance(source, Mapping) and source.get("type") == "text":
        return read_text(source.get("data"))
    return ""


def _read_thinking(message: Mapping[object, object]) -> Iterator[Part]:
    if message.get("role") != "assistant":
        return
    for field in _THINKING_FIELDS:
        value = message.get(field)
        if isinstance(value, (list, tuple)):
            blocks = [block for block in value if isinstance(block, Mapping)]
            texts = (block.get("thinking") or block.get("text") or block.get("summary") for block in blocks)
            yield Part("thinking", "\n".join(text for text in texts if isinstance(text, str)))
        elif value:
            yield Part("thinking", read_text(value))


def _read_answers(message: Mapping[object, object]) -> Iterator[Part]:
    if message.get("refusal"):
        yield Part("text", read_text(message["refusal"]))
    if message.get("audio"):
        yield Part("opaque", payload=message["audio"])
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, (list, tuple)) else ():
        yield _read_call(call)
    function = message.get("function_call")
    if isinstance(function, Mapping):
        yield Part("call", read_text(function.get("arguments")), read_text(function.get("name")))


def _read_call(call: object) -> Part:
    if not isinstance(call, Mapping):
        return Part("opaque", payload=call)
    function = call.get("function")
    if isinstance(function, Mapping):
        return Part("call", read_text(function.get("arguments")), read_text(function.get("name")))
    custom = call.get("custom")
    if isinstance(custom, Mapping):
        return Part("call", read_text(custom.get("input")), read_text(custom.get("name")))
    return Part("opaque", payload=call)
