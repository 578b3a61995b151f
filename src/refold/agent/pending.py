"""Calls that a session ends with and that have no result: what a process that was killed leaves behind.

A provider refuses such a session. Each gets a result that says what is known, before anything else is appended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refold.agent.wire import ChatModel, ToolCall, ToolResult
from refold.ledger.codec import load_json
from refold.manager import ContextCompressionManager

TAIL_MAX = 200
LOST = "[interrupted: the program ended before this call had a result; it may have run. Check before calling it again.]"


def close_pending(manager: ContextCompressionManager, session_id: str, model: ChatModel) -> int:
    """Append a result for every call at a session's end that has none; return how many there were."""
    path = manager.ledger.read_path(session_id)
    tail = [load_json(one.raw) for one in manager.ledger.read_messages(session_id, path.ids[-TAIL_MAX:]) if one.raw]
    calls = find_pending(tail)
    if calls:
        results = [ToolResult(call, LOST, True) for call in calls]
        manager.append(session_id, model.write_results(results), format=model.wire)
    return len(calls)


def find_pending(messages: Sequence[Any]) -> list[ToolCall]:
    """Return the calls of the last step that no result follows; none if anything else follows them."""
    answered: set[str] = set()
    for message in reversed(messages):
        if not isinstance(message, dict):
            return []
        if message.get("role") == "assistant":
            return [call for call in _read_calls(message) if call.id not in answered]
        found = _read_answered(message)
        if not found:
            return []
        answered |= found
    return []


def _read_calls(message: dict[str, Any]) -> list[ToolCall]:
    calls = [
        ToolCall(str(one.get("id", "")), str((one.get("function") or {}).get("name", "")), "")
        for one in message.get("tool_calls") or ()
    ]
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    return calls + [
        ToolCall(str(one.get("id", "")), str(one.get("name", "")), "")
        for one in blocks
        if isinstance(one, dict) and one.get("type") == "tool_use"
    ]


def _read_answered(message: dict[str, Any]) -> set[str]:
    if message.get("role") == "tool":
        return {str(message.get("tool_call_id", ""))}
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    return {
        str(one.get("tool_use_id", "")) for one in blocks if isinstance(one, dict) and one.get("type") == "tool_result"
    }
