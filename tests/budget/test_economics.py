"""What a request costs and when a change pays: every figure here was worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.budget import Budget, Carry, Charge, Counts, Economics, Tariff
from refold.budget.economics import (
    Request,
    charge_ask,
    charge_request,
    check_economics,
    count_removable,
    sum_charges,
)
from refold.conversation import because
from refold.tokens.models import NO_CACHE, CacheRules, Cliff, model_info

CACHE = CacheRules(read=0.1, write=1.25, lifetime_s=300)
TARIFF = Tariff(CACHE, output=5.0)


def budget(target: int, hard: int = 1_000_000) -> Budget:
    return Budget(hard=hard, soft=hard, warn=hard, target=target, window=hard)


def test_a_first_request_is_written_and_nothing_is_read() -> None:
    # 1,000 x 1.25 and 40 x 5.
    assert charge_request(Request(1_000, output_tokens=40), TARIFF) == Charge(write=1_250.0, output=200.0)


def test_a_kept_prefix_is_read_and_the_rest_is_written() -> None:
    # 800 x 0.1 and 200 x 1.25.
    assert charge_request(Request(1_000, 800), TARIFF) == Charge(read=80.0, write=250.0)


def test_after_its_lifetime_the_prefix_is_written_again() -> None:
    assert charge_request(Request(1_000, 800, idle_s=300.0), TARIFF).read == 80.0
    assert charge_request(Request(1_000, 800, idle_s=301.0), TARIFF) == Charge(write=1_250.0)


def test_less_than_the_minimum_is_neither_read_nor_written() -> None:
    tariff = Tariff(CacheRules(read=0.1, write=1.25, lifetime_s=300, tokens_min=1_024), output=5.0)
    assert charge_request(Request(1_000, 900), tariff) == Charge(new=1_000.0)
    # 2,000 tokens are enough to write, but of the 1,000 that are shared none was worth caching.
    assert charge_request(Request(2_000, 1_000), tariff) == Charge(write=2_500.0)


def test_a_cache_in_steps_reads_whole_steps_only() -> None:
    tariff = Tariff(CacheRules(read=0.5, lifetime_s=300, tokens_min=1_024, step_tokens=128), output=4.0)
    # 1,300 shared = 10 steps of 128 = 1,280 read at a half; 720 written at the plain price.
    assert charge_request(Request(2_000, 1_300), tariff) == Charge(read=640.0, write=720.0)


def test_without_a_cache_everything_is_new() -> None:
    assert charge_request(Request(1_000, 800, 10), Tariff(NO_CACHE, output=2.0)) == Charge(new=1_000.0, output=20.0)


def test_above_a_cliff_the_whole_request_costs_more() -> None:
    tariff = Tariff(CACHE, 5.0, (Cliff(1_000, 2.0, 1.5), Cliff(5_000, 5.0, 5.0)))
    assert charge_request(Request(1_000, 500, 10), tariff) == Charge(read=50.0, write=625.0, output=50.0)
    # (500 x 0.1 and 501 x 1.25) x 2, and 10 x 5 x 1.5.
    assert charge_request(Request(1_001, 500, 10), tariff) == Charge(read=100.0, write=1_252.5, output=75.0)
    assert charge_request(Request(6_000, 0, 10), tariff) == Charge(write=37_500.0, output=250.0)


def test_a_summariser_pays_full_price_for_its_prompt_and_its_answer() -> None:
    assert charge_ask(2_000, 100, TARIFF) == Charge(summariser=2_500.0)


def test_a_request_never_reads_more_than_it_has() -> None:
    assert charge_request(Request(100, 500), TARIFF) == Charge(read=10.0)


def test_bills_add_up_by_cause() -> None:
    charges = [Charge(read=0.1)] * 10 + [Charge(write=1.0, output=2.0), Charge(new=3.0, summariser=4.0)]
    whole = sum_charges(charges)
    assert whole == Charge(read=1.0, write=1.0, new=3.0, output=2.0, summariser=4.0)
    assert (whole.input, whole.total) == (5.0, 11.0)


def test_a_models_tariff_follows_its_prices() -> None:
    info = model_info("gpt-4o")
    assert info.prices is not None
    assert Tariff.of_model(info).output == info.prices.output / info.prices.input
    assert Tariff.of_model(model_info("no-such-model")).cache is NO_CACHE


# The trigger: with r 0.1 and w 1.25, keeping 1,000 tokens after the cut costs 1,150 once; each request that carries
# 1,000 tokens which could go costs 100.


def test_it_waits_until_carrying_has_cost_as_much_as_removing() -> None:
    room = budget(target=1_000)
    carry = Carry()
    waited = []
    for _ in range(20):
        trigger = check_economics(Counts(2_000), 0, room, Economics(TARIFF, carry))
        if trigger.acts:
            break
        waited.append(trigger.reason)
        carry = carry.advance(2_000, count_removable(2_000, room, carry))
    assert len(waited) == 12, "1,150 / 100 is 11.5: it acts once the twelfth request has been sent"
    assert trigger.reason == because.PAYS(removable=1_000, paid=1_200, requests=12, cost=1_150)
    assert not waited[0], "what no request contained yet has not been carried"
    assert waited[1] == because.WAIT(removable=1_000, requests=11)
    assert str(waited[1]) == "waiting: removing 1,000 tokens pays for itself after 11 requests"
    assert str(waited[-1]) == "waiting: removing 1,000 tokens pays for itself after 1 request"


def test_what_stands_before_the_change_costs_nothing() -> None:
    # 600 of the 1,000 tokens that stay are before the cut: 400 x 1.15 = 460, reached after the fifth request.
    economics = Economics(TARIFF, Carry(tokens=4_000, requests=4))
    assert not check_economics(Counts(2_000), 600, budget(1_000), economics).acts
    assert check_economics(Counts(2_000), 600, budget(1_000), Economics(TARIFF, Carry(tokens=5_000, requests=5))).acts


def test_a_summary_that_costs_something_is_asked_for_later() -> None:
    carry = Carry(tokens=12_000, requests=12)
    assert check_economics(Counts(2_000), 0, budget(1_000), Economics(TARIFF, carry)).acts
    assert not check_economics(Counts(2_000), 0, budget(1_000), Economics(TARIFF, carry, summary_cost=500.0)).acts


def test_what_the_last_change_could_not_remove_is_not_counted_again() -> None:
    carry = Carry().restart(tokens=5_000, kept_tokens=4_000)
    assert count_removable(5_500, budget(1_000), carry) == 500
    assert not check_economics(Counts(5_000), 0, budget(1_000), Economics(TARIFF, carry)).acts


def test_a_cold_cache_is_the_moment_to_act() -> None:
    economics = Economics(TARIFF, Carry(requests=1, idle_s=660.0))
    trigger = check_economics(Counts(2_000), 0, budget(1_000), economics)
    assert trigger.acts
    assert trigger.reason == because.COLD(minutes=11)
    assert not check_economics(Counts(1_300), 0, budget(1_000), economics).acts, "too little to hide it for"
    warm = Economics(TARIFF, Carry(requests=1, idle_s=200.0))
    assert not check_economics(Counts(2_000), 0, budget(1_000), warm).acts


def test_it_acts_before_a_cliff_and_not_far_from_it() -> None:
    tariff = Tariff(CACHE, 5.0, (Cliff(10_000, 2.0, 1.5),))
    far = Economics(tariff, Carry(requests=3, last_tokens=8_500))
    assert not check_economics(Counts(9_000), 0, budget(8_000), far).acts, "9,500 is below it still"
    near = Economics(tariff, Carry(requests=3, last_tokens=9_000))
    trigger = check_economics(Counts(9_600), 0, budget(8_000), near)
    assert trigger.acts
    assert trigger.reason == because.CLIFF(above=10_000, factor=2.0)


@pytest.mark.parametrize("cache", [NO_CACHE, CacheRules(read=1.0, write=1.0, lifetime_s=300)])
def test_where_nothing_is_cached_there_is_nothing_to_wait_for(cache: CacheRules) -> None:
    assert not check_economics(Counts(5_000), 0, budget(1_000), Economics(Tariff(cache), Carry(tokens=10**9))).acts


def pay_online(removable: int, kept: int, requests: int, economics: Economics) -> float:
    """What the trigger's decision costs: carrying until it acts, then the change, then nothing."""
    room, paid, carry = budget(target=kept), 0.0, economics.carry
    for _ in range(requests):
        tokens = kept + removable
        trigger = check_economics(Counts(tokens), 0, room, Economics(economics.tariff, carry))
        rules = economics.tariff.cache
        if trigger.acts:
            return paid + (rules.write - rules.read) * kept
        paid += rules.read * removable
        carry = carry.advance(tokens, count_removable(tokens, room, carry))
    return paid


def find_best_schedule(removable: int, kept: int, requests: int, rules: CacheRules) -> float:
    """The cheapest schedule in hindsight, by dynamic programming over (request, still carrying)."""
    carrying, free = 0.0, 0.0
    for _ in range(requests):
        carrying, free = min(rules.read * removable + carrying, (rules.write - rules.read) * kept + free), free
    return carrying


@given(
    st.integers(300, 50_000), st.integers(1_000, 50_000), st.integers(0, 400), st.sampled_from([0.025, 0.05, 0.1, 0.5])
)
def test_for_constant_sizes_the_bill_is_at_most_twice_the_best_in_hindsight(
    removable: int, kept: int, requests: int, read: float
) -> None:
    rules = CacheRules(read=read, write=1.25, lifetime_s=300)
    kept = min(kept, removable * 4)  # Less than a quarter of what stays is never worth hiding.
    ours = pay_online(removable, kept, requests, Economics(Tariff(rules)))
    best = find_best_schedule(removable, kept, requests, rules)
    # One request more than the continuous rule: requests do not come in fractions.
    assert ours <= 2 * best + read * removable + 1e-6


def test_tiers_lie_above_what_no_compression_can_take_away() -> None:
    tiers = Budget(hard=10_000, soft=9_000, warn=8_000, target=2_000, window=12_000, is_of_room=True)
    raised = tiers.above(5_000)
    assert (raised.target, raised.warn, raised.soft, raised.hard) == (6_000, 9_000, 9_500, 10_000)
    assert tiers.above(0) is tiers
    assert tiers.above(20_000) is tiers, "nothing fits: the ladder says so"
    of_window = Budget(hard=10_000, soft=9_000, warn=8_000, target=2_000, window=12_000)
    assert of_window.above(5_000) is of_window


def test_below_its_share_of_the_room_nothing_goes_to_save_money() -> None:
    # Carrying has cost 0.1 x 40,000 = 4,000 or more; of a room of 100,000, 0.4 are 40,000.
    paid = Carry(tokens=400_000, requests=40)
    economics = Economics(TARIFF, paid, share_min=0.4)
    room = budget(1_000, hard=100_000)
    assert not check_economics(Counts(39_999), 0, room, economics).acts
    assert check_economics(Counts(40_000), 0, room, economics).acts
    assert check_economics(Counts(39_999), 0, room, Economics(TARIFF, paid)).acts
