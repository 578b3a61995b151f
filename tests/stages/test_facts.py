"""Facts by rule against sentences that were labelled by hand, in both languages; half of them nobody tuned for."""

import json
from pathlib import Path
from typing import Any

import pytest

from refold.stages.extract.facts import classify_sentence

ROWS: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "facts_labelled.jsonl").read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_is_taken_for_a_fact_is_one(language: str) -> None:
    wrong = [
        row["text"]
        for row in ROWS
        if row["lang"] == language and row["kind"] is None and classify_sentence(row["text"], row["role"]) is not None
    ]
    assert wrong == []


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("parts", [("held",), ("first", "tune")], ids=["held back", "the others"])
def test_four_of_five_facts_are_found(language: str, parts: tuple[str, ...]) -> None:
    mine = [row for row in ROWS if row["lang"] == language and row["part"] in parts and row["kind"] is not None]
    missed = [row["text"] for row in mine if classify_sentence(row["text"], row["role"]) is None]
    assert len(mine) >= 15
    assert len(missed) <= len(mine) / 5, missed


def test_found_facts_have_their_kind() -> None:
    found = [(row, kind) for row in ROWS if (kind := classify_sentence(row["text"], row["role"])) and row["kind"]]
    other = [(row["text"], kind) for row, kind in found if kind != row["kind"]]
    assert len(other) <= len(found) / 20, other


@pytest.mark.parametrize(
    ("sentence", "role"),
    [
        ("Keep it up!", "user"),
        ("There must be some mistake.", "user"),
        ("If I use the second form, the test passes.", "assistant"),
        ("Wait, if it turns out that way we fail.", "assistant"),
        ("I suspect the package created this.", "assistant"),
        ("# We need to find where it is updated", "assistant"),
        ("Let's keep doing our part!", "user"),
        ("I'm so happy for you.", "user"),
        ("哪个的票价是100元，评分是4分以上", "user"),
        ("我这就去看看！", "user"),
        ("\ud800" * 10, "user"),
        (" " * 10, "assistant"),
    ],
)
def test_talk_guesses_and_code_are_no_facts(sentence: str, role: str) -> None:
    assert classify_sentence(sentence, role) is None


def test_an_open_box_is_a_todo() -> None:
    assert classify_sentence("- [ ] write the page", "assistant") == "todo"
    assert classify_sentence("[ ] write the page", "user") == "todo"
