"""Faults that a provider would reject are found, in words that stay the same; valid requests have none."""

from __future__ import annotations

from typing import Any

import pytest

from refold.formats import make_format, parse_messages
from tests.rigs.formats import chat_call, chat_step, claude_step, responses_step

USER = {"role": "user", "content": "hi"}
REPLY = {"role": "assistant", "content": "ok"}
SERVER = [
    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
    {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
]
MCP = [
    {"type": "mcp_tool_use", "id": "m1", "name": "f", "server_name": "s", "input": {}},
    {"type": "mcp_tool_result", "tool_use_id": "m1", "content": "x"},
]
USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "x"}
TEXT = {"type": "text", "text": "words"}


def faults(name: str, raws: list[Any]) -> list[str]:
    form = make_format(name)
    return form.find_faults(parse_messages(form, raws))


CHAT = [
    ([], []),
    ([USER, REPLY, USER], []),
    ([REPLY], []),
    ([USER, USER, {"role": "system", "content": "x"}, USER], []),
    ([USER, *chat_step("1", "2"), *chat_step("1"), USER], []),
    ([USER, chat_step("1")[0]], []),
    ([*chat_step("1"), chat_step("1", "2")[0]], []),
    ([chat_step("1")[0], USER], ["unanswered call 1"]),
    (chat_step("1", "2")[:2], ["unanswered call 2"]),
    ([*chat_step("1", "2")[:2], USER, chat_step("2")[1]], ["unanswered call 2", "orphan result 2"]),
    ([USER, chat_step("7")[1]], ["orphan result 7"]),
    ([*chat_step("1"), chat_step("1")[1]], ["second result 1"]),
    ([chat_step("1")[0], REPLY, chat_step("1")[1]], ["unanswered call 1", "orphan result 1"]),
    (chat_step("1", "1"), ["call id twice in one step 1", "second result 1"]),
    ([USER, {"role": "assistant", "content": None}], ["empty assistant message"]),
    ([{"role": "user", "content": "x", "tool_calls": [chat_call("1")]}], ["call in user message 1"]),
    ([{"role": "tool", "content": "x"}], ["orphan result "]),
]
ANTHROPIC = [
    ([], []),
    ([USER, REPLY], []),
    ([USER, *claude_step("1", "2"), *claude_step("1"), USER], []),
    ([USER, claude_step("1")[0]], []),
    ([USER, {"role": "assistant", "content": [TEXT, *SERVER, TEXT]}, USER], []),
    ([USER, {"role": "assistant", "content": [*MCP, TEXT]}, USER], []),
    ([USER, {"role": "assistant", "content": [*SERVER, *MCP, USE]}, {"role": "user", "content": [RESULT, TEXT]}], []),
    (
        [USER, {"role": "assistant", "content": SERVER[:1]}, {"role": "assistant", "content": [SERVER[1], TEXT]}, USER],
        [],
    ),
    ([USER, {"role": "assistant", "content": ""}], []),
    ([USER, {"role": "system", "content": "mode"}, USER], []),
    ([REPLY, USER], ["first message is from assistant"]),
    ([{"role": "system", "content": "x"}, USER], ["first message is from system"]),
    ([USER, {"role": "assistant", "content": SERVER[:1]}, USER], ["block without its partner s1"]),
    ([USER, {"role": "assistant", "content": SERVER[1:]}, USER], ["block without its partner s1"]),
    ([USER, {"role": "assistant", "content": MCP[1:]}, USER], ["orphan result m1"]),
    ([USER, claude_step("1")[0], USER], ["unanswered call 1"]),
    ([USER, claude_step("9")[1]], ["orphan result 9"]),
    ([{"role": "user", "content": ""}], ["empty user message"]),
    ([USER, {"role": "assistant", "content": []}, USER], ["empty assistant message"]),
    ([{"role": "user", "content": [TEXT, {"type": "text", "text": " "}]}], ["empty text block in user message"]),
    (
        [USER, {"role": "assistant", "content": [USE]}, {"role": "user", "content": [TEXT, RESULT]}],
        ["result not first in its message t1"],
    ),
    ([USER, {"role": "assistant", "content": [USE, RESULT]}], ["result in assistant message t1"]),
    ([{"role": "user", "content": [USE]}], ["call in user message t1"]),
    (
        [USER, {"role": "assistant", "content": claude_step("1")[0]["content"][:1]}, USER],
        ["assistant message ends in thinking"],
    ),
]
MESSAGE = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]}
COMPUTER = [
    {"type": "computer_call", "call_id": "cc", "action": {}},
    {"type": "computer_call_output", "call_id": "cc", "output": {}},
]
RESPONSES = [
    ([], []),
    ([USER, MESSAGE], []),
    ([USER, *responses_step("1", "2"), *responses_step("1"), MESSAGE, USER], []),
    ([USER, *responses_step("1")[:2]], []),
    ([USER, *COMPUTER, USER], []),
    ([USER, {"type": "web_search_call", "id": "ws"}, MESSAGE], []),
    ([USER, responses_step("1")[0], MESSAGE], []),
    (
        [
            USER,
            responses_step("1")[1],
            responses_step("2")[0],
            responses_step("2")[1],
            responses_step("1")[2],
            responses_step("2")[2],
        ],
        [],
    ),
    ([USER, responses_step("1")[0], USER], ["reasoning without what follows it rs_1"]),
    ([USER, responses_step("1")[0]], ["reasoning without what follows it rs_1"]),
    ([USER, {"type": "reasoning", "summary": []}, USER], ["reasoning without what follows it"]),
    ([USER, *responses_step("1")[:2], USER], ["unanswered call 1"]),
    ([USER, responses_step("1")[2]], ["orphan result 1"]),
    ([USER, COMPUTER[0], USER], ["block without its partner cc"]),
    ([USER, {"role": "assistant", "content": []}], ["empty assistant message"]),
]
ALL = [
    (name, *case)
    for name, cases in (("openai-chat", CHAT), ("anthropic", ANTHROPIC), ("openai-responses", RESPONSES))
    for case in cases
]


@pytest.mark.parametrize(("name", "raws", "expected"), ALL)
def test_the_faults_of_a_conversation_are_those_its_provider_sees(
    name: str, raws: list[Any], expected: list[str]
) -> None:
    assert faults(name, raws) == expected


def test_a_summary_in_the_place_of_whole_units_makes_no_new_fault() -> None:
    for name, raws in (
        ("openai-chat", chat_step("1")),
        ("anthropic", [USER, *claude_step("1")]),
        ("openai-responses", responses_step("1")),
    ):
        form = make_format(name)
        summary = form.write_summary("earlier", form.allow_role("assistant", None, "assistant"))
        assert faults(name, [summary, *raws, USER]) == []
