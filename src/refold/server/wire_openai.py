"""OpenAI's two interfaces: when a request must not be touched, and where answers say what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from refold.conversation import because
from refold.conversation.reason import NO_REASON, Reason
from refold.server.answered import Answered

# Fields that refer to what the provider holds.
_HELD = {
    "previous_response_id": because.PREVIOUS_RESPONSE,
    "conversation": because.CONVERSATION,
    "prompt": because.PROMPT,
}
_SEALED = frozenset(("item_reference", "compaction", "compaction_summary", "context_compaction"))


def find_chat_pass_reason(body: Mapping[str, Any]) -> Reason:
    """Return why a chat request passes through as it is; empty if it may be compressed."""
    return NO_REASON if isinstance(body.get("messages"), list) else because.NO_MESSAGES()


def find_responses_pass_reason(body: Mapping[str, Any]) -> Reason:
    """Return why a Responses request passes through as it is: the provider holds part of it, or compacts it itself."""
    for name, kind in _HELD.items():
        if body.get(name):
            return kind()
    if asks_for_compaction(body.get("context_management")):
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


def asks_for_compaction(management: object) -> bool:
    """Tell whether the provider is asked to replace the conversation by a summary of its own."""
    return isinstance(management, list) and any(
        isinstance(one, dict) and str(one.get("type", "")).startswith("compact") for one in management
    )


def read_chat_payload(payload: Mapping[str, Any], answered: Answered) -> None:
    """Read a chat answer, whole or one chunk of it."""
    answered.add_usage(payload.get("usage"))
    choices = payload.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        reason = choice.get("finish_reason") if isinstance(choice, dict) else None
        if isinstance(reason, str):
            answered.finish_reason = reason
    _read_error(payload, answered)


def read_responses_payload(payload: Mapping[str, Any], answered: Answered) -> None:
    """Read a Responses answer, whole or one event of it."""
    response = payload.get("response") if "response" in payload else payload
    if isinstance(response, dict):
        answered.add_usage(response.get("usage"))
        details = response.get("incomplete_details")
        if isinstance(details, dict) and details.get("reason") == "max_output_tokens":
            answered.finish_reason = "length"
        _read_error(response, answered)
    if payload.get("type") == "error":
        answered.error_text = f"{payload.get('code')} {payload.get('message')}"


def _read_error(payload: Mapping[str, Any], answered: Answered) -> None:
    error = payload.get("error")
    if isinstance(error, dict):
        answered.error_text = f"{error.get('code')} {error.get('message')}"
