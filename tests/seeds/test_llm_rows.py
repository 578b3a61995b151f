"""The rows of the design documents about the model that writes summaries: S0.4, S2.3, S2.7, S3.3, S3.10."""

import inspect
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from refold.config import CompressionConfig, load_config
from refold.designs.compressor import ContextCompressor
from refold.llm.anthropic import AnthropicModel
from refold.llm.choose import Endpoint, choose_model, read_own
from refold.llm.errors import RetryLimits
from refold.llm.openai import OpenAIModel
from refold.llm.port import Model
from refold.llm.summariser import answer_async
from refold.stages.stage import Ask, Reply
from refold.testing import ScriptedModel, ScriptedProvider, fail, hang
from tests.rigs.asking import answer_sync

pytest.importorskip("openai", reason="needs refold[llm]: the official clients")
pytest.importorskip("anthropic", reason="needs refold[llm]: the official clients")

ASK = Ask("Sum up", tokens_max=100)
FAST = {"delay_s": 0.01, "delay_max_s": 0.1}


async def test_s0_4_a_model_is_anything_that_answers_complete_with_content() -> None:
    class Llm:
        async def complete(self, prompt: str) -> Any:
            return SimpleNamespace(content="a summary")

    assert await answer_async(ASK, Llm()) == Reply("a summary")


async def test_s0_4_our_own_models_can_be_handed_to_the_compressor() -> None:
    with ScriptedProvider("一个摘要") as provider:
        compressor = ContextCompressor(OpenAIModel("gpt-4o", "k", provider.openai_url))
        result = await compressor.compress([{"role": "user", "content": f"消息{at}"} for at in range(10)], 4)
    assert result.summary == "一个摘要"
    assert len(provider.requests) == 2


def test_s2_3_the_number_of_attempts_comes_from_the_setting_and_its_variable(tmp_path: Path, empty_home: Path) -> None:
    assert CompressionConfig().compact_retry_count == RetryLimits().attempts_max == 3
    config = load_config(tmp_path, environ={"SYNAPSE_COMPACT_RETRY_COUNT": "2"})
    with ScriptedProvider(fail(503)) as provider:
        model = OpenAIModel("gpt-4o", "k", provider.openai_url)
        reply = answer_sync(ASK, model, limits=RetryLimits(attempts_max=config.compact_retry_count, **FAST))
    assert "(2 attempts)" in str(reply.error)
    assert len(provider.requests) == 2


@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
def test_s2_7_three_attempts_are_made_and_the_third_may_succeed(status: int) -> None:
    with ScriptedProvider([fail(status), fail(status), "a summary"]) as provider:
        model = AnthropicModel("claude-x", "k", provider.anthropic_url)
        assert answer_sync(ASK, model, limits=RetryLimits(**FAST)) == Reply("a summary")
    assert len(provider.requests) == 3


def test_s2_7_after_the_last_attempt_there_is_a_reason_and_no_text() -> None:
    with ScriptedProvider(fail(500, "down for today")) as provider:
        reply = answer_sync(ASK, OpenAIModel("m", "k", provider.openai_url), limits=RetryLimits(**FAST))
    assert reply.text == ""
    assert "down for today (3 attempts)" in str(reply.error)


@pytest.mark.parametrize("status", [429, 503, 529])
def test_s2_7_the_delay_grows_and_a_longer_one_that_is_asked_for_is_kept(status: int) -> None:
    arrived: list[float] = []

    def note(_request: object) -> Any:
        arrived.append(time.monotonic())
        return fail(status, retry_after=0.3) if len(arrived) == 2 else fail(503)

    with ScriptedProvider(note) as provider:
        limits = RetryLimits(attempts_max=3, delay_s=0.05, delay_max_s=0.1)
        answer_sync(ASK, OpenAIModel("m", "k", provider.openai_url), limits=limits)
    first, second = (after - before for before, after in pairwise(arrived))
    assert first >= 0.05
    assert second >= 0.3


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_s2_7_what_trying_again_cannot_mend_is_asked_once(status: int) -> None:
    with ScriptedProvider(fail(status)) as provider:
        assert answer_sync(ASK, OpenAIModel("m", "k", provider.openai_url), limits=RetryLimits(**FAST)).error
    assert len(provider.requests) == 1


def test_s3_3_thirty_seconds_and_a_low_temperature_are_what_holds_unless_set() -> None:
    assert RetryLimits().timeout_s == OpenAIModel("m").timeout_s == AnthropicModel("m").timeout_s == 30.0
    for complete in (Model.complete, OpenAIModel.complete, AnthropicModel.complete, ScriptedModel.complete):
        assert inspect.signature(complete).parameters["temperature"].default == 0.2


@pytest.mark.parametrize("kind", [OpenAIModel, AnthropicModel])
def test_s3_3_the_temperature_reaches_the_provider(kind: Any) -> None:
    with ScriptedProvider("ok") as provider:
        url = provider.openai_url if kind is OpenAIModel else provider.anthropic_url
        answer_sync(ASK, kind("m", "k", url))
        assert provider.requests[0].json["temperature"] == 0.2


def test_s3_3_the_time_out_is_for_all_attempts_together() -> None:
    with ScriptedProvider([fail(503), hang()]) as provider:
        limits = RetryLimits(timeout_s=0.5, **FAST)
        reply = answer_sync(ASK, OpenAIModel("m", "k", provider.openai_url), limits=limits)
    assert "no answer within 0.5 s" in str(reply.error)


def test_s3_10_summaries_have_their_own_model_address_and_key() -> None:
    conversation = Endpoint("gpt-4o", "openai", key="key-of-the-conversation")
    with ScriptedProvider("from the small one", key="key-of-the-small-one") as provider:
        own = read_own({}, conversation, model="small-1", url=provider.openai_url, key="key-of-the-small-one")
        choice = choose_model(own, conversation, tokens_needed=5_000)
        assert choice.model is not None
        assert answer_sync(ASK, choice.model) == Reply("from the small one")
        assert provider.requests[0].model == "small-1"
    assert not choice.note


def test_s3_10_without_an_own_model_or_with_one_too_small_the_conversations_is_asked() -> None:
    with ScriptedProvider("from the large one") as provider:
        conversation = Endpoint("gpt-4o", "openai", provider.openai_url, "k")
        for own in (None, Endpoint("gpt-4", "openai", "http://127.0.0.1:9/v1")):
            choice = choose_model(own, conversation, tokens_needed=20_000)
            assert choice.model is not None
            assert answer_sync(ASK, choice.model) == Reply("from the large one")
            assert bool(choice.note) is (own is not None)
