"""L9, and what people switch off: automatic compression stops when it does not help, and says so."""

from pathlib import Path

from refold import CompressionConfig, ContextCompressionManager
from tests.rigs.manager import SMALL, Model, agent, chat, steps

# Four kept messages alone are more than the threshold: no compression gets below it.
HOPELESS = CompressionConfig(window=4_000, reserve=500, trigger_ratio=0.01, target_ratio=0.008, retention_count=4)
# The same by a count: each compression archives what it was asked to archive.
COUNTED = CompressionConfig(threshold_tokens=50, retention_count=4)
# A summary is wanted, and without one the history stays as it is.
KEEPING = CompressionConfig(threshold_rounds=10, keep_last=4, fold={"on_failure": "keep"}, compact_retry_count=1)


def send(manager: ContextCompressionManager, history: list[object], **given: str) -> list[object]:
    """Prepare a first request, whose messages are all new; return its messages."""
    manager.prepare_context_sync("s1", history, **given)  # type: ignore[arg-type]
    return history


def grow(manager: ContextCompressionManager, history: list[object], times: int, **given: str) -> list[bool]:
    """Prepare while the history grows; return whether each call compressed."""
    acted = []
    for turn in range(times):
        history += chat(2, f"turn {turn}, message {{}} with quite a few words in it")
        report = manager.prepare_context_sync("s1", history, **given).report  # type: ignore[arg-type]
        assert report is not None
        acted.append(bool(report.stages))
    return acted


def test_two_compressions_in_a_row_that_did_not_help_stop_the_automatic_ones(tmp_path: Path) -> None:
    manager = ContextCompressionManager(HOPELESS, tmp_path)
    history = send(manager, chat(10))
    assert grow(manager, history, 6) == [True, True, False, False, False, False]
    report = manager.prepare_context_sync("s1", history).report
    assert report is not None
    assert any("automatic compression has stopped after 2 failed attempts" in str(note) for note in report.notes)
    assert "did not help" in str(manager.status("s1").stopped)


def test_a_view_that_has_grown_is_compressed_again(tmp_path: Path) -> None:
    manager = ContextCompressionManager(HOPELESS, tmp_path)
    history = send(manager, chat(10))
    acted = grow(manager, history, 40)
    assert acted[:4] == [True, True, False, False]
    assert 4 <= sum(acted) <= 8


def test_a_compression_that_archived_something_is_not_a_failure_however_much_is_left(tmp_path: Path) -> None:
    manager = ContextCompressionManager(COUNTED, tmp_path)
    acted = grow(manager, chat(10), 12)
    assert acted[-1]
    assert sum(acted) >= 10, "only a batch that is too small waits for the next request"
    assert not manager.status("s1").stopped


def test_two_failures_within_a_turn_stop_the_attempts_and_the_next_turn_tries_again(tmp_path: Path) -> None:
    model = Model(RuntimeError("no"))
    manager = ContextCompressionManager(KEEPING, tmp_path, llm=model)
    history = [*chat(10), *agent(1)]
    asked = []
    for step in range(1, 5):
        manager.prepare_context_sync("s1", history)
        asked.append(len(model.prompts))
        history += steps(1, start=step)
    assert asked == [1, 2, 2, 2]
    assert "did not help" in str(manager.status("s1").stopped)
    history += chat(2)
    history.append({"role": "user", "content": "And now?"})
    manager.prepare_context_sync("s1", history)
    assert len(model.prompts) == 3


def test_a_run_without_new_turns_is_tried_again_after_ten_messages(tmp_path: Path) -> None:
    model = Model(RuntimeError("no"))
    manager = ContextCompressionManager(KEEPING, tmp_path, llm=model)
    history = [*chat(10), *agent(1)]
    tried = []
    for step in range(1, 15):
        asked = len(model.prompts)
        assert manager.prepare_context_sync("s1", history).messages == history
        tried.append(len(model.prompts) > asked)
        history += steps(1, start=step)
    assert [at for at, is_tried in enumerate(tried) if is_tried] == [0, 1, 6, 11]


def test_the_reason_is_logged_once_not_at_every_call(tmp_path: Path) -> None:
    manager = ContextCompressionManager(HOPELESS, tmp_path)
    grow(manager, chat(10), 8)
    assert [event.kind for event in manager.ledger.read_events("s1")].count("skipped") == 1


def test_the_brake_holds_after_a_restart(tmp_path: Path) -> None:
    history = chat(10)
    grow(ContextCompressionManager(HOPELESS, tmp_path), history, 3)
    assert grow(ContextCompressionManager(HOPELESS, tmp_path), history, 2) == [False, False]


def test_a_manual_compression_starts_the_automatic_ones_again(tmp_path: Path) -> None:
    manager = ContextCompressionManager(HOPELESS, tmp_path)
    history = chat(10)
    grow(manager, history, 4)
    manager.compress("s1")
    assert grow(manager, history, 1) == [True]


def test_another_model_starts_the_automatic_ones_again(tmp_path: Path) -> None:
    manager = ContextCompressionManager(HOPELESS, tmp_path)
    history = send(manager, chat(10), model="gpt-5")
    assert grow(manager, history, 4, model="gpt-5") == [True, True, False, False]
    assert grow(manager, history, 1, model="gpt-4o") == [True]


def test_over_the_limit_the_brake_does_not_hold(tmp_path: Path) -> None:
    manager = ContextCompressionManager(HOPELESS.replace(window=3_000, reserve=500), tmp_path)
    history = chat(10)
    grow(manager, history, 4)
    history += steps(10)
    report = manager.prepare_context_sync("s1", history).report
    assert report is not None
    assert report.tokens_after <= report.budget.hard


def test_switched_off_means_off_until_it_does_not_fit(tmp_path: Path) -> None:
    manager = ContextCompressionManager(SMALL.replace(auto_compress=False, threshold_rounds=10), tmp_path)
    history = chat(12)
    prepared = manager.prepare_context_sync("s1", history)
    assert prepared.messages == history
    assert prepared.report is not None
    assert any("automatic compression is off" in str(note) for note in prepared.report.notes)
    grown = [*history, *agent(20)]
    prepared = manager.prepare_context_sync("s1", grown)
    assert prepared.report is not None
    assert prepared.total_tokens <= prepared.report.budget.hard
    assert any("is off, but" in str(note) for note in prepared.report.notes)


def test_a_quiet_session_writes_no_event(tmp_path: Path) -> None:
    manager = ContextCompressionManager(SMALL, tmp_path)
    for stop in range(1, 12):
        manager.prepare_context_sync("s1", chat(stop))
    assert manager.ledger.read_events("s1") == []
    assert not (tmp_path / "memory").exists()
    assert not (tmp_path / ".compression").exists()
