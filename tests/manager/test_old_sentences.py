"""Ledgers of earlier versions hold reasons as English sentences: they are read, shown and counted as they are."""

from __future__ import annotations

import json
from pathlib import Path

import apsw

from refold import CompressionConfig, ContextCompressionManager
from refold.conversation.reason import say
from refold.ledger.place import LEDGER_FILE
from refold.manager.status import export_session, import_session
from tests.rigs.manager import agent, chat

SENTENCE = "36,000 tokens are over the limit of 35,282"
CONFIG = CompressionConfig(window=4_000, reserve=500)


def write_old_form(workspace: Path) -> None:
    """Put sentences where this version writes codes and values, as an earlier version did."""
    with apsw.Connection(str(workspace / LEDGER_FILE)) as db:
        db.execute("UPDATE batch SET reason = ?", (SENTENCE,))
        for key, payload in db.execute("SELECT key, payload FROM edit").fetchall():
            told = json.loads(payload) | {"reason": "old observation"}
            db.execute("UPDATE edit SET payload = ? WHERE key = ?", (json.dumps(told).encode(), key))
        for key, fields in db.execute("SELECT id, fields FROM event WHERE kind = 'compressed'").fetchall():
            told = json.loads(fields) | {"reason": SENTENCE}
            db.execute("UPDATE event SET fields = ? WHERE id = ?", (json.dumps(told).encode(), key))


def test_sentences_of_an_old_ledger_are_shown_as_they_are_and_nothing_is_lost(tmp_path: Path) -> None:
    with ContextCompressionManager(CONFIG, tmp_path) as manager:
        before = manager.prepare_context_sync("s1", agent(40))
        assert manager.status("s1").compression_count
    write_old_form(tmp_path)
    with ContextCompressionManager(CONFIG, tmp_path) as manager:
        assert manager.prepare_context_sync("s1", agent(40)).messages == before.messages
        assert manager.verify() == []
        (batch,) = manager.ledger.read_batches("s1")
        assert say(batch.reason, "zh") == str(batch.reason) == SENTENCE
        assert {str(one.edit.reason) for one in manager.ledger.read_edits("s1")} == {"old observation"}
        told = manager.statistics("s1")
        assert told.by_reason == {"text": 1}
        assert str(told.decisions[0].reason) == SENTENCE
        exported = export_session(manager.ledger, "s1")
    (tmp_path / "copy").mkdir()
    with ContextCompressionManager(CONFIG, tmp_path / "copy") as other:
        import_session(other.ledger, exported, now=3.0)
        (batch,) = other.ledger.read_batches("s1")
        assert str(batch.reason) == SENTENCE


def test_what_an_old_version_put_into_a_session_settings_still_forces_and_brakes(tmp_path: Path) -> None:
    with ContextCompressionManager(CONFIG, tmp_path) as manager:
        manager.append("s1", chat(6))
        forced = {"forced": "the provider refused the last request as too long"}
        manager.ledger.update_session("s1", {"settings": forced}, 1.0)
        prepared = manager.prepare_context_sync("s1")
        assert prepared.report is not None
        assert str(prepared.report.reason) == forced["forced"]
        brake = {"misses": 9, "model": "", "why": "nothing is left that could be compressed", "messages": 6}
        manager.ledger.update_session("s1", {"settings": {"brake": brake}}, 2.0)
        stopped = manager.status("s1").stopped
        assert str(stopped) == "9 compressions in a row did not help: nothing is left that could be compressed"
