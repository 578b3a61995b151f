"""From a stage's question to its reply: attempts, time-outs, models of any shape, and never an exception."""

import asyncio
import threading
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from refold.config import CompressionConfig
from refold.errors import ConfigError, ProviderError, RateLimited, Unavailable
from refold.ladder.run import drive
from refold.llm.errors import RetryLimits, choose_pause
from refold.llm.port import Completion
from refold.llm.summariser import answer_async
from refold.stages.stage import Ask, Reply
from refold.testing import ScriptedModel, ScriptedReply, fail, hang, refuse, say
from tests.rigs.asking import answer_sync

ASK = Ask("Sum up", tokens_max=50, system="Be brief")
QUICK = RetryLimits(attempts_max=3, timeout_s=60.0, delay_s=0.001, delay_max_s=0.002)


def asking() -> Any:
    first = yield ASK
    second = yield Ask("And again", 50)
    return [first, second]


def test_a_ladder_is_driven_without_an_event_loop() -> None:
    replies = drive(asking(), partial(answer_sync, model=ScriptedModel("one", "two"), limits=QUICK))
    assert replies == [Reply("one"), Reply("two")]


async def test_the_sync_way_works_inside_a_running_loop() -> None:
    assert answer_sync(ASK, ScriptedModel("one"), limits=QUICK) == Reply("one")


class OnlyPrompt:
    def __init__(self) -> None:
        self.prompts: list[str] = []

    async def complete(self, prompt: str) -> Any:
        self.prompts.append(prompt)
        return SimpleNamespace(content="from a small model")


class NotAsync:
    def complete(self, prompt: str, tokens_max: int = 0) -> str:
        return f"a bare string, {tokens_max}"


class Foreign:
    async def complete(self, prompt: str, **options: Any) -> Any:
        return SimpleNamespace(content=None, finish_reason="max_tokens", usage={"any": 1}, options=options)


async def test_a_model_that_takes_only_a_prompt_gets_the_system_prompt_in_front_of_it() -> None:
    model = OnlyPrompt()
    assert await answer_async(ASK, model, limits=QUICK) == Reply("from a small model")
    assert model.prompts == ["Be brief\n\nSum up"]


async def test_models_of_other_shapes_are_understood() -> None:
    assert await answer_async(ASK, NotAsync(), limits=QUICK) == Reply("a bare string, 50")
    assert await answer_async(ASK, Foreign(), limits=QUICK) == Reply("", "length")
    double = AsyncMock()
    double.complete.return_value = SimpleNamespace(content="from a double")
    assert await answer_async(ASK, double, limits=QUICK) == Reply("from a double")


@pytest.mark.parametrize(
    ("step", "reply"),
    [
        (say("x", finish_reason="length"), Reply("x", "length")),
        (refuse("No."), Reply("No.", "refusal")),
        ("<think>hm\nhm</think>\n\nThe answer.", Reply("The answer.")),
        ("<think>cut off before the", Reply("")),
        ("It says <think> in the middle.", Reply("It says <think> in the middle.")),
        ("  padded \n", Reply("padded")),
    ],
)
async def test_a_reply_has_the_answer_without_the_text_around_it(step: Any, reply: Reply) -> None:
    assert await answer_async(ASK, ScriptedModel(step), limits=QUICK) == reply


async def test_what_may_pass_is_tried_again_until_it_works() -> None:
    model = ScriptedModel(fail(503), fail(429, retry_after=0.001), "at last")
    assert await answer_async(ASK, model, limits=QUICK) == Reply("at last")
    assert len(model.requests) == 3


async def test_attempts_have_an_end_and_the_reply_says_how_many_there_were() -> None:
    model = ScriptedModel(fail(503))
    reply = await answer_async(ASK, model, limits=QUICK)
    assert (reply.text, reply.finish_reason) == ("", "error")
    assert "503" in str(reply.error)
    assert "(3 attempts)" in str(reply.error)
    assert len(model.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
async def test_what_will_not_change_is_asked_once(status: int) -> None:
    model = ScriptedModel(fail(status))
    assert (await answer_async(ASK, model, limits=QUICK)).error
    assert len(model.requests) == 1


@pytest.mark.parametrize("status", [429, 503, 529])
@pytest.mark.parametrize("pause", [3_600, datetime(2999, 1, 1, tzinfo=UTC)], ids=["seconds", "date"])
async def test_a_pause_longer_than_the_time_left_is_not_waited_for(status: int, pause: float | datetime) -> None:
    model = ScriptedModel(fail(status, retry_after=pause))
    reply = await answer_async(ASK, model, limits=QUICK)
    assert str(status) in str(reply.error)
    assert len(model.requests) == 1


async def test_the_time_out_holds_for_all_attempts_together() -> None:
    model = ScriptedModel(fail(500), hang())
    limits = RetryLimits(attempts_max=3, timeout_s=0.5, delay_s=0.001, delay_max_s=0.001)
    reply = await answer_async(ASK, model, limits=limits)
    assert "no answer within 0.5 s" in str(reply.error)
    assert len(model.requests) == 2


class Blocks:
    def __init__(self) -> None:
        self.released = threading.Event()

    async def complete(self, prompt: str) -> Completion:
        self.released.wait(60)
        return Completion("too late")


def test_even_a_model_that_blocks_its_thread_cannot_hold_up_a_sync_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refold.llm.summariser.GRACE_S", 0.1)
    model = Blocks()
    reply = answer_sync(ASK, model, limits=RetryLimits(timeout_s=0.1))
    model.released.set()
    assert "no answer within" in str(reply.error)


class Raises:
    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.key = "own-" + "key-123456"

    async def complete(self, prompt: str) -> Completion:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), RuntimeError(""), RecursionError(), TypeError("complete() got ..."), StopAsyncIteration()],
)
async def test_whatever_a_model_raises_becomes_a_reply(error: Exception) -> None:
    reply = await answer_async(ASK, Raises(error), limits=QUICK)
    assert reply.error
    assert reply.text == ""


async def test_a_key_that_an_exception_quotes_is_masked() -> None:
    reply = await answer_async(ASK, Raises(RuntimeError("bad key own-key-123456")), limits=QUICK)
    assert "own-key-123456" not in str(reply.error)


async def test_cancelling_passes_through() -> None:
    task = asyncio.create_task(answer_async(ASK, ScriptedModel(hang()), limits=RetryLimits(timeout_s=30)))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_secrets_are_masked_on_the_way_out_unless_that_is_off() -> None:
    secret = "ghp_" + "A1b2C3d4E5" * 4
    ask = Ask(f"Sum up: token {secret}", 50, system=f"never say {secret}")
    model = ScriptedModel("ok")
    await answer_async(ask, model, limits=QUICK)
    await answer_async(ask, model, limits=QUICK, redact=None)
    masked, plain = model.requests
    assert secret not in masked.prompt + masked.system
    assert secret in plain.prompt
    assert secret in plain.system


@pytest.mark.parametrize("name", ["compact_retry_count", "compact_timeout_s"])
def test_limits_have_limits(name: str) -> None:
    for wrong in (0, -1, 1e9):
        with pytest.raises(ConfigError, match=name):
            CompressionConfig(**{name: wrong})


def test_the_pause_doubles_up_to_its_limit_and_is_never_shorter_than_the_provider_asks() -> None:
    doubling = [0.5, 1, 2, 4, 8, 8, 8]
    for number, least in enumerate(doubling, 1):
        pause = choose_pause(Unavailable("busy"), number, 0.5, 8.0)
        assert pause is not None
        assert least <= pause <= least * 1.25
    assert choose_pause(RateLimited("wait", retry_after_s=30.0), 1, 0.5, 8.0) == 30.0
    assert choose_pause(ProviderError("wrong"), 1, 0.5, 8.0) is None


async def test_thinking_that_a_wire_keeps_apart_is_not_a_part_of_the_reply() -> None:
    model = ScriptedModel(ScriptedReply("The answer.", thinking="hm"))
    assert await answer_async(ASK, model, limits=QUICK) == Reply("The answer.")
