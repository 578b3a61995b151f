"""Session files of Codex (``rollout-*.jsonl``), read as Responses items.

A row wraps an item (``response_item``) or bookkeeping (``session_meta``, ``turn_context``, ``event_msg``, ...); older
files hold the items bare. A fork's file names its parent's session after its own: the first name counts. Turns that
were taken back (``thread_rolled_back``) are left out, its own compactions too: what they replaced is in the file.
Outputs without a call and calls without an output are left out: no provider accepts them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from refold.readers.chat import count_used
from refold.readers.session import (
    Broken,
    Compaction,
    FileRow,
    RecordedUsage,
    Session,
    read_time,
    read_type,
    settle_times,
)

KIND = "codex"
_WRAPPERS = frozenset(("session_meta", "response_item", "event_msg", "turn_context", "compacted"))
_CALLS = frozenset(("function_call", "custom_tool_call", "local_shell_call"))
_OUTPUTS = frozenset(("function_call_output", "custom_tool_call_output", "local_shell_call_output"))
_USED = ("input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens")
_ITEMS = _CALLS | _OUTPUTS | {"message", "reasoning", "web_search_call"}
# Text that the program writes in the user's name does not start a turn.
_INJECTED = ("<", "# AGENTS.md instructions")


def knows(row: dict[str, Any]) -> bool:
    """Return whether a row is one of Codex's: wrapped, or one that only bare files have."""
    if read_type(row) in _WRAPPERS and isinstance(row.get("payload"), dict):
        return True
    return row.get("record_type") == "state" or (read_type(row) in _CALLS | _OUTPUTS and "call_id" in row)


def read_rows(rows: Sequence[FileRow], name: str) -> tuple[list[Session], list[Broken]]:
    reading = _Reading()
    broken = []
    for row in rows:
        why = reading.add(row.value)
        if why:
            broken.append(Broken(row.line, why))
    session = reading.finish(name)
    return ([session] if session.messages else []), broken


class _Reading:
    """The part of a file that was read so far."""

    def __init__(self) -> None:
        self._id = ""
        self._system: str | None = None
        self._model = ""
        self._items: list[dict[str, Any]] = []
        self._times: list[float | None] = []
        self._compactions: list[Compaction] = []
        self._reported: dict[int, RecordedUsage] = {}

    def add(self, value: dict[str, Any]) -> str:
        """Add one row; return what is wrong with it, if anything."""
        kind, payload = read_type(value), value.get("payload")
        if kind == "response_item" or (kind in _ITEMS and payload is None):
            return self._add_item(payload if kind == "response_item" else value, read_time(value.get("timestamp")))
        if not isinstance(payload, dict):
            return ""
        if kind == "session_meta" and not self._id:
            self._id = str(payload.get("id") or "")
            given = payload.get("instructions") or payload.get("base_instructions")
            text = given.get("text") if isinstance(given, dict) else given
            self._system = text if isinstance(text, str) and text else None
        elif kind == "turn_context":
            self._model = str(payload.get("model") or self._model)
        elif kind == "compacted":
            self._compactions.append(Compaction(len(self._items), str(payload.get("message") or "")))
        elif kind == "event_msg" and payload.get("type") == "token_count":
            self._note_used(payload.get("info"))
        elif kind == "event_msg" and payload.get("type") == "thread_rolled_back":
            self._take_back(payload.get("num_turns"))
        return ""

    def _add_item(self, item: object, time: float | None) -> str:
        why = _find_fault(item)
        if not why and isinstance(item, dict) and read_type(item, "message") in _ITEMS:
            kept = {key: inner for key, inner in item.items() if key != "timestamp"}
            if not kept.get("call_id") and kept.get("type") == "local_shell_call":
                kept["call_id"] = kept["id"]
            self._items.append(kept)
            self._times.append(time)
        return why

    def _note_used(self, info: object) -> None:
        """Note the usage of the newest answer; its input includes what was read from the cache."""
        used = count_used(info.get("last_token_usage") if isinstance(info, dict) else None, _USED)
        last = next((at for at in range(len(self._items) - 1, -1, -1) if _is_by_model(self._items[at])), None)
        if used is not None and last is not None:
            self._reported[last] = replace(used, input=max(0, used.input - used.cached))

    def _take_back(self, turns: object) -> None:
        starts = [at for at, item in enumerate(self._items) if _opens_turn(item)]
        if isinstance(turns, int) and turns > 0 and starts:
            start = starts[-turns] if turns <= len(starts) else starts[0]
            del self._items[start:], self._times[start:]
            self._reported = {at: used for at, used in self._reported.items() if at < start}

    def finish(self, name: str) -> Session:
        """Return the session without unpaired calls and outputs."""
        chosen = sorted(_find_paired(self._items))
        return Session(
            self._id or name,
            tuple(self._items[at] for at in chosen),
            "openai-responses",
            self._system,
            times=settle_times([self._times[at] for at in chosen]),
            model=self._model,
            client=KIND,
            compactions=tuple(one.moved(bisect_left(chosen, one.at)) for one in self._compactions),
            reported=tuple(
                self._reported[at].moved(number) for number, at in enumerate(chosen) if at in self._reported
            ),
        )


def _opens_turn(item: dict[str, Any]) -> bool:
    if item.get("type", "message") != "message" or item.get("role") != "user":
        return False
    content = item.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return not all(isinstance(text, str) and text.lstrip().startswith(_INJECTED) for text in texts)


def _find_fault(item: object) -> str:
    if not isinstance(item, dict):
        return "an item that is not an object"
    kind = read_type(item, "message")
    name = item.get("call_id") or (item.get("id") if kind == "local_shell_call" else None)
    if kind in _CALLS | _OUTPUTS and not isinstance(name, str):
        return f"a {kind} without call_id"
    if kind == "message" and not isinstance(item.get("content"), str | list):
        return "a message without content"
    return ""


def _find_paired(items: Sequence[dict[str, Any]]) -> set[int]:
    """Return which items stay: all but unpaired calls and outputs, and reasoning before such a call."""
    waiting: dict[str, list[int]] = {}
    lonely: set[int] = set()
    for at, item in enumerate(items):
        kind = read_type(item, "message")
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
    kind = read_type(item, "message")
    return kind in _CALLS | {"reasoning", "web_search_call"} or (kind == "message" and item.get("role") == "assistant")
