"""Retries: the loser of a race continues; a permanent refusal is reported with what was refused and what to do."""

import itertools
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from refold import ChangeRefused, CompressionConfig, ContextCompressionManager, LedgerError, SessionBusy
from refold.conversation import because
from refold.conversation.view import Edit
from refold.ledger.records import Batch
from refold.ledger.sqlite import SqliteLedger
from refold.manager.flow import PAUSE_MAX_S, PAUSE_S, ROUNDS_MAX, Rounds, explain_refusal
from tests.rigs.manager import SMALL, Model, agent, chat

COUNTED = CompressionConfig(threshold_rounds=10, retention_count=4, background=False)

RACE = """
import sys
from refold import CompressionConfig, ContextCompressionManager
workspace, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
manager = ContextCompressionManager(CompressionConfig(threshold_rounds=10, retention_count=4), workspace)
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    manager.append("s1", [{"role": "user", "content": f"{name} says {number}"}])
    manager.prepare_context_sync("s1")
"""


@pytest.mark.slow
def test_two_processes_that_race_on_one_session_both_get_through(tmp_path: Path) -> None:
    names, count = ("ann", "bob"), 40
    command = [sys.executable, "-W", "error", "-c", RACE, str(tmp_path)]
    racers = [
        subprocess.Popen([*command, name, str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in names
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:  # Both are up: the race begins for both at once.
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    for racer in racers:
        racer.communicate(timeout=240)
    assert [racer.returncode for racer in racers] == [0, 0]
    manager = ContextCompressionManager(COUNTED, tmp_path)
    said = [json.loads(stored.raw)["content"] for stored in manager.ledger.read_messages("s1")]
    assert sorted(said) == sorted(f"{name} says {number}" for name in names for number in range(count))
    turns = [text.partition(" ")[0] for text in said]
    assert sum(one != other for one, other in itertools.pairwise(turns)) > 2, "they never met: it was no race"
    assert manager.verify() == []


def test_the_pauses_of_losing_processes_grow_differ_and_end(tmp_path: Path) -> None:
    manager = ContextCompressionManager(COUNTED, tmp_path)
    for chance in (0.0, 0.5, 1.0):
        manager._keeper.chance = lambda chance=chance: chance
        rounds = Rounds(manager._keeper, "s1")
        pauses = [rounds.lose().seconds for _ in range(ROUNDS_MAX)]
        assert pauses == sorted(pauses)
        assert pauses[0] == pytest.approx(PAUSE_S * (0.5 + chance))
        assert max(pauses) <= PAUSE_MAX_S * 1.5
        assert sum(pauses) < 6.0
        for _ in range(ROUNDS_MAX):
            rounds.begin()
        with pytest.raises(SessionBusy, match="'s1' was changed by others 40 times in a row; try again later"):
            rounds.begin()


class TakesNothing(SqliteLedger):
    """A ledger that refuses every compression, or every message."""

    refuses = "commit"

    def commit(self, session_id: str, batch: Batch, **told: Any) -> bool:
        return self.refuses != "commit" and super().commit(session_id, batch, **told)

    def append(self, *given: Any, **told: Any) -> int | None:
        return None if self.refuses == "append" else super().append(*given, **told)


def make_manager(workspace: Path, config: CompressionConfig = SMALL, **more: Any) -> ContextCompressionManager:
    return ContextCompressionManager(config, workspace, ledger=TakesNothing(workspace / "ledger.db"), **more)


def test_a_compression_that_the_record_refuses_for_ever_is_reported_at_once(tmp_path: Path) -> None:
    manager = make_manager(tmp_path)
    pauses: list[float] = []
    manager._keeper.chance = lambda: pauses.append(0.0) or 0.0  # type: ignore[func-returns-value]
    with pytest.raises(ChangeRefused) as refused:
        manager.prepare_context_sync("s1", agent(30))
    assert len(pauses) == 1, "it was tried once more, with the session read again, and not forty times"
    told = str(refused.value)
    assert "the ledger rejected a compression of" in told
    assert "session 's1'" in told
    assert "path version 1, edits version 0" in told
    assert "run 'refold verify'" in told
    assert isinstance(refused.value, LedgerError)
    assert [event.kind for event in manager.ledger.read_events("s1")][-1] == "failed"
    assert len(manager.ledger.read_path("s1").ids) == 61, "nothing that was said is lost"
    manager.ledger.refuses = ""  # type: ignore[attr-defined]
    assert manager.prepare_context_sync("s1", agent(30)).total_tokens <= 3_500
    assert manager.verify() == []


def test_a_manual_compression_that_cannot_succeed_is_reported_too(tmp_path: Path) -> None:
    manager = make_manager(tmp_path)
    manager.append("s1", agent(6))
    with pytest.raises(ChangeRefused, match="nobody changed session"):
        manager.compress("s1")


def test_a_request_that_fits_is_not_failed_by_a_compression_that_is_refused(tmp_path: Path) -> None:
    manager = make_manager(tmp_path, COUNTED)
    prepared = manager.prepare_context_sync("s1", chat(12))
    assert prepared.messages == chat(12)
    assert prepared.report is not None
    assert any("the ledger rejected a compression" in str(note) for note in prepared.report.notes)
    manager.prepare_context_sync("s1", chat(12))
    again = manager.prepare_context_sync("s1", chat(12))
    assert again.report is not None
    assert any("automatic compression has stopped after 2" in str(note) for note in again.report.notes)
    later = manager.prepare_context_sync("s1", chat(14))
    assert later.report is not None
    assert any("the ledger rejected a compression" in str(note) for note in later.report.notes), (
        "a new turn tries again"
    )


def test_a_fold_in_the_background_that_is_refused_is_not_asked_for_without_end(tmp_path: Path) -> None:
    model = Model("The build of release 4.17.2 was looked at.")
    config = CompressionConfig(
        window=20_000, reserve=500, trigger_ratio=0.3, target_ratio=0.1, fold={"summariser": "llm"}
    )
    manager = make_manager(tmp_path, config, llm=model)
    for more in range(5):
        manager.prepare_context_sync("s1", agent(40 + more))
        manager._background.join()
    asked = len(model.prompts)
    assert asked, "nothing was tried"
    manager.prepare_context_sync("s1", agent(46))
    manager._background.join()
    assert len(model.prompts) == asked
    assert manager.status("s1").compression_count == 0
    assert "the ledger rejected" in str(manager.status("s1").stopped)


def test_messages_that_the_record_refuses_for_ever_are_reported_at_once(tmp_path: Path) -> None:
    manager = make_manager(tmp_path)
    manager.ledger.refuses = "append"  # type: ignore[attr-defined]
    with pytest.raises(ChangeRefused, match="rejected 3 new messages, although nobody changed session 's1'"):
        manager.append("s1", chat(3))
    with pytest.raises(ChangeRefused, match="rejected a history of 5 messages, although nobody changed session 's1'"):
        manager.prepare_context_sync("s1", chat(5))


def test_what_a_refused_compression_rests_on_is_named(tmp_path: Path) -> None:
    manager = ContextCompressionManager(COUNTED, tmp_path)
    manager.append("s1", chat(3))
    ids = manager.ledger.read_path("s1").ids
    manager.ledger.forget("s1", ids[1:2], 5.0)
    fold = Edit("fold", "fold", (*ids, "ab" * 16), text="folded")
    told = explain_refusal(manager.ledger, "s1", Batch("b", (fold,), because.MANUAL(), expects=("gone",)))
    assert str(told) == (
        f"the ledger rejected a compression of 4 messages with 1 edit (1 message missing: {'ab' * 6}; "
        f"1 message forgotten: {ids[1][:12]}; 1 edit no longer in force: gone)"
    )


def test_a_message_that_another_program_erased_stops_no_compression(tmp_path: Path) -> None:
    manager = ContextCompressionManager(COUNTED, tmp_path)
    manager.append("s1", chat(6))
    manager.ledger.forget("s1", manager.ledger.read_path("s1").ids[1:2], 5.0)
    manager.append("s1", chat(8, "more of it, {}"))
    assert manager.prepare_context_sync("s1").summary
    assert manager.verify() == []


class GrowsBeforeTheLease(SqliteLedger):
    """A ledger to which another process adds a message just before the fold in the background has its lease."""

    workspace: Path

    def acquire_lease(self, session_id: str, *given: Any, **told: Any) -> bool:
        if threading.current_thread() is not threading.main_thread() and not self.find_grown(session_id):
            own = SqliteLedger(self.workspace / "ledger.db")
            others = ContextCompressionManager(COUNTED, self.workspace, ledger=own)
            others.append(session_id, [{"role": "user", "content": "And one thing more: keep the log."}])
            others.close()
        return super().acquire_lease(session_id, *given, **told)

    def find_grown(self, session_id: str) -> bool:
        return b"one thing more" in self.read_messages(session_id)[-1].raw


def test_a_session_that_grows_while_a_fold_in_the_background_begins_is_folded(tmp_path: Path) -> None:
    config = CompressionConfig(
        window=20_000, reserve=500, trigger_ratio=0.3, target_ratio=0.1, fold={"summariser": "llm"}
    )
    ledger = GrowsBeforeTheLease(tmp_path / "ledger.db")
    ledger.workspace = tmp_path
    manager = ContextCompressionManager(
        config, tmp_path, ledger=ledger, llm=Model("The build of release 4.17.2 was looked at.")
    )
    for more in range(2):  # What nobody has seen yet is not folded.
        manager.prepare_context_sync("s1", agent(40 + more))
    manager._background.join()
    assert ledger.find_grown("s1"), "nobody added a message"
    assert [batch.reason for batch in ledger.read_batches("s1")], "the fold was given up"
    assert manager.verify() == []
