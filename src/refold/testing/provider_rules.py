"""What providers refuse: a strict check of a request's messages, written apart from the engine.

It reads the raw JSON only and shares no code with ``refold.formats``, so that one of the two can find the other
wrong. Used by the scripted provider, by replay, and by your own tests of an agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def find_violations(wire: str, messages: Sequence[Any]) -> list[str]:
    """Return every reason for which the provider would answer 400; ``wire`` is a format's name."""
    checkers = {"openai-chat": _check_chat, "anthropic": _check_anthropic, "openai-responses": _check_responses}
    if not messages:
        return ["there must be at least one message"]
    return checkers[wire](messages)


def _check_chat(messages: Sequence[Any]) -> list[str]:
    wrong: list[str] = []
    at = 0
    while at < len(messages):
        message = messages[at]
        role = message.get("role")
        if role == "tool":
            wrong.append(f"messages[{at}]: a tool message must follow an assistant message with tool_calls")
        elif role in ("user", "system", "developer") and not _has_content(message.get("content")):
            wrong.append(f"messages[{at}]: {role} message without content")
        elif role == "assistant":
            calls = message.get("tool_calls") or []
            if not calls and not message.get("function_call") and not _has_content(message.get("content")):
                wrong.append(f"messages[{at}]: assistant message with neither content nor tool_calls")
            wrong += [
                f"messages[{at}]: arguments of a call are no string"
                for call in calls
                if call.get("type", "function") == "function" and not isinstance(call["function"].get("arguments"), str)
            ]
            if calls:
                at = _match_chat_results(messages, at, wrong)
                continue
        at += 1
    return wrong


def _match_chat_results(messages: Sequence[Any], at: int, wrong: list[str]) -> int:
    waiting = [call["id"] for call in messages[at]["tool_calls"]]
    follow = at + 1
    while follow < len(messages) and messages[follow].get("role") == "tool":
        call_id = messages[follow].get("tool_call_id")
        if call_id in waiting:
            waiting.remove(call_id)
        else:
            wrong.append(f"messages[{follow}]: no call waits for tool_call_id {call_id!r}")
        follow += 1
    if waiting and follow < len(messages):
        wrong.append(f"messages[{at}]: tool_calls without results: {waiting}")
    return follow


def _has_content(content: Any) -> bool:
    if isinstance(content, str):
        return True  # providers take an empty string
    return isinstance(content, Sequence) and len(content) > 0


def _check_anthropic(messages: Sequence[Any]) -> list[str]:
    wrong: list[str] = []
    turns = _merge_turns(messages)
    if turns[0][0] != "user":
        wrong.append("messages: first message must use the user role")
    waiting: list[str] = []
    for number, (role, blocks) in enumerate(turns):
        is_last = number == len(turns) - 1
        if not blocks and not (is_last and role == "assistant"):
            wrong.append(f"turn {number}: content must not be empty")
        wrong += [f"turn {number}: text blocks must not be empty" for b in blocks if _is_empty_text(b)]
        results = [b["tool_use_id"] for b in blocks if b.get("type") == "tool_result"]
        if role == "user":
            wrong += _match_anthropic_results(number, blocks, results, waiting)
        elif results:
            wrong.append(f"turn {number}: tool_result in an assistant message")
        waiting = [b["id"] for b in blocks if b.get("type") == "tool_use"] if role == "assistant" else []
        if waiting and not is_last and turns[number + 1][0] != "user":
            wrong.append(f"turn {number}: tool_use without tool_result after it")
        if role == "assistant":
            wrong += _check_thinking(number, blocks)
    return wrong


def _match_anthropic_results(number: int, blocks: list[Any], results: list[str], waiting: list[str]) -> list[str]:
    wrong: list[str] = []
    missing = list(waiting)
    for call_id in results:
        if call_id in missing:
            missing.remove(call_id)
        else:
            wrong.append(f"turn {number}: unexpected tool_result {call_id!r}")
    if missing:
        wrong.append(f"turn {number}: tool_use without tool_result: {missing}")
    kinds = [b.get("type") == "tool_result" for b in blocks]
    if any(kinds) and not all(kinds[: sum(kinds)]):
        wrong.append(f"turn {number}: tool_result blocks must come first")
    return wrong


def _check_thinking(number: int, blocks: list[Any]) -> list[str]:
    return [
        f"turn {number}: thinking without its signature"
        for b in blocks
        if b.get("type") == "thinking" and not b.get("signature")
    ]


def _is_empty_text(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "text" and not str(block.get("text", "")).strip("")


def _merge_turns(messages: Sequence[Any]) -> list[tuple[str, list[Any]]]:
    """Join neighbours of one role, as the provider does before it looks."""
    turns: list[tuple[str, list[Any]]] = []
    for message in messages:
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or [])
        if turns and turns[-1][0] == message["role"]:
            turns[-1][1].extend(blocks)
        else:
            turns.append((message["role"], blocks))
    return turns


def _check_responses(items: Sequence[Any]) -> list[str]:
    wrong: list[str] = []
    waiting: list[str] = []
    for at, item in enumerate(items):
        kind = item.get("type", "message")
        if kind in ("function_call", "custom_tool_call"):
            waiting.append(item["call_id"])
        elif kind in ("function_call_output", "custom_tool_call_output"):
            if item["call_id"] in waiting:
                waiting.remove(item["call_id"])
            else:
                wrong.append(f"input[{at}]: no call waits for output {item['call_id']!r}")
        elif kind == "reasoning":
            follow = items[at + 1].get("type", "message") if at + 1 < len(items) else ""
            by_model = follow and (follow != "message" or items[at + 1].get("role") == "assistant")
            if not by_model or follow.endswith("_output"):
                wrong.append(f"input[{at}]: reasoning without the item that follows it")
        elif kind == "message":
            if waiting:
                wrong.append(f"input[{at}]: a message before the outputs of calls {waiting}")
                waiting = []
            if item.get("content") is None or item.get("content") == []:
                wrong.append(f"input[{at}]: message without content")
    return wrong
