"""Units hold together in every format: no cut leaves a call, a result or reasoning without its partner."""

from __future__ import annotations

from typing import Any

import pytest

from refold.conversation.turn import find_units, newest_step
from refold.formats import make_format, parse_messages
from tests.formats.test_faults import COMPUTER, MCP, MESSAGE, RESULT, SERVER, TEXT, USE, USER
from tests.rigs.formats import chat_step, claude_step, responses_step

REASONING, CALL, OUTPUT = responses_step("1")


@pytest.mark.parametrize(
    ("name", "raws", "stops"),
    [
        ("openai-chat", [USER, *chat_step("1", "2"), *chat_step("1"), USER], [1, 4, 6, 7]),
        ("anthropic", [USER, *claude_step("1", "2"), *claude_step("1"), USER], [1, 3, 5, 6]),
        # A tool that the provider ran has its result in the same message; the client's call still has its own.
        ("anthropic", [USER, {"role": "assistant", "content": [TEXT, *SERVER, *MCP]}, USER], [1, 2, 3]),
        (
            "anthropic",
            [USER, {"role": "assistant", "content": [*SERVER, *MCP, USE]}, {"role": "user", "content": [RESULT]}, USER],
            [1, 3, 4],
        ),
        # A turn that the provider paused continues in the next message.
        (
            "anthropic",
            [
                USER,
                {"role": "assistant", "content": SERVER[:1]},
                {"role": "assistant", "content": [SERVER[1], TEXT]},
                USER,
            ],
            [1, 3, 4],
        ),
        # Reasoning goes with everything of its step.
        ("openai-responses", [USER, REASONING, CALL, OUTPUT, USER], [1, 4, 5]),
        ("openai-responses", [USER, REASONING, MESSAGE, CALL, OUTPUT, MESSAGE, USER], [1, 5, 6, 7]),
        (
            "openai-responses",
            [USER, REASONING, MESSAGE, USER, REASONING, {"type": "web_search_call", "id": "w"}, MESSAGE],
            [1, 3, 4, 7],
        ),
        ("openai-responses", [USER, *responses_step("1", "2"), *responses_step("1")], [1, 6, 9]),
        ("openai-responses", [USER, CALL, MESSAGE, OUTPUT, USER], [1, 4, 5]),
        ("openai-responses", [USER, CALL, {"type": "web_search_call", "id": "w"}, *COMPUTER, OUTPUT, USER], [1, 6, 7]),
        ("openai-responses", [USER, *COMPUTER, *COMPUTER, USER], [1, 3, 5, 6]),
        ("openai-responses", [USER, MESSAGE, CALL, OUTPUT], [1, 2, 4]),
    ],
)
def test_a_unit_is_a_step_with_everything_it_needs(name: str, raws: list[Any], stops: list[int]) -> None:
    form = make_format(name)
    messages = parse_messages(form, raws)
    units = find_units(messages)
    assert [unit.stop for unit in units] == stops
    for stop in stops:
        halves = form.find_faults(messages[:stop]) + form.find_faults(messages[stop:])
        assert [fault for fault in halves if "first message" not in fault] == []
    spoken = [
        unit
        for unit in units
        if any(message.role in ("assistant", "tool") for message in messages[unit.start : unit.stop])
    ]
    assert newest_step(messages) == spoken[-1]
