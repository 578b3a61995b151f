"""``.compression`` (S1.6): written after each compression, read back, never in the way."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from refold import CompressionConfig, ConfigError, ContextCompressionManager, ContextSummary
from refold.memory import CompressionFolder
from tests.rigs.manager import chat

COUNTED = CompressionConfig.preset("importance").replace(threshold_rounds=12, keep_recent=2)


def test_s1_6_both_files_are_written_after_a_compression(tmp_path: Path) -> None:
    manager = ContextCompressionManager(COUNTED, tmp_path)
    manager.prepare_context_sync("s1", chat(14))
    config = json.loads((tmp_path / ".compression" / "config.json").read_text(encoding="utf-8"))
    assert config["maxTurns"] == 50
    assert config["keepRecent"] == 2
    assert config["autoCompress"] is True
    (summary,) = json.loads((tmp_path / ".compression" / "summaries.json").read_text(encoding="utf-8"))
    assert set(summary) >= {"timestamp", "turnRange", "content", "keyPoints"}
    assert summary["sessionId"] == "s1"


def test_s1_8_every_summary_carries_its_turn_range_and_key_points(tmp_path: Path) -> None:
    manager = ContextCompressionManager(COUNTED, tmp_path)
    manager.prepare_context_sync("s1", chat(14))
    (summary,) = manager.summaries("s1")
    assert isinstance(summary, ContextSummary)
    assert summary.turn_range == (1, 5)
    assert summary.key_points
    assert summary.content
    assert summary.timestamp > 1_600_000_000_000


def test_a_summary_in_the_file_says_whether_it_is_in_force_also_after_undo_and_redo(tmp_path: Path) -> None:
    manager = ContextCompressionManager(COUNTED, tmp_path)
    manager.prepare_context_sync("s1", chat(14))
    folder = CompressionFolder(tmp_path)
    manager.undo("s1")
    assert [row["inForce"] for row in folder.read_summaries("s1")] == [False]
    manager.redo("s1")
    assert [row["inForce"] for row in folder.read_summaries("s1")] == [True]


def test_s1_6_what_a_person_changes_in_the_file_holds_from_then_on(tmp_path: Path) -> None:
    ContextCompressionManager(COUNTED, tmp_path).prepare_context_sync("s1", chat(14))
    path = tmp_path / ".compression" / "config.json"
    stored = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**stored, "maxTurns": 7}), encoding="utf-8")
    plain = CompressionConfig.preset("importance")
    manager = ContextCompressionManager(plain, tmp_path)
    assert manager.config.max_turns == 7
    assert manager.config.keep_recent == 10
    # Written again by the next compression, the change stays.
    manager.append("s2", chat(30))
    manager.compress("s2")
    assert ContextCompressionManager(plain, tmp_path).config.max_turns == 7
    # An argument of the call overrides it.
    assert ContextCompressionManager(plain.replace(max_turns=9), tmp_path).config.max_turns == 9


def test_configure_changes_settings_and_remembers_them(tmp_path: Path) -> None:
    manager = ContextCompressionManager(CompressionConfig.preset("importance"), tmp_path)
    assert manager.configure(max_turns=5).max_turns == 5
    assert ContextCompressionManager(CompressionConfig.preset("importance"), tmp_path).config.max_turns == 5


def test_a_wrong_value_in_the_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / ".compression").mkdir()
    (tmp_path / ".compression" / "config.json").write_text('{"maxTurns": "many"}', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"config\.json.*max_turns"):
        ContextCompressionManager(CompressionConfig(), tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[1, 2", '"text"', "[" * 100_000, "\xff\xfe"])
def test_a_broken_file_costs_nothing_but_the_file(tmp_path: Path, content: str) -> None:
    folder = tmp_path / ".compression"
    folder.mkdir()
    for name in ("config.json", "summaries.json"):
        (folder / name).write_text(content, encoding="latin-1")
    manager = ContextCompressionManager(COUNTED, tmp_path)
    manager.prepare_context_sync("s1", chat(14))
    assert len(CompressionFolder(tmp_path).read_summaries("s1")) == 1


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_anything_but_a_file_is_put_aside_and_nobody_waits_for_it(tmp_path: Path, make: Callable[[Path], None]) -> None:
    (tmp_path / ".compression").mkdir()
    for name in ("config.json", "summaries.json"):
        make(tmp_path / ".compression" / name)
    manager = ContextCompressionManager(COUNTED, tmp_path)
    manager.prepare_context_sync("s1", chat(14))
    assert len(CompressionFolder(tmp_path).read_summaries("s1")) == 1


def test_the_ledger_stays_the_truth(tmp_path: Path) -> None:
    manager = ContextCompressionManager(COUNTED, tmp_path)
    shown = manager.prepare_context_sync("s1", chat(14)).messages
    (tmp_path / ".compression" / "summaries.json").write_text("[]", encoding="utf-8")
    assert len(manager.summaries("s1")) == 1
    assert ContextCompressionManager(COUNTED, tmp_path).prepare_context_sync("s1").messages == shown


def test_the_file_keeps_a_bounded_number_of_summaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refold.memory.SUMMARIES_MAX", 3)
    folder = CompressionFolder(tmp_path)
    for number in range(5):
        folder.write_summaries(f"s{number}", [ContextSummary(number, (1, 2), f"summary {number}")])
    assert [row["content"] for row in folder.read_summaries()] == ["summary 4", "summary 3", "summary 2"]
