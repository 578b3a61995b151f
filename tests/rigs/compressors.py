"""Compressors for tests: one that changes nothing, and faults as real ones have them, each planted alone."""

import copy
import json
from typing import Any

Messages = list[dict[str, Any]]
KEEP = 6


def identity(messages: Messages, _tokens: int) -> Messages:
    """Return everything."""
    return messages


def _summarise(messages: Messages, text: str) -> Messages:
    """Replace all but the system prompt, the task and the newest steps by one text."""
    start = len(messages) - KEEP
    while start > 2 and messages[start]["role"] == "tool":
        start -= 1
    return [*messages[:2], {"role": "user", "content": text}, *messages[start:]] if start > 2 else messages


def _write_all(messages: Messages) -> str:
    """Write every old message as text, so that nothing is lost but what a fault removes."""
    return "\n".join(
        f"{one['role']}: {one.get('content') or ''} {json.dumps(one.get('tool_calls') or '', ensure_ascii=False)}"
        for one in messages[2:-KEEP]
    )


def transcript(messages: Messages, _tokens: int) -> Messages:
    """Keep everything as a text: nothing is lost, although no message is as it was."""
    return _summarise(messages, _write_all(messages))


def forgets_the_task(messages: Messages, _tokens: int) -> Messages:
    """Keep the newest messages alone."""
    start = len(messages) - KEEP
    while start > 1 and messages[start]["role"] == "tool":
        start -= 1
    return [messages[0], *messages[max(1, start) :]]


def changes_an_amount(messages: Messages, _tokens: int) -> Messages:
    """Write what was paid with another amount."""
    return _summarise(messages, _write_all(messages).replace("214.50", "241.50"))


def denies(messages: Messages, _tokens: int) -> Messages:
    """Turn a rule into its opposite."""
    return _summarise(messages, _write_all(messages).replace("Never book", "Always book"))


def keeps_the_old_result(messages: Messages, _tokens: int) -> Messages:
    """Leave the newest result of the tests out; the older, failing one stays."""
    return _summarise(messages, _write_all(messages).replace("3 passed in 0.31s", ""))


def breaks_the_protocol(messages: Messages, _tokens: int) -> Messages:
    """Drop the calls and leave their results."""
    bare = copy.deepcopy(messages)
    for one in bare:
        one.pop("tool_calls", None)
    return bare


def returns_nothing_of_use(_messages: Messages, _tokens: int) -> str:
    """Return a text where messages are expected."""
    return "summary"
