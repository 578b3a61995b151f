"""Which format a conversation is in, and how a request is read and written back."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from refold.errors import FormatError
from refold.formats import detect, make_format, parse_messages, read_conversation, write_conversation
from tests.rigs.formats import IMAGE_CHAT, IMAGE_CLAUDE, chat_step, claude_step, responses_step

PLAIN = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
CLAUDE_TOOLS = [{"name": "run", "input_schema": {"type": "object"}}]
CHAT_TOOLS = [{"type": "function", "function": {"name": "run", "parameters": {}}}]
FLAT_TOOLS = [{"type": "function", "name": "run", "parameters": {}}]


@pytest.mark.parametrize(
    ("messages", "system", "tools", "expected"),
    [
        ([], None, None, "openai-chat"),
        (PLAIN, None, None, "openai-chat"),
        (PLAIN, None, CHAT_TOOLS, "openai-chat"),
        (PLAIN, "rules", None, "anthropic"),
        (PLAIN, [{"type": "text", "text": "rules"}], None, "anthropic"),
        (PLAIN, None, CLAUDE_TOOLS, "anthropic"),
        (PLAIN, None, FLAT_TOOLS, "openai-responses"),
        ([{"role": "system", "content": "rules"}, *PLAIN], None, None, "openai-chat"),
        ([{"role": "system", "content": "rules"}, *PLAIN], "more", None, "openai-chat"),
        (chat_step("1"), None, None, "openai-chat"),
        (chat_step("1"), "rules", None, "openai-chat"),
        ([{"role": "assistant", "tool_calls": None, "content": "a"}], "rules", None, "anthropic"),
        ([{"role": "user", "content": [IMAGE_CHAT]}], None, None, "openai-chat"),
        ([{"role": "user", "content": [IMAGE_CLAUDE]}], None, None, "anthropic"),
        ([*PLAIN, *claude_step("1")], None, None, "anthropic"),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}]}], None, None, "openai-chat"),
        (responses_step("1"), None, None, "openai-responses"),
        ([{"type": "message", "role": "user", "content": "a"}], None, None, "openai-responses"),
        ([{"role": "user", "content": [{"type": "input_text", "text": "a"}]}], None, None, "openai-responses"),
    ],
)
def test_the_format_is_what_the_messages_show(messages: Any, system: Any, tools: Any, expected: str) -> None:
    assert detect(messages, system, tools).name == expected


def test_a_name_settles_the_format() -> None:
    assert [detect(PLAIN, name=name).name for name in ("anthropic", "claude", "responses", "openai")] == [
        "anthropic",
        "anthropic",
        "openai-responses",
        "openai-chat",
    ]


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(FormatError, match="did you mean 'anthropic'"):
        make_format("antropic")


def test_two_formats_in_one_conversation_are_refused_with_both_places() -> None:
    with pytest.raises(
        FormatError, match=r"messages\[0\] has tool_calls .* messages\[2\]\.content\[0\] is of type thinking"
    ):
        detect([*chat_step("1"), *claude_step("2")])


def test_a_bare_list_comes_back_as_a_list() -> None:
    conversation = read_conversation(PLAIN)
    assert conversation.messages == PLAIN
    assert conversation.messages[0] is PLAIN[0]
    assert write_conversation(conversation, conversation.messages[1:]) == PLAIN[1:]


@pytest.mark.parametrize(
    "body",
    [
        {"model": "gpt-4o", "temperature": 0, "messages": PLAIN, "tools": CHAT_TOOLS, "x": {"y": 1}},
        {"stream": True, "system": "rules", "messages": PLAIN, "model": "claude", "max_tokens": 9},
        {"instructions": "rules", "input": responses_step("1"), "model": "gpt-5", "previous_response_id": "resp_1"},
        {"input": "hi", "model": "gpt-5"},
        {"id": "session", "messages": PLAIN, "meta": {}},
    ],
)
def test_a_request_comes_back_as_the_same_request(body: Any) -> None:
    before = copy.deepcopy(body)
    conversation = read_conversation(body)
    written: Any = write_conversation(conversation, conversation.messages)
    assert written == before
    assert list(written) == list(before)
    shorter: Any = write_conversation(conversation, [{"role": "user", "content": "new"}])
    assert shorter == {**before, "messages" if "messages" in before else "input": [{"role": "user", "content": "new"}]}
    assert body == before


def test_fields_beside_the_messages_are_found() -> None:
    chat = read_conversation({"model": "m", "messages": PLAIN, "tools": CHAT_TOOLS, "x": 1})
    assert (chat.format.name, chat.model, chat.tools, chat.system) == ("openai-chat", "m", CHAT_TOOLS, None)
    items = read_conversation({"instructions": "rules", "input": "hi", "previous_response_id": "r"})
    assert (items.format.name, items.system) == ("openai-responses", "rules")
    assert items.messages == [{"role": "user", "content": "hi"}]


def test_one_row_that_is_a_request_is_unwrapped_and_wrapped_again() -> None:
    rows = [{"id": "s", "messages": PLAIN}]
    conversation = read_conversation(rows)
    assert conversation.messages == PLAIN
    assert write_conversation(conversation, PLAIN[:1]) == [{"id": "s", "messages": PLAIN[:1]}]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "not null"),
        ("text", "not a string"),
        (5, "not a number"),
        ({}, "no messages in this object"),
        ({"foo": 1}, "it has foo"),
        ({"messages": "hi"}, "messages is a string, expected a list"),
        ({"messages": None}, "messages is null"),
        ({"input": 5}, "input is a number"),
        ([{"messages": PLAIN}, {"messages": PLAIN}], "row 0 of 2 is a whole conversation"),
    ],
)
def test_input_that_is_not_a_conversation_is_refused_with_a_reason(value: Any, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        read_conversation(value)


def test_messages_chain_by_content_and_place() -> None:
    chat = make_format("openai-chat")
    one = parse_messages(chat, [PLAIN[0], PLAIN[0], PLAIN[1]])
    again = parse_messages(chat, copy.deepcopy([PLAIN[0], PLAIN[0], PLAIN[1]]))
    assert [m.id for m in one] == [m.id for m in again]
    assert len({m.id for m in one}) == 3
    assert one[0].digest == one[1].digest
    tail = parse_messages(chat, [PLAIN[1]], parent=one[1].id, start=2)
    assert tail[0].id == one[2].id
