"""Preset `offload` in a stored session: files follow the view (S2.9), and undo writes them again."""

import re
from pathlib import Path

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.manager.notices import Notice
from tests.rigs.manager import agent, steps

OFFLOAD = CompressionConfig.preset("offload").replace(window=12_000, reserve=500, compact_trigger_threshold=500)
NAMED = re.compile(r"Tool result is at: (\S+)")


def named_in(messages: list[object]) -> set[str]:
    return set(NAMED.findall(str(messages)))


def files_in(workspace: Path) -> set[str]:
    return {str(path.relative_to(workspace)) for path in (workspace / "offloaded").rglob("*") if path.is_file()}


def test_s2_9_every_path_that_a_view_names_is_a_file_with_the_whole_result(tmp_path: Path) -> None:
    manager = ContextCompressionManager(OFFLOAD, tmp_path)
    heard: list[Notice] = []
    manager.on("offloaded", heard.append)
    history = agent(45)
    prepared = manager.prepare_context_sync("s1", history)
    named = named_in(prepared.messages)
    assert named
    assert named == files_in(tmp_path)
    results = {message["content"] for message in history if message["role"] == "tool"}
    assert all((tmp_path / path).read_text(encoding="utf-8") in results for path in named)
    assert set(heard[0].fields["files"]) == named  # type: ignore[arg-type]
    assert manager.verify() == []


def fold_after_offload(manager: ContextCompressionManager) -> tuple[set[str], list[object]]:
    """Offload first, then grow until a fold takes the offloaded messages in; return what was named, and the history."""
    history = agent(45)
    named = named_in(manager.prepare_context_sync("s1", history).messages)
    assert named
    manager.compress("s1")
    return named, history


def test_s2_9_on_a_compaction_files_that_no_message_names_any_more_are_deleted(tmp_path: Path) -> None:
    manager = ContextCompressionManager(OFFLOAD, tmp_path)
    named, history = fold_after_offload(manager)
    shown = manager.prepare_context_sync("s1", history).messages
    assert named_in(shown) == files_in(tmp_path)
    assert named - files_in(tmp_path)
    # The text is not lost with the file.
    result = next(message["content"] for message in history if message["role"] == "tool")  # type: ignore[index]
    digest = manager.ledger.read_path("s1").digests[2]
    assert manager.expand("s1", f"m:{digest[:8]}") == result


def test_s2_10_preserved_messages_keep_their_path_and_its_file(tmp_path: Path) -> None:
    config = OFFLOAD.replace(offload={"share": 1.0}, compact_preserve_count=5)
    manager = ContextCompressionManager(config, tmp_path)
    named, _ = fold_after_offload(manager)
    manager.append("s1", steps(1, start=90))
    shown = manager.compress("s1").messages
    kept = named_in(shown)
    assert kept <= named | kept
    assert kept == files_in(tmp_path)


def test_s2_9_undo_writes_the_files_again(tmp_path: Path) -> None:
    manager = ContextCompressionManager(OFFLOAD, tmp_path)
    named, _ = fold_after_offload(manager)
    manager.undo("s1")
    assert files_in(tmp_path) == named
    manager.undo("s1")
    assert files_in(tmp_path) == set()
    manager.redo("s1")
    assert files_in(tmp_path) == named
    assert manager.verify() == []


def test_s2_9_a_deletion_that_fails_only_warns(tmp_path: Path) -> None:
    manager = ContextCompressionManager(OFFLOAD, tmp_path)
    warned: list[Notice] = []
    manager.on("warned", warned.append)
    named = named_in(manager.prepare_context_sync("s1", agent(45)).messages)
    stuck = tmp_path / sorted(named)[0]
    stuck.unlink()
    stuck.mkdir()
    (stuck / "inside").touch()
    done = manager.compress("s1")
    assert done.success
    assert any("cannot be removed" in str(notice.reason) for notice in warned)
    assert len(done.deleted_files) == len(named) - 1 - len(named_in(done.messages) & named)


def test_s2_9_deleting_a_session_removes_its_folder_and_no_others(tmp_path: Path) -> None:
    manager = ContextCompressionManager(OFFLOAD, tmp_path)
    for name in ("s1", "s2"):
        manager.prepare_context_sync(name, agent(45))
    manager.delete_session("s1")
    assert not (tmp_path / "offloaded" / "s1").exists()
    assert (tmp_path / "offloaded" / "s2").is_dir()


def test_verify_finds_a_missing_file_and_repair_writes_it_again(tmp_path: Path) -> None:
    manager = ContextCompressionManager(OFFLOAD, tmp_path)
    named = named_in(manager.prepare_context_sync("s1", agent(45)).messages)
    (tmp_path / sorted(named)[0]).unlink()
    (tmp_path / sorted(named)[1]).write_text("changed", encoding="utf-8")
    findings = manager.verify()
    assert [finding.is_derived for finding in findings] == [True, True]
    assert "missing or not what was offloaded" in findings[0].what
    manager.verify(repair=True)
    assert manager.verify() == []


@pytest.mark.parametrize(
    "text", ["Tool result is at: /etc/passwd", "Tool result is at: offloaded/s2/0123456789abcdef.txt"]
)
def test_a_tools_own_text_that_looks_like_a_path_is_never_read_or_deleted(tmp_path: Path, text: str) -> None:
    manager = ContextCompressionManager(OFFLOAD, tmp_path)
    victim = tmp_path / "offloaded" / "s2" / "0123456789abcdef.txt"
    victim.parent.mkdir(parents=True)
    victim.write_text("of another session", encoding="utf-8")
    history = agent(45)
    history[2]["content"] = text
    manager.prepare_context_sync("s1", history)
    manager.compress("s1")
    manager.undo("s1")
    assert victim.read_text(encoding="utf-8") == "of another session"
