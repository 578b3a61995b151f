"""The three wire formats as the gateway sees them: which path, which upstream, where the messages are, when a request
must not be touched, and where answers say what they cost.

``find_wire`` is the whole routing table of the gateway. What is not in it passes through to an upstream without being
read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from refold.conversation import because
from refold.conversation.reason import NO_REASON, Reason

Side = Literal["openai", "anthropic"]
# Fields that refer to what the provider holds.
_HELD = {
    "previous_response_id": because.PREVIOUS_RESPONSE,
    "conversation": because.CONVERSATION,
    "prompt": because.PROMPT,
}
_SEALED = frozenset(("item_reference", "compaction", "compaction_summary", "context_compaction"))


@dataclass(slots=True)
class Answered:
    """Figures of one answer. ``usage`` is the provider's own object, its pieces put together.

    ``response_id`` and ``output`` are those of a whole response that the provider may hold (Responses).
    """

    usage: dict[str, Any] = field(default_factory=dict)
    finish_reason: str = ""
    error_text: str = ""
    response_id: str = ""
    output: list[Any] = field(default_factory=list, repr=False)

    def add_usage(self, usage: object) -> None:
        """Take over what a piece of an answer says of usage; later figures win, absent ones stay."""
        if isinstance(usage, Mapping):
            self.usage.update({str(key): value for key, value in usage.items() if value is not None})

    @property
    def has_usage(self) -> bool:
        """True if the provider said what it counted for the input."""
        return any(isinstance(self.usage.get(name), int) for name in ("prompt_tokens", "input_tokens"))


@dataclass(frozen=True, slots=True)
class Wire:
    """One wire format. ``key`` holds the messages, ``system`` the prompt that stands apart (empty: among them)."""

    name: str
    side: Side
    key: str
    system: str
    limits: tuple[str, ...]
    find_pass_reason: Callable[[Mapping[str, Any]], Reason] = field(repr=False)
    read_payload: Callable[[Mapping[str, Any], Answered], None] = field(repr=False)


def _find_chat_pass_reason(body: Mapping[str, Any]) -> Reason:
    """Return why a chat request passes through as it is; empty if it may be compressed."""
    return NO_REASON if isinstance(body.get("messages"), list) else because.NO_MESSAGES()


def _find_responses_pass_reason(body: Mapping[str, Any]) -> Reason:
    """Return why a Responses request passes through as it is: the provider holds part of it, or compacts it itself."""
    for name, kind in _HELD.items():
        if body.get(name):
            return kind()
    if _asks_openai_to_compact(body.get("context_management")):
        return because.PROVIDER_COMPACTION()
    items = body.get("input")
    if isinstance(items, str):
        return NO_REASON
    if not isinstance(items, list):
        return because.NO_MESSAGES()
    for item in items:
        if isinstance(item, dict) and (item.get("type") in _SEALED or item.keys() == {"id"}):
            return because.PROVIDER_COMPACTION()
    return NO_REASON


def _asks_openai_to_compact(management: object) -> bool:
    """Tell whether the provider is asked to replace the conversation by a summary of its own."""
    return isinstance(management, list) and any(
        isinstance(one, dict) and str(one.get("type", "")).startswith("compact") for one in management
    )


def _read_chat_payload(payload: Mapping[str, Any], answered: Answered) -> None:
    """Read a chat answer, whole or one chunk of it."""
    answered.add_usage(payload.get("usage"))
    choices = payload.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        reason = choice.get("finish_reason") if isinstance(choice, dict) else None
        if isinstance(reason, str):
            answered.finish_reason = reason
    _read_error(payload, answered)


def _read_responses_payload(payload: Mapping[str, Any], answered: Answered) -> None:
    """Read a Responses answer, whole or one event of it."""
    response = payload.get("response") if "response" in payload else payload
    if isinstance(response, dict):
        answered.add_usage(response.get("usage"))
        details = response.get("incomplete_details")
        if isinstance(details, dict) and details.get("reason") == "max_output_tokens":
            answered.finish_reason = "length"
        _read_error(response, answered)
        if isinstance(response.get("output"), list) and response.get("status") in ("completed", "incomplete"):
            answered.response_id, answered.output = str(response.get("id") or ""), response["output"]
    if payload.get("type") == "error":
        answered.error_text = f"{payload.get('code')} {payload.get('message')}"


def _read_error(payload: Mapping[str, Any], answered: Answered) -> None:
    error = payload.get("error")
    if isinstance(error, dict):
        answered.error_text = f"{error.get('code')} {error.get('message')}"


def _find_anthropic_pass_reason(body: Mapping[str, Any]) -> Reason:
    """Return why a request passes through as it is: the provider compacts the conversation itself."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return because.NO_MESSAGES()
    if _asks_anthropic_to_compact(body.get("context_management")):
        return because.PROVIDER_COMPACTION()
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        for block in content if isinstance(content, list) else ():
            kind = block.get("type") if isinstance(block, dict) else None
            if isinstance(kind, str) and "compaction" in kind:
                return because.PROVIDER_COMPACTION()
    return NO_REASON


def _asks_anthropic_to_compact(management: object) -> bool:
    """Tell whether the provider is asked to replace the conversation by a summary of its own.

    Every other edit (clearing old thinking or old tool results) is applied by the provider to whatever it receives: it
    does the same to a compressed request, so it is no reason to leave the request alone.
    """
    edits = management.get("edits") if isinstance(management, dict) else None
    return any(
        isinstance(edit, dict) and str(edit.get("type", "")).startswith("compact")
        for edit in (edits if isinstance(edits, list) else ())
    )


def _read_anthropic_payload(payload: Mapping[str, Any], answered: Answered) -> None:
    """Read an answer, whole or one event of it."""
    message = payload.get("message")
    if isinstance(message, dict):
        answered.add_usage(message.get("usage"))
    answered.add_usage(payload.get("usage"))
    delta = payload.get("delta")
    reason = (delta if isinstance(delta, dict) else payload).get("stop_reason")
    if isinstance(reason, str):
        answered.finish_reason = reason
    error = payload.get("error")
    if isinstance(error, dict):
        answered.error_text = f"{error.get('type')} {error.get('message')}"


CHAT = Wire(
    "openai-chat",
    "openai",
    "messages",
    "",
    ("max_completion_tokens", "max_tokens"),
    _find_chat_pass_reason,
    _read_chat_payload,
)
RESPONSES = Wire(
    "openai-responses",
    "openai",
    "input",
    "instructions",
    ("max_output_tokens",),
    _find_responses_pass_reason,
    _read_responses_payload,
)
ANTHROPIC = Wire(
    "anthropic",
    "anthropic",
    "messages",
    "system",
    ("max_tokens",),
    _find_anthropic_pass_reason,
    _read_anthropic_payload,
)
_COMPRESSED = {"/v1/chat/completions": CHAT, "/v1/responses": RESPONSES, "/v1/messages": ANTHROPIC}
# Clients whose base URL was given without /v1.
_ALIASES = {"/chat/completions": "/v1/chat/completions", "/responses": "/v1/responses", "/models": "/v1/models"}
_CLIMBS = re.compile(r"(?:^|/|%2f)(?:\.|%2e){1,2}(?:/|%2f|$)|\\|%5c|//", re.I)
# An encoded slash is part of a model's name (meta-llama%2FLlama-3); elsewhere an upstream might read another path.
_HIDES_SLASH = re.compile(r"%2f", re.I)
_MODEL_PATH = "/v1/models/"
# What tenants may reach with the operator's key: nothing that shows or changes what belongs to the whole account.
_FOR_TENANTS = frozenset(
    (
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/responses"),
        ("POST", "/v1/messages"),
        ("POST", "/v1/messages/count_tokens"),
        ("POST", "/v1/embeddings"),
        ("GET", "/v1/models"),
    )
)


def find_path(path: str) -> str | None:
    """Return the path as upstreams know it; None if the gateway does not serve it."""
    path = _ALIASES.get(path, path)
    if not path.startswith("/v1/") or _CLIMBS.search(path):
        return None
    if _HIDES_SLASH.search(path) and not path.startswith(_MODEL_PATH):
        return None
    return path


def is_for_tenants(method: str, path: str, more: Sequence[str] = ()) -> bool:
    """Tell whether tenants that share the operator's key may ask for this; ``more`` are paths that he allows."""
    if (method, path) in _FOR_TENANTS or (method == "GET" and path.startswith(_MODEL_PATH)):
        return True
    return any(path == one or path.startswith(f"{one.rstrip('/')}/") for one in more)


def find_wire(method: str, path: str) -> Wire | None:
    """Return the format of a request that may be compressed; None for one that only passes through."""
    return _COMPRESSED.get(path) if method == "POST" else None


def find_side(path: str, is_anthropic: bool) -> Side:
    """Return whose path this is; ``is_anthropic``: the client speaks Anthropic's protocol."""
    if path.startswith("/v1/messages") or is_anthropic:
        return "anthropic"
    return "openai"


def write_error(side: Side, status: int, message: str) -> dict[str, Any]:
    """Return an error of the gateway itself in the shape that the client of a side reads."""
    if side == "anthropic":
        kind = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large"}.get(
            status, "invalid_request_error" if status < 500 else "api_error"
        )
        return {"type": "error", "error": {"type": kind, "message": message}}
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": "refold"}}
