"""Conversations in the ShareGPT shape: ``{"conversations": [{"from": "human", "value": "…"}, …]}``.

The speakers are named as in the datasets that use it. A ``function_call`` holds the name and the arguments as JSON, an
``observation`` its result; they become a tool call and its result. The result is OpenAI chat.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from refold.readers.session import Broken, FileRow, Session

KIND = "sharegpt"
_ROLES = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "bing", "bard", "model"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("observation", "tool", "function", "function_response", "tool_response"), "tool"),
    **dict.fromkeys(("function_call", "tool_call"), "call"),
}


def knows(row: dict[str, Any]) -> bool:
    turns = row.get("conversations") or row.get("conversation")
    return isinstance(turns, list) and bool(turns) and isinstance(turns[0], dict) and "from" in turns[0]


def read_rows(rows: Sequence[FileRow], name: str) -> tuple[list[Session], list[Broken]]:
    sessions: list[Session] = []
    broken: list[Broken] = []
    for row in rows:
        if not knows(row.value):
            broken.append(Broken(row.line, "not a conversation in the ShareGPT shape"))
            continue
        messages, why = _read_turns(row.value)
        if why:
            broken.append(Broken(row.line, why))
        elif messages:
            named = str(row.value.get("id") or f"{name}:{row.line}")
            sessions.append(Session(named, tuple(messages), tools=_read_tools(row.value.get("tools"))))
    return sessions, broken


def _read_turns(row: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """Return the messages of a row, or what is wrong with it."""
    messages: list[dict[str, Any]] = []
    if isinstance(row.get("system"), str) and row["system"]:
        messages.append({"role": "system", "content": row["system"]})
    for at, turn in enumerate(row.get("conversations") or row["conversation"]):
        speaker = turn.get("from") if isinstance(turn, dict) else None
        text = turn.get("value", turn.get("content")) if isinstance(turn, dict) else None
        role = _ROLES.get(str(speaker).lower())
        if role is None or not isinstance(text, str):
            return ([], f"turn {at} is by {str(speaker)[:20]!r} with a {type(text).__name__}: not a message")
        waits = bool(messages) and bool(messages[-1].get("tool_calls"))
        if role == "call":
            messages.append(_make_call(text, at))
        elif role == "tool" and waits:
            call_id = messages[-1]["tool_calls"][0]["id"]
            messages.append({"role": "tool", "tool_call_id": call_id, "content": text})
        elif role == "tool":
            # Many datasets write calls into the assistant's text; their results are then plain text.
            messages.append({"role": "user", "content": text or " "})
        elif text.strip():
            messages.append({"role": role, "content": text})
    return messages, ""


def _make_call(text: str, at: int) -> dict[str, Any]:
    try:
        call = json.loads(text)
    except ValueError:
        call = None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return {"role": "assistant", "content": text or " "}
    arguments = call.get("arguments", {})
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    function = {"name": call["name"], "arguments": written}
    calls = [{"id": f"call_{at}", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _read_tools(tools: object) -> object:
    if isinstance(tools, str):
        try:
            tools = json.loads(tools)
        except ValueError:
            return None
    return tools if isinstance(tools, list) and tools else None
