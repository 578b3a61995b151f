"""Real sessions: read without a fault in every format, and the engine's judgement agrees with an independent one."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from refold.conversation.turn import find_units
from refold.formats import parse_messages, read_conversation, write_conversation
from refold.testing.provider_rules import find_violations
from tests.rigs.convert import to_anthropic, to_responses

Convert = Callable[[list[Any], Any], Any]
SESSIONS_MAX = 40

WIRES: dict[str, tuple[str, Convert]] = {
    "openai-chat": ("openai-chat", lambda messages, tools: {"messages": messages, "tools": tools}),
    "anthropic": ("anthropic", to_anthropic),
    "openai-responses": ("openai-responses", to_responses),
    "reasoning": ("openai-responses", lambda messages, tools: to_responses(messages, tools, reasoning=True)),
}


def sessions(folder: Path) -> Iterator[Any]:
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in islice(lines, SESSIONS_MAX)]
        yield from (row for row in rows if "messages" in row)


@pytest.mark.parametrize("wire", WIRES)
def test_every_recorded_session_is_read_without_a_fault_in_every_format(wire: str, shared_data: Path) -> None:
    name, convert = WIRES[wire]
    count = 0
    for session in sessions(shared_data):
        body = convert(session["messages"], session.get("tools"))
        conversation = read_conversation(body, name)
        messages = parse_messages(conversation.format, conversation.messages)
        assert all(message.raw is raw for message, raw in zip(messages, conversation.messages, strict=True))
        assert conversation.format.find_faults(messages) == []
        assert find_violations(name, conversation.messages) == []
        assert write_conversation(conversation, conversation.messages) == body
        units = find_units(messages)
        assert [units[0].start, *(unit.stop for unit in units)][-1] == len(messages)
        for unit in units[:: max(1, len(units) // 8)]:
            rest = conversation.format.find_faults(messages[unit.stop :])
            assert [fault for fault in rest if "first message" not in fault] == []
        count += 1
    assert count > 60


def test_recorded_sessions_are_detected_by_their_own_shape(shared_data: Path) -> None:
    for session in sessions(shared_data):
        if not any(message.get("tool_calls") for message in session["messages"]):
            continue
        for wire, (name, convert) in WIRES.items():
            assert read_conversation(convert(session["messages"], session.get("tools"))).format.name == name, wire
