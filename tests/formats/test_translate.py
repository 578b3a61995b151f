"""What is written in the other format says the same and is accepted there."""

import json
from typing import Any

import pytest

from refold.formats.translate import can_translate, translate_messages, translate_tools
from refold.testing import find_violations

IMAGE = "data:image/png;base64,iVBORw0KGgo="


def call(call_id: str, arguments: str = '{"path": "a.py"}') -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "read_file", "arguments": arguments}}


OPENAI: list[dict[str, Any]] = [
    {"role": "user", "content": "Lies a.py 请"},
    {"role": "assistant", "content": "I look.", "tool_calls": [call("c1"), call("c2")]},
    {"role": "tool", "tool_call_id": "c1", "content": "port = 7341"},
    {"role": "tool", "tool_call_id": "c2", "content": ""},
    {
        "role": "user",
        "content": [{"type": "text", "text": "and this?"}, {"type": "image_url", "image_url": {"url": IMAGE}}],
    },
    {"role": "assistant", "content": None, "tool_calls": [call("c1", "no json")]},
    {"role": "tool", "tool_call_id": "c1", "content": "wrong arguments"},
    {"role": "assistant", "content": ""},
    {"role": "user", "content": "go on"},
]


def test_a_session_of_openai_is_a_valid_request_to_anthropic() -> None:
    sent = translate_messages(OPENAI, "openai-chat", "anthropic")
    assert find_violations("anthropic", sent) == []
    results = sent[2]["content"]
    assert [block["content"] for block in results] == ["port = 7341", ""]
    uses = [block for one in sent for block in one["content"] if block["type"] == "tool_use"]
    assert len({use["id"] for use in uses}) == 3  # c1 twice: its own id each time, and its own result.
    assert sent[5]["content"][0]["tool_use_id"] == uses[2]["id"]
    assert uses[2]["input"] == {"invalid_json": "no json"}
    assert sent[3]["content"][1] == {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
    }


def test_there_and_back_says_the_same() -> None:
    plain = [one for one in OPENAI if one.get("content") != "" and "no json" not in str(one)][:3] + OPENAI[-1:]
    plain[1] = {**plain[1], "tool_calls": plain[1]["tool_calls"][:1]}
    sent = translate_messages(plain, "openai-chat", "anthropic")
    assert translate_messages(sent, "anthropic", "openai-chat") == plain


def test_a_session_of_anthropic_is_a_valid_request_to_openai() -> None:
    messages = [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "a.py"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "port = 7341"}]},
                {"type": "text", "text": "and then?"},
            ],
        },
    ]
    sent = translate_messages(messages, "anthropic", "openai-chat")
    assert find_violations("openai-chat", sent) == []
    assert "hm" not in json.dumps(sent)
    assert [one["role"] for one in sent] == ["user", "assistant", "tool", "user"]
    assert json.loads(sent[1]["tool_calls"][0]["function"]["arguments"]) == {"path": "a.py"}
    assert sent[2]["content"] == "port = 7341"


def test_what_leads_with_an_assistant_gets_a_user_before_it() -> None:
    sent = translate_messages([{"role": "assistant", "content": "A record of it."}], "openai-chat", "anthropic")
    assert [one["role"] for one in sent] == ["user", "assistant"]


@pytest.mark.parametrize("content", ["", None, "  ", []])
def test_an_assistant_who_said_nothing_still_had_a_turn(content: Any) -> None:
    made = translate_messages([{"role": "assistant", "content": content}], "openai-chat", "anthropic")
    assert made[-1]["role"] == "assistant"
    assert find_violations("anthropic", made) == []


def test_the_old_way_to_call_a_function_keeps_call_and_result_together() -> None:
    told = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": '{"city": "Oslo"}'}},
        {"role": "function", "name": "weather", "content": "rain"},
        {"role": "user", "content": "Thanks"},
    ]
    made = translate_messages(told, "openai-chat", "anthropic")
    assert find_violations("anthropic", made) == []
    assert made[2]["content"][0]["tool_use_id"] == made[1]["content"][0]["id"]


@pytest.mark.parametrize(("source", "target"), [("openai-chat", "anthropic"), ("anthropic", "openai-chat")])
def test_tools_are_the_same_tools_in_the_other_format(source: str, target: str) -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    tool: dict[str, Any] = {"name": "read_file", "description": "Read.", "input_schema": schema}
    if source == "openai-chat":
        tool = {"type": "function", "function": {"name": "read_file", "description": "Read.", "parameters": schema}}
    assert translate_tools(translate_tools([tool], source, target), target, source) == [tool]


def test_formats_that_nobody_translates_are_told_apart() -> None:
    assert can_translate("anthropic", "anthropic")
    assert not can_translate("openai-responses", "anthropic")
