"""The scripted provider, through the official clients: every wire, whole and streamed, says the same thing."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from refold.testing import ScriptedCall, ScriptedProvider, ScriptedReply, ScriptedUsage, call_tool, drip, refuse, say
from refold.testing.server import embed_text
from refold.tokens import counter_for

openai = pytest.importorskip("openai", reason="needs refold[llm]: the official clients")
anthropic = pytest.importorskip("anthropic", reason="needs refold[llm]: the official clients")

TEXT = "第一句。 The second sentence, long enough to come in pieces. 👩‍👩‍👧 \ud83d"
REPLY = ScriptedReply(
    TEXT,
    calls=(ScriptedCall("read", {"path": "src/名.py", "lines": [1, 2]}), ScriptedCall("stop", {}, id="call_own")),
    thinking="First I look, then I leap.",
)
ASK = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(REPLY) as running:
        yield running


@pytest.fixture
def chat(provider: ScriptedProvider) -> Iterator[Any]:
    with openai.OpenAI(base_url=provider.openai_url, api_key="any", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(provider: ScriptedProvider) -> Iterator[Any]:
    with anthropic.Anthropic(base_url=provider.anthropic_url, api_key="any", max_retries=0) as client:
        yield client


def test_chat_streams_what_it_answers_whole(chat: Any) -> None:
    whole = chat.chat.completions.create(model="gpt-4o", messages=ASK)
    with chat.chat.completions.stream(model="gpt-4o", messages=ASK, stream_options={"include_usage": True}) as stream:
        pieces = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    message = whole.choices[0].message
    assert message.content == "".join(pieces) == final.choices[0].message.content == TEXT
    assert len(pieces) > 2
    assert message.reasoning_content == REPLY.thinking
    calls = [(call.id, call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls]
    assert calls == [("call_scripted_1_0", "read", {"path": "src/名.py", "lines": [1, 2]}), ("call_own", "stop", {})]
    streamed = final.choices[0].message.tool_calls
    assert [call.function.arguments for call in streamed] == [c.function.arguments for c in message.tool_calls]
    assert final.usage == whole.usage
    assert (whole.choices[0].finish_reason, final.choices[0].finish_reason) == ("tool_calls", "tool_calls")


def test_the_second_half_of_a_drip_waits_for_the_test() -> None:
    seen = threading.Event()
    with (
        ScriptedProvider(drip("word " * 40, pause_s=0.001, until=seen)) as provider,
        openai.OpenAI(base_url=provider.openai_url, api_key="any", max_retries=0) as client,
    ):
        said = ""
        for chunk in client.chat.completions.create(model="gpt-4o", messages=ASK, stream=True):
            said += (chunk.choices[0].delta.content or "") if chunk.choices else ""
            if not seen.is_set() and len(said) >= 60:
                assert len(said) < 140
                seen.set()
        assert said == "word " * 40
        answer = client.chat.completions.create(model="gpt-4o", messages=ASK)
        assert answer.choices[0].message.content == "word " * 40


def test_chat_sends_usage_in_a_stream_only_when_asked(chat: Any) -> None:
    silent = list(chat.chat.completions.create(model="m", messages=ASK, stream=True))
    assert all(chunk.usage is None and chunk.choices for chunk in silent)
    told = list(
        chat.chat.completions.create(model="m", messages=ASK, stream=True, stream_options={"include_usage": True})
    )
    assert told[-1].choices == []
    assert told[-1].usage.prompt_tokens > 0


def test_responses_streams_what_it_answers_whole(chat: Any) -> None:
    whole = chat.responses.create(model="gpt-4o", input="Hi")
    kinds = []
    with chat.responses.stream(model="gpt-4o", input="Hi") as stream:
        kinds += [event.type for event in stream]
        final = stream.get_final_response()
    assert whole.output_text == final.output_text == TEXT
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call", "function_call"]
    assert [item.type for item in whole.output] == [item.type for item in final.output]
    assert final.output[2].arguments == whole.output[2].arguments
    assert final.usage == whole.usage
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert "response.function_call_arguments.delta" in kinds


def test_responses_that_are_cut_off_are_incomplete() -> None:
    with (
        ScriptedProvider(say("half a", finish_reason="length")) as provider,
        openai.OpenAI(base_url=provider.openai_url, api_key="any") as client,
    ):
        answer = client.responses.create(model="m", input="Hi")
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")


def test_anthropic_streams_what_it_answers_whole(claude: Any) -> None:
    whole = claude.messages.create(model="claude-sonnet-5", max_tokens=99, messages=ASK)
    with claude.messages.stream(model="claude-sonnet-5", max_tokens=99, messages=ASK) as stream:
        final = stream.get_final_message()
    assert [block.type for block in whole.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert [block.type for block in final.content] == [block.type for block in whole.content]
    assert whole.content[1].text == final.content[1].text == TEXT
    assert whole.content[2].input == final.content[2].input == {"path": "src/名.py", "lines": [1, 2]}
    assert whole.content[0].signature == final.content[0].signature != ""
    assert final.usage.output_tokens == whole.usage.output_tokens > 0
    assert final.stop_reason == whole.stop_reason == "tool_use"


def test_anthropic_events_come_in_the_providers_order(claude: Any, provider: ScriptedProvider) -> None:
    with claude.messages.with_streaming_response.create(model="m", max_tokens=9, messages=ASK, stream=True) as response:
        lines = list(response.iter_lines())
    names = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    assert names[:3] == ["message_start", "content_block_start", "ping"]
    assert names[-2:] == ["message_delta", "message_stop"]
    assert names.count("content_block_start") == names.count("content_block_stop") == 4


def test_anthropic_counts_tokens_with_refolds_counter(claude: Any) -> None:
    counted = claude.messages.count_tokens(model="claude-sonnet-5", messages=ASK, system="Be brief.")
    bare = claude.messages.count_tokens(model="claude-sonnet-5", messages=ASK)
    assert counted.input_tokens > bare.input_tokens > 0


def test_both_list_the_models(chat: Any, claude: Any) -> None:
    assert [model.id for model in chat.models.list()] == ["scripted-1"]
    assert [model.id for model in claude.models.list()] == ["scripted-1"]
    assert chat.models.retrieve("scripted-1").id == "scripted-1"
    with pytest.raises(openai.NotFoundError):
        chat.models.retrieve("other")


def test_embeddings_are_the_same_every_time_and_near_for_shared_words(chat: Any) -> None:
    texts = ["the cat sat", "sat the cat", "the cat ran", "二十个苹果", "完全不同"]
    rows = chat.embeddings.create(model="e", input=texts).data
    vectors = [row.embedding for row in rows]
    assert vectors[0] == vectors[1]
    assert vectors[0] == pytest.approx(embed_text(texts[0]), abs=1e-6)
    assert len(chat.embeddings.create(model="e", input="one", dimensions=8).data[0].embedding) == 8

    def near(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True))

    assert near(vectors[0], vectors[2]) > near(vectors[0], vectors[3])


def test_usage_is_counted_by_refold_unless_the_script_claims_another(chat: Any) -> None:
    counted = chat.chat.completions.create(model="gpt-4o", messages=ASK).usage
    counter = counter_for("gpt-4o")
    assert counted.prompt_tokens == counter.count_messages(ASK)  # type: ignore[attr-defined]
    claim = ScriptedUsage(input=999_999, output=-1, cached=500_000)
    with (
        ScriptedProvider(say("x", usage=claim)) as lying,
        openai.OpenAI(base_url=lying.openai_url, api_key="any") as client,
    ):
        claimed = client.chat.completions.create(model="gpt-4o", messages=ASK).usage
    assert (claimed.prompt_tokens, claimed.completion_tokens) == (999_999, -1)
    assert claimed.prompt_tokens_details.cached_tokens == 500_000


def test_a_refusal_has_the_shape_of_each_wire() -> None:
    with ScriptedProvider(refuse("No.")) as provider:
        with openai.OpenAI(base_url=provider.openai_url, api_key="any") as client:
            message = client.chat.completions.create(model="m", messages=ASK).choices[0].message
            parts = client.responses.create(model="m", input="Hi").output[0].content
        with anthropic.Anthropic(base_url=provider.url, api_key="any") as client:
            answer = client.messages.create(model="m", max_tokens=9, messages=ASK)
    assert (message.content, message.refusal) == (None, "No.")
    assert (parts[0].type, parts[0].refusal) == ("refusal", "No.")
    assert answer.stop_reason == "refusal"


def test_arguments_that_are_no_json_go_out_as_they_are_where_the_wire_allows() -> None:
    with (
        ScriptedProvider(call_tool("run", '{"cmd": "ls')) as provider,
        openai.OpenAI(base_url=provider.openai_url, api_key="any") as client,
    ):
        calls = client.chat.completions.create(model="m", messages=ASK).choices[0].message.tool_calls
    assert calls[0].function.arguments == '{"cmd": "ls'
