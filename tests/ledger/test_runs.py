"""Runs: the same numbers in the same order, written shorter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.ledger.sql.database import Span, count_runs, cut_runs, find_runs, has_overlap, join_runs, splice_runs

NUMBERS = st.lists(st.integers(0, 30), max_size=30)


def expand(runs: list[Span]) -> list[int]:
    return [number for first, last in runs for number in range(first, last + 1)]


@given(NUMBERS)
def test_two_runs_report_the_same_numbers(numbers: list[int]) -> None:
    runs = find_runs(numbers)
    assert expand(runs) == numbers
    assert count_runs(runs) == len(numbers)
    assert join_runs((number, number) for number in numbers) == runs
    assert has_overlap(runs) is (len(set(numbers)) < len(numbers))


@given(NUMBERS, st.data())
def test_cutting_runs_is_cutting_the_row(numbers: list[int], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(numbers)))
    stop = data.draw(st.integers(start, len(numbers)))
    assert expand(list(cut_runs(find_runs(numbers), start, stop))) == numbers[start:stop]


@given(NUMBERS, NUMBERS, st.data())
def test_splicing_runs_is_splicing_the_row(numbers: list[int], new: list[int], data: st.DataObject) -> None:
    places = sorted(data.draw(st.lists(st.integers(0, len(numbers)), min_size=4, max_size=4)))
    a, b, c, d = places
    spliced = splice_runs(find_runs(numbers), [(a, b, find_runs(new)), (c, d, [])])
    assert expand(spliced) == numbers[:a] + new + numbers[b:c] + numbers[d:]


@pytest.mark.parametrize("change", [(2, 1), (0, 9), (-1, 0)])
def test_a_splice_outside_the_row_is_refused(change: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="outside of a path"):
        splice_runs([(1, 3)], [(*change, [])])
