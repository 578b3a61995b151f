"""The state of a stored session: read from its originals, continued, and without what was forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.conversation.message import message_handle
from refold.errors import SessionNotFound

TASK = {"role": "user", "content": "Fix the crash in parse.py. Never touch the vendor folder."}
SECRET = {"role": "user", "content": "Always log in with the password hunter-2217."}
DONE = {"role": "assistant", "content": "The crash is fixed."}


@pytest.fixture
def manager(tmp_path: Path) -> ContextCompressionManager:
    return ContextCompressionManager(CompressionConfig(window=2_000, reserve=200), tmp_path)


def test_the_state_follows_the_session(manager: ContextCompressionManager) -> None:
    manager.append("s", [TASK])
    assert [rule.quote.text for rule in manager.state("s").rules] == ["Never touch the vendor folder."]
    manager.append("s", [DONE, {"role": "user", "content": "Why did it crash?"}])
    state = manager.state("s")
    assert state.messages == 3
    assert [item.quote.text for item in state.open] == ["Why did it crash?"]


def test_another_process_reads_the_same_state(manager: ContextCompressionManager, tmp_path: Path) -> None:
    for number in range(30):
        manager.append("s", [TASK if number == 0 else {"role": "user", "content": f"Please add case {number}."}, DONE])
        manager.state("s")
    with ContextCompressionManager(manager.config, tmp_path) as other:
        assert other.state("s") == manager.state("s")


def test_a_compression_does_not_change_the_state(manager: ContextCompressionManager) -> None:
    manager.append("s", [TASK])
    for number in range(20):
        manager.append("s", [{"role": "assistant", "content": f"The cause of case {number} is line {number}. " * 20}])
        manager.append("s", [{"role": "user", "content": f"Please look at case {number + 1}."}])
    before = manager.state("s")
    assert manager.compress("s").success
    assert manager.state("s") == before
    with ContextCompressionManager(manager.config, manager.workspace_path) as other:
        assert other.state("s") == before


def test_what_is_forgotten_leaves_the_state(manager: ContextCompressionManager) -> None:
    manager.append("s", [TASK, DONE, SECRET, DONE])
    assert "hunter-2217" in str(manager.state("s"))
    handle = next(message_handle(item.message) for item in manager.read_view("s") if "hunter" in str(item.raw))
    manager.forget("s", handle)
    assert "hunter-2217" not in str(manager.state("s"))


def test_a_session_that_was_cut_back_is_read_again(manager: ContextCompressionManager) -> None:
    manager.append("s", [TASK, DONE, SECRET])
    assert len(manager.state("s").rules) == 2
    manager.truncate("s", 2)
    assert len(manager.state("s").rules) == 1


def test_an_unknown_session_is_an_error(manager: ContextCompressionManager) -> None:
    with pytest.raises(SessionNotFound):
        manager.state("nobody")


async def test_a_session_has_its_state_and_the_async_twin(manager: ContextCompressionManager) -> None:
    session = manager.session("s")
    session.append([TASK])
    assert session.state() == await session.state_async() == manager.state("s")
