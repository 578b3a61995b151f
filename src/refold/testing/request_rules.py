"""What a provider checks before its model sees a request, and the error bodies it answers with.

Shape first (fields, roles), then ``find_violations``, then the window, counted with refold's counter. The wording of
an overflow is each provider's own, because clients tell an overflow by nothing else.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from refold.testing.provider_rules import find_violations
from refold.testing.script import ScriptedReply, ScriptedUsage
from refold.tokens import counter_for
from refold.tokens.counter import MessageCounter

Raw = dict[str, Any]
_ROLES: dict[str, tuple[str, ...]] = {
    "openai-chat": ("system", "developer", "user", "assistant", "tool", "function"),
    "openai-responses": ("system", "developer", "user", "assistant"),
    "anthropic": ("user", "assistant"),
}
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
    """Why a request is answered with an error instead of a reply."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None


def write_error(wire: str, refusal: Refusal) -> Raw:
    """Return the body of an error in the provider's shape."""
    anthropic, openai = _KINDS.get(refusal.status, ("api_error", "server_error"))
    if wire == "anthropic":
        return {"type": "error", "error": {"type": anthropic, "message": refusal.message}, "request_id": "req_scripted"}
    return {
        "error": {"message": refusal.message, "type": openai, "param": refusal.param, "code": refusal.code},
    }


def find_refusal(wire: str, body: object, window: int | None, unsupported: Collection[str] = ()) -> Refusal | None:
    """Return why the provider would refuse this request; None if the model gets to see it."""
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
    for at, message in enumerate(_messages_of(wire, body)):
        if not isinstance(message, dict):
            return Refusal(400, f"messages.{at}: Input should be an object", "invalid_type", f"messages[{at}]")
        role = message.get("role")
        if wire == "openai-responses" and message.get("type", "message") != "message":
            continue
        if role in _ROLES[wire]:
            continue
        if wire == "anthropic" and role == "system":
            text = 'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter.'
            return Refusal(400, text)
        known = ", ".join(f"'{name}'" for name in _ROLES[wire])
        text = f"Invalid value: {role!r}. Supported values are: {known}."
        return Refusal(400, text, "invalid_value", f"messages[{at}].role")
    return None


def _check_conversation(wire: str, body: Raw) -> Refusal | None:
    try:
        wrong = find_violations(wire, _messages_of(wire, body))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        return Refusal(400, f"messages: malformed ({type(error).__name__}: {error})", "invalid_type")
    return Refusal(400, "; ".join(wrong), param="messages") if wrong else None


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
    assert isinstance(counter, MessageCounter)
    beside = body.get("system") or body.get("instructions")
    system = counter.count_message({"role": "system", "content": beside}) if beside else 0
    return system + counter.count_messages(_messages_of(wire, body)) + counter.count_tools(body.get("tools"))


def count_usage(wire: str, body: Raw, reply: ScriptedReply) -> ScriptedUsage:
    """Return the usage of a reply: what the script claims, else what refold's counter says."""
    if reply.usage is not None:
        return reply.usage
    counter = counter_for(str(body.get("model") or ""))
    calls = "".join(f"{call.name}{call.arguments_text}" for call in reply.calls)
    return ScriptedUsage(count_input(wire, body), max(1, counter.count_text(f"{reply.thinking}{reply.text}{calls}")))


def _messages_of(wire: str, body: Raw) -> list[Any]:
    found = body.get("input" if wire == "openai-responses" else "messages")
    if isinstance(found, str):
        return [{"role": "user", "content": found}]
    return found if isinstance(found, list) else []
