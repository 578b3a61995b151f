"""Folds in the background: nobody waits for them while there is room, they are swapped in whole or not at all."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from tests.rigs.model import GOOD, says, working

# Soft at half of the room: between 1,750 and 3,500 tokens a fold is prepared in the background.
CONFIG = CompressionConfig(window=4_000, reserve=500, trigger_ratio=0.5, target_ratio=0.3, economic=False)


class Gate:
    """A model that answers when it is let, and counts how often it is asked."""

    def __init__(self, text: str = GOOD) -> None:
        self.text = text
        self.asked = threading.Event()
        self.open = threading.Event()
        self.prompts: list[str] = []
        self.now = 0
        self.most = 0

    async def complete(self, prompt: str) -> Any:
        self.prompts.append(prompt)
        self.now += 1
        self.most = max(self.most, self.now)
        self.asked.set()
        try:
            while not self.open.is_set():
                await asyncio.sleep(0.005)
        finally:
            self.now -= 1
        return SimpleNamespace(content=self.text)


def manage(folder: Path, gate: Gate, **changes: Any) -> ContextCompressionManager:
    return ContextCompressionManager(CONFIG.replace(**changes), folder, llm=gate)


def grow(manager: ContextCompressionManager, session: str, sent: list[Any]) -> Any:
    """Send a history after all but its last step: messages that no request contained yet are never folded."""
    manager.prepare_context_sync(session, sent[:-2])
    return manager.prepare_context_sync(session, sent)


def folds(prepared: Any) -> list[Any]:
    return [edit.fold for edit in prepared.edits if edit.fold is not None]


def test_between_soft_and_hard_the_request_goes_out_at_once_and_the_fold_comes_later(tmp_path: Path) -> None:
    gate = Gate()
    manager = manage(tmp_path, gate)
    sent = working(13)
    first = grow(manager, "s1", sent)
    assert first.messages == sent
    assert any("in the background" in str(note) for note in first.report.notes)  # type: ignore[union-attr]
    assert gate.asked.wait(60)
    grown = [*sent, says("assistant", "Done for now."), says("user", "And what about worker 7?")]
    assert manager.prepare_context_sync("s1", grown).messages == grown
    assert not manager._background._jobs, "no second one waits behind the one under way"
    gate.open.set()
    manager._background.join()
    swapped = manager.prepare_context_sync("s1", grown)
    assert [fold.by for fold in folds(swapped)] == ["llm"]
    assert swapped.total_tokens < first.total_tokens
    assert swapped.messages[-2] == grown[-2]
    # Text that the question clearly refers to may be recalled behind it.
    assert swapped.messages[-1]["content"].startswith(grown[-1]["content"])
    assert len(gate.prompts) == 1, "never two for one session"
    (event,) = [one for one in manager.ledger.read_events("s1") if one.kind == "compressed"]
    assert event.fields["is_background"] is True
    assert manager.verify() == []
    manager.close()


async def test_the_same_from_an_event_loop(tmp_path: Path) -> None:
    gate = Gate()
    manager = manage(tmp_path, gate, compact_timeout_s=600)
    sent = working(13)
    await manager.prepare_context("s1", sent[:-2])
    assert (await manager.prepare_context("s1", sent)).messages == sent
    gate.open.set()
    await asyncio.to_thread(manager._background.join)
    assert folds(await manager.prepare_context("s1", sent))
    manager.close()


def test_at_hard_the_fold_under_way_is_awaited(tmp_path: Path) -> None:
    gate = Gate()
    manager = manage(tmp_path, gate)
    grow(manager, "s1", working(13))
    assert gate.asked.wait(60)
    threading.Timer(0.3, gate.open.set).start()
    prepared = manager.prepare_context_sync("s1", working(45))
    assert prepared.total_tokens <= 3_500
    assert any(fold.by == "llm" for fold in folds(prepared))
    manager.close()


def test_at_hard_a_fold_that_takes_too_long_is_ended_and_rules_take_over(tmp_path: Path) -> None:
    gate = Gate()
    manager = manage(tmp_path, gate, compact_timeout_s=0.3, compact_retry_count=1)
    manager._keeper.summariser.timeout_s = 60.0  # The model itself would be given a minute.
    grow(manager, "s1", working(13))
    assert gate.asked.wait(60)
    prepared = manager.prepare_context_sync("s1", working(45))
    assert prepared.total_tokens <= 3_500
    assert {fold.by for fold in folds(prepared)} <= {"extract", "window"}
    assert len(gate.prompts) == 1, "overflow recovery does not depend on another call"
    assert manager.verify() == []
    manager.close()


@pytest.mark.parametrize("act", ["undo", "forget", "pin", "edit"])
def test_what_changed_meanwhile_is_not_folded_over(tmp_path: Path, act: str) -> None:
    gate = Gate()
    manager = manage(tmp_path, gate)
    sent = working(13)
    grow(manager, "s1", sent)
    assert gate.asked.wait(60)
    handle = f"m:{manager.ledger.read_messages('s1')[2].digest[:16]}"
    if act == "undo":
        with pytest.raises(Exception, match="no compression"):
            manager.undo("s1")
    elif act == "forget":
        manager.forget("s1", handle)
    elif act == "pin":
        manager.pin("s1", handle)
    else:
        sent = [sent[0], says("assistant", "another branch"), *working(13, ask="other")[1:]]
        manager.prepare_context_sync("s1", sent)
    gate.open.set()
    manager._background.join()
    assert manager.verify() == []
    covered = {one for stored in manager.ledger.read_edits("s1") for one in stored.edit.covers}
    if act in ("pin", "forget"):
        changed = manager.ledger.read_messages("s1")[2].id
        assert changed not in covered
    manager.close()


def test_one_worker_folds_many_sessions_one_after_the_other(tmp_path: Path) -> None:
    gate = Gate()
    gate.open.set()
    manager = manage(tmp_path, gate)
    for number in range(5):
        grow(manager, f"s{number}", working(13))
    manager._background.join()
    assert gate.most == 1
    for number in range(5):
        assert folds(manager.prepare_context_sync(f"s{number}", working(13)))
    manager.close()


def test_at_hard_nobody_waits_for_another_sessions_fold(tmp_path: Path) -> None:
    gate = Gate()
    manager = manage(tmp_path, gate, compact_timeout_s=600)
    grow(manager, "slow", working(13))
    assert gate.asked.wait(60)
    grow(manager, "s1", working(13))
    assert manager._background.is_busy("s1")
    manager._keeper.summariser.llm = quick = Gate()
    quick.open.set()
    prepared = manager.prepare_context_sync("s1", working(45))
    assert prepared.total_tokens <= 3_500
    assert quick.prompts
    assert manager._background.is_busy("slow")
    manager.close()


def test_a_process_that_ends_without_closing_ends_at_once(tmp_path: Path) -> None:
    program = """
import asyncio, sys, threading
from refold import CompressionConfig, ContextCompressionManager
sys.path.insert(0, sys.argv[2])
from tests.rigs.model import working
asked = threading.Event()
class Silent:
    async def complete(self, prompt):
        asked.set()
        await asyncio.sleep(600)
config = CompressionConfig(window=4_000, reserve=500, trigger_ratio=0.5, target_ratio=0.3, economic=False)
manager = ContextCompressionManager(config.replace(compact_timeout_s=600), sys.argv[1], llm=Silent())
manager.prepare_context_sync("s1", working(12))
manager.prepare_context_sync("s1", working(13))
assert asked.wait(60)
print("ends")
"""
    root = str(Path(__file__).resolve().parents[3])
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), root], capture_output=True, text=True, timeout=240, check=False
    )
    assert (done.stdout, done.returncode) == ("ends\n", 0), done.stderr
    manager = manage(tmp_path, Gate())
    assert manager.ledger.read_edits("s1") == []
    assert manager.verify() == []
    manager.close()


def test_closing_in_the_middle_leaves_nothing_half_done_and_the_next_process_does_it_again(tmp_path: Path) -> None:
    gate = Gate()
    manager = manage(tmp_path, gate)
    sent = working(13)
    grow(manager, "s1", sent)
    assert gate.asked.wait(60)
    manager.close()
    again = Gate()
    again.open.set()
    other = manage(tmp_path, again)
    assert other.ledger.read_edits("s1") == []
    assert other.verify() == []
    assert other.prepare_context_sync("s1", sent).messages == sent
    other._background.join()
    assert folds(other.prepare_context_sync("s1", sent))
    other.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "refold-background"]


def test_a_model_that_fails_in_the_background_leaves_the_extract(tmp_path: Path) -> None:
    gate = Gate("")
    gate.open.set()
    manager = manage(tmp_path, gate)
    grow(manager, "s1", working(13))
    manager._background.join()
    assert [fold.by for fold in folds(manager.prepare_context_sync("s1", working(13)))] == ["extract"]
    manager.close()


def test_with_background_folding_off_the_caller_waits_for_the_fold(tmp_path: Path) -> None:
    gate = Gate()
    gate.open.set()
    manager = manage(tmp_path, gate, background=False)
    assert folds(grow(manager, "s1", working(13)))
    manager.close()


def test_a_manual_compression_does_not_wait_for_a_background_one(tmp_path: Path) -> None:
    gate = Gate()
    manager = manage(tmp_path, gate)
    grow(manager, "s1", working(13))
    assert gate.asked.wait(60)
    threading.Timer(0.2, gate.open.set).start()
    done = manager.compress("s1", "keep the names of the logs")
    assert done.success
    assert done.freed_tokens > 0
    assert "keep the names of the logs" in gate.prompts[-1]
    assert manager.status("s1").compression_count == 1
    manager.close()
