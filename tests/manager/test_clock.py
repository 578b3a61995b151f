"""A clock that is set back by an hour, or on by a day, between requests: nothing waits or is lost, order is kept."""

from collections.abc import Callable
from pathlib import Path

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.manager.flow import LEASE_S, Leases
from tests.rigs.manager import SMALL, agent, chat

HOUR, DAY = 3_600.0, 86_400.0
COUNTED = CompressionConfig(threshold_rounds=10, retention_count=4, economic=False)
JUMPS = pytest.mark.parametrize("jump", [-HOUR, DAY, -DAY], ids=["back", "on", "back a day"])


class Clock:
    """Advances by a second with every look, and jumps on request."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def make_manager(
    folder: Path, clock: Callable[[], float], config: CompressionConfig = COUNTED
) -> ContextCompressionManager:
    return ContextCompressionManager(config, folder, clock=clock)


@JUMPS
def test_a_session_continues_over_a_jump_and_its_summaries_stay_in_order(tmp_path: Path, jump: float) -> None:
    clock = Clock()
    manager = make_manager(tmp_path, clock)
    manager.prepare_context_sync("s1", chat(12))
    first = [one.id for one in manager.summaries("s1") if one.is_in_force]
    clock.now += jump
    manager.prepare_context_sync("s1", chat(24))
    second = [one.id for one in manager.summaries("s1") if one.is_in_force]
    assert second != first
    assert manager.status("s1").compression_count == 2
    assert manager.verify() == []
    # What was made last is undone first, whatever its time.
    manager.undo("s1")
    assert [one.id for one in manager.summaries("s1") if one.is_in_force] == first
    clock.now -= jump
    manager.redo("s1")
    assert [one.id for one in manager.summaries("s1") if one.is_in_force] == second
    assert manager.verify() == []


@JUMPS
def test_the_lease_of_a_process_that_died_before_the_jump_stops_nobody(tmp_path: Path, jump: float) -> None:
    clock = Clock()
    manager = make_manager(tmp_path, clock, SMALL)
    manager.append("s1", agent(1))
    assert manager.ledger.acquire_lease("s1", "a dead process", seconds=LEASE_S, now=clock())
    clock.now += jump
    assert manager.prepare_context_sync("s1", agent(30)).total_tokens <= 3_500
    assert manager.verify() == []


@JUMPS
def test_the_heartbeat_keeps_a_lease_over_a_jump_of_the_clock(tmp_path: Path, jump: float) -> None:
    clock = Clock()
    manager = make_manager(tmp_path, clock)
    manager.append("s1", chat(3))
    leases = Leases(manager.ledger, clock)
    assert leases.prolong("s1", "me")
    clock.now += jump
    assert leases.prolong("s1", "me")
    assert not leases.prolong("s1", "another")


@JUMPS
def test_the_pages_of_the_day_and_the_bill_survive_a_jump_of_the_clock(tmp_path: Path, jump: float) -> None:
    clock = Clock()
    manager = make_manager(tmp_path, clock)
    for count in (12, 24, 36):
        manager.prepare_context_sync("s1", chat(count), model="gpt-4o")
        manager.observe_usage("s1", {"prompt_tokens": 500, "completion_tokens": 20})
        clock.now += jump
    pages = sorted((tmp_path / "memory").glob("*.md"))
    assert sum(page.read_text("utf-8").count("s1") for page in pages) >= 3
    forgotten = manager.forget("s1", f"m:{manager.ledger.read_path('s1').digests[2][:8]}")
    assert forgotten.sections >= 1, "the section of a page is found by its time, also after a jump"
    assert manager.verify() == []


@JUMPS
def test_the_economics_of_a_warm_cache_survive_a_jump_of_the_clock(tmp_path: Path, jump: float) -> None:
    clock = Clock()
    manager = make_manager(tmp_path, clock, CompressionConfig(window=8_000, reserve=500, economic=True))
    for count in range(1, 20, 2):
        prepared = manager.prepare_context_sync("s1", agent(count), model="claude-opus-5-5")
        assert prepared.total_tokens <= 7_500
        clock.now += jump if count == 9 else 5.0
    assert manager.verify() == []
