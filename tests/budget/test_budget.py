"""Tiers of a budget, and the triggers that look at them."""

from __future__ import annotations

from typing import Any

import pytest

from refold.budget import Counts, Thresholds, Tiers, decide, flat_budget, read_tokens, window_budget
from refold.errors import ConfigError


def test_one_number_is_trigger_limit_and_target() -> None:
    budget = flat_budget(8_000)
    assert budget.soft == budget.hard == budget.target == 8_000


@pytest.mark.parametrize("tokens", [0, -1, 10**12, True, 2.5, "8000 tokens", "9" * 5_000, "9" * 5_000 + "k"])
def test_a_budget_that_is_not_a_sensible_number_is_refused(tokens: Any) -> None:
    with pytest.raises(ConfigError, match="budget"):
        flat_budget(read_tokens(tokens))


def test_the_tiers_are_shares_of_the_window_less_the_reserve() -> None:
    budget = window_budget(100_000, 20_000, Tiers(warn=0.8, soft=0.9, target=0.4))
    assert (budget.hard, budget.soft, budget.warn, budget.target) == (80_000, 72_000, 64_000, 32_000)


def test_an_estimate_lowers_the_limit_by_its_margin() -> None:
    assert window_budget(125_000, 0, Tiers(), margin=0.25).hard == 100_000


def test_a_reserve_as_large_as_the_window_is_refused() -> None:
    with pytest.raises(ConfigError, match="reserve is 8000 but the window is 8000"):
        window_budget(8_000, 8_000, Tiers())


@pytest.mark.parametrize(
    ("tokens", "strength"), [(63_999, "none"), (64_000, "warn"), (72_000, "soft"), (80_000, "soft"), (80_001, "hard")]
)
def test_each_tier_is_reached_exactly_where_it_lies(tokens: int, strength: str) -> None:
    budget = window_budget(100_000, 20_000, Tiers(warn=0.8, soft=0.9, target=0.4))
    trigger = decide(Counts(tokens), budget)
    assert trigger.strength == strength
    assert (f"{tokens:,}" in str(trigger.reason)) is (strength != "none")


def test_with_one_number_reaching_it_still_fits() -> None:
    assert decide(Counts(8_000), flat_budget(8_000)).strength == "none"
    assert decide(Counts(8_001), flat_budget(8_000)).strength == "hard"


@pytest.mark.parametrize(("messages", "acts"), [(99, False), (100, True), (101, True)])
def test_s0_3_rounds_trigger_when_the_threshold_is_reached(messages: int, acts: bool) -> None:
    trigger = decide(Counts(10, messages), flat_budget(10**6), Thresholds(rounds=100))
    assert trigger.acts is acts
    assert trigger.by_count is acts


@pytest.mark.parametrize(("tokens", "acts"), [(3_999, False), (4_000, True)])
def test_s0_3_tokens_trigger_when_the_threshold_is_reached(tokens: int, acts: bool) -> None:
    assert decide(Counts(tokens), flat_budget(10**6), Thresholds(tokens=4_000)).acts is acts


@pytest.mark.parametrize(("turns", "acts"), [(50, False), (51, True)])
def test_s1_1_more_turns_than_the_most_trigger(turns: int, acts: bool) -> None:
    assert decide(Counts(10, 0, turns), flat_budget(10**6), Thresholds(turns=50)).acts is acts


@pytest.mark.parametrize(("reported", "acts"), [(None, False), (79_999, False), (80_000, True)])
def test_s3_4_the_reported_share_of_the_window_triggers(reported: int | None, acts: bool) -> None:
    budget = window_budget(100_000, 0, Tiers())
    trigger = decide(Counts(10, reported_tokens=reported), budget, Thresholds(reported_ratio=0.8))
    assert trigger.acts is acts


def test_over_the_limit_is_stronger_than_any_count() -> None:
    trigger = decide(Counts(900, messages=500), flat_budget(800), Thresholds(rounds=100))
    assert trigger.strength == "hard"
