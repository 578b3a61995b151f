"""What is written loads back equal: provider objects, edits, any text."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.conversation.reason import Reason, text_reason
from refold.conversation.view import Artifact, Edit, Fact, FoldRecord
from refold.errors import FormatError
from refold.ledger.codec import decode_edit, decode_text, dump_json, encode_edit, encode_text, load_json

ANY_TEXT = st.text(alphabet=st.characters(categories=None), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_json_loads_back_equal(value: object) -> None:
    loaded = load_json(dump_json(value))
    assert loaded == value
    assert repr(loaded) == repr(value)


@pytest.mark.parametrize("value", [math.inf, -math.inf, 2**64, -(2**63) - 1, "\ud800", [1, {"\udfff": "中"}], -0.0])
def test_what_orjson_cannot_hold_is_kept(value: object) -> None:
    assert load_json(dump_json({"a": value})) == {"a": value}


def test_not_a_number_is_not_turned_into_null() -> None:
    assert math.isnan(load_json(dump_json({"a": [None, math.nan]}))["a"][1])


def test_digits_inside_text_are_left_alone() -> None:
    value = {"id": "12345678901234567890123", "n": 1.5}
    assert load_json(dump_json(value)) == value


@pytest.mark.parametrize("value", [{1: "a"}, {"a": {1}}, {"a": object()}, {"a": b"x"}, {"\ud800": {2: 1}}])
def test_what_is_not_json_is_refused(value: object) -> None:
    with pytest.raises(FormatError, match="only JSON"):
        dump_json(value)


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(FormatError, match="only JSON"):
        dump_json(value)


@given(ANY_TEXT)
def test_any_text_fits_a_column(text: str) -> None:
    stored = encode_text(text)
    assert decode_text(stored) == text
    if isinstance(stored, str):
        stored.encode()


FACTS = st.builds(Fact, st.sampled_from(["preference", "decision", "todo", "key"]), ANY_TEXT, ANY_TEXT)
ARTIFACTS = st.builds(Artifact, ANY_TEXT, ANY_TEXT, ANY_TEXT, ANY_TEXT, st.floats(allow_nan=False))
FOLDS = st.builds(
    FoldRecord, ANY_TEXT, ANY_TEXT, st.lists(FACTS, max_size=2).map(tuple), st.lists(ARTIFACTS, max_size=2).map(tuple),
    st.lists(ANY_TEXT, max_size=2).map(tuple), st.tuples(st.integers(0, 9), st.integers(0, 9)), ANY_TEXT,
)  # fmt: skip


REASONS = st.builds(
    Reason, st.sampled_from(["fold.hard", "veto", "text", "of.another.version"]),
    st.dictionaries(ANY_TEXT, st.none() | ANY_TEXT | st.integers(0, 9) | ANY_TEXT.map(text_reason), max_size=2),
)  # fmt: skip


@given(
    st.builds(
        Edit, st.just("fold"), ANY_TEXT, st.just(("00", "11")), text=ANY_TEXT, reason=REASONS,
        role=st.sampled_from(["user", "assistant"]), level=st.integers(-3, 3), fold=st.none() | FOLDS,
        made_from=st.lists(ANY_TEXT, max_size=2).map(tuple), tokens_before=st.integers(0), tokens_after=st.integers(0),
    )
)  # fmt: skip
def test_an_edit_loads_back_equal_and_its_id_can_be_computed_again(edit: Edit) -> None:
    again = decode_edit(encode_edit(edit), edit.covers)
    assert again == edit
    assert again.id == edit.id
    assert decode_edit(encode_edit(edit), edit.covers, "given").id == "given"
