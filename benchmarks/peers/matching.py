"""Finding the original messages in what a peer sends: by content, in order, because peers rebuild their objects."""

from __future__ import annotations

import json
from typing import Any


def find_content(message: dict[str, Any]) -> str:
    """Return what makes two messages the same: role, text, calls with parsed arguments, call id."""
    calls = [
        (call.get("id"), call["function"]["name"], _load(call["function"].get("arguments")))
        for call in message.get("tool_calls") or ()
    ]
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return json.dumps([message["role"], content or "", calls, message.get("tool_call_id")], sort_keys=True)


def _load(arguments: object) -> object:
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments


def match_originals(rendered: list[dict[str, Any]], originals: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages of a request, each original as the object that came in."""
    contents = [find_content(one) for one in originals]
    sent: list[dict[str, Any]] = []
    start = 0
    for message in rendered:
        try:
            at = contents.index(find_content(message), start)
        except ValueError:
            sent.append(message)
        else:
            sent.append(originals[at])
            start = at + 1
    return sent
