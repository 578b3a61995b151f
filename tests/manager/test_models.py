"""The seam to a model: its words make the summary; whatever it does wrong, the context fits and is faithful."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from tests.rigs.manager import Model, agent, chat

COUNTED = CompressionConfig.preset("archive").replace(threshold_rounds=10, retention_count=4)
WORDS = "The user and the assistant exchanged a few numbered messages."


def test_a_models_words_make_the_summary(tmp_path: Path) -> None:
    prepared = ContextCompressionManager(COUNTED, tmp_path, llm=Model(WORDS)).prepare_context_sync("s1", chat(12))
    assert prepared.summary is not None
    assert WORDS in prepared.summary


async def test_a_models_words_make_the_summary_in_async_callers_too(tmp_path: Path) -> None:
    manager = ContextCompressionManager(COUNTED, tmp_path, llm=Model(WORDS))
    prepared = await manager.prepare_context("s1", chat(12))
    assert prepared.summary is not None
    assert WORDS in prepared.summary


@pytest.mark.parametrize(
    "answer", ["", "   ", None, 7, RuntimeError("boom"), TimeoutError(), ConnectionResetError("gone"), ["list"]]
)
def test_a_model_that_fails_leaves_the_extract_in_its_place(tmp_path: Path, answer: Any) -> None:
    failing = ContextCompressionManager(COUNTED, tmp_path / "a", llm=Model(answer)).prepare_context_sync("s1", chat(12))
    without = ContextCompressionManager(COUNTED, tmp_path / "b").prepare_context_sync("s1", chat(12))
    assert failing.messages == without.messages


def test_a_model_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    class Silent:
        async def complete(self, prompt: str) -> Any:
            await asyncio.sleep(60)

    manager = ContextCompressionManager(COUNTED, tmp_path, llm=Silent())
    manager._keeper.summariser.timeout_s = 0.05
    assert manager.prepare_context_sync("s1", chat(12)).summary


def test_a_model_with_a_plain_method_works_too(tmp_path: Path) -> None:
    plain = SimpleNamespace(complete=lambda prompt: SimpleNamespace(content=WORDS))
    prepared = ContextCompressionManager(COUNTED, tmp_path, llm=plain).prepare_context_sync("s1", chat(12))
    assert prepared.summary is not None
    assert WORDS in prepared.summary


def test_with_extracts_chosen_summaries_are_extracts(tmp_path: Path) -> None:
    model = Model(WORDS)
    config = COUNTED.replace(fold={"summariser": "extract"})
    ContextCompressionManager(config, tmp_path, llm=model).prepare_context_sync("s1", chat(12))
    assert model.prompts == []


async def test_s3_8_an_abort_while_a_model_is_asked_changes_nothing(tmp_path: Path) -> None:
    asked = asyncio.Event()

    class Slow:
        async def complete(self, prompt: str) -> Any:
            asked.set()
            await asyncio.sleep(60)

    manager = ContextCompressionManager(COUNTED, tmp_path, llm=Slow())
    task = asyncio.create_task(manager.prepare_context("s1", chat(12)))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert manager.ledger.read_edits("s1") == []
    assert manager.verify() == []
    # Neither the session nor its lease is left held.
    quick = ContextCompressionManager(COUNTED, tmp_path)
    assert quick.prepare_context_sync("s1", chat(12)).summary
    manager._keeper.summariser.llm = Model(WORDS)
    assert (await manager.prepare_context("s1", chat(12))).summary


async def test_many_requests_at_once_in_one_event_loop_do_not_wait_for_ever(tmp_path: Path) -> None:
    class Slow:
        async def complete(self, prompt: str) -> Any:
            await asyncio.sleep(0.05)
            return SimpleNamespace(content=WORDS)

    manager = ContextCompressionManager(COUNTED, tmp_path, llm=Slow())
    requests = [manager.prepare_context(f"s{number % 3}", chat(12)) for number in range(30)]
    prepared = await asyncio.wait_for(asyncio.gather(*requests), 60)
    assert len({str(one.messages) for one in prepared}) == 1
    assert [manager.status(f"s{number}").compression_count for number in range(3)] == [1, 1, 1]


def test_overflow_recovery_does_not_depend_on_the_model(tmp_path: Path) -> None:
    config = CompressionConfig(window=4_000, reserve=500)
    manager = ContextCompressionManager(config, tmp_path, llm=Model(RuntimeError("down")))
    prepared = manager.prepare_context_sync("s1", agent(60))
    assert prepared.total_tokens <= 3_500
