"""Passages join to the text they came from, and none is too large."""

from hypothesis import given
from hypothesis import strategies as st

from refold.recall.passages import PASSAGE_WEIGHT_MAX, has_number, is_question, split_passages


@given(st.text(alphabet="ab \n.。端口", max_size=4_000), st.integers(20, 900))
def test_passages_join_to_the_whole_without_gap_or_overlap(text: str, weight_max: int) -> None:
    passages = list(split_passages(text, weight_max))
    assert "".join(text[one.start : one.stop] for one in passages) == text
    assert all(0 < one.stop - one.start <= weight_max for one in passages)


def test_a_short_text_is_one_passage_and_a_long_one_ends_at_lines() -> None:
    assert len(list(split_passages("short"))) == 1
    text = "".join(f"line {number} of the log\n" for number in range(400))
    assert all(text[one.start : one.stop].endswith("\n") for one in split_passages(text))


def test_chinese_passages_are_shorter_because_each_character_weighs_more() -> None:
    passages = list(split_passages("端口是九千零九十。" * 200))
    assert max(one.stop - one.start for one in passages) <= PASSAGE_WEIGHT_MAX // 3 + 1


def test_questions_and_numbers_are_told_apart() -> None:
    assert is_question("Which port did we choose?")
    assert is_question("端口是多少吗")
    assert not is_question("The port is 9090.")
    assert has_number("port 9090")
    assert has_number("三点二十分见")
    assert not has_number("no figures here")
