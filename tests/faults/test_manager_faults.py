"""Whatever fails, and at whatever call: the old view or the new one, never a mixture, and nothing lost."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager, LedgerError
from refold.ledger.sqlite import SqliteLedger
from refold.manager.notices import Notice
from tests.rigs.manager import Model, agent, chat

COUNTED = CompressionConfig(threshold_rounds=10, retention_count=4)
OFFLOAD = CompressionConfig.preset("offload").replace(window=12_000, reserve=500, compact_trigger_threshold=500)
WRITES = (
    "open_session",
    "update_session",
    "append",
    "commit",
    "switch_edits",
    "add_event",
    "add_usage",
    "acquire_lease",
    "release_lease",
    "forget",
)


class FailingLedger:
    """A real ledger whose n-th write fails, before it is made or after."""

    def __init__(self, path: Path, fails_at: int, *, is_made: bool) -> None:
        self._ledger = SqliteLedger(path)
        self._fails_at = fails_at
        self._is_made = is_made
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._ledger, name)
        return self._watch(method) if name in WRITES else method

    def _watch(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            self.writes += 1
            if self.writes == self._fails_at:
                if self._is_made:
                    method(*args, **named)
                raise LedgerError("the disk is full; nothing was written by this call")
            return method(*args, **named)

        return call


def view_in(workspace: Path, config: CompressionConfig) -> str:
    """What a fresh process would show, without compressing anything."""
    manager = ContextCompressionManager(config.replace(auto_compress=False, window=10_000_000), workspace)
    if manager.ledger.read_session("s1") is None:
        return "[]"
    shown = json.dumps(manager.prepare_context_sync("s1").messages)
    manager.close()
    return shown


def check_each_failure(
    tmp_path: Path, config: CompressionConfig, history: list[Any], act: Callable[[ContextCompressionManager], object]
) -> int:
    """Fail every write that ``act`` makes, one run for each; return how many there were."""
    good = tmp_path / "good"
    manager = ContextCompressionManager(config, good)
    manager.append("s1", history[:-1])
    views = {view_in(good, config)}
    manager.append("s1", history[-1:])
    views.add(view_in(good, config))
    act(manager)
    views.add(view_in(good, config))
    fails_at = 0
    while True:
        fails_at += 1
        ended = 0
        for is_made in (False, True):
            workspace = tmp_path / f"{fails_at}-{is_made}"
            ContextCompressionManager(config, workspace).append("s1", history[:-1])
            ledger = FailingLedger(workspace / ".refold" / "ledger.db", fails_at, is_made=is_made)
            manager = ContextCompressionManager(config, workspace, ledger=ledger)
            try:
                manager.append("s1", history[-1:])
                act(manager)
            except LedgerError:
                pass
            assert view_in(workspace, config) in views
            clean = ContextCompressionManager(config, workspace)
            assert [one for one in clean.verify() if "names offloaded" not in one.what] == []
            # The manager that saw the failure continues as if nothing had happened.
            assert manager.status("s1").messages in (len(history) - 1, len(history))
            ended += ledger.writes < fails_at
            manager.close()
        if ended == 2:
            return fails_at - 1


def test_every_write_of_a_compression_may_fail(tmp_path: Path) -> None:
    count = check_each_failure(tmp_path, COUNTED, chat(12), lambda manager: manager.prepare_context_sync("s1"))
    assert count >= 4


@pytest.mark.slow
def test_every_write_of_an_offload_may_fail_and_no_named_file_is_missing(tmp_path: Path) -> None:
    def act(manager: ContextCompressionManager) -> None:
        manager.prepare_context_sync("s1")

    check_each_failure(tmp_path, OFFLOAD, agent(45), act)
    for workspace in tmp_path.iterdir():
        assert ContextCompressionManager(OFFLOAD, workspace).verify() == []


def test_every_write_of_an_undo_may_fail(tmp_path: Path) -> None:
    config = CompressionConfig(threshold_rounds=10, retention_count=4)

    def act(manager: ContextCompressionManager) -> None:
        manager.prepare_context_sync("s1")
        manager.undo("s1")

    good = tmp_path / "views"
    manager = ContextCompressionManager(config, good)
    manager.prepare_context_sync("s1", chat(12))
    folded = view_in(good, config)
    undone = json.dumps(chat(12))
    fails_at = 0
    while True:
        fails_at += 1
        workspace = tmp_path / str(fails_at)
        ContextCompressionManager(config, workspace).append("s1", chat(12))
        ledger = FailingLedger(workspace / ".refold" / "ledger.db", fails_at, is_made=fails_at % 2 == 0)
        failing = ContextCompressionManager(config, workspace, ledger=ledger)
        failing._keeper.leases.seconds = 0.2  # One that cannot be given back has to run out.
        with contextlib.suppress(LedgerError):
            act(failing)
        assert len(json.loads(view_in(workspace, config))) in (len(json.loads(folded)), len(json.loads(undone)))
        assert ContextCompressionManager(config, workspace).verify() == []
        if ledger.writes < fails_at:
            break
    assert fails_at > 5


@pytest.mark.parametrize("failing_at", [1, 2, 3])
def test_whichever_call_of_the_model_fails_the_view_is_whole(tmp_path: Path, failing_at: int) -> None:
    answers: list[object] = ["Words of a summary."] * 5
    answers[failing_at - 1] = RuntimeError("the model is gone")
    manager = ContextCompressionManager(COUNTED, tmp_path, llm=Model(*answers))
    history = chat(12)
    for turn in range(4):
        assert manager.prepare_context_sync("s1", history).summary
        history += chat(8, f"turn {turn} {{}}")
    assert manager.verify() == []


def test_an_offload_folder_that_cannot_be_written_keeps_the_old_view(tmp_path: Path) -> None:
    (tmp_path / "offloaded").write_text("a file in the way", encoding="utf-8")
    manager = ContextCompressionManager(OFFLOAD, tmp_path)
    failed: list[Notice] = []
    manager.on("failed", failed.append)
    history = agent(45)
    manager.append("s1", history)
    with pytest.raises(LedgerError, match="offloaded text cannot be written"):
        manager.prepare_context_sync("s1")
    assert json.loads(view_in(tmp_path, OFFLOAD)) == history
    assert "offloaded text" in str(failed[0].reason)
    (tmp_path / "offloaded").unlink()
    assert manager.prepare_context_sync("s1").messages != history


@pytest.mark.parametrize("blocked", ["memory", ".compression"])
def test_a_page_that_cannot_be_written_does_not_lose_the_compression(tmp_path: Path, blocked: str) -> None:
    (tmp_path / blocked).write_text("a file in the way", encoding="utf-8")
    manager = ContextCompressionManager(COUNTED, tmp_path)
    warned: list[Notice] = []
    manager.on("warned", warned.append)
    prepared = manager.prepare_context_sync("s1", chat(12))
    assert prepared.summary
    assert all("not written" in str(notice.reason) for notice in warned)
    assert [event.kind for event in manager.ledger.read_events("s1")] == ["compressed", "warned"]
    assert (tmp_path / {"memory": ".compression", ".compression": "memory"}[blocked]).is_dir()
    assert manager.undo("s1").edits


def test_a_read_only_ledger_is_a_typed_error_and_nothing_is_lost(tmp_path: Path) -> None:
    manager = ContextCompressionManager(COUNTED, tmp_path)
    manager.append("s1", chat(3))
    manager.close()
    ledger = tmp_path / ".refold" / "ledger.db"
    ledger.write_bytes(ledger.read_bytes()[:100] + b"\xff" * 3_000 + ledger.read_bytes()[3_100:])
    with pytest.raises(LedgerError):
        ContextCompressionManager(COUNTED, tmp_path).prepare_context_sync("s1", chat(4))


KILL = Path(__file__).with_name("kill_rounds.py")


def run_kill_rounds(tmp_path: Path, rounds: int) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(KILL), str(tmp_path), str(rounds)],
        capture_output=True,
        text=True,
        timeout=1_100,
        check=False,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{rounds} rounds" in done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
def test_killed_at_any_moment_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    run_kill_rounds(tmp_path, 2)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
def test_killed_two_hundred_times_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    run_kill_rounds(tmp_path, 200)


def test_a_conversation_folds_and_is_kept_where_no_background_thread_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("refold-"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    config = CompressionConfig(window=6_000, reserve=500)
    manager = ContextCompressionManager(config, tmp_path)
    messages = agent(30)
    for end in range(1, len(messages) + 1, 2):
        prepared = manager.prepare_context_sync("talk", messages[:end])
        assert prepared.total_tokens <= 5_500
    assert any(edit.fold for edit in prepared.edits)
    assert [json.loads(one.raw) for one in manager.ledger.read_messages("talk")] == messages
    assert manager.recall("talk", str(messages[1]["content"])[:60])
    monkeypatch.undo()
    manager.close()
    assert manager.verify("talk") == []
