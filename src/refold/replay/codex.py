"""Session files of Codex (``rollout-*.jsonl``), read as Responses items.

A row wraps an item (``response_item``) or bookkeeping (``session_meta``, ``turn_context``, ``event_msg``, ...); older
files hold the items bare. Outputs of no call and calls without an output are left out: no provider takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refold.replay.rows import Broken, Row, read_time, settle_times
from refold.replay.session import Session

KIND = "codex"
_WRAPPERS = frozenset(("session_meta", "response_item", "event_msg", "turn_context", "compacted"))
_CALLS = frozenset(("function_call", "custom_tool_call", "local_shell_call"))
_OUTPUTS = frozenset(("function_call_output", "custom_tool_call_output", "local_shell_call_output"))
_ITEMS = _CALLS | _OUTPUTS | {"message", "reasoning", "web_search_call"}


def knows(row: dict[str, Any]) -> bool:
    """Tell whether a row is one of Codex's: wrapped, or one that only bare files have."""
    if row.get("type") in _WRAPPERS and isinstance(row.get("payload"), dict):
        return True
    return row.get("record_type") == "state" or (row.get("type") in _CALLS | _OUTPUTS and "call_id" in row)


def read_rows(rows: Sequence[Row], name: str) -> tuple[list[Session], list[Broken]]:
    """Read the one session of a file."""
    session_id, system, model = name, None, ""
    items: list[dict[str, Any]] = []
    times: list[float | None] = []
    broken: list[Broken] = []
    for row in rows:
        value = row.value
        kind, payload = value.get("type"), value.get("payload")
        if kind == "session_meta" and isinstance(payload, dict):
            session_id = str(payload.get("id") or session_id)
            system = _read_instructions(payload.get("instructions") or payload.get("base_instructions")) or system
        elif kind == "turn_context" and isinstance(payload, dict):
            model = str(payload.get("model") or model)
        elif kind == "response_item" or (kind in _ITEMS and payload is None):
            item = payload if kind == "response_item" else value
            why = _find_fault(item)
            if why:
                broken.append(Broken(row.line, why))
            elif isinstance(item, dict) and item.get("type", "message") in _ITEMS:
                items.append({key: inner for key, inner in item.items() if key != "timestamp"})
                times.append(read_time(value.get("timestamp")))
    kept = _find_paired(items)
    chosen = [at for at in range(len(items)) if at in kept]
    session = Session(
        session_id,
        tuple(items[at] for at in chosen),
        "openai-responses",
        system,
        times=settle_times([times[at] for at in chosen]),
        model=model,
    )
    return ([session] if session.messages else []), broken


def _read_instructions(value: object) -> str | None:
    if isinstance(value, dict):
        value = value.get("text")
    return value if isinstance(value, str) and value else None


def _find_fault(item: object) -> str:
    if not isinstance(item, dict):
        return "an item that is no object"
    kind = item.get("type", "message")
    if kind in _CALLS | _OUTPUTS and not isinstance(item.get("call_id"), str):
        return f"a {kind} without call_id"
    if kind == "message" and not isinstance(item.get("content"), str | list):
        return "a message without content"
    return ""


def _find_paired(items: Sequence[dict[str, Any]]) -> set[int]:
    """Return which items stay: all but calls and outputs that have no other half, and reasoning before such a call."""
    waiting: dict[str, list[int]] = {}
    lonely: set[int] = set()
    for at, item in enumerate(items):
        kind = item.get("type", "message")
        if kind in _CALLS:
            waiting.setdefault(item["call_id"], []).append(at)
            lonely.add(at)
        elif kind in _OUTPUTS:
            calls = waiting.get(item["call_id"])
            if calls:
                lonely.discard(calls.pop(0))
            else:
                lonely.add(at)
    kept = set(range(len(items))) - lonely
    for at in sorted(kept, reverse=True):
        follows = next((one for one in range(at + 1, len(items)) if one in kept), None)
        if items[at].get("type") == "reasoning" and (follows is None or not _is_by_model(items[follows])):
            kept.discard(at)
    return kept


def _is_by_model(item: dict[str, Any]) -> bool:
    kind = item.get("type", "message")
    return kind in _CALLS | {"reasoning", "web_search_call"} or (kind == "message" and item.get("role") == "assistant")
