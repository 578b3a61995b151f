"""Answers put together from events: every format gives the same text, calls and usage, and no event breaks a reader."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.formats.streamed import BlockAnswer, ChatAnswer, Delta, ResponseAnswer, ToolCall
from refold.testing import ScriptedCall, ScriptedReply, ScriptedUsage
from refold.testing.answers import WIRES

KINDS = {"openai-chat": ChatAnswer, "openai-responses": ResponseAnswer, "anthropic": BlockAnswer}
REPLY = ScriptedReply("It is 3.", (ScriptedCall("add", {"a": 1}),))
NAMES = (
    *("type", "index", "delta", "choices", "usage", "error", "message", "content_block", "tool_calls", "function"),
    *(
        "id",
        "name",
        "arguments",
        "content",
        "text",
        "partial_json",
        "stop_reason",
        "finish_reason",
        "response",
        "output",
    ),
    *("reasoning", "status", "incomplete_details", "reason"),
)
WORDS = (
    *("message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop", "error"),
    *("response.completed", "response.failed", "tool_use", "text", "function_call", "max_output_tokens", "{"),
)
atoms = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(WORDS)
values = st.recursive(
    atoms,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=8,
)
events = st.dictionaries(st.sampled_from(NAMES), values, max_size=4)


@pytest.mark.parametrize("wire", KINDS)
def test_a_streamed_answer_and_a_whole_one_have_the_same_text_calls_and_usage(wire: str) -> None:
    usage = ScriptedUsage(120, 7)
    streamed, whole = KINDS[wire](), KINDS[wire]()
    write_answer, write_events = WIRES[wire]
    sent = [event for _, event in write_events(REPLY, usage, {"model": "m", "stream_options": {}})]
    for event in json.loads(json.dumps(sent)):
        if isinstance(event, dict):  # The end of a stream may be a bare word.
            streamed.add(event)
    whole.add_whole(json.loads(json.dumps(write_answer(REPLY, usage, "m"))))
    for answer in (streamed, whole):
        assert [(one.name, json.loads(one.arguments)) for one in answer.calls] == [("add", {"a": 1})]
        assert "It is 3." in json.dumps(answer.message)
    assert whole.has_usage
    assert streamed.finish_reason == whole.finish_reason


def test_reasoning_under_two_names_is_shown_once() -> None:
    answer = ChatAnswer()
    delta = {"reasoning": "hm", "reasoning_content": "hm", "content": "so"}
    shown = answer.add({"choices": [{"delta": delta, "finish_reason": "stop"}]})
    assert shown == [Delta("thinking", "hm"), Delta("text", "so")]


@pytest.mark.parametrize("absent", [None, ""])
def test_reasoning_under_the_second_name_is_shown_if_the_first_is_empty(absent: str | None) -> None:
    shown = ChatAnswer().add({"choices": [{"delta": {"reasoning_content": absent, "reasoning": "hm"}}]})
    assert shown == [Delta("thinking", "hm")]


def test_text_in_blocks_is_read() -> None:
    answer = ChatAnswer()
    blocks = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "It is"}, {"type": "text", "text": " 3."}]
    assert answer.add({"choices": [{"delta": {"content": blocks}}]}) == [Delta("text", "It is 3.")]
    assert answer.message == {"role": "assistant", "content": "It is 3."}


@pytest.mark.parametrize("wire", KINDS)
def test_arguments_that_come_as_an_object_are_not_lost(wire: str) -> None:
    whole = {
        "openai-chat": {"choices": [{"message": {"tool_calls": [{"id": "1", "function": {"arguments": {"a": 1}}}]}}]},
        "openai-responses": {"output": [{"type": "function_call", "call_id": "1", "arguments": {"a": 1}}]},
        "anthropic": {"content": [{"type": "tool_use", "id": "1", "input": {"a": 1}}]},
    }
    answer = KINDS[wire]()
    answer.add_whole(whole[wire])
    assert [json.loads(one.arguments) for one in answer.calls] == [{"a": 1}]


def test_arguments_that_nest_too_deep_are_empty() -> None:
    deep: dict[str, object] = {}
    for _ in range(5_000):
        deep = {"a": deep}
    answer = BlockAnswer()
    answer.add_whole({"content": [{"type": "tool_use", "id": "1", "name": "add", "input": deep}]})
    assert answer.calls == [ToolCall("1", "add", "")]


def test_calls_of_a_whole_answer_are_separate_whatever_their_index() -> None:
    answer = ChatAnswer()
    calls = [{"index": 0, "id": name, "function": {"name": name, "arguments": "{}"}} for name in ("add", "subtract")]
    answer.add_whole({"choices": [{"message": {"content": None, "tool_calls": calls}}]})
    assert [one.name for one in answer.calls] == ["add", "subtract"]


def test_a_whole_answer_is_its_first_choice_unchanged() -> None:
    answer = ChatAnswer()
    message = {"role": "assistant", "content": [{"type": "text", "text": "It is 3."}], "audio": {"id": "a"}}
    answer.add_whole({"choices": [{"message": message}, {"message": {"content": "Perhaps 4."}}]})
    assert answer.message == message
    assert answer.texts == {"content": "It is 3."}


def test_a_call_keeps_fields_that_its_provider_wants_back() -> None:
    answer = ChatAnswer()
    signed = {"extra_content": {"google": {"thought_signature": "c2lnbg=="}}}
    answer.add(
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "1", "function": {"name": "add"}, **signed}]}}]}
    )
    answer.add({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}}]})
    function = {"name": "add", "arguments": "{}"}
    assert answer.message["tool_calls"] == [{"id": "1", "type": "function", **signed, "function": function}]


@pytest.mark.parametrize("name", ["response.completed", "response.done"])
def test_a_response_is_read_whatever_its_last_event_is_called(name: str) -> None:
    answer = ResponseAnswer()
    answer.add({"type": "response.created", "response": {"id": "r1", "status": "in_progress", "output": []}})
    usage = {"input_tokens": 3}
    answer.add({"type": name, "response": {"id": "r1", "status": "completed", "output": [{}], "usage": usage}})
    assert (answer.response_id, answer.output, answer.usage) == ("r1", [{}], usage)


@pytest.mark.parametrize(
    "event",
    [
        {"error": {"code": "c", "message": "m"}},
        {"type": "error", "code": "c", "message": "m"},
        {"type": "error", "error": {"code": "c", "message": "m"}},
        {"type": "error", "code": "c", "message": "m", "error": "m"},
        {"type": "response.failed", "response": {"status": "failed", "error": {"code": "c", "message": "m"}}},
    ],
)
def test_an_error_in_a_stream_of_responses_is_read(event: dict[str, object]) -> None:
    answer = ResponseAnswer()
    answer.add(event)
    assert answer.error_text == "c m"


def test_calls_without_an_index_are_separate_calls() -> None:
    answer = ChatAnswer()
    for name in ("add", "subtract"):
        call = {"id": name, "function": {"name": name, "arguments": "{}"}}
        answer.add({"choices": [{"delta": {"tool_calls": [call]}}]})
    assert answer.calls == [ToolCall("add", "add", "{}"), ToolCall("subtract", "subtract", "{}")]


@pytest.mark.parametrize("wire", KINDS)
@given(st.lists(events, max_size=4))
def test_no_event_breaks_a_reader(wire: str, given_events: list[dict[str, object]]) -> None:
    streamed, whole = KINDS[wire](), KINDS[wire]()
    for event in given_events:
        streamed.add(event)
        whole.add_whole(event)
    for answer in (streamed, whole):
        json.dumps([answer.message, answer.usage, [(one.id, one.name, one.arguments) for one in answer.calls]])
        assert isinstance(answer.finish_reason, str)


def test_text_that_begins_as_something_else_is_the_text_that_follows() -> None:
    answer = BlockAnswer()
    answer.add({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": 5}})
    answer.add({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "five"}})
    assert answer.message["content"] == [{"type": "text", "text": "five"}]
