"""The rows of the five documents that speak of stored sessions, one test each or more."""

import asyncio
import json
import re
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager, LedgerError, PreparedContext, TokenCounter
from refold.ledger.sqlite import SqliteLedger
from tests.rigs.manager import agent, chat

ARCHIVE = CompressionConfig.preset("archive").replace(threshold_rounds=10, retention_count=4)
HYBRID = CompressionConfig.preset("hybrid").replace(window=2_000, reserve=100)
OFFLOAD = CompressionConfig.preset("offload")


def open_manager(workspace: Path, config: CompressionConfig) -> ContextCompressionManager:
    return ContextCompressionManager(config, workspace)


def test_s0_5_the_facade_returns_messages_summary_and_total_tokens(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, ARCHIVE)
    quiet = manager.prepare_context_sync("s1", chat(9), "You are careful.")
    assert isinstance(quiet, PreparedContext)
    assert quiet.messages == chat(9)
    assert quiet.summary is None
    counter = TokenCounter()
    assert quiet.total_tokens == counter.count_messages(chat(9)) + counter.count_text("You are careful.")
    full = manager.prepare_context_sync("s1", chat(10), "You are careful.")
    assert full.messages[1:] == chat(10)[-4:]
    assert full.messages[0]["role"] == "system"  # type: ignore[index]
    assert full.messages[0]["content"].startswith("[历史对话摘要]")  # type: ignore[index]
    assert full.summary
    assert full.total_tokens == counter.count_messages(full.messages) + counter.count_text("You are careful.")
    assert "You are careful." not in str(full.messages)


async def test_s0_5_both_names_of_the_argument_work(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, ARCHIVE)
    one = await manager.prepare_context(session_id="s1", messages=chat(12), system_prompt="")
    other = await manager.prepare_context(session_id="s1", current_messages=chat(12), system_prompt="")
    assert one.messages == other.messages


def test_s0_8_a_compression_writes_a_section_into_the_page_of_the_day(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, ARCHIVE)
    manager.prepare_context_sync("session-one-of-many", chat(12, "第{}条：请记住，以后都用中文回答。"))
    today = datetime.now().strftime("%Y-%m-%d")
    page = (tmp_path / "memory" / f"{today}.md").read_text(encoding="utf-8")
    assert re.match(rf'---\nid: "[0-9a-f-]{{36}}"\ndate: "{today}"\ncreated_at: "{today[:4]}-[^"]+Z"\n---\n\n## ', page)
    assert "## 会话 session-... 上下文压缩归档\n\n**时间**: " in page
    assert "\n**归档消息数**: 8\n\n### 摘要\n" in page
    assert "\n### 关键事实\n- " in page


def test_s0_8_a_second_compression_adds_a_section_and_counts_only_what_is_new(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, ARCHIVE)
    history = chat(12)
    manager.prepare_context_sync("s1", history)
    history += chat(6, "later {}")
    manager.prepare_context_sync("s1", history)
    page = manager.md_sync.read(manager.md_sync.list_dates()[0])
    assert page is not None
    assert page.count("created_at") == 1
    assert re.findall(r"\*\*Messages archived\*\*: (\d+)", page) == ["8", "6"]


def test_s0_9_all_messages_stay_in_the_ledger(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, ARCHIVE)
    manager.prepare_context_sync("s1", chat(40))
    assert [json.loads(stored.raw) for stored in manager.ledger.read_messages("s1")] == chat(40)


def test_s1_6_and_s1_8_the_folder_has_settings_and_summaries_with_turns_and_points(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, CompressionConfig.preset("importance").replace(keep_recent=2))
    manager.append("s1", chat(30))
    manager.compress("s1")
    config = json.loads((tmp_path / ".compression" / "config.json").read_text(encoding="utf-8"))
    expected = {"maxTurns": 50, "keepRecent": 2, "maxToolOutput": 3000, "summaryMaxChars": 500}
    assert expected.items() <= config.items()
    (row,) = json.loads((tmp_path / ".compression" / "summaries.json").read_text(encoding="utf-8"))
    assert row["turnRange"] == [1, 13]
    assert row["keyPoints"]
    assert isinstance(row["timestamp"], int)
    assert row["content"] == manager.summaries("s1")[0].content


def test_s1_9_each_compression_is_logged_so_that_its_effect_can_be_analysed(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, CompressionConfig(window=4_000, reserve=500))
    history = agent(60)
    for stop in range(1, len(history), 10):
        manager.prepare_context_sync("s1", history[:stop])
    events = manager.ledger.read_events("s1")
    assert len(events) > 2
    for event in events:
        assert event.kind == "compressed"
        assert event.fields["tokens_before"] > event.fields["tokens_after"]  # type: ignore[operator]
        assert event.fields["stages"]
        assert event.fields["reason"]
    figures = manager.statistics("s1")
    assert figures.compressions == len(events)
    assert figures.tokens_freed == sum(figures.by_stage.values())


def test_s2_11_a_failure_to_store_raises_and_keeps_the_old_history(tmp_path: Path) -> None:
    class Full(SqliteLedger):
        def commit(self, *args: Any, **named: Any) -> bool:
            raise LedgerError("the disk is full; nothing was written")

    good = open_manager(tmp_path, OFFLOAD)
    good.append("s1", chat(30))
    failing = ContextCompressionManager(OFFLOAD, tmp_path, ledger=Full(tmp_path / ".refold" / "ledger.db"))
    with pytest.raises(LedgerError, match="disk is full"):
        failing.compress("s1")
    assert failing.prepare_context_sync("s1").messages == chat(30)
    assert good.prepare_context_sync("s1").messages == chat(30)
    assert good.verify() == []


def test_s3_2_messages_carry_compressed_and_folds_what_they_stand_for(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, HYBRID)
    manager.append("s1", chat(20))
    assert not any(stored.is_compressed for stored in manager.ledger.read_messages("s1"))
    manager.compress("s1")
    stored = manager.ledger.read_messages("s1")
    assert [one.is_compressed for one in stored] == [True] * 14 + [False] * 6
    (fold,) = [one.edit for one in manager.ledger.read_edits("s1")]
    assert fold.covers == tuple(one.id for one in stored[:14])
    manager.undo("s1")
    assert not any(one.is_compressed for one in manager.ledger.read_messages("s1"))


def test_s3_6_the_summary_replaces_the_first_message_and_originals_stay(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, HYBRID)
    history = [{"role": "system", "content": "Be brief."}, *chat(20)]
    manager.append("s1", history)
    shown = manager.compress("s1").messages
    assert shown[0] == history[0]
    assert shown[1]["content"].startswith("[Context Summary]")  # type: ignore[index]
    assert shown[1]["role"] == "assistant"  # type: ignore[index]
    assert shown[2:] == history[-6:]
    assert manager.status("s1").compression_count == 1
    assert [json.loads(stored.raw) for stored in manager.ledger.read_messages("s1")] == history


def test_s3_6_compression_count_is_kept_per_session(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, ARCHIVE)
    history = chat(12)
    for turn in range(3):
        manager.prepare_context_sync("s1", history)
        history += chat(6, f"turn {turn} {{}}")
    manager.append("s2", chat(2))
    assert [row.compression_count for row in sorted(manager.ledger.list_sessions(), key=lambda row: row.id)] == [3, 0]


def test_s3_7_facts_are_stored_with_the_compression_and_come_from_originals_only(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, ARCHIVE)
    history = chat(4)
    history.insert(1, {"role": "user", "content": "Remember: I prefer tabs over spaces, always."})
    history.insert(2, {"role": "assistant", "content": "[Context Summary]\nThe user prefers FORTRAN, always."})
    history += chat(10, "filler {}")
    manager.prepare_context_sync("s1", history)
    facts = [stored.fact for stored in manager.ledger.read_facts("s1")]
    assert any("tabs over spaces" in fact.text for fact in facts)
    history += chat(8, "more filler {}")
    manager.prepare_context_sync("s1", history)
    texts = [stored.fact.text for stored in manager.ledger.read_facts("s1")]
    assert len(texts) == len(set(texts))
    digests = manager.ledger.read_path("s1").digests
    for stored in manager.ledger.read_facts("s1"):
        prefix = stored.fact.handle.removeprefix("m:").partition(".")[0]
        assert any(digest.startswith(prefix) for digest in digests)
    assert not any("FORTRAN" in text for text in texts)


async def test_s3_8_an_abort_while_compressing_applies_all_of_it_or_nothing(tmp_path: Path) -> None:
    class Slow:
        async def complete(self, prompt: str) -> Any:
            await asyncio.sleep(0.02)
            return SimpleNamespace(content="They exchanged numbered messages.")

    for number, wait_s in enumerate((0.0, 0.005, 0.02, 0.03, 0.05, 0.2)):
        session = f"s{number}"
        manager = ContextCompressionManager(ARCHIVE, tmp_path, llm=Slow())
        task = asyncio.create_task(manager.prepare_context(session, chat(12)))
        await asyncio.sleep(wait_s)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert manager.verify() == []
        edits = manager.ledger.read_edits(session)
        flags = [stored.is_compressed for stored in manager.ledger.read_messages(session)]
        assert len(edits) == (1 if any(flags) else 0)
        assert sum(flags) in (0, 8)


def test_s4_7_callbacks_observe_and_the_callers_next_request_has_the_new_messages(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, ARCHIVE)
    heard: list[object] = []
    manager.on("compressed", heard.append)
    first = manager.prepare_context_sync("s1", chat(12))
    assert len(heard) == 1
    manager.append("s1", [{"role": "user", "content": "go on"}])
    assert manager.prepare_context_sync("s1").messages == [*first.messages, {"role": "user", "content": "go on"}]
