"""What a request costs and when a change pays: every figure here was worked out by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.budget import Budget, Carry, Charge, Counts, Economics, Tariff
from refold.budget.economics import (
    BilledRequest,
    Forecast,
    Rereads,
    charge_ask,
    charge_request,
    check_economics,
    count_removable,
    find_next_size,
    forecast_fold,
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
    assert charge_request(BilledRequest(1_000, output_tokens=40), TARIFF) == Charge(write=1_250.0, output=200.0)


def test_a_kept_prefix_is_read_and_the_rest_is_written() -> None:
    # 800 x 0.1 and 200 x 1.25.
    assert charge_request(BilledRequest(1_000, 800), TARIFF) == Charge(read=80.0, write=250.0)


def test_after_its_lifetime_the_prefix_is_written_again() -> None:
    assert charge_request(BilledRequest(1_000, 800, idle_s=300.0), TARIFF).read == 80.0
    assert charge_request(BilledRequest(1_000, 800, idle_s=301.0), TARIFF) == Charge(write=1_250.0)


def test_less_than_the_minimum_is_neither_read_nor_written() -> None:
    tariff = Tariff(CacheRules(read=0.1, write=1.25, lifetime_s=300, tokens_min=1_024), output=5.0)
    assert charge_request(BilledRequest(1_000, 900), tariff) == Charge(new=1_000.0)
    # 2,000 tokens are enough to write, but of the 1,000 that are shared none was worth caching.
    assert charge_request(BilledRequest(2_000, 1_000), tariff) == Charge(write=2_500.0)


def test_a_cache_in_steps_reads_whole_steps_only() -> None:
    tariff = Tariff(CacheRules(read=0.5, lifetime_s=300, tokens_min=1_024, step_tokens=128), output=4.0)
    # 1,300 shared = 10 steps of 128 = 1,280 read at a half; 720 written at the plain price.
    assert charge_request(BilledRequest(2_000, 1_300), tariff) == Charge(read=640.0, write=720.0)


def test_without_a_cache_everything_is_new() -> None:
    assert charge_request(BilledRequest(1_000, 800, 10), Tariff(NO_CACHE, output=2.0)) == Charge(
        new=1_000.0, output=20.0
    )


def test_above_a_cliff_the_whole_request_costs_more() -> None:
    tariff = Tariff(CACHE, 5.0, (Cliff(1_000, 2.0, 1.5), Cliff(5_000, 5.0, 5.0)))
    assert charge_request(BilledRequest(1_000, 500, 10), tariff) == Charge(read=50.0, write=625.0, output=50.0)
    # (500 x 0.1 and 501 x 1.25) x 2, and 10 x 5 x 1.5.
    assert charge_request(BilledRequest(1_001, 500, 10), tariff) == Charge(read=100.0, write=1_252.5, output=75.0)
    assert charge_request(BilledRequest(6_000, 0, 10), tariff) == Charge(write=37_500.0, output=250.0)


def test_a_summariser_pays_full_price_for_its_prompt_and_its_answer() -> None:
    assert charge_ask(2_000, 100, TARIFF) == Charge(summariser=2_500.0)


def test_a_request_never_reads_more_than_it_has() -> None:
    assert charge_request(BilledRequest(100, 500), TARIFF) == Charge(read=10.0)


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


# The trigger. Reads at 0.1, writes at 1.25: a session of 20 requests that grew to 40,000 tokens, 1,000 with each, of
# which a fold leaves 10,000. Without 30,000 of them the next 20 requests cost 20 x 3,000 = 60,000 less; rewriting what
# is kept costs 1.15 x 10,000 = 11,500. The 20 requests themselves cost 20 x (0.1 x 50,000 + 1.25 x 1,000) = 125,000.
ROOM = budget(target=10_000, hard=200_000)
GROWN = Carry(requests=20, session_requests=20, first_tokens=20_000, last_tokens=39_000)


def test_a_fold_is_made_if_it_saves_a_tenth_of_the_bill() -> None:
    forecast = forecast_fold(Counts(40_000), 0, ROOM, Economics(TARIFF, GROWN))
    assert forecast is not None
    assert forecast == Forecast(removable=30_000, requests=20.0, gross=60_000.0, cost=11_500.0, bill=125_000.0)
    trigger = check_economics(Counts(40_000), 0, ROOM, Economics(TARIFF, GROWN))
    assert trigger.acts
    assert trigger.is_economic
    assert trigger.reason == because.SAVES(removable=30_000, share=0.388, requests=20)
    assert str(trigger.reason) == (
        "to save money: without 30,000 old tokens the next 20 requests cost about 39% less, expected re-reads included"
    )


def test_a_fold_to_save_money_frees_at_least_half_of_the_view() -> None:
    # In a window of 22,000 tokens, of which a fold leaves 40%, that is at four fifths of it.
    assert forecast_fold(Counts(19_900), 0, ROOM, Economics(TARIFF, GROWN)) is None
    assert forecast_fold(Counts(20_100), 0, ROOM, Economics(TARIFF, GROWN)) is not None


def test_expected_re_reads_can_make_it_not_worth_it() -> None:
    # Each of 20 messages costs 0.1 x 10,000 and 60 x 5 to ask for, and 1,000 x 1.25 to write: 20 x 2,550 = 51,000.
    economics = Economics(TARIFF, GROWN, expect_rereads=lambda _: Rereads(20.0, 20_000.0))
    trigger = check_economics(Counts(40_000), 0, ROOM, economics)
    assert not trigger.acts
    assert trigger.reason == because.WAIT(removable=30_000, share=-0.02), "62,500 spent to save 60,000 of 125,000"
    few = Economics(TARIFF, GROWN, expect_rereads=lambda _: Rereads(2.0, 2_000.0))
    assert check_economics(Counts(40_000), 0, ROOM, few).acts


def test_re_reads_are_asked_for_only_where_all_else_speaks_for_a_fold() -> None:
    def never(_: int) -> Rereads:
        raise AssertionError

    assert not check_economics(
        Counts(40_000), 0, budget(35_000, 200_000), Economics(TARIFF, GROWN, 0, 0, 0, never)
    ).acts


def test_a_summary_that_costs_something_counts_against_it() -> None:
    assert not check_economics(Counts(40_000), 0, ROOM, Economics(TARIFF, GROWN, summary_cost=40_000.0)).acts


def test_nothing_is_removed_to_save_money_below_the_floor() -> None:
    for floor in ({"share_min": 0.5}, {"share_min": 0.5, "tokens_min": 60_000}):
        assert not check_economics(Counts(40_000), 0, ROOM, Economics(TARIFF, GROWN, **floor)).acts
    assert check_economics(Counts(40_000), 0, ROOM, Economics(TARIFF, GROWN, share_min=0.5, tokens_min=30_000)).acts
    assert check_economics(Counts(40_000), 0, budget(10_000, 70_000), Economics(TARIFF, GROWN, share_min=0.5)).acts


def test_in_a_large_window_the_floor_is_at_least_30_000_tokens() -> None:
    economics = Economics(TARIFF, GROWN, share_min=0.1)
    assert not check_economics(Counts(29_999), 0, budget(5_000, 60_000), economics).acts
    assert check_economics(Counts(29_999), 0, budget(5_000, 59_000), economics).acts


def test_documents_speak_for_nothing() -> None:
    assert not check_economics(Counts(40_000, document_tokens=20_000), 0, ROOM, Economics(TARIFF, GROWN)).acts
    assert count_removable(Counts(40_000, document_tokens=20_000), ROOM, Carry()) == 10_000
    assert count_removable(Counts(40_000, document_tokens=20_000), ROOM, Carry(floor_tokens=35_000)) == 5_000


def test_what_no_request_contained_yet_speaks_for_nothing() -> None:
    assert not check_economics(Counts(40_000, unsent_tokens=25_000), 0, ROOM, Economics(TARIFF, GROWN)).acts
    assert not check_economics(Counts(40_000), 0, ROOM, Economics(TARIFF)).acts, "nothing was sent yet"


def test_close_to_the_window_it_waits_for_the_window() -> None:
    # At 1,000 tokens a request the window forces a fold in one request anyway: nothing is saved by being earlier.
    assert not check_economics(Counts(40_000), 0, budget(10_000, 41_000), Economics(TARIFF, GROWN)).acts


def test_a_short_session_is_not_expected_to_continue_for_long() -> None:
    short = Carry(requests=2, session_requests=2, first_tokens=38_000, last_tokens=39_000)
    assert not check_economics(Counts(40_000), 0, budget(25_000, 200_000), Economics(TARIFF, short)).acts


def test_what_the_last_change_could_not_remove_is_not_counted_again() -> None:
    carry = Carry().restart(tokens=30_000, kept_tokens=24_000)
    assert count_removable(Counts(30_500), budget(10_000), carry) == 500
    assert not check_economics(Counts(30_500), 0, ROOM, Economics(TARIFF, carry)).acts


def test_a_cold_cache_makes_the_change_free_and_nothing_else() -> None:
    cold = replace(GROWN, idle_s=660.0)
    dear = Economics(TARIFF, cold, expect_rereads=lambda _: Rereads(18.0, 12_000.0))
    trigger = check_economics(Counts(40_000), 0, ROOM, dear)
    assert trigger.reason == because.COLD(minutes=11)
    assert not check_economics(Counts(40_000), 0, ROOM, replace(dear, carry=replace(cold, idle_s=200.0))).acts
    lost = replace(dear, expect_rereads=lambda _: Rereads(30.0, 20_000.0))
    assert not check_economics(Counts(40_000), 0, ROOM, lost).acts, "what it hides is still read again"


def test_it_acts_before_a_cliff_and_not_far_from_it() -> None:
    tariff = Tariff(CACHE, 5.0, (Cliff(10_000, 2.0, 1.5),))
    far = Economics(tariff, Carry(requests=3, last_tokens=8_500))
    assert not check_economics(Counts(9_000), 0, budget(8_000), far).acts, "9,500 is below it still"
    near = Economics(tariff, Carry(requests=3, last_tokens=9_000))
    trigger = check_economics(Counts(9_600), 0, budget(8_000), near)
    assert trigger.acts
    assert trigger.reason == because.CLIFF(above=10_000, factor=2.0)


@pytest.mark.parametrize("cache", [NO_CACHE, CacheRules(read=1.0, write=1.0, lifetime_s=300)])
def test_where_nothing_is_cached_there_is_nothing_to_save_on(cache: CacheRules) -> None:
    assert not check_economics(Counts(40_000), 0, ROOM, Economics(Tariff(cache), GROWN)).acts


@given(st.integers(20_000, 120_000), st.integers(5, 200), st.sampled_from([0.025, 0.1, 0.5]))
def test_the_size_at_which_it_would_act_next_is_where_it_acts(tokens: int, requests: int, read: float) -> None:
    tariff = Tariff(CacheRules(read=read, write=1.25, lifetime_s=300))
    carry = Carry(requests, requests, first_tokens=tokens // 3, last_tokens=tokens)
    economics = Economics(
        tariff, carry, share_min=0.5, tokens_min=60_000, expect_rereads=lambda _: Rereads(5.0, 5_000.0)
    )
    found = find_next_size(Counts(tokens), 0, ROOM, economics)
    if found is None:
        assert not check_economics(Counts(tokens), 0, ROOM, economics).acts
        return
    assert 60_000 <= found < ROOM.soft
    assert found >= tokens
    if check_economics(Counts(tokens), 0, ROOM, economics).acts:
        assert found == tokens
