"""Two at once: threads and processes on one session append and compress; nothing is lost, nothing folded twice."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.ledger.sqlite import SqliteLedger
from tests.rigs.manager import SMALL, agent, chat, steps

COUNTED = CompressionConfig(threshold_rounds=10, retention_count=4)

WORK = """
import sys
from refold import CompressionConfig, ContextCompressionManager
workspace, name, count, sessions = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4].split(",")
manager = ContextCompressionManager(CompressionConfig(threshold_rounds=10, retention_count=4), workspace)
for number in range(count):
    session = sessions[number % len(sessions)]
    manager.append(session, [{"role": "user", "content": f"{name} says {number}"}])
    manager.prepare_context_sync(session)
"""


def run_together(workspace: Path, names: list[str], count: int, sessions: str) -> None:
    workers = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", WORK, str(workspace), name, str(count), sessions])
        for name in names
    ]
    assert [worker.wait(120) for worker in workers] == [0] * len(names)


def check_all_said(workspace: Path, names: list[str], count: int, sessions: list[str]) -> None:
    manager = ContextCompressionManager(COUNTED, workspace)
    said = [
        json.loads(stored.raw)["content"] for session in sessions for stored in manager.ledger.read_messages(session)
    ]
    assert sorted(said) == sorted(f"{name} says {number}" for name in names for number in range(count))
    assert manager.verify() == []
    for session in sessions:
        folds = [one.edit for one in manager.ledger.read_edits(session) if one.edit.kind == "fold"]
        replaced = {origin for fold in folds for origin in fold.made_from}
        covered = [message_id for fold in folds if fold.id not in replaced for message_id in fold.covers]
        assert len(covered) == len(set(covered)), "two folds in force cover one message"


def test_two_processes_on_one_session_lose_no_message(tmp_path: Path) -> None:
    names = ["ann", "bob"]
    run_together(tmp_path, names, 12, "s1")
    check_all_said(tmp_path, names, 12, ["s1"])


@pytest.mark.slow
def test_eight_processes_on_four_sessions_lose_nothing_and_fold_nothing_twice(tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(8)]
    run_together(tmp_path, names, 8, "a,b,c,d")
    check_all_said(tmp_path, names, 8, ["a", "b", "c", "d"])


def test_the_second_process_uses_the_result_of_the_first(tmp_path: Path) -> None:
    history = agent(30)
    managers = [ContextCompressionManager(SMALL, tmp_path) for _ in range(4)]
    seen: list[str] = []
    barrier = threading.Barrier(len(managers))

    def work(manager: ContextCompressionManager) -> None:
        barrier.wait()
        seen.append(json.dumps(manager.prepare_context_sync("s1", history).messages))

    threads = [threading.Thread(target=work, args=(manager,)) for manager in managers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(seen) == 4
    assert len(set(seen)) == 1
    assert managers[0].status("s1").compression_count == 1


def test_threads_of_one_manager_take_turns(tmp_path: Path) -> None:
    manager = ContextCompressionManager(COUNTED, tmp_path)
    failures: list[Exception] = []

    def work(name: str) -> None:
        try:
            for number in range(10):
                manager.append("s1", [{"role": "user", "content": f"{name} says {number}"}])
                manager.prepare_context_sync("s1")
        except Exception as error:  # noqa: BLE001 - told after the join
            failures.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("x", "y", "z")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    check_all_said(tmp_path, ["x", "y", "z"], 10, ["s1"])


def test_what_another_process_did_is_seen_at_once(tmp_path: Path) -> None:
    one, other = ContextCompressionManager(COUNTED, tmp_path), ContextCompressionManager(COUNTED, tmp_path)
    one.append("s1", chat(4))
    other.append("s1", chat(5, "other {}"))
    assert one.prepare_context_sync("s1").messages == [*chat(4), *chat(5, "other {}")]
    other.append("s1", chat(3))
    folded = other.prepare_context_sync("s1").messages
    assert one.prepare_context_sync("s1").messages == folded
    one.undo("s1")
    assert len(other.ledger.read_path("s1").ids) == 12
    assert other.status("s1").messages_in_view == 12


def test_a_lease_that_another_process_holds_puts_a_soft_compression_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = ContextCompressionManager(COUNTED, tmp_path)
    manager.append("s1", chat(12))
    monkeypatch.setattr("refold.manager.compress.SOFT_WAIT_S", 0.1)
    assert manager.ledger.acquire_lease("s1", "somebody", seconds=60, now=manager._keeper.clock())
    prepared = manager.prepare_context_sync("s1")
    assert prepared.messages == chat(12)
    assert prepared.report is not None
    assert any("another process is compressing" in str(note) for note in prepared.report.notes)
    manager.ledger.release_lease("s1", "somebody")
    assert manager.prepare_context_sync("s1").summary


def test_a_lease_that_ran_out_stops_nobody(tmp_path: Path) -> None:
    manager = ContextCompressionManager(SMALL, tmp_path)
    history = agent(30)
    manager.append("s1", history[:1])
    manager.ledger.acquire_lease("s1", "a dead process", seconds=0.5, now=manager._keeper.clock())
    prepared = manager.prepare_context_sync("s1", [*history, *steps(2, start=50)])
    assert prepared.total_tokens <= 3_500


class Interrupted:
    """A ledger that runs ``interrupt`` once, before the next lease is taken."""

    def __init__(self, ledger: Any) -> None:
        self._ledger = ledger
        self.interrupt: Callable[[], object] | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "acquire_lease" and self.interrupt is not None:
            interrupt, self.interrupt = self.interrupt, None
            interrupt()
        return getattr(self._ledger, name)


@pytest.mark.parametrize("turns", [12, 24, 40])
def test_a_client_gets_its_own_history_though_another_sends_a_different_one_to_the_session(
    tmp_path: Path, turns: int
) -> None:
    def talk(name: str, count: int) -> list[dict[str, Any]]:
        told = [
            {"role": role, "content": f"{name} {number} {role}: " + f"{name} " * 60}
            for number in range(count)
            for role in ("user", "assistant")
        ]
        return [*told, {"role": "user", "content": f"{name} asks."}]

    ledger = Interrupted(SqliteLedger(tmp_path / "ledger.db"))
    one = ContextCompressionManager(workspace_path=tmp_path, ledger=ledger)
    other = ContextCompressionManager(workspace_path=tmp_path, ledger=SqliteLedger(tmp_path / "ledger.db"))
    ledger.interrupt = partial(other.prepare_context_sync, "s", talk("theirs", turns), model="gpt-4o", window=3_000)
    ours = one.prepare_context_sync("s", talk("ours", 24), model="gpt-4o", window=3_000)
    assert ledger.interrupt is None
    assert "theirs" not in json.dumps(ours.messages)
    assert ours.messages[-1] == talk("ours", 24)[-1]
    assert not one.verify()
