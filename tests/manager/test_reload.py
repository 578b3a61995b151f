"""Two processes work on one session: each reads only what the other added, and both send the bytes that one would."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.ledger.records import StoredEdit, StoredMessage
from refold.ledger.sqlite import SqliteLedger

CONFIG = CompressionConfig(window=6_000, reserve=500)


class CountingLedger(SqliteLedger):
    """A real ledger that counts the messages, and how often edits, are read from it."""

    read = edits_read = 0

    def read_messages(self, session_id: str, ids: Sequence[str] | None = None) -> list[StoredMessage]:
        found = super().read_messages(session_id, ids)
        self.read += len(found)
        return found

    def read_edits(self, session_id: str, *, active_only: bool = True) -> list[StoredEdit]:
        self.edits_read += 1
        return super().read_edits(session_id, active_only=active_only)


def make_step(number: int) -> list[dict[str, Any]]:
    call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": f'{{"n": {number}}}'}}
    rows = "\n".join(f"row {number}-{row}: {row * 7919 % 10_007}" for row in range(20))
    return [
        {"role": "assistant", "content": f"Step {number}.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": rows},
    ]


def open_managers(folder: Path, count: int) -> list[ContextCompressionManager]:
    return [
        ContextCompressionManager(CONFIG, folder, ledger=CountingLedger(folder / "ledger.db")) for _ in range(count)
    ]


def run_steps(managers: Sequence[ContextCompressionManager], steps: int) -> list[list[object]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Find the row with 7919 in it."}]
    sent = []
    for number in range(steps):
        messages = [*messages, *make_step(number)]
        sent.append(managers[number % len(managers)].prepare_context_sync("s", messages).messages)
    return sent


def test_a_process_reads_only_what_another_added_to_a_session_that_it_knows(tmp_path: Path) -> None:
    managers = open_managers(tmp_path, 2)
    run_steps(managers, 8)
    assert not managers[0].status("s").compression_count
    read = [manager.ledger.read for manager in managers]  # type: ignore[attr-defined]
    # The first request of the second process reads what the first one stored. After that each step has two messages.
    assert max(read) <= 2 * 8 + 3, read


def test_edits_are_read_again_only_after_another_process_changed_them(tmp_path: Path) -> None:
    managers = open_managers(tmp_path, 2)
    run_steps(managers, 40)
    folds = managers[0].status("s").compression_count
    read = [manager.ledger.edits_read for manager in managers]  # type: ignore[attr-defined]
    assert 1 <= folds <= 12, "some requests fold, most do not"
    assert max(read) <= 2 * folds + 2, read


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_that_take_turns_send_what_one_process_would(processes: int, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "many").mkdir()
    alone = run_steps(open_managers(tmp_path / "one", 1), 40)
    managers = open_managers(tmp_path / "many", processes)
    together = run_steps(managers, 40)
    assert managers[0].status("s").compression_count
    assert together == alone
    assert managers[0].verify() == []


def test_what_another_process_forgot_is_gone_from_memory_too(tmp_path: Path) -> None:
    first, second = open_managers(tmp_path, 2)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "The key is sesame-42."}, *make_step(1)]
    first.prepare_context_sync("s", messages)
    second.prepare_context_sync("s", [*messages, *make_step(2)])
    (handle,) = {one.handle for one in second.recall("s", "sesame-42") if "sesame-42" in one.text}
    second.forget("s", handle)
    first.append("s", make_step(3))
    assert "sesame-42" not in str(first.prepare_context_sync("s").messages)


def test_what_another_process_folded_and_undid_is_seen(tmp_path: Path) -> None:
    first, second = open_managers(tmp_path, 2)
    sent = run_steps([first, second], 12)
    second.compress("s")
    assert len(first.read_view("s")) == len(second.read_view("s")) < len(sent[-1])
    second.undo("s")
    assert [item.raw for item in first.read_view("s")] == [item.raw for item in second.read_view("s")] == sent[-1]
