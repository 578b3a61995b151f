"""Exact values and their owners: tables of examples, and the order in which they are likely needed."""

import json
import re
from typing import Any

import pytest

from refold.conversation.message import Part
from refold.formats.detect import make_format, parse_messages
from refold.reading.events import Action, FileChange, Value, ValueSource
from refold.reading.read import read_all
from refold.reading.rules import read_table
from refold.reading.values import VALUES_MAX, classify_word, read_values
from refold.reading.weights import Evidence


def owned(text: str, source: ValueSource = "person") -> dict[str, str]:
    return {value.text: value.owner for value in read_values(Part("text", text), 0, source)}


TABLE = read_table("rules/values.toml")


@pytest.mark.parametrize("example", TABLE["owned"], ids=lambda example: example["text"][:40])
def test_a_value_has_an_owner_that_makes_sense_or_explains_itself(example: dict[str, Any]) -> None:
    found = owned(example["text"], example["by"])
    assert {value: found.get(value) for value, _ in example["values"]} == dict(example["values"])
    assert [value for value in example.get("none", ()) if value in found] == []


@pytest.mark.parametrize("rule", TABLE["listing"], ids=lambda rule: rule["yes"][0])
def test_a_line_of_a_listing_is_known_by_its_form(rule: dict[str, Any]) -> None:
    pattern = re.compile(f"^(?:{rule['is']})")
    assert [line for line in rule["yes"] if not pattern.match(line)] == []
    assert [line for line in rule["no"] if pattern.match(line)] == []


@pytest.mark.parametrize("rule", TABLE["sort"], ids=lambda rule: rule["yes"][0])
def test_a_word_has_a_sort(rule: dict[str, Any]) -> None:
    assert [classify_word(word) for word in rule["yes"]] == [(rule["sort"], word) for word in rule["yes"]]


def test_words_that_every_program_has_are_no_values() -> None:
    assert [word for word in TABLE["no_value"]["yes"] if classify_word(word)] == []
    assert [word for word in TABLE["no_value"]["no"] if not classify_word(word)] == []


def test_a_message_that_names_only_a_field_means_the_name_before_it() -> None:
    said = ("北京京仪大酒店的电话是多少？", "电话是010-62165588。", "谢谢", "评分是4.7分。")
    roles = ("user", "assistant") * 2
    talk = parse_messages(
        make_format("openai"), [{"role": role, "content": text} for role, text in zip(roles, said, strict=True)]
    )
    found = [(event.text, event.owner) for events in read_all(talk) for event in events if isinstance(event, Value)]
    assert ("010-62165588", "北京京仪大酒店 › 电话") in found
    assert ("4.7分", "北京京仪大酒店 › 评分") in found
    alone = [event for events in read_all(talk[1:2]) for event in events if isinstance(event, Value)]
    assert alone == []


def test_a_result_belongs_to_what_its_call_asked_for() -> None:
    call = Action(tool="get_user_details", text="user_id=anya_1", targets=("anya_1",))
    record = '{"email": "a@b.example", "membership": "gold", "id": 10}'
    found = {value.text: value.owner for value in read_values(Part("result", record), 0, "result", call)}
    assert found == {"a@b.example": "user anya_1 › email", "gold": "user anya_1 › membership", "10": "user anya_1 › id"}


def test_a_value_is_where_it_says() -> None:
    text = "Order A-1 costs $1,200.50 at https://a.example/x, mail b@c.example; `run_all` in “Blue Moon” on May 2."
    for value in read_values(Part("text", text), 3, "assistant"):
        assert text[value.start : value.stop] == value.text
        assert (value.part, value.source) == (3, "assistant")


def test_a_field_belongs_to_the_record_that_has_it() -> None:
    record = {
        "reservation_id": "EHGLP3",
        "status": "cancelled",
        "flights": [{"flight_number": "HAT045", "price": 131}],
        "passengers": [{"first_name": "Mei", "last_name": "Li", "dob": "1990-01-02"}],
    }
    assert owned(json.dumps(record), "result") == {
        "EHGLP3": "reservation_id",
        "cancelled": "reservation EHGLP3 › status",
        "HAT045": "reservation EHGLP3 › flight_number",
        "131": "flight HAT045 › price",
        "Mei": "Mei Li › first_name",
        "Li": "Mei Li › last_name",
        "1990-01-02": "Mei Li › dob",
    }


def test_what_a_harness_writes_is_no_value() -> None:
    text = (
        "Chunk ID: 88398a\nWall time: 0.25 seconds\nOutput:\n"
        "key: AB-99\n<system-reminder>\nsee NOTE_7.md\n</system-reminder>"
    )
    assert owned(text, "result") == {"AB-99": "key"}


def test_the_values_of_one_part_are_bounded() -> None:
    text = "\n".join(f"row id: AB{at:06}" for at in range(5_000))
    assert len(read_values(Part("result", text), 0, "result")) == VALUES_MAX


@pytest.mark.parametrize("text", ["", "\ud800 X-99 \udfff", "{" * 5_000, '{"a": "\\ud800"}', "null", "[1, 2", "\x00"])
@pytest.mark.parametrize("source", ["person", "call", "result"])
def test_broken_text_is_read_as_far_as_possible(text: str, source: ValueSource) -> None:
    assert isinstance(read_values(Part("text", text), 0, source), tuple)


def test_what_was_asked_for_and_written_comes_before_a_crowd() -> None:
    crowd = [Value(text=f"row{at:04}", sort="id", source="result", owner="row") for at in range(200)]
    events = [
        (Value(text="3RK2T9", sort="id", source="person", owner="reservation"),),
        (Value(text="src/app.py", sort="file", source="call", owner="path"), FileChange(path="src/app.py")),
        tuple(crowd),
    ]
    texts = {one.text for own in events for one in own if isinstance(one, Value)}
    ranked = [one.text for _, one in Evidence(events).rank(texts)]
    assert set(ranked[:2]) == {"3RK2T9", "src/app.py"}
    assert ranked == [one.text for _, one in Evidence(events).rank(texts)]
