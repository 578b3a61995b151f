"""A window and a reserve for one call, in the place of the model's and of the settings'."""

import pytest

from refold import CompressionConfig, ContextCompressionManager, compress
from refold.errors import ConfigError

WORDS = " ".join(f"word{number}" for number in range(150))


@pytest.fixture
def manager(tmp_path):
    with ContextCompressionManager(CompressionConfig(window=200_000, recall={"inject": "off"}), tmp_path) as made:
        yield made


def make_talk(turns):
    return [
        {"role": role, "content": f"{role} {turn}: {WORDS}"} for turn in range(turns) for role in ("user", "assistant")
    ] + [{"role": "user", "content": "And now?"}]


def test_a_window_of_one_call_holds_for_that_call(manager):
    talk = make_talk(30)
    plain = manager.prepare_context_sync("s", talk)
    assert not plain.edits
    small = manager.prepare_context_sync("s", talk, window=8_000, reserve=1_000)
    assert small.total_tokens <= 7_000 < plain.total_tokens
    assert small.report.budget.window == 8_000
    other = manager.prepare_context_sync("t", make_talk(31))
    assert (other.report.budget.window, other.edits) == (200_000, ())


async def test_it_holds_for_callers_with_an_event_loop_too(manager):
    small = await manager.prepare_context("s", make_talk(30), window=8_000, reserve=1_000)
    assert small.total_tokens <= 7_000


def test_a_window_without_a_reserve_leaves_room_by_the_settings_rule(manager):
    budget = manager.prepare_context_sync("s", make_talk(2), window=16_000).report.budget
    assert budget.window == 16_000
    assert budget.hard < 16_000


@pytest.mark.parametrize(
    "limits", [{"window": -1}, {"reserve": True}, {"window": "large"}, {"window": 100, "reserve": 100}]
)
def test_an_invalid_window_is_refused(manager, limits):
    with pytest.raises(ConfigError):
        manager.prepare_context_sync("s", make_talk(1), **limits)


def ask(max_tokens):
    return {"model": "claude-sonnet-4-5", "max_tokens": max_tokens, "messages": make_talk(1)}


@pytest.mark.parametrize("limit", [-1, 0, True, "500", None])
def test_a_body_whose_max_tokens_is_not_a_limit_gets_the_usual_reserve(manager, limit):
    usual = manager.prepare_context_sync("s", make_talk(1), model="claude-sonnet-4-5").report.budget
    assert manager.prepare_context_sync("t", ask(limit)).report.budget == usual
    assert manager.session("u").prepare(ask(limit)).report.budget == usual


def test_a_session_its_manager_and_one_call_leave_the_same_room_for_an_answer(manager):
    short, long = (manager.prepare_context_sync(f"s{limit}", ask(limit)).report.budget for limit in (1_000, 150_000))
    assert manager.session("t").prepare(ask(1_000)).report.budget == short
    assert manager.session("u").prepare(ask(150_000)).report.budget == long
    assert compress(ask(150_000), config=manager.config).report.budget == long
    usual = manager.prepare_context_sync("v", make_talk(1), model="claude-sonnet-4-5").report.budget
    assert short.hard > usual.hard > long.hard
    assert long.hard > long.window // 3, "half of the window stays for the context, less the margin of an estimate"


def test_a_short_answer_does_not_lower_a_reserve_in_the_settings_and_a_long_one_raises_it(tmp_path):
    with ContextCompressionManager(CompressionConfig(window=200_000, reserve=30_000), tmp_path) as manager:
        stated = manager.prepare_context_sync("s", make_talk(1), model="claude-sonnet-4-5").report.budget
        assert manager.prepare_context_sync("t", ask(1_000)).report.budget == stated
        assert manager.session("u").prepare(ask(1_000)).report.budget == stated
        assert manager.session("v").prepare(ask(60_000)).report.budget.hard < stated.hard
        assert manager.session("w", window=8_000).prepare(ask(1_000)).report.budget.window == 8_000
