"""Exact values and their owners: tables of examples, and the order in which they are likely needed."""

import json

import pytest

from refold.conversation.message import Part
from refold.reading.events import FileChange, Value, ValueSource
from refold.reading.values import VALUES_MAX, read_values
from refold.reading.weights import gather, list_features, rank


def owned(text: str, source: ValueSource = "person") -> dict[str, str]:
    return {value.text: value.owner for value in read_values(Part("text", text), 0, source)}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "My user ID is anya_garcia_5901, and the reservation ID is 3RK2T9.",
            {"anya_garcia_5901": "user", "3RK2T9": "reservation"},
        ),
        ("The total is $305.", {"$305": "total"}),
        ("We sent a refund of $50.", {"$50": "refund"}),
        ("- **Total Additional Cost:** $897", {"$897": "Total Additional Cost"}),
        ("Please move it to May 24, 2024.", {"May 24, 2024": "move"}),
        ("Flight HAT052 leaves at 03:00.", {"HAT052": "Flight", "03:00": "Flight leaves"}),
        ("您记一下，电话是61709988,61709440。", {"61709988": "电话", "61709440": "电话"}),
        ("这家餐馆的评分是4.5分。", {"4.5分": "餐馆的评分"}),
        ("See src/app.py and run_all().", {"src/app.py": "", "run_all": ""}),
        ("It happened 4711", {}),
    ],
)
def test_a_value_has_an_owner_or_explains_itself(text: str, wanted: dict[str, str]) -> None:
    found = owned(text)
    assert {value: found.get(value) for value in wanted} == wanted
    assert "4711" not in found or found["4711"]


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
    ranked = [one.value.text for _, one in rank(gather(events), len(events))]
    assert set(ranked[:2]) == {"3RK2T9", "src/app.py"}
    assert ranked == [one.value.text for _, one in rank(gather(events), len(events))]


def test_a_field_that_calls_ask_for_is_known() -> None:
    events = [
        (Value(text="P1", sort="id", source="call", owner="payment_id"),),
        (
            Value(text="P2", sort="id", source="result", owner="payment P2 › payment_id"),
            Value(text="Q2", sort="id", source="result", owner="payment P2 › seat"),
        ),
    ]
    features = list_features(gather(events), 2)
    assert (features["P2"]["asked"], features["Q2"]["asked"]) == (1.0, 0.0)
