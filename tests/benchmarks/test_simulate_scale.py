"""The model of several gateways on one database: fitted to rates that follow it, it gives them back."""

import pytest

from benchmarks.simulate_scale import Costs, Law, Shape, fit_law, simulate


def test_a_law_is_found_again_in_the_rates_that_follow_it() -> None:
    law = Law(alone=150.0, shared=0.08, crosstalk=0.01)
    found = fit_law({count: law.rate_of(count) for count in (1, 2, 4, 8)})
    assert (found.alone, found.shared, found.crosstalk) == pytest.approx((150.0, 0.08, 0.01))
    assert found.best_count == 10
    assert found.rate_of(10) > max(found.rate_of(9), found.rate_of(11)) * 0.999


def test_gateways_that_do_not_wait_for_each_other_have_no_limit() -> None:
    found = fit_law({1: 100.0, 2: 200.0, 4: 400.0})
    assert (found.shared, found.crosstalk) == pytest.approx((0.0, 0.0), abs=1e-9)
    assert found.best_count is None


def test_no_cost_comes_out_negative() -> None:
    found = fit_law({1: 100.0, 2: 230.0, 4: 390.0})
    assert found.shared >= 0
    assert found.crosstalk >= 0
    assert 80 < found.alone < 130


def test_a_day_has_all_its_requests() -> None:
    day = simulate(1_000, Shape(20, 30, 2.0, 0.2), Costs(7.0, 300.0, 2.2, 1_500.0, 200.0))
    assert day.requests == 20_000
    assert day.rate_mean == pytest.approx(20_000 / 86_400)
    assert 1.8 < day.rate_peak / day.rate_mean < 2.1
