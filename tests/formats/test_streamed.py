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
