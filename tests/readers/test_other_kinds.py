"""ShareGPT, LangSmith, Langfuse and plain logs: each becomes sessions that a provider would accept, or is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from refold.errors import FormatError
from refold.readers.file import find_conversations, list_files, read_file, read_value
from refold.readers.session import Session, find_title
from refold.testing.provider_rules import find_violations
from tests.rigs.convert import to_anthropic, to_responses
from tests.rigs.histories import agent_messages

ASKED = {"role": "user", "content": "Where is the bug?"}
MEND = {"role": "user", "content": "Mend it."}
FOUND = {"role": "assistant", "content": "In parse.py."}


def read_one(value: object) -> Session:
    (session,) = read_value(value, "file.json").sessions
    assert find_violations(session.format, session.messages) == []
    return session


def test_sharegpt_becomes_chat_with_calls_and_results() -> None:
    call = json.dumps({"name": "grep", "arguments": {"pattern": "bug"}})
    turns = [
        {"from": "human", "value": "Where is the bug?"},
        {"from": "function_call", "value": call},
        {"from": "observation", "value": "parse.py:3"},
        {"from": "gpt", "value": "In parse.py."},
    ]
    session = read_one([{"id": "sg", "conversations": turns, "system": "Be brief.", "tools": "[]"}])
    assert [message["role"] for message in session.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert json.loads(session.messages[2]["tool_calls"][0]["function"]["arguments"]) == {"pattern": "bug"}
    assert (session.id, find_title(session)) == ("sg", "Where is the bug?")


def test_a_sharegpt_turn_by_an_unknown_speaker_is_refused_with_its_name() -> None:
    rows = [{"conversations": [{"from": "human", "value": "Hi"}, {"from": "narrator", "value": "Once"}]}]
    with pytest.raises(FormatError, match="narrator"):
        read_value(rows, "file.json")


def langfuse_call(number: int, messages: list[dict[str, Any]], answer: object) -> dict[str, Any]:
    return {
        "id": f"g{number}",
        "traceId": "t1",
        "type": "GENERATION",
        "startTime": f"2026-11-01T10:0{number}:00Z",
        "model": "gpt-5.5",
        "input": messages,
        "output": answer,
    }


@pytest.mark.parametrize("wrapped", ["trace", "rows", "page", "text"])
def test_langfuse_observations_become_one_session_with_the_last_answer(wrapped: str) -> None:
    calls = [
        langfuse_call(
            2, [ASKED, FOUND, {"role": "user", "content": "Mend it."}], {"role": "assistant", "content": "Done."}
        ),
        langfuse_call(1, [ASKED], FOUND),
        {"id": "s", "traceId": "t1", "type": "SPAN", "startTime": "2026-11-01T10:00:00Z", "input": {"task": "x"}},
    ]
    if wrapped == "text":
        calls = [{**one, "input": json.dumps(one["input"]), "output": json.dumps(one.get("output"))} for one in calls]
    value: object = {"trace": {"id": "t1", "observations": calls}, "page": {"data": calls}}.get(wrapped, calls)
    session = read_one(value)
    assert [message["content"] for message in session.messages] == [
        "Where is the bug?",
        "In parse.py.",
        "Mend it.",
        "Done.",
    ]
    assert (session.id, session.model) == ("t1", "gpt-5.5")


def test_langsmith_runs_in_langchains_own_shape_become_chat() -> None:
    def message(kind: str, **fields: Any) -> dict[str, Any]:
        return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": fields}

    sent = [message("SystemMessage", content="Be brief."), message("HumanMessage", content="Where is the bug?")]
    call = {"name": "grep", "args": {"pattern": "bug"}, "id": "c1", "type": "tool_call"}
    asked = message("AIMessage", content="", tool_calls=[call])
    result = message("ToolMessage", content="parse.py:3", tool_call_id="c1")
    answer = {"generations": [[{"text": "In parse.py.", "message": message("AIMessage", content="In parse.py.")}]]}
    run = {
        "id": "r1",
        "trace_id": "trace",
        "run_type": "llm",
        "start_time": "2026-11-01T10:00:00",
        "inputs": {"messages": [[*sent, asked, result]]},
        "outputs": answer,
        "extra": {"metadata": {"ls_model_name": "gpt-5.5"}},
    }
    chain = {"id": "r0", "trace_id": "trace", "run_type": "chain", "inputs": {"input": "x"}, "child_runs": [run]}
    session = read_one([chain])
    assert [message["role"] for message in session.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert (session.id, session.model) == ("trace", "gpt-5.5")


def test_a_log_of_anthropic_requests_keeps_system_and_tools() -> None:
    body = to_anthropic(agent_messages(3))
    tools = [{"name": "read", "input_schema": {"type": "object"}}]
    rows = [{"request": {**body, "system": "Be careful.", "tools": tools, "model": "claude-opus-5-5"}}]
    session = read_one(rows)
    assert (session.system, session.tools, session.model) == ("Be careful.", tools, "claude-opus-5-5")


@pytest.mark.parametrize(
    "value",
    [
        [{"type": "widget", "size": 3}],
        [{"type": "user", "words": "hello"}],
        {"name": "settings", "version": 2},
        [1, 2, 3],
        [{"role": "user", "content": "Hi"}, {"type": "user", "body": "x"}],
        [{"messages": [{"type": "event", "kind": "click"}]}],
    ],
)
def test_unknown_content_is_refused_and_never_becomes_an_opaque_message(value: object) -> None:
    with pytest.raises(FormatError):
        read_value(value, "file.json")
    with pytest.raises(FormatError):
        find_conversations(value, "file.json")


@pytest.mark.parametrize("wire", ["openai-chat", "anthropic", "openai-responses"])
def test_a_plain_conversation_keeps_its_wrapping(wire: str) -> None:
    messages = agent_messages(3)
    body = {"anthropic": to_anthropic(messages), "openai-responses": to_responses(messages)}.get(
        wire, {"messages": messages}
    )
    ((_, conversation),) = find_conversations(body, "file.json")
    assert conversation.format.name == wire
    assert conversation.body is body


def test_the_title_skips_what_an_agent_writes_in_the_users_place() -> None:
    texts = ["<environment_context>here</environment_context>", "# AGENTS.md instructions for you", "Mend the parser"]
    session = Session("s", tuple({"role": "user", "content": text} for text in texts))
    assert find_title(session) == "Mend the parser"
    assert find_title(Session("s", ({"role": "user", "content": "<b>only</b>"},))) == "<b>only</b>"
    assert find_title(Session("s", ())) == ""
    assert len(find_title(Session("s", ({"role": "user", "content": "修复解析器" * 50},)))) == 80


def test_a_folder_stands_for_the_json_below_it(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("a/1.jsonl", "a/b/2.json", "a/notes.md"):
        (tmp_path / name).write_text(json.dumps({"messages": [ASKED]}))
    assert [Path(one).name for one in list_files([str(tmp_path)])] == ["1.jsonl", "2.json"]
    assert read_file(str(tmp_path / "a" / "1.jsonl")).kind == "requests"
    with pytest.raises(FormatError, match="without any"):
        list_files([str(tmp_path / "a" / "b" / ".."), str(tmp_path.joinpath("none").mkdir() or tmp_path / "none")])


ANSWERS = {
    "openai-chat": {
        "id": "chatcmpl-1",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "It is 4711.", "refusal": None, "annotations": []},
            }
        ],
    },
    "anthropic": {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "It is 4711."}],
        "stop_reason": "end_turn",
    },
    "openai-responses": {
        "id": "resp_1",
        "status": "completed",
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is 4711."}]},
        ],
    },
}


@pytest.mark.parametrize("wire", sorted(ANSWERS))
@pytest.mark.parametrize("wraps", [False, True])
def test_the_answer_beside_the_last_request_of_a_log_ends_the_conversation(wire: str, wraps: bool) -> None:
    key, answer = ("input" if wire == "openai-responses" else "messages"), ANSWERS[wire]
    first = [{"role": "user", "content": "Which number?"}]
    second = [*first, {"role": "assistant", "content": "Which one?"}, {"role": "user", "content": "The id."}]
    extra = {"max_tokens": 10, "system": "Be brief."} if wire == "anthropic" else {}
    rows = [
        {
            "request": {key: asked, "model": "m", **extra},
            "response": {"status_code": 200, "body": answer} if wraps else answer,
        }
        for asked in (first, second)
    ]
    session = read_one(rows)
    assert session.format == wire
    assert list(session.messages[:3]) == second
    assert len(session.messages) == (5 if wire == "openai-responses" else 4)
    assert "It is 4711." in json.dumps(session.messages[-1])
    assert "refusal" not in json.dumps(session.messages[-1])


@pytest.mark.parametrize(
    "answer", [None, "text", {"id": 1}, {"error": {"message": "no"}}, {"choices": []}, {"choices": [3]}]
)
def test_an_invalid_answer_adds_nothing(answer: object) -> None:
    rows = [{"request": {"messages": [{"role": "user", "content": "Hi"}], "model": "m"}, "response": answer}]
    assert len(read_one(rows).messages) == 1
