"""Compressions that a person asks for: previewed, steered, and honest about what they did (S2.4, S2.10)."""

from pathlib import Path

import pytest

from refold import CompressionConfig, ContextCompressionManager, SessionNotFound
from refold.conversation import because
from tests.rigs.manager import Model, agent, chat

OFFLOAD = CompressionConfig.preset("offload")


def test_a_manual_compression_acts_without_any_trigger(tmp_path: Path) -> None:
    manager = ContextCompressionManager(CompressionConfig(), tmp_path)
    manager.append("s1", agent(30))
    done = manager.compress("s1")
    assert done.success
    assert done.freed_tokens == done.previous_tokens - done.current_tokens > 0
    assert done.messages == manager.prepare_context_sync("s1").messages
    (event,) = manager.ledger.read_events("s1")
    assert event.fields["is_manual"] is True


def test_a_dry_run_says_what_would_go_and_changes_nothing(tmp_path: Path) -> None:
    manager = ContextCompressionManager(CompressionConfig(), tmp_path)
    manager.append("s1", agent(30))
    before = manager.ledger.read_session("s1")
    tried = manager.compress("s1", dry_run=True)
    assert tried.is_dry_run
    assert tried.freed_tokens > 0
    assert any(stage.edits for stage in tried.stages)
    assert manager.ledger.read_session("s1") == before
    assert manager.prepare_context_sync("s1").messages == agent(30)
    assert manager.compress("s1").current_tokens == tried.current_tokens
    assert not (tmp_path / "offloaded").exists()


def test_s2_10_five_messages_or_fewer_succeed_with_nothing_freed(tmp_path: Path) -> None:
    manager = ContextCompressionManager(OFFLOAD, tmp_path)
    manager.append("s1", chat(5))
    done = manager.compress("s1")
    assert (done.success, done.freed_tokens, done.preserved_count) == (True, 0, 5)
    assert done.messages == chat(5)


def test_s2_10_an_empty_history_has_nothing_to_compress(tmp_path: Path) -> None:
    manager = ContextCompressionManager(OFFLOAD, tmp_path)
    manager.append("s1", [])
    done = manager.compress("s1")
    assert (done.success, done.freed_tokens, done.reason) == (True, 0, because.EMPTY())


def test_s2_4_the_result_counts_what_was_preserved(tmp_path: Path) -> None:
    manager = ContextCompressionManager(OFFLOAD, tmp_path)
    manager.append("s1", chat(30))
    done = manager.compress("s1")
    assert done.preserved_count == 5
    assert done.messages[1:] == chat(30)[-5:]
    assert str(done.messages[0]["content"]).startswith("[Compressed History]\n\n")  # type: ignore[index]


def test_instructions_reach_the_model(tmp_path: Path) -> None:
    model = Model("The user asked about logs; nothing was decided.")
    manager = ContextCompressionManager(CompressionConfig(), tmp_path, llm=model)
    manager.append("s1", agent(30))
    manager.compress("s1", instructions="keep every worker's number")
    assert "keep every worker's number" in model.prompts[0]


async def test_the_async_form_does_the_same(tmp_path: Path) -> None:
    manager = ContextCompressionManager(CompressionConfig(), tmp_path)
    manager.append("s1", agent(30))
    assert (await manager.compress_async("s1")).freed_tokens > 0


def test_a_session_that_is_not_there_is_an_error_that_says_so(tmp_path: Path) -> None:
    manager = ContextCompressionManager(CompressionConfig(), tmp_path)
    for act in (manager.compress, manager.undo, manager.status):
        with pytest.raises(SessionNotFound, match="there is no session 'nobody'"):
            act("nobody")
    assert list(tmp_path.iterdir()) == []
