"""Anthropic's interface: when a request must not be touched, and where answers say what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from refold.conversation import because
from refold.conversation.reason import NO_REASON, Reason
from refold.server.answered import Answered


def find_pass_reason(body: Mapping[str, Any]) -> Reason:
    """Return why a request passes through as it is: the provider compacts the conversation itself."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return because.NO_MESSAGES()
    if asks_for_compaction(body.get("context_management")):
        return because.PROVIDER_COMPACTION()
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        for block in content if isinstance(content, list) else ():
            kind = block.get("type") if isinstance(block, dict) else None
            if isinstance(kind, str) and "compaction" in kind:
                return because.PROVIDER_COMPACTION()
    return NO_REASON


def asks_for_compaction(management: object) -> bool:
    """Tell whether the provider is asked to replace the conversation by a summary of its own.

    Every other edit (clearing old thinking or old tool results) is applied by the provider to whatever it receives: it
    does the same to a compressed request, so it is no reason to leave the request alone.
    """
    edits = management.get("edits") if isinstance(management, dict) else None
    return any(
        isinstance(edit, dict) and str(edit.get("type", "")).startswith("compact")
        for edit in (edits if isinstance(edits, list) else ())
    )


def read_payload(payload: Mapping[str, Any], answered: Answered) -> None:
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
