"""What a person ordered stays in the context while it holds, however long the chat goes on, and is stated once."""

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager, ContextCompressor, TokenCounter
from tests.rigs.growing import ORDERS, errands, work

# A model's summary of the first fifty messages of ``errands``, every word of which the conversation has.
TOLD = {
    "zh": "用户要求记住楼下1202的刘阿姨有心脏病，下午一点到三点绝对不能动电钻。总预算是18万元，所有报价都用人民币。",
    "en": "The user asked to remember that Mrs Liu in flat 1202 has a heart condition. The total budget is 18,000 EUR.",
}


class Repeats:
    """Answers every prompt with the same words."""

    def __init__(self, words: str) -> None:
        self.words = words

    async def complete(self, prompt: str) -> Any:
        return SimpleNamespace(content=self.words)


def read_view(messages: list[Any]) -> str:
    return "\n".join(str(message["content"]) for message in messages)


@pytest.mark.parametrize("language", ["zh", "en"])
@pytest.mark.parametrize("preset", ["archive", "importance"])
def test_s0_6_and_s1_3_orders_and_budgets_stay_in_view_for_320_messages(
    tmp_path: Path, preset: str, language: str
) -> None:
    said = errands(language, 320)
    folds = 0
    with ContextCompressionManager(CompressionConfig.preset(preset), tmp_path) as manager:
        for at in range(0, len(said), 2):
            prepared = manager.prepare_context_sync("s1", said[: at + 1])
            assert prepared.report is not None
            folds += bool(prepared.report.stages)
            text = read_view(prepared.messages)
            given = [order for place, order in ORDERS[language].items() if place <= at]
            assert [order for order in given if order not in text] == []
            assert not any(line.endswith(("，", ",")) for line in (prepared.summary or "").splitlines())
    assert folds >= 5


@pytest.mark.parametrize("preset", ["archive", "importance"])
@pytest.mark.parametrize(
    ("language", "changed"),
    [("zh", "预算改一下，现在是 19.5 万元。"), ("en", "Let's raise the budget to 21,000 EUR.")],
)
def test_s0_6_and_s1_3_a_budget_that_is_changed_stays_like_the_one_it_replaces(
    tmp_path: Path, preset: str, language: str, changed: str
) -> None:
    said = errands(language)
    said[30]["content"] = changed
    with ContextCompressionManager(CompressionConfig.preset(preset), tmp_path) as manager:
        for at in range(30, len(said), 2):
            assert changed in read_view(manager.prepare_context_sync("s1", said[: at + 1]).messages)


@pytest.mark.parametrize("preset", ["archive", "importance"])
@pytest.mark.parametrize(
    ("language", "orders"),
    [
        ("zh", ("记住：3楼的会议室每次都要提前预约。", "记住：5楼的会议室每次都要提前预约。")),
        (
            "en",
            ("Remember: rooms on floor 3 must be booked early.", "Remember: rooms on floor 5 must be booked early."),
        ),
    ],
)
def test_s0_6_and_s1_3_an_order_of_the_same_form_about_another_thing_stays_beside_the_first(
    tmp_path: Path, preset: str, language: str, orders: tuple[str, str]
) -> None:
    said = errands(language)
    said[20]["content"], said[36]["content"] = orders
    with ContextCompressionManager(CompressionConfig.preset(preset), tmp_path) as manager:
        for at in range(36, len(said), 2):
            text = read_view(manager.prepare_context_sync("s1", said[: at + 1]).messages)
            assert [order for order in orders if order not in text] == []


@pytest.mark.parametrize("language", ["zh", "en"])
def test_s0_4_the_compressor_s_own_summary_comes_back_and_may_be_repeated(language: str) -> None:
    compressor = ContextCompressor(Repeats(TOLD[language]))
    history: list[Any] = []
    written = []
    for message in errands(language, 180):
        history.append(message)
        if len(history) >= 100:
            result = asyncio.run(compressor.compress(history, 50))
            history = result.compressed_messages
            written.append((result.by, result.summary))
    assert len(written) >= 2
    assert set(written) == {("llm", TOLD[language])}


@pytest.mark.parametrize("language", ["zh", "en"])
def test_s0_4_a_model_that_fails_again_and_again_does_not_make_the_summary_grow(tmp_path: Path, language: str) -> None:
    model = Repeats(TOLD[language])
    said = errands(language, 400)
    counter = TokenCounter()
    sizes = []
    with ContextCompressionManager(CompressionConfig.preset("archive"), tmp_path, llm=model) as manager:
        for at in range(0, len(said), 2):
            prepared = manager.prepare_context_sync("s1", said[: at + 1])
            assert prepared.report is not None
            if prepared.report.stages:
                model.words = "Nobody ever named Zanzibar 77431 or /opt/zz/quux.cfg here, but it is decided."
                sizes.append(counter.count_text(prepared.summary or ""))
                lines = [line for line in (prepared.summary or "").splitlines() if line.startswith("U> ")]
                assert len(lines) == len(set(lines))
    assert len(sizes) >= 5
    assert max(sizes) <= 1_500
    assert max(sizes[len(sizes) // 2 :]) < max(sizes), "it does not grow with the chat"


@pytest.mark.parametrize("language", ["zh", "en"])
def test_s2_8_the_labels_of_exact_values_say_what_the_values_are(tmp_path: Path, language: str) -> None:
    config = CompressionConfig.preset("offload").replace(window=16_000, reserve=1_000)
    values: list[str] = []
    with ContextCompressionManager(config, tmp_path) as manager:
        for at, history in enumerate(work(turns=3, language=language)):
            for number, message in enumerate(history):
                if message["role"] == "tool" and number % 3 == 0:
                    lines = [f"src/refund.py:{number}: refund_{number}_{line}()" for line in range(9)]
                    message["content"] = "\n".join([*lines, f"1 failed, {30 + number} passed in 1.{number:02d}s"])
            if at % 4 == 0:
                prepared = manager.prepare_context_sync("s1", history)
                for text in (str(message["content"]) for message in prepared.messages):
                    values += text.partition({"zh": "## 精确值", "en": "## Exact values"}[language])[2].splitlines()
    listed = [line for line in values if line.strip() and not line.startswith("⟨")]
    assert listed
    assert [line for line in listed if re.match(r"[^:：]*(?:passed|failed):|m:[0-9a-f]{6}|[^:：]*$", line)] == []
