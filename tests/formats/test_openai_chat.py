"""OpenAI chat: what is read out of a message, and what a change leaves of it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from refold.formats import OpenAIChat
from tests.rigs.formats import IMAGE_CHAT, chat_call, kinds, parse

CHAT = OpenAIChat()


def read(raw: object) -> Any:
    return parse("openai-chat", raw)


@pytest.mark.parametrize(
    ("raw", "role", "expected"),
    [
        ({"role": "user", "content": "hi"}, "user", ["text"]),
        ({"role": "system", "content": "rules"}, "system", ["text"]),
        ({"role": "developer", "content": "rules"}, "system", ["text"]),
        ({"role": "user", "content": ""}, "user", []),
        ({"role": "user", "content": []}, "user", []),
        ({"role": "assistant", "content": None}, "assistant", []),
        ({"role": "assistant"}, "assistant", []),
        ({"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE_CHAT]}, "user", ["text", "media"]),
        (
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]},
            "user",
            ["media"],
        ),
        ({"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}, "user", ["media"]),
        ({"role": "user", "content": [{"type": "hologram", "x": 1}, {"no": "type"}]}, "user", ["opaque", "opaque"]),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, "assistant", ["text"]),
        ({"role": "assistant", "content": None, "refusal": "no"}, "assistant", ["text"]),
        ({"role": "assistant", "content": None, "audio": {"id": "audio_1"}}, "assistant", ["opaque"]),
        (
            {"role": "assistant", "content": "a", "tool_calls": [chat_call("1"), chat_call("2")]},
            "assistant",
            ["text", "call", "call"],
        ),
        ({"role": "assistant", "content": "a", "tool_calls": []}, "assistant", ["text"]),
        ({"role": "assistant", "content": "a", "reasoning_content": "t"}, "assistant", ["thinking", "text"]),
        (
            {"role": "assistant", "content": "a", "reasoning": "t", "thinking_blocks": [{"thinking": "t"}]},
            "assistant",
            ["thinking", "thinking", "text"],
        ),
        ({"role": "assistant", "content": "a", "reasoning_content": None}, "assistant", ["text"]),
        ({"role": "tool", "tool_call_id": "1", "content": ""}, "tool", ["result"]),
        ({"role": "tool", "tool_call_id": "1", "content": None}, "tool", ["result"]),
        ({"role": "function", "name": "f", "content": "x"}, "tool", ["result"]),
    ],
)
def test_a_message_is_read_into_parts_of_the_right_kind(raw: Any, role: str, expected: list[str]) -> None:
    message = read(raw)
    assert (message.role, kinds(message)) == (role, expected)
    assert message.raw is raw


def test_a_call_has_its_name_its_id_and_its_arguments_as_they_were_written() -> None:
    call = read({"role": "assistant", "content": None, "tool_calls": [chat_call("c9", '{"a" :  1}')]}).parts[0]
    assert (call.name, call.call_id, call.text) == ("weather", "c9", '{"a" :  1}')


def test_arguments_given_as_an_object_are_read_as_json() -> None:
    raw = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"a": 1}}}]}
    assert json.loads(read(raw).parts[0].text) == {"a": 1}


def test_a_custom_tool_call_is_a_call_with_free_text() -> None:
    call = read(
        {
            "role": "assistant",
            "tool_calls": [{"id": "1", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}],
        }
    )
    assert (call.parts[0].kind, call.parts[0].name, call.parts[0].text) == ("call", "sql", "select 1")
    changed: Any = CHAT.render(call, {0: "gone"})
    assert changed["tool_calls"][0]["custom"] == {"name": "sql", "input": "gone"}


def test_a_legacy_function_call_pairs_with_its_result_by_name() -> None:
    call = read({"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}})
    result = read({"role": "function", "name": "f", "content": "x"})
    assert call.parts[0].call_id == result.parts[0].call_id == "f"
    assert CHAT.find_faults([call, result]) == []


def test_a_tool_message_is_one_result_with_its_media_inside() -> None:
    raw = {
        "role": "tool",
        "tool_call_id": "1",
        "content": [{"type": "text", "text": "a"}, IMAGE_CHAT, {"type": "text", "text": "b"}],
    }
    (part,) = read(raw).parts
    assert (part.text, [inner.kind for inner in part.inside]) == ("a\nb", ["media"])


def test_the_name_of_a_speaker_is_kept() -> None:
    assert read({"role": "user", "name": "Ana", "content": "hi"}).name == "Ana"


def test_a_changed_result_is_a_string_and_everything_else_stays_in_order() -> None:
    raw = {
        "x": 1,
        "role": "tool",
        "content": [{"type": "text", "text": "a"}],
        "tool_call_id": "1",
        "cache_control": {"type": "ephemeral"},
    }
    before = copy.deepcopy(raw)
    changed: Any = CHAT.render(read(raw), {0: "short"})
    assert changed == {**before, "content": "short"}
    assert list(changed) == list(raw)
    assert raw == before


def test_a_changed_call_keeps_its_id_and_name_and_the_rest_of_its_message() -> None:
    raw = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{**chat_call("1"), "extra": 1}, chat_call("2")],
        "unknown": {"a": [1]},
    }
    changed: Any = CHAT.render(read(raw), {0: '{"city": "…"}'})
    assert changed["content"] is None
    assert changed["tool_calls"][0] == {**chat_call("1", '{"city": "…"}'), "extra": 1}
    assert changed["tool_calls"][1] is raw["tool_calls"][1]
    assert changed["unknown"] is raw["unknown"]


@pytest.mark.parametrize("text", ["not json", "[1]", '"s"', "", "{" * 100_000])
def test_a_changed_call_always_has_a_json_object_as_arguments(text: str) -> None:
    changed: Any = CHAT.render(read({"role": "assistant", "content": "x", "tool_calls": [chat_call()]}), {1: text})
    assert json.loads(changed["tool_calls"][0]["function"]["arguments"]) == {"refold": text}


def test_a_changed_legacy_call_keeps_its_name() -> None:
    message = read({"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}})
    assert CHAT.render(message, {0: '{"a":1}'}) == {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "f", "arguments": '{"a":1}'},
    }


def test_changed_media_becomes_a_text_block_that_keeps_the_cache_breakpoint() -> None:
    raw = {
        "role": "user",
        "content": [{"type": "text", "text": "a"}, {**IMAGE_CHAT, "cache_control": {"type": "ephemeral"}}],
    }
    changed: Any = CHAT.render(read(raw), {1: "[image]"})
    assert changed["content"] == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "[image]", "cache_control": {"type": "ephemeral"}},
    ]


def test_a_dropped_thinking_field_leaves_and_the_rest_stays() -> None:
    raw = {"role": "assistant", "reasoning_content": "long", "content": None, "tool_calls": [chat_call()]}
    assert CHAT.render(read(raw), {0: None}) == {"role": "assistant", "content": None, "tool_calls": [chat_call()]}


def test_dropped_words_leave_null_beside_calls_and_an_empty_string_beside_thinking() -> None:
    calls = {"role": "assistant", "content": "words", "tool_calls": [chat_call()]}
    thinking = {"role": "assistant", "content": [{"type": "text", "text": "words"}], "reasoning": "t"}
    assert CHAT.render(read(calls), {0: None}) == {**calls, "content": None}
    assert CHAT.render(read(thinking), {1: None}) == {**thinking, "content": ""}


@pytest.mark.parametrize(
    "raw",
    [
        {"role": "user", "content": "a"},
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "user", "content": [IMAGE_CHAT]},
        {"role": "assistant", "content": "", "reasoning_content": "t"},
        {"role": "user", "content": ""},
    ],
)
def test_a_message_of_which_nothing_is_left_is_gone(raw: Any) -> None:
    assert CHAT.render(read(raw), {0: None}) is None


@pytest.mark.parametrize(
    ("raw", "changes"),
    [
        ({"role": "assistant", "content": None, "tool_calls": [chat_call()]}, {0: None}),
        ({"role": "tool", "tool_call_id": "1", "content": "x"}, {0: None}),
        ({"role": "assistant", "content": "a", "reasoning": "t"}, {0: "shorter"}),
        ({"role": "user", "content": [{"type": "hologram"}]}, {0: "text"}),
        ({"role": "user", "content": "a"}, {1: "b"}),
        ({"role": "user", "content": "a"}, {-1: "b"}),
    ],
)
def test_a_change_that_would_break_the_conversation_is_refused(raw: Any, changes: dict[int, str | None]) -> None:
    with pytest.raises(ValueError, match="part"):
        CHAT.render(read(raw), changes)


def test_a_refusal_can_be_shortened_anywhere() -> None:
    apart = {"role": "assistant", "content": None, "refusal": "long"}
    block = {"role": "assistant", "content": [{"type": "refusal", "refusal": "long"}]}
    assert CHAT.render(read(apart), {0: "no"}) == {**apart, "refusal": "no"}
    assert CHAT.render(read(block), {0: "no"}) == {
        "role": "assistant",
        "content": [{"type": "refusal", "refusal": "no"}],
    }


def test_a_summary_may_have_any_role_but_that_of_a_tool() -> None:
    assert CHAT.write_summary("s", "system") == {"role": "system", "content": "s"}
    assert CHAT.write_summary("s", "tool") == {"role": "user", "content": "s"}
    assert [CHAT.allow_role(role, "user", "tool") for role in ("system", "user", "assistant", "tool")] == [
        "system",
        "user",
        "assistant",
        "user",
    ]
