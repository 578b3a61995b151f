"""Input that nobody should send, and that somebody will."""

from __future__ import annotations

from typing import Any

import pytest

from refold.errors import FormatError
from refold.formats import NAMES, make_format, parse_messages

GOOD = {"role": "user", "content": "hi"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (None, r"messages\[1\] is null, expected an object"),
        ("text", r"messages\[1\] is a string, expected an object"),
        ([GOOD], r"messages\[1\] is a list, expected an object"),
        ({}, r"messages\[1\] has n"),
        ({"content": "hi"}, r"messages\[1\] has n"),
        ({"role": "critic", "content": "hi"}, r"messages\[1\]\.role is 'critic'"),
        ({"role": 5, "content": "hi"}, r"messages\[1\]\.role is '5'"),
        ({"role": ["user"], "content": "hi"}, r"messages\[1\]\.role is"),
        ({"role": "user", "content": True}, r"messages\[1\]\.content is a boolean, expected text or a list"),
        ({"role": "user", "content": False}, r"messages\[1\]\.content is a boolean"),
        ({"role": "user", "content": 0}, r"messages\[1\]\.content is a number"),
        ({"role": "user", "content": 1.5}, r"messages\[1\]\.content is a number"),
        ({"role": "user", "content": {}}, r"messages\[1\]\.content is an object"),
        (
            {"role": "user", "content": {"type": "text", "text": "a"}},
            r"content is an object, expected text or a list; put it into a list",
        ),
        ({"role": "user", "content": ["a"]}, r"messages\[1\]\.content\[0\] is a string, expected an object"),
        ({"role": "user", "content": [{"type": "text", "text": "a"}, None]}, r"messages\[1\]\.content\[1\] is null"),
        ({"role": "user", "content": [{"type": "text", "text": 5}]}, r"messages\[1\]\.content\[0\]\.text is a number"),
    ],
)
def test_a_wrong_message_is_refused_with_its_place(name: str, raw: Any, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        parse_messages(make_format(name), [GOOD, raw])


@pytest.mark.parametrize(
    ("name", "raw", "says"),
    [
        ("openai-chat", {"role": "assistant", "tool_calls": {}}, r"tool_calls is an object, expected a list"),
        ("openai-chat", {"role": "assistant", "tool_calls": [5]}, r"messages\[0\]\.tool_calls\[0\] is a number"),
        ("openai-chat", {"role": "assistant", "tool_calls": [{}]}, r"tool_calls\[0\] has neither function nor custom"),
        (
            "openai-chat",
            {"role": "assistant", "tool_calls": [{"id": 5, "function": {}}]},
            r"tool_calls\[0\]\.id is a number",
        ),
        ("openai-chat", {"role": "assistant", "function_call": "f"}, r"function_call is a string"),
        ("openai-chat", {"role": "tool", "tool_call_id": 5, "content": "x"}, r"tool_call_id is a number"),
        ("openai-chat", {"role": "tool", "tool_call_id": "1", "content": {"a": 1}}, r"content is an object"),
        ("openai-chat", {"role": "tool", "tool_call_id": "1", "content": [1]}, r"content\[0\] is a number"),
        ("anthropic", {"role": "tool", "content": "x"}, r"role is 'tool'; anthropic knows user"),
        (
            "anthropic",
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": 5}]},
            r"content\[0\]\.content is a number",
        ),
        (
            "anthropic",
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [5]}]},
            r"content\[0\]\.content\[0\] is a number",
        ),
        (
            "anthropic",
            {"role": "assistant", "content": [{"type": "tool_use", "id": 5}]},
            r"content\[0\]\.id is a number",
        ),
        ("openai-responses", {"type": 5}, r"messages\[0\]\.type is '5'"),
        ("openai-responses", {"type": "message", "content": "a"}, r"messages\[0\] has no role"),
        ("openai-responses", {"type": "reasoning", "summary": "text"}, r"summary is a string"),
        ("openai-responses", {"type": "function_call_output", "call_id": "1", "output": {}}, r"output is an object"),
    ],
)
def test_a_wrong_field_is_refused_with_its_place(name: str, raw: Any, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        parse_messages(make_format(name), [raw])


def test_an_sdk_object_is_refused_with_how_to_convert_it() -> None:
    class Sdk:
        def model_dump(self) -> None: ...

    with pytest.raises(FormatError, match=r"model_dump\(exclude_none=True\)"):
        parse_messages(make_format("openai-chat"), [Sdk()])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "text",
    [
        "\ud83d",
        "\udc00\ud800",
        "\x00",
        "a" * 1_000_000,
        "\u202e",
        "👩‍👩‍👧",
        "以后不要",
        "NaN",
        "\u2028",
        "\ufeff",
        "null",
        "{" * 100_000,
    ],
)
def test_any_text_is_read_as_it_is_and_can_be_replaced(name: str, text: str) -> None:
    form = make_format(name)
    raw = {"role": "user", "content": text}
    message = form.parse(raw)
    assert message.parts[0].text is text
    assert form.render(message, {}) is raw
    assert form.render(message, {0: text + "!"}) == {"role": "user", "content": text + "!"}
    assert form.parse(dict(raw)).digest == message.digest


@pytest.mark.parametrize("name", NAMES)
def test_numbers_no_json_library_likes_come_through(name: str) -> None:
    raw = {"role": "user", "content": "a", "x": [10**400, float("nan"), float("inf"), -0.0, True]}
    message = make_format(name).parse(raw)
    assert message.raw is raw


@pytest.mark.parametrize("name", NAMES)
def test_nesting_without_end_is_refused_by_every_format(name: str) -> None:
    block: Any = {"type": "tool_result", "tool_use_id": "1", "content": "x"}
    for _ in range(20_000):
        block = {"type": "tool_result", "tool_use_id": "1", "content": [block]}
    with pytest.raises(FormatError, match=r"messages\[0\] nests deeper"):
        parse_messages(make_format(name), [{"role": "user", "content": [block]}])
    while isinstance(block["content"], list):
        block = block["content"].pop()


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (5, "system is a number"),
        ([5], r"system\[0\] is a number"),
        ([{"type": "image"}], "text blocks"),
        ({}, "system is an object"),
    ],
)
def test_a_system_prompt_of_the_wrong_shape_is_refused(value: Any, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        make_format("anthropic").read_system(value)


def test_a_system_prompt_may_be_a_string_blocks_or_nothing() -> None:
    form = make_format("anthropic")
    blocks = [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}]
    assert [form.read_system(value) for value in (None, "", "a", [], blocks)] == ["", "", "a", "", "a\nb"]
