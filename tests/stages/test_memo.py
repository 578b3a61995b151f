"""What was read from a text is kept within a bound, and only for that very text."""

from functools import partial

from refold.memo import Memo


class Reader:
    """Reads texts, and notes what it read."""

    def __init__(self) -> None:
        self.read: list[tuple[str, ...]] = []

    def __call__(self, *given: str) -> str:
        self.read.append(given)
        return " ".join(given)


def test_a_text_is_read_once_for_each_thing_that_matters_beside_it() -> None:
    memo, reader = Memo[str](100_000), Reader()
    given = [("one", "user"), ("one", "user"), ("one", "assistant"), ("three", "user")]
    assert [memo.recall(partial(reader, *one), *one) for one in given] == [" ".join(one) for one in given]
    assert reader.read == [("one", "user"), ("one", "assistant"), ("three", "user")]


def test_texts_that_no_encoder_takes_are_told_apart() -> None:
    memo, texts = Memo[str](100_000), ["\ud800", "\udfff", "\ud800\udfff", "", "号"]
    assert [memo.recall(partial(str, one), one) for one in texts * 2] == texts * 2


def test_a_memo_of_a_hundred_thousand_texts_holds_no_more_than_its_bound() -> None:
    memo = Memo[str](1_000_000, len)
    for number in range(100_000):
        memo.recall(partial(str, number), f"text {number}")
    held = [*memo._young.values(), *memo._old.values()]
    assert 0 < sum(300 + len(one) for one in held) <= 1_000_000 + 500


def test_what_is_used_again_and_again_stays_while_others_come_and_go() -> None:
    memo, reader = Memo[str](60_000), Reader()
    for number in range(1_000):
        memo.recall(partial(reader, "the rule"), "the rule")
        memo.recall(partial(str, number), f"text {number}")
    assert reader.read == [("the rule",)]
