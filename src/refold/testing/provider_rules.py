"""Strict checks of a request, as providers make them, independent of the engine, and the errors they answer with.

The checks read raw JSON only and share no code with ``refold.formats``, so that each can prove the other wrong. The
scripted provider and replay use them, and so can your own tests of an agent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from refold.testing.script import ScriptedReply, ScriptedUsage
from refold.tokens import counter_for


def find_violations(wire: str, messages: Sequence[Any]) -> list[str]:
    """Return every reason for which the provider would answer 400; ``wire`` is a format's name."""
    checkers = {"openai-chat": _check_chat, "anthropic": _check_anthropic, "openai-responses": _check_responses}
    checkers["ai-sdk"] = _check_ai_sdk
    if not messages:
        return ["there must be at least one message"]
    return checkers[wire](messages)


def _check_chat(messages: Sequence[Any]) -> list[str]:
    wrong: list[str] = []
    at = 0
    while at < len(messages):
        message = messages[at]
        role = message.get("role")
        if role == "tool":
            wrong.append(f"messages[{at}]: a tool message must follow an assistant message with tool_calls")
        elif role in ("user", "system", "developer") and not _has_content(message.get("content")):
            wrong.append(f"messages[{at}]: {role} message without content")
        elif role == "assistant":
            calls = message.get("tool_calls") or []
            if not calls and not message.get("function_call") and not _has_content(message.get("content")):
                wrong.append(f"messages[{at}]: assistant message with neither content nor tool_calls")
            wrong += [
                f"messages[{at}]: arguments of a call are not a string"
                for call in calls
                if call.get("type", "function") == "function" and not isinstance(call["function"].get("arguments"), str)
            ]
            if calls:
                at = _match_chat_results(messages, at, wrong)
                continue
        at += 1
    return wrong


def _check_ai_sdk(messages: Sequence[Any]) -> list[str]:
    """Check what the AI SDK refuses: parts at a wrong place, results without a call, calls without a result."""
    wrong: list[str] = []
    waiting: list[str] = []
    for at, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        parts: list[Any] = [{"type": "text"}] if isinstance(content, str) else content or []
        if role != "tool" and waiting:
            wrong.append(f"messages[{at}]: no result for the calls {waiting}")
            waiting = []
        if not parts and role != "user":
            wrong.append(f"messages[{at}]: {role} message without content")
        for part in parts:
            kind, call_id = part["type"], part.get("toolCallId")
            if kind == "tool-call" and not part.get("providerExecuted"):
                wrong += [f"messages[{at}]: a call in a {role} message"] if role != "assistant" else []
                wrong += [] if isinstance(part.get("input"), dict) else [f"messages[{at}]: input is no object"]
                waiting.append(call_id)
            elif kind == "tool-result" and role == "tool":
                wrong += [] if call_id in waiting else [f"messages[{at}]: no call waits for {call_id!r}"]
                wrong += [] if {"type", "value"} <= part["output"].keys() else [f"messages[{at}]: output has no value"]
                waiting = [one for one in waiting if one != call_id]
            elif role == "tool":
                wrong.append(f"messages[{at}]: {kind} in a tool message")
    return wrong


def _match_chat_results(messages: Sequence[Any], at: int, wrong: list[str]) -> int:
    waiting = [call["id"] for call in messages[at]["tool_calls"]]
    follow = at + 1
    while follow < len(messages) and messages[follow].get("role") == "tool":
        call_id = messages[follow].get("tool_call_id")
        if call_id in waiting:
            waiting.remove(call_id)
        else:
            wrong.append(f"messages[{follow}]: no call waits for tool_call_id {call_id!r}")
        follow += 1
    if waiting and follow < len(messages):
        wrong.append(f"messages[{at}]: tool_calls without results: {waiting}")
    return follow


def _has_content(content: Any) -> bool:
    if isinstance(content, str):
        return True  # providers take an empty string
    return isinstance(content, Sequence) and len(content) > 0


def _check_anthropic(messages: Sequence[Any]) -> list[str]:
    wrong: list[str] = []
    turns = _merge_turns(messages)
    if turns[0][0] != "user":
        wrong.append("messages: first message must use the user role")
    waiting: list[str] = []
    for number, (role, blocks) in enumerate(turns):
        is_last = number == len(turns) - 1
        if not blocks and not (is_last and role == "assistant"):
            wrong.append(f"turn {number}: content must not be empty")
        empty = [b for b in blocks if b.get("type") == "text" and not b.get("text")]
        wrong += [f"turn {number}: text blocks must not be empty"] * len(empty)
        results = [b["tool_use_id"] for b in blocks if b.get("type") == "tool_result"]
        if role == "user":
            wrong += _match_anthropic_results(number, blocks, results, waiting)
        elif results:
            wrong.append(f"turn {number}: tool_result in an assistant message")
        waiting = [b["id"] for b in blocks if b.get("type") == "tool_use"] if role == "assistant" else []
        if waiting and not is_last and turns[number + 1][0] != "user":
            wrong.append(f"turn {number}: tool_use without tool_result after it")
        if role == "assistant":
            unsigned = [b for b in blocks if b.get("type") == "thinking" and not b.get("signature")]
            wrong += [f"turn {number}: thinking without its signature"] * len(unsigned)
    return wrong


def _match_anthropic_results(number: int, blocks: list[Any], results: list[str], waiting: list[str]) -> list[str]:
    wrong: list[str] = []
    missing = list(waiting)
    for call_id in results:
        if call_id in missing:
            missing.remove(call_id)
        else:
            wrong.append(f"turn {number}: unexpected tool_result {call_id!r}")
    if missing:
        wrong.append(f"turn {number}: tool_use without tool_result: {missing}")
    kinds = [b.get("type") == "tool_result" for b in blocks]
    if any(kinds) and not all(kinds[: sum(kinds)]):
        wrong.append(f"turn {number}: tool_result blocks must come first")
    return wrong


def _merge_turns(messages: Sequence[Any]) -> list[tuple[str, list[Any]]]:
    """Merge adjacent messages of the same role, as the provider does before checking."""
    turns: list[tuple[str, list[Any]]] = []
    for message in messages:
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or [])
        if turns and turns[-1][0] == message["role"]:
            turns[-1][1].extend(blocks)
        else:
            turns.append((message["role"], blocks))
    return turns


def _check_responses(items: Sequence[Any]) -> list[str]:
    wrong: list[str] = []
    waiting: list[str] = []
    for at, item in enumerate(items):
        kind = item.get("type", "message")
        if kind in ("function_call", "custom_tool_call"):
            waiting.append(item["call_id"])
        elif kind in ("function_call_output", "custom_tool_call_output"):
            if item["call_id"] in waiting:
                waiting.remove(item["call_id"])
            else:
                wrong.append(f"input[{at}]: no call waits for output {item['call_id']!r}")
        elif kind == "reasoning":
            follow = items[at + 1].get("type", "message") if at + 1 < len(items) else ""
            by_model = follow and (follow != "message" or items[at + 1].get("role") == "assistant")
            if not by_model or follow.endswith("_output"):
                wrong.append(f"input[{at}]: reasoning without the item that follows it")
        elif kind == "message":
            if waiting:
                wrong.append(f"input[{at}]: a message before the outputs of calls {waiting}")
                waiting = []
            if item.get("content") is None or item.get("content") == []:
                wrong.append(f"input[{at}]: message without content")
    return wrong


Raw = dict[str, Any]
_ROLES: dict[str, tuple[str, ...]] = {
    "openai-chat": ("system", "developer", "user", "assistant", "tool", "function"),
    "openai-responses": ("system", "developer", "user", "assistant"),
    "anthropic": ("user", "assistant"),
}
_MARKS_MAX = 4  # How many places Anthropic lets a request mark for its cache.
_OUTPUT_FIELDS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_KINDS = {
    400: ("invalid_request_error", "invalid_request_error"),
    401: ("authentication_error", "invalid_request_error"),
    403: ("permission_error", "permission_error"),
    404: ("not_found_error", "invalid_request_error"),
    413: ("request_too_large", "invalid_request_error"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    529: ("overloaded_error", "server_error"),
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason to answer a request with an error instead of a reply."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None


def write_error(wire: str, refusal: Refusal) -> Raw:
    """Return the body of an error in the provider's shape."""
    anthropic, openai = _KINDS.get(refusal.status, ("api_error", "server_error"))
    if wire == "anthropic":
        return {"type": "error", "error": {"type": anthropic, "message": refusal.message}, "request_id": "req_scripted"}
    return {"error": {"message": refusal.message, "type": openai, "param": refusal.param, "code": refusal.code}}


def find_refusal(wire: str, body: object, window: int | None, unsupported: Collection[str] = ()) -> Refusal | None:
    """Return why the provider would refuse this request; None if it would pass it to the model."""
    if not isinstance(body, dict):
        return Refusal(400, "We could not parse the JSON body of your request.")
    return (
        _check_fields(wire, body, unsupported)
        or _check_roles(wire, body)
        or _check_conversation(wire, body)
        or (_check_window(wire, body, window) if window is not None else None)
    )


def _check_fields(wire: str, body: Raw, unsupported: Collection[str]) -> Refusal | None:
    name = "input" if wire == "openai-responses" else "messages"
    required = ["model", name, *(["max_tokens"] if wire == "anthropic" else [])]
    for field in required:
        if field not in body:
            message = f"{field}: Field required" if wire == "anthropic" else f"Missing required parameter: '{field}'."
            return Refusal(400, message, "missing_required_parameter", field)
    if not isinstance(body[name], list) and not (wire == "openai-responses" and isinstance(body[name], str)):
        return Refusal(400, f"Invalid type for '{name}': expected an array of objects.", "invalid_type", name)
    for field in _OUTPUT_FIELDS:
        if field in body and (not isinstance(body[field], int) or isinstance(body[field], bool) or body[field] < 1):
            return Refusal(400, f"{field}: must be a whole number of 1 or more", "invalid_value", field)
    for field in unsupported:
        if field in body:
            instead = " Use 'max_completion_tokens' instead." if field == "max_tokens" else ""
            message = f"Unsupported parameter: '{field}' is not supported with this model.{instead}"
            return Refusal(400, message, "unsupported_parameter", field)
    return None


def _check_roles(wire: str, body: Raw) -> Refusal | None:
    messages = _messages_of(wire, body)
    for at, message in enumerate(messages):
        if not isinstance(message, dict):
            return Refusal(400, f"messages.{at}: Input should be an object", "invalid_type", f"messages[{at}]")
        role = message.get("role")
        if wire == "openai-responses" and message.get("type", "message") != "message":
            continue
        if role in _ROLES[wire]:
            continue
        if wire == "anthropic" and role == "system" and _takes_system(messages, at):
            continue
        if wire == "anthropic" and role == "system":
            text = 'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter.'
            return Refusal(400, text)
        known = ", ".join(f"'{name}'" for name in _ROLES[wire])
        text = f"Invalid value: {role!r}. Supported values are: {known}."
        return Refusal(400, text, "invalid_value", f"messages[{at}].role")
    return None


def _takes_system(messages: Sequence[Any], at: int) -> bool:
    """Return whether newer Claude models accept a system message here: after a user message, before a reply or last."""
    before = messages[at - 1] if at else {}
    after = messages[at + 1] if at + 1 < len(messages) else {"role": "assistant"}
    return [one.get("role") if isinstance(one, dict) else None for one in (before, after)] == ["user", "assistant"]


def _check_conversation(wire: str, body: Raw) -> Refusal | None:
    try:
        wrong = find_violations(wire, _messages_of(wire, body))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        return Refusal(400, f"messages: malformed ({type(error).__name__}: {error})", "invalid_type")
    marks = _count_marks(body.get("system"), body.get("tools"), *(m.get("content") for m in _messages_of(wire, body)))
    if wire == "anthropic" and marks > _MARKS_MAX:
        wrong.append(f"A maximum of {_MARKS_MAX} blocks with cache_control may be provided. Found {marks}.")
    return Refusal(400, "; ".join(wrong), param="messages") if wrong else None


def _count_marks(*lists: Any) -> int:
    blocks = (block for blocks in lists if isinstance(blocks, list) for block in blocks)
    return sum(isinstance(block, dict) and bool(block.get("cache_control")) for block in blocks)


def _check_window(wire: str, body: Raw, window: int) -> Refusal | None:
    tokens = count_input(wire, body)
    output = next((body[field] for field in _OUTPUT_FIELDS if body.get(field)), 0)
    if tokens + output <= window:
        return None
    if wire == "anthropic":
        if tokens > window:
            return Refusal(400, f"prompt is too long: {tokens} tokens > {window} maximum")
        text = f"input length and `max_tokens` exceed context limit: {tokens} + {output} > {window}"
        return Refusal(400, f"{text}, decrease input length or `max_tokens` and try again")
    code = "context_length_exceeded"
    if wire == "openai-responses":
        text = "Your input exceeds the context window of this model. Please adjust your input and try again."
        return Refusal(400, text, code, "input")
    sent = f"your messages resulted in {tokens} tokens"
    if output:
        sent = f"you requested {tokens + output} tokens ({tokens} in the messages, {output} in the completion)"
    text = f"This model's maximum context length is {window} tokens. However, {sent}. Please reduce the length of the"
    return Refusal(400, f"{text} messages{' or completion' if output else ''}.", code, "messages")


def count_input(wire: str, body: Raw) -> int:
    """Return the tokens of a request: messages, system prompt and tools."""
    counter = counter_for(str(body.get("model") or ""))
    beside = body.get("system") or body.get("instructions")
    system = counter.count_message({"role": "system", "content": beside}) if beside else 0
    return system + counter.count_messages(_messages_of(wire, body)) + counter.count_tools(body.get("tools"))


def count_usage(wire: str, body: Raw, reply: ScriptedReply, cached: int = 0) -> ScriptedUsage:
    """Return the usage of a reply: the script's figures, else those of refold's counter."""
    if reply.usage is not None:
        return reply.usage
    counter = counter_for(str(body.get("model") or ""))
    calls = "".join(f"{call.name}{call.arguments_text}" for call in reply.calls)
    output = max(1, counter.count_text(f"{reply.thinking}{reply.text}{calls}"))
    return ScriptedUsage(count_input(wire, body), output, cached)


class PrefixCache:
    """Knows which leading part of a request was sent to its model before: tools, system prompt, messages, by bytes."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def read(self, wire: str, body: Raw) -> int:
        """Return how many tokens of a request are cached, and keep the request."""
        messages = _messages_of(wire, body)
        beside = {name: body.get(name) for name in ("model", "tools", "system", "instructions") if body.get(name)}
        if wire == "anthropic":
            # Another choice of tools there makes the messages new.
            beside["tool_choice"] = body.get("tool_choice")
        digest = hashlib.sha256(json.dumps(beside).encode())
        known = -1
        for at in range(len(messages) + 1):
            if at:
                digest.update(json.dumps(messages[at - 1], ensure_ascii=True).encode())
            known = at if digest.digest() in self._seen else known
            self._seen.add(digest.digest())
        key = "input" if wire == "openai-responses" else "messages"
        return 0 if known < 0 else count_input(wire, {**body, key: messages[:known]})


def _messages_of(wire: str, body: Raw) -> list[Any]:
    found = body.get("input" if wire == "openai-responses" else "messages")
    if isinstance(found, str):
        return [{"role": "user", "content": found}]
    return found if isinstance(found, list) else []
