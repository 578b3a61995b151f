"""Callbacks before and after, with figures; a veto counts unless the view would not fit; a failure harms nothing."""

from pathlib import Path

import pytest

from refold import CompressionConfig, ConfigError, ContextCompressionManager
from refold.conversation import because
from refold.manager.notices import Notice
from tests.rigs.manager import SMALL, agent, chat

COUNTED = CompressionConfig(threshold_rounds=10, retention_count=4)


def test_a_compression_is_reported_before_and_after_with_tokens_reason_and_time(tmp_path: Path) -> None:
    manager = ContextCompressionManager(SMALL, tmp_path)
    heard: list[Notice] = []
    manager.on("before_compress", heard.append)
    manager.on("compressed", heard.append)
    prepared = manager.prepare_context_sync("s1", agent(30))
    before, after = heard
    assert before.kind == "before_compress"
    assert before.tokens_before == after.tokens_before > after.tokens_after == prepared.total_tokens
    assert after.reason.is_a(because.OVER_HARD)
    assert after.time > 0
    assert after.fields["archived"]


def test_a_listener_hears_nothing_after_it_was_stopped_however_often(tmp_path: Path) -> None:
    manager = ContextCompressionManager(SMALL, tmp_path)
    heard: list[Notice] = []
    stop = manager.on("compressed", heard.append)
    stop()
    stop()
    manager.prepare_context_sync("s1", agent(30))
    assert heard == []


def test_before_compress_may_veto(tmp_path: Path) -> None:
    manager = ContextCompressionManager(COUNTED, tmp_path)
    heard: list[Notice] = []
    manager.on("before_compress", lambda _: False)
    manager.on("skipped", heard.append)
    prepared = manager.prepare_context_sync("s1", chat(12))
    assert prepared.messages == chat(12)
    assert prepared.report is not None
    assert any("vetoed" in str(note) for note in prepared.report.notes)
    manager.prepare_context_sync("s1", chat(13))
    assert [notice.reason.code for notice in heard] == ["veto", "veto"]
    assert [event.kind for event in manager.ledger.read_events("s1")] == ["skipped"]


def test_what_does_not_fit_is_compressed_in_spite_of_a_veto_and_that_is_said(tmp_path: Path) -> None:
    manager = ContextCompressionManager(SMALL, tmp_path)
    manager.on("before_compress", lambda _: False)
    prepared = manager.prepare_context_sync("s1", agent(30))
    assert prepared.report is not None
    assert prepared.total_tokens <= prepared.report.budget.hard
    assert any("a veto was overridden" in str(note) for note in prepared.report.notes)


def test_a_listener_that_raises_harms_nothing_and_is_reported(tmp_path: Path) -> None:
    manager = ContextCompressionManager(COUNTED, tmp_path)
    warned: list[Notice] = []

    def fail(_: Notice) -> None:
        raise RuntimeError("listener is broken")

    manager.on("before_compress", fail)
    manager.on("compressed", fail)
    manager.on("warned", warned.append)
    assert manager.prepare_context_sync("s1", chat(12)).summary
    assert len(warned) == 2
    assert "listener is broken" in str(warned[0].reason)
    assert manager.verify() == []


def test_an_undo_is_reported(tmp_path: Path) -> None:
    manager = ContextCompressionManager(COUNTED, tmp_path)
    heard: list[Notice] = []
    manager.on("undone", heard.append)
    manager.on("redone", heard.append)
    manager.prepare_context_sync("s1", chat(12))
    manager.undo("s1")
    manager.redo("s1")
    assert [notice.kind for notice in heard] == ["undone", "redone"]


def test_an_event_that_does_not_exist_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'compressed'"):
        ContextCompressionManager(COUNTED, tmp_path).on("compresed", print)
    with pytest.raises(ConfigError, match="must be callable"):
        ContextCompressionManager(COUNTED, tmp_path).on("compressed", "print")  # type: ignore[arg-type]
