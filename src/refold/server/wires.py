"""The three wire formats as the gateway sees them: which path, which upstream, where the messages are.

``find_wire`` is the whole routing table of the gateway. What is not in it passes through to an upstream without being
read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from refold.conversation.reason import Reason
from refold.server import wire_anthropic, wire_openai
from refold.server.answered import Answered

Side = Literal["openai", "anthropic"]


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


CHAT = Wire(
    "openai-chat",
    "openai",
    "messages",
    "",
    ("max_completion_tokens", "max_tokens"),
    wire_openai.find_chat_pass_reason,
    wire_openai.read_chat_payload,
)
RESPONSES = Wire(
    "openai-responses",
    "openai",
    "input",
    "instructions",
    ("max_output_tokens",),
    wire_openai.find_responses_pass_reason,
    wire_openai.read_responses_payload,
)
ANTHROPIC = Wire(
    "anthropic",
    "anthropic",
    "messages",
    "system",
    ("max_tokens",),
    wire_anthropic.find_pass_reason,
    wire_anthropic.read_payload,
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
