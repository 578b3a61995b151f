"""A compression that takes too much processor time ends in a cheaper way, which still fits."""

from pathlib import Path
from typing import Any

import pytest

import refold
from refold.config import CompressionConfig
from refold.conversation import because
from refold.manager import batch
from refold.testing import find_violations
from tests.rigs.stages import step, user

WINDOW = 12_000


def work(steps: int) -> list[Any]:
    made = [user("Make every part pass. Never touch the migrations.")]
    for n in range(steps):
        made += step("bash", {"command": f"pytest part_{n}.py"}, f"part {n}: " + f"value_{n} " * 100)
    return made


@pytest.mark.parametrize("seconds", [-1.0, 0.02, 0.05])
def test_what_does_not_finish_in_time_still_fits_with_the_newest_steps(
    seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "CPU_S_MAX", seconds)
    manager = refold.ContextCompressionManager(CompressionConfig(window=WINDOW, reserve=1_000), tmp_path)
    messages = work(150)
    prepared = manager.prepare_context_sync("s", messages)
    assert prepared.total_tokens <= WINDOW - 1_000
    assert not find_violations("openai-chat", prepared.messages)
    assert prepared.messages[-2:] == messages[-2:]
    assert len(manager.ledger.read_messages("s")) == len(messages)


def test_without_time_the_view_keeps_most_of_the_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "CPU_S_MAX", -1.0)
    manager = refold.ContextCompressionManager(CompressionConfig(window=WINDOW, reserve=1_000), tmp_path)
    prepared = manager.prepare_context_sync("s", work(150))
    assert prepared.total_tokens > 0.75 * (WINDOW - 1_000)
    assert prepared.report is not None
    assert because.TOO_LONG() in [stage.note for stage in prepared.report.stages]
    monkeypatch.setattr(batch, "CPU_S_MAX", 60.0)
    again = manager.prepare_context_sync("s", [*work(150), user("And now?"), *work(30)[1:]])
    assert any(edit.stage == "fold" for edit in again.edits), "the next compression has its time again"


def test_time_is_counted_by_thread_and_not_while_waiting() -> None:
    limit = batch.WorkLimit(0.05)
    limit.check()
    sum(range(6_000_000))
    limit.resume()
    limit.check()
    sum(range(6_000_000))
    with pytest.raises(batch.OutOfTime):
        limit.check()
