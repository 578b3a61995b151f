"""The models behind the official clients, over real HTTP, against a provider that behaves and one that does not."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from refold.errors import ContextOverflow, ProviderError, RateLimited, Unavailable
from refold.llm.anthropic import AnthropicModel
from refold.llm.openai import OpenAIModel
from refold.llm.port import Model
from refold.testing import (
    RecordedRequest,
    ScriptedProvider,
    ScriptedReply,
    call_tool,
    drip,
    drop,
    echo_prompt,
    empty_body,
    fail,
    fail_mid_stream,
    half_json,
    hang,
    html_page,
    never_end,
    refuse,
    say,
    say_much,
)

pytest.importorskip("openai", reason="needs refold[llm]: the official clients")
pytest.importorskip("anthropic", reason="needs refold[llm]: the official clients")

Make = Callable[..., Model]
KEY = "key-" + "of-the-tests-0123456789"


def make_openai(provider: ScriptedProvider, **more: Any) -> Model:
    return OpenAIModel("gpt-4o", KEY, provider.openai_url, **{"timeout_s": 60.0, **more})


def make_anthropic(provider: ScriptedProvider, **more: Any) -> Model:
    return AnthropicModel("claude-sonnet-5", KEY, provider.anthropic_url, **{"timeout_s": 60.0, **more})


both = pytest.mark.parametrize("make", [make_openai, make_anthropic], ids=["openai", "anthropic"])


@both
async def test_an_answer_has_its_text_and_reason(make: Make) -> None:
    reply = ScriptedReply("Eine Zusammenfassung. 摘要。", thinking="hm")
    with ScriptedProvider(reply) as provider:
        answer = await make(provider).complete("Sum up", system="Be brief", tokens_max=77)
        (seen,) = provider.requests
    assert (answer.content, answer.finish_reason) == (reply.text, "stop")
    assert (seen.prompt, seen.system) == ("Sum up", "Be brief")
    assert seen.json["max_tokens"] == 77
    assert seen.json["temperature"] == 0.2
    assert KEY in seen.headers["authorization"]


@both
@pytest.mark.parametrize(
    ("step", "content", "reason"),
    [
        (say("half a sen", finish_reason="length"), "half a sen", "length"),
        (call_tool("rm", {"path": "/"}), "", "tool_calls"),
        (refuse("I can't."), "I can't.", "refusal"),
        (echo_prompt, "Sum up", "stop"),
        (say(""), "", "stop"),
        (drip("slow but whole", pause_s=0.005), "slow but whole", "stop"),
    ],
    ids=["cut off", "tool call", "refusal", "echo", "empty", "slow"],
)
async def test_odd_answers_are_told_apart_by_their_reason(make: Make, step: Any, content: str, reason: str) -> None:
    with ScriptedProvider(step) as provider:
        answer = await make(provider).complete("Sum up")
    assert (answer.content, answer.finish_reason) == (content, reason)


@both
@pytest.mark.parametrize("step", [say_much(50_000), never_end()], ids=["50,000 tokens", "never ending"])
async def test_an_answer_far_over_the_limit_is_cut_and_says_so(make: Make, step: Any) -> None:
    with ScriptedProvider(step) as provider:
        answer = await make(provider).complete("Sum up", tokens_max=100)
    assert answer.finish_reason == "length"
    assert len(answer.content) < 5_000


@both
@pytest.mark.parametrize(
    ("step", "kind", "words"),
    [
        (drop(), Unavailable, "connection"),
        (drop(after=0), Unavailable, "connection"),
        (html_page(), ProviderError, "web page"),
        (empty_body(), Unavailable, "200 with"),
        (half_json(), Unavailable, "200 with"),
        (fail_mid_stream("Overloaded"), Unavailable, "Overloaded"),
        (fail(500), Unavailable, "500"),
        (fail(502), Unavailable, "502"),
        (fail(503), Unavailable, "503"),
        (fail(529), Unavailable, "529"),
        (fail(400, "no such field"), ProviderError, "no such field"),
        (fail(401), ProviderError, "check the key"),
        (fail(403), ProviderError, "403"),
        (fail(404), ProviderError, "model's name"),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
async def test_each_way_to_fail_has_its_error(make: Make, step: Any, kind: type[Exception], words: str) -> None:
    with ScriptedProvider(step) as provider:
        with pytest.raises(kind) as caught:
            await make(provider).complete("Sum up")
        assert len(provider.requests) == 1  # The client's own retries are off.
    assert type(caught.value) is kind
    assert words in str(caught.value)
    assert KEY not in str(caught.value)


@both
async def test_a_provider_that_hangs_is_left_in_time(make: Make) -> None:
    for step in (hang(), drip("word " * 2_000, pause_s=0.05), never_end(pause_s=0.05)):
        with ScriptedProvider(step) as provider, pytest.raises(Unavailable, match=r"did not answer within 0\.3 s"):
            await make(provider, timeout_s=0.3).complete("Sum up")


@both
async def test_nobody_listening_is_unavailable(make: Make) -> None:
    with ScriptedProvider() as provider:
        model = make(provider)
    with pytest.raises(Unavailable, match="connection"):
        await model.complete("Sum up")


@both
@pytest.mark.parametrize(("status", "kind"), [(429, RateLimited), (503, Unavailable), (529, Unavailable)])
async def test_a_provider_that_cannot_now_carries_the_pause_it_asked_for(
    make: Make, status: int, kind: type[RateLimited | Unavailable]
) -> None:
    later = datetime.now(UTC) + timedelta(seconds=120)
    with ScriptedProvider([fail(status, retry_after=7), fail(status, retry_after=later)]) as provider:
        model = make(provider)
        with pytest.raises(kind) as seconds:
            await model.complete("Sum up")
        with pytest.raises(kind) as date:
            await model.complete("Sum up")
    assert seconds.value.retry_after_s == 7.0
    assert date.value.retry_after_s == pytest.approx(120, abs=10)


@both
async def test_a_prompt_over_the_window_is_an_overflow_with_its_limit(make: Make) -> None:
    with ScriptedProvider(window=300) as provider, pytest.raises(ContextOverflow) as caught:
        await make(provider).complete("word " * 500, tokens_max=50)
    assert caught.value.tokens_max == 300


@both
async def test_a_model_that_takes_no_temperature_is_asked_without_and_remembered(make: Make) -> None:
    with ScriptedProvider("fine", unsupported=("temperature",)) as provider:
        model = make(provider)
        assert (await model.complete("Sum up")).content == "fine"
        assert (await model.complete("Sum up")).content == "fine"
        assert ["temperature" in seen.json for seen in provider.requests] == [True, False, False]


async def test_old_and_new_names_of_the_output_limit_and_no_stream_options_are_learned() -> None:
    refused = ("max_tokens", "temperature", "stream_options")
    with ScriptedProvider("fine", unsupported=refused) as provider:
        model = make_openai(provider)
        assert (await model.complete("Sum up", tokens_max=9)).content == "fine"
        await model.complete("Sum up", tokens_max=9)
        last = provider.requests[-1].json
    assert len(provider.requests) == 5
    assert last["max_completion_tokens"] == 9
    assert not set(refused) & set(last)


@both
async def test_a_model_that_spends_the_limit_on_thinking_gets_room_for_it_and_is_remembered(make: Make) -> None:
    def think(request: RecordedRequest) -> ScriptedReply:
        if request.json["max_tokens"] <= 200:
            return ScriptedReply("", thinking="hm, let me see", finish_reason="length")
        return ScriptedReply("A summary.", thinking="hm, let me see")

    with ScriptedProvider(think) as provider:
        model = make(provider)
        assert (await model.complete("Sum up", tokens_max=200)).content == "A summary."
        assert (await model.complete("Sum up", tokens_max=200)).content == "A summary."
        assert [seen.json["max_tokens"] for seen in provider.requests] == [200, 8_200, 8_200]


@both
async def test_a_model_that_only_ever_thinks_has_an_end(make: Make) -> None:
    endless = ScriptedReply("", thinking="hm", finish_reason="length")
    with ScriptedProvider(endless, unsupported=("temperature",)) as provider:
        answer = await make(provider).complete("Sum up")
        assert (answer.content, answer.finish_reason) == ("", "length")
        assert len(provider.requests) == 3


async def test_one_model_serves_several_event_loops() -> None:
    import asyncio

    with ScriptedProvider("fine") as provider:
        model = make_openai(provider)
        for _ in range(3):
            answer = await asyncio.to_thread(lambda: asyncio.run(model.complete("Sum up")))
            assert answer.content == "fine"


def test_a_key_is_in_no_repr() -> None:
    for model in (OpenAIModel("m", KEY, f"https://user:{KEY}@host/v1"), AnthropicModel("m", KEY)):
        assert KEY not in repr(model)
        assert KEY not in str(model)
        assert KEY not in model.source


@both
async def test_a_key_of_the_environment_is_never_sent_by_itself(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, "from-the-environment")
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with ScriptedProvider("fine") as provider:
        model = make(provider)
        keyless = type(model)(model.name, "", model.url, 5.0)  # type: ignore[attr-defined,call-arg]
        assert (await keyless.complete("Sum up")).content == "fine"
        assert "from-the-environment" not in str(dict(provider.requests[0].headers))
