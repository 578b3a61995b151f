"""On arrival: rendered once, stored, and replayed byte for byte for ever (L6, L10)."""

import json
from pathlib import Path

from refold import CompressionConfig, ContextCompressionManager
from tests.rigs.manager import agent

ROOMY = CompressionConfig(window=1_000_000, reserve=0, truncate={"lines_max": 40})


def test_an_oversized_output_is_cut_when_it_comes_and_the_whole_is_behind_its_handle(tmp_path: Path) -> None:
    manager = ContextCompressionManager(ROOMY, tmp_path)
    history = agent(2, lines=300)
    prepared = manager.prepare_context_sync("s1", history)
    shown = prepared.messages[2]["content"]  # type: ignore[index]
    assert shown.count("\n") < 60
    handle = next(one for one in prepared.edits if one.covers).text
    assert "⟨m:" in handle
    (event_free,) = [manager.ledger.read_session("s1").compression_count]
    assert event_free == 0
    marked = shown[shown.index("⟨m:") : shown.index("⟩") + 1]
    assert manager.expand("s1", marked) == history[2]["content"]
    assert prepared.expand(marked) == history[2]["content"]


def test_other_settings_do_not_change_what_has_come_before(tmp_path: Path) -> None:
    history = agent(2, lines=300)
    first = ContextCompressionManager(ROOMY, tmp_path).prepare_context_sync("s1", history)
    later = ContextCompressionManager(ROOMY.replace(truncate={"lines_max": 100}), tmp_path)
    history += agent(1, lines=300)[1:]
    second = later.prepare_context_sync("s1", history)
    assert json.dumps(second.messages[: len(first.messages)]) == json.dumps(first.messages)
    assert str(second.messages[-1]).count("worker") > str(first.messages[-1]).count("worker")


def test_incremental_and_whole_histories_render_alike(tmp_path: Path) -> None:
    history = agent(3, lines=300)
    whole = ContextCompressionManager(ROOMY, tmp_path / "a").prepare_context_sync("s1", history)
    parts = ContextCompressionManager(ROOMY, tmp_path / "b")
    for message in history:
        parts.append("s1", [message])
    assert parts.prepare_context_sync("s1").messages == whole.messages


def test_what_was_cut_on_arrival_can_be_undone_by_its_id(tmp_path: Path) -> None:
    manager = ContextCompressionManager(ROOMY, tmp_path)
    history = agent(1, lines=300)
    prepared = manager.prepare_context_sync("s1", history)
    (edit,) = prepared.edits
    manager.undo("s1", edit.id)
    assert manager.prepare_context_sync("s1", history).messages == history
    assert ContextCompressionManager(ROOMY, tmp_path).prepare_context_sync("s1", history).messages == history
