"""Facts by rule against sentences that were labelled by hand, in both languages; half of them nobody tuned for."""

import json
from pathlib import Path
from typing import Any

import pytest

from refold.conversation.message import Part
from refold.conversation.view import Fact, FactKind
from refold.formats import OpenAIChat
from refold.reading.facts import find_facts, merge_facts
from refold.reading.read import read
from refold.reading.words import read_words

ROWS: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "facts_labelled.jsonl").read_text(encoding="utf-8").splitlines()
]


def classify_sentence(sentence: str, role: str) -> FactKind | None:
    events = read_words(Part("text", sentence), 0, "person" if role == "user" else "assistant")
    return next((fact.kind for fact in find_facts(events, "m:1")), None)


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


def test_a_fact_is_verbatim_with_its_handle_and_summaries_are_hearsay() -> None:
    chat = OpenAIChat()
    message = chat.parse({"role": "user", "content": "Thanks! My employee number is 48213."})
    assert [(fact.kind, fact.text, fact.handle) for fact in find_facts(read(message), "m:1")] == [
        ("key", "My employee number is 48213.", "m:1")
    ]
    summary = chat.parse({"role": "user", "content": "[Context Summary] My employee number is 48213."})
    assert not list(find_facts(read(summary), "m:1"))


def test_a_pasted_document_states_no_facts_of_the_person() -> None:
    pasted = "My employee number is 48213.\n" * 100
    assert not list(find_facts(read(OpenAIChat().parse({"role": "user", "content": pasted})), "m:1"))


def test_a_fact_that_was_said_again_counts_as_said_last() -> None:
    first, second = (Fact("key", text, "m:1") for text in ("a is 1", "b is 2"))
    again = Fact("key", "a is 1", "m:2")
    assert merge_facts([first, second], [again]) == [second, again]
