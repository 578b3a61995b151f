"""The trigger against the cheapest schedule in hindsight, for constant and for growing sizes."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.hindsight import (
    Schedule,
    Trace,
    compare_costs,
    find_best_schedule,
    find_unavoidable,
    run_trigger,
)
from refold.budget import Budget, Economics, Tariff
from refold.tokens import CacheRules

TARIFF = Tariff(CacheRules(read=0.1, write=1.25, lifetime_s=300), output=5.0)
WIDE = Budget(hard=10**9, soft=10**9, warn=10**9, target=1_000, window=10**9)


def pay(trace: Trace, cuts: tuple[int, ...]) -> float:
    """The cost of a schedule, computed in the plainest way: each request reads what it shares and writes the rest."""
    cost, size = 0.0, 0
    for at, new in enumerate(trace.growth):
        shared = trace.head_tokens if at in cuts else size
        size = (trace.floor_tokens if at in cuts else size or trace.head_tokens) + new
        cost += 0.1 * shared + 1.25 * (size - shared)
    return cost


def test_a_bill_by_hand() -> None:
    # 1,250 written at first; then 1,000 read and 500 written; then cut: 200 read, 100 + 500 written.
    trace = Trace(head_tokens=200, kept_tokens=100, growth=(800, 500, 500))
    assert pay(trace, (2,)) == pytest.approx(1_250 + 100 + 625 + 20 + 750)
    assert find_unavoidable(trace, TARIFF) == pytest.approx(1.25 * 2_000 + 0.1 * 200 * 2)


@given(st.integers(0, 500), st.integers(1, 500), st.lists(st.integers(1, 2_000), min_size=1, max_size=9), st.data())
def test_no_other_schedule_is_cheaper_than_the_best(
    head: int, kept: int, growth: list[int], data: st.DataObject
) -> None:
    trace = Trace(head, kept, tuple(growth))
    best = find_best_schedule(trace, 10**9, TARIFF)
    assert best.cost == pytest.approx(pay(trace, best.cuts))
    every = [cuts for count in range(len(growth)) for cuts in itertools.combinations(range(1, len(growth)), count)]
    assert best.cost <= min(pay(trace, cuts) for cuts in every) + 1e-6
    ours = run_trigger(trace, WIDE, Economics(TARIFF))
    assert ours.cost == pytest.approx(pay(trace, ours.cuts))
    assert ours.cost >= best.cost - 1e-6


def test_the_window_forces_a_cut() -> None:
    trace = Trace(100, 500, (400, 400, 400))
    assert find_best_schedule(trace, 1_200, TARIFF).cuts == (2,)
    assert find_best_schedule(trace, 10**9, TARIFF).cuts == ()
    tight = Budget(hard=1_200, soft=1_190, warn=900, target=600, window=1_200)
    assert run_trigger(trace, tight, Economics(TARIFF)).cuts == (2,)


@given(st.integers(0, 3_000), st.integers(50, 5_000), st.integers(20, 3_000), st.integers(2, 150))
def test_for_steady_growth_folding_costs_no_more_than_never_folding_and_one_rewrite(
    head: int, kept: int, growth: int, requests: int
) -> None:
    trace = Trace(head, kept, (kept + growth, *([growth] * requests)))
    room = Budget(hard=10**9, soft=10**9, warn=10**9, target=max(1, head + kept), window=10**9)
    ours = run_trigger(trace, room, Economics(TARIFF)).cost
    never = run_trigger(trace, room, Economics(TARIFF, share_min=1.0)).cost
    # Only the newest fold may not have paid for itself yet.
    assert ours <= never + 1.25 * (kept + growth)


def test_a_rule_that_waits_four_times_as_long_breaks_the_bound() -> None:
    # The bound above is not trivial: for constant sizes, acting only after paying four times the price costs more.
    kept, removable, requests = 1_000, 1_000, 46
    waits = Schedule((requests,), 0.1 * removable * requests + 1.15 * kept)
    best = min(1.15 * kept, 0.1 * removable * (requests + 1))
    assert waits.cost > 2 * best + 0.1 * removable


def test_ratios_are_of_the_sums_and_of_the_worst() -> None:
    assert compare_costs([2.0, 3.0, 5.0], [1.0, 3.0, 0.0]) == (2.5, 2.0)
    assert compare_costs([], []) == (1.0, 1.0)
