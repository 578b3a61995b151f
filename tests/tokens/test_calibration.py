"""Reported usage narrows the margin of an estimate, and nonsense changes nothing."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.tokens import Calibration

STATED = 0.25


def observe_all(ratios: list[float], model: str = "m", counted: int = 10_000) -> Calibration:
    seen = Calibration()
    for ratio in ratios:
        seen = seen.observe(model, counted, round(counted * ratio))
    return seen


def test_without_reports_the_stated_margin_holds() -> None:
    assert Calibration().margin_for("m", STATED) == STATED
    assert Calibration().factor_for("m") == 1.0


def test_the_margin_narrows_with_every_report_that_agrees() -> None:
    margins = [observe_all([1.0] * count).margin_for("m", STATED) for count in range(8)]
    assert margins == sorted(margins, reverse=True)
    assert margins[0] == STATED
    assert margins[-1] < STATED / 4


def test_the_factor_is_that_of_the_reports() -> None:
    assert observe_all([1.1] * 5).factor_for("m") == pytest.approx(1.1)
    assert observe_all([0.8] * 5).factor_for("m") == pytest.approx(0.8)


def test_an_estimate_that_is_too_low_gets_a_margin_that_covers_it() -> None:
    seen = observe_all([1.4, 1.45, 1.42, 1.38] * 10)
    assert seen.margin_for("m", STATED) >= 0.42


def test_observing_returns_a_new_value_and_leaves_the_old_one() -> None:
    before = observe_all([1.1])
    after = before.observe("m", 1_000, 1_500)
    assert before == observe_all([1.1])
    assert after != before
    assert hash(after) != hash(before)


@pytest.mark.parametrize(
    ("counted", "reported"),
    [
        (0, 100),
        (-5, 100),
        (100, 0),
        (100, -1),
        (100, 10_000),
        (10_000, 100),
        (100, math.inf),
        (100, math.nan),
        (math.nan, 1),
        (100, None),
        (100, "many"),
        (100, 10**400),
        (10**400, 100),
        (math.inf, math.inf),
    ],
)
def test_a_report_that_cannot_be_true_changes_nothing(counted: Any, reported: Any) -> None:
    known = observe_all([1.1, 1.1])
    assert known.observe("m", counted, reported) == known


def test_one_strange_report_does_not_undo_what_many_said() -> None:
    steady = observe_all([1.05] * 20)
    shaken = steady.observe("m", 10_000, 48_000)
    assert shaken.factor_for("m") == pytest.approx(1.05, abs=0.03)


def test_a_tokenizer_that_changes_is_noticed() -> None:
    assert observe_all([1.0] * 200 + [1.3] * 60).factor_for("m") == pytest.approx(1.3, abs=0.03)


def test_a_short_request_says_less_than_a_long_one() -> None:
    short, long = Calibration().observe("m", 50, 50), Calibration().observe("m", 50_000, 50_000)
    assert short.margin_for("m", STATED) > long.margin_for("m", STATED)


def test_models_are_kept_apart_and_the_oldest_are_let_go() -> None:
    seen = observe_all([1.2], "first")
    for number in range(200):
        seen = seen.observe(f"model {number}", 5_000, 5_500)
    assert len(seen.tracks) == 64
    assert seen.factor_for("first") == 1.0
    assert seen.factor_for("model 199") == pytest.approx(1.1)


@given(reports=st.lists(st.tuples(st.integers(-10, 10**7), st.integers(-10, 10**9)), max_size=60))
def test_whatever_is_reported_factor_and_margin_stay_sane(reports: list[tuple[int, int]]) -> None:
    seen = Calibration()
    for counted, reported in reports:
        seen = seen.observe("m", counted, reported)
    assert 0.2 <= seen.factor_for("m") <= 5.0
    assert 0.02 <= seen.margin_for("m", STATED) <= 1.0
