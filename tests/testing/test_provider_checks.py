"""The scripted provider refuses what providers refuse, records all, and answers from its script in order."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

import pytest

from refold.testing import RecordedRequest, ScriptedModel, ScriptedProvider, ScriptedReply, fail, hang

USER = {"role": "user", "content": "Hi"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}],
}
VERSION = {"anthropic-version": "2023-06-01"}


def post(
    provider: ScriptedProvider, path: str, body: object, headers: Mapping[str, str] = VERSION
) -> tuple[int, dict[str, Any]]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"{provider.url}{path}", content, {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


MARKED = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
REFUSED: list[tuple[str, str, object, str]] = [
    (
        "orphan result",
        CHAT,
        {"messages": [USER, {"role": "tool", "tool_call_id": "c9", "content": "x"}]},
        "tool message",
    ),
    ("call without result", CHAT, {"messages": [USER, CALL, USER]}, "without results"),
    ("unknown role", CHAT, {"messages": [{"role": "robot", "content": "x"}]}, "robot"),
    ("no messages", CHAT, {}, "messages"),
    ("empty list", CHAT, {"messages": []}, "at least one"),
    ("message is no object", CHAT, {"messages": ["hi"]}, "object"),
    (
        "call without function",
        CHAT,
        {"messages": [USER, {"role": "assistant", "tool_calls": [{"id": "c1"}]}]},
        "malformed",
    ),
    ("limit below one", CHAT, {"messages": [USER], "max_tokens": 0}, "max_tokens"),
    ("orphan output", RESPONSES, {"input": [{"type": "function_call_output", "call_id": "c1", "output": "x"}]}, "c1"),
    ("no input", RESPONSES, {}, "input"),
    ("system role", MESSAGES, {"max_tokens": 9, "messages": [{"role": "system", "content": "x"}, USER]}, "system"),
    ("no max_tokens", MESSAGES, {"messages": [USER]}, "max_tokens: Field required"),
    (
        "starts with the assistant",
        MESSAGES,
        {"max_tokens": 9, "messages": [{"role": "assistant", "content": "x"}]},
        "user role",
    ),
    (
        "orphan tool_result",
        MESSAGES,
        {"max_tokens": 9, "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t9"}]}]},
        "t9",
    ),
    (
        "five cache marks",
        MESSAGES,
        {
            "max_tokens": 9,
            "system": [MARKED],
            "tools": [MARKED],
            "messages": [{"role": "user", "content": [MARKED] * 3}],
        },
        "Found 5",
    ),
]


@pytest.mark.parametrize(("path", "body", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_a_provider_refuses_is_a_400_in_its_own_shape(path: str, body: dict[str, Any], words: str) -> None:
    with ScriptedProvider() as provider:
        status, answer = post(provider, path, {"model": "m", **body})
    assert status == 400
    assert words in answer["error"]["message"]
    assert answer["error"]["type"] == "invalid_request_error"
    assert ("request_id" in answer) is (path == MESSAGES)
    assert len(provider.requests) == 1


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000])
def test_a_body_that_is_not_an_object_is_a_400(body: bytes) -> None:
    with ScriptedProvider() as provider:
        assert post(provider, CHAT, body)[0] == 400
        assert provider.requests[0].body == body


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        (CHAT, {"messages": [USER]}, "maximum context length is 50 tokens"),
        (CHAT, {"messages": [USER], "max_tokens": 10}, "in the completion"),
        (RESPONSES, {"input": "Hi"}, "exceeds the context window of this model"),
        (MESSAGES, {"messages": [USER], "max_tokens": 10}, "prompt is too long:"),
    ],
)
def test_over_the_window_each_wire_says_so_in_its_own_words(path: str, body: dict[str, Any], words: str) -> None:
    long = json.loads(json.dumps({"model": "gpt-4o", **body}).replace('"Hi"', json.dumps("word " * 80)))
    with ScriptedProvider(window=50) as provider:
        status, answer = post(provider, path, long)
        assert status == 400
        assert words in answer["error"]["message"]
        assert answer["error"].get("code", "context_length_exceeded") == "context_length_exceeded"
        assert post(provider, path, {"model": "gpt-4o", **body})[0] == 200


def test_the_answers_own_room_counts_against_the_window() -> None:
    with ScriptedProvider(window={"small": 100}) as provider:
        status, answer = post(provider, MESSAGES, {"model": "small", "max_tokens": 99, "messages": [USER]})
        assert status == 400
        assert "`max_tokens` exceed context limit" in answer["error"]["message"]
        assert post(provider, MESSAGES, {"model": "other", "max_tokens": 99, "messages": [USER]})[0] == 200


def test_only_the_right_key_is_let_in_either_way_of_sending_it() -> None:
    with ScriptedProvider(key="right") as provider:
        body = {"model": "m", "max_tokens": 9, "messages": [USER]}
        assert post(provider, MESSAGES, body)[0] == 401
        assert post(provider, MESSAGES, body, {**VERSION, "Authorization": "Bearer wrong"})[0] == 401
        assert post(provider, MESSAGES, body, {**VERSION, "x-api-key": "right"})[0] == 200
        assert post(provider, CHAT, body, {"Authorization": "Bearer right"})[0] == 200


def test_a_request_is_recorded_with_its_bytes_and_its_repr_hides_the_key() -> None:
    body = {"model": "m", "messages": [{"role": "system", "content": "Be brief."}, USER]}
    with ScriptedProvider() as provider:
        post(provider, CHAT, body, {"Authorization": "Bearer very-secret"})
        (seen,) = provider.requests
    assert json.loads(seen.body) == body
    assert seen.headers["authorization"] == "Bearer very-secret"
    assert (seen.model, seen.prompt, seen.system, seen.is_streaming) == ("m", "Hi", "Be brief.", False)
    assert "very-secret" not in repr(seen)


def test_the_script_is_told_in_order_and_says_when_it_has_run_out() -> None:
    def greet(request: RecordedRequest) -> str:
        return f"You said {request.prompt}"

    body = {"model": "m", "messages": [USER]}
    with ScriptedProvider(["one", ScriptedReply("two"), greet, fail(503)]) as provider:
        said = [post(provider, CHAT, body)[1]["choices"][0]["message"]["content"] for _ in range(3)]
        assert said == ["one", "two", "You said Hi"]
        assert post(provider, CHAT, body)[0] == 503
        status, answer = post(provider, CHAT, body)
    assert (status, answer["error"]["message"]) == (400, "the script has 4 replies; this is request 5")


def test_paths_work_with_and_without_v1_and_unknown_ones_are_404() -> None:
    with ScriptedProvider() as provider:
        assert post(provider, "/chat/completions", {"model": "m", "messages": [USER]})[0] == 200
        assert post(provider, "/v1/completions", {"model": "m"})[0] == 404


def test_closing_leaves_no_thread_even_while_an_answer_hangs() -> None:
    before = set(threading.enumerate())
    provider = ScriptedProvider(hang()).start()
    address = provider.url

    def ask() -> None:
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            post(provider, CHAT, {"model": "m", "messages": [USER]})

    waiting = threading.Thread(target=ask)
    waiting.start()
    while not provider.requests:
        waiting.join(0.01)
    provider.close()
    waiting.join(60)
    assert set(threading.enumerate()) <= before
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{address}/v1/models", timeout=60)
    provider.close()


def test_it_listens_on_loopback_only_and_two_run_side_by_side() -> None:
    with ScriptedProvider("a") as one, ScriptedProvider("b") as two:
        assert one.url.startswith("http://127.0.0.1:")
        assert one.url != two.url


async def test_a_scripted_model_needs_no_server() -> None:
    model = ScriptedModel("first", lambda request: f"second to {request.prompt}")
    assert (await model.complete("a")).content == "first"
    answer = await model.complete("b", system="S", tokens_max=5)
    assert answer.content == "second to b"
    assert (model.requests[1].system, model.requests[1].json["max_tokens"]) == ("S", 5)
