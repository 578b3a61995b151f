"""Instructions of a person steer the summary that no model writes: what matches comes first, verbatim."""

from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager, compress
from refold.stages.record.lines import RecordLine
from refold.stages.record.steer import read_focus, steer_lines

SMALL = CompressionConfig(window=3_000, reserve=300, summariser="extract")

PLANTS = (
    "roses",
    "mint",
    "sage",
    "beans",
    "peas",
    "kale",
    "leeks",
    "chard",
    "cress",
    "thyme",
    "basil",
    "onions",
    "garlic",
)
TOOLS = ["fleece", "glass", "straw", "gravel", "mulch", "lime", "ash", "peat", "sand", "bark", "clay", "fern"]


def talk(*old: str, filler: int = 150) -> list[Any]:
    """Old words, a lot of talk after them, and a question."""
    messages: list[Any] = [{"role": "user", "content": "Let us plan the week."}]
    for words in old:
        messages.append({"role": "assistant", "content": words})
        messages.append({"role": "user", "content": "Fine, go on."})
    for number in range(filler):
        # Causes and decisions are worth more than the sentence that only the instructions make matter.
        plant, tool = PLANTS[number % len(PLANTS)], TOOLS[number // len(PLANTS)]
        messages.append({"role": "assistant", "content": f"The {plant} failed because of frost, we decided on {tool}."})
        messages.append(
            {"role": "user", "content": f"And what comes after point {number} of the plan, in general terms?"}
        )
    return messages


def folded(messages: list[Any], instructions: str) -> str:
    result = compress(messages, budget=1_200, config=SMALL, instructions=instructions)
    assert result.total_tokens <= 1_200
    return "\n".join(edit.text for edit in result.edits if edit.fold)


@pytest.mark.parametrize(
    ("sentence", "instructions"),
    [
        ("It calls createInvoice there.", "keep the invoice API names"),
        ("The greenhouse is rented from the Lindqvist family until spring.", "Remember who the greenhouse belongs to"),
        ("温室是向林家租的，租到春天为止。", "请保留温室的信息"),
    ],
)
def test_what_the_instructions_name_is_in_the_summary(sentence: str, instructions: str) -> None:
    messages = talk(sentence)
    assert sentence in folded(messages, instructions)


def test_a_line_that_matches_the_instructions_is_worth_more_than_any_other() -> None:
    lines = [
        RecordLine("found", "The mint failed because of frost.", 3.0, 1),
        RecordLine("happened", "The oak is old.", 0.4, 2),
    ]
    steered = steer_lines(lines, read_focus("keep everything about the oak"))
    assert steered[0] == lines[0]
    assert steered[1].worth > steered[0].worth


def test_exact_values_that_were_asked_for_come_first_in_the_index() -> None:
    values = " ".join(f"v{number}.{number + 3}.{number + 1}" for number in range(120, 160))
    messages = talk(f"The builds were {values}.", "It calls compute_tariff_zone and then freeze_ledger_row once.")
    assert "compute_tariff_zone" in folded(messages, "keep function names")


def test_what_may_go_is_not_asked_for() -> None:
    assert not read_focus("drop the small talk, forget the weather")
    wish = read_focus("Keep the payment endpoints, but drop the weather. 不要保留天气，保留接口名称")
    assert "payment" in wish.words
    assert "weather" not in wish.words
    assert not any("天气" in word for word in wish.words)
    assert "identifier" in wish.sorts


@pytest.mark.parametrize("odd", ["", "   ", "\ud800", "(((", "." * 5_000, "keep " * 3_000, "\\d+[", "保" * 4_000])
def test_any_instructions_will_do(odd: str) -> None:
    assert folded(talk("One thing."), odd)


def test_the_instructions_themselves_are_not_written() -> None:
    text = folded(talk("The gate code was changed."), "keep the gate zebra-instruction")
    assert "The gate code was changed." in text
    assert "zebra" not in text


def test_a_manual_compression_is_steered_too(tmp_path: Any) -> None:
    manager = ContextCompressionManager(SMALL, tmp_path)
    manager.append("s1", talk("The greenhouse is rented from the Lindqvist family until spring."))
    manager.compress("s1", instructions="everything about the greenhouse")
    prepared = manager.prepare_context_sync("s1")
    assert "Lindqvist" in str(prepared.messages)
    manager.close()
