"""Runs of the chat without a browser: one at a time, stopped whole, never a session that a provider would refuse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.agent.models import Chosen
from refold.errors import ConfigError
from refold.llm.choose import Endpoint, make_client
from refold.testing import RecordedRequest, ScriptedProvider, ScriptedReply, call_tool, find_violations, never_end, say
from refold.web.room import ChatRoom, Rooms, is_repeating


def answer(request: RecordedRequest) -> object:
    if request.messages[-1].get("role") == "tool":
        return say("done")
    if "endless" in request.prompt:
        return never_end(pause_s=0.02)
    if "tool" in request.prompt:
        return call_tool("context_status", {}, text="looking")
    return ScriptedReply("hello", thinking="hm")


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(answer) as made:  # type: ignore[arg-type]
        yield made


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[tuple[ChatRoom, ContextCompressionManager]]:
    with ContextCompressionManager(CompressionConfig(), tmp_path) as manager:
        made = ChatRoom("chat")
        yield made, manager
        await made.stop()


def choose(provider: ScriptedProvider, model: str = "gpt-5") -> Chosen:
    if model.startswith("claude"):
        return Chosen(make_client(Endpoint(model, "anthropic", provider.anthropic_url, "k")), "asked for")
    return Chosen(make_client(Endpoint(model, "openai", provider.openai_url, "k")), "asked for")


async def finish(room: ChatRoom) -> None:
    async with asyncio.timeout(60):
        while room.is_running:
            await asyncio.sleep(0.01)


async def test_a_run_stores_what_it_says_and_holds_nothing_back(
    room: tuple[ChatRoom, ContextCompressionManager], provider: ScriptedProvider
) -> None:
    talk, manager = room
    talk.start(manager, choose(provider), "use a tool")
    await finish(talk)
    assert talk.problem is None
    assert (talk.live.text, talk.live.calls) == ("", [])
    assert [one.role for one in manager.ledger.list_messages("chat")] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize(("session_id", "is_told"), [("chat", True), ("@acme/chat", False)])
async def test_a_ledger_that_cannot_be_read_is_named_to_the_operator_and_not_to_a_tenant(
    tmp_path: Path, provider: ScriptedProvider, session_id: str, *, is_told: bool
) -> None:
    with ContextCompressionManager(CompressionConfig(), tmp_path) as manager:
        manager.append(session_id, [{"role": "user", "content": "hello"}])
    ledger = next(tmp_path.rglob("*.db"))
    ledger.write_bytes(b"no database at all" * 1_000)
    with ContextCompressionManager(CompressionConfig(), tmp_path) as manager:
        talk = ChatRoom(session_id)
        talk.start(manager, choose(provider), "and now?")
        await finish(talk)
    assert talk.problem
    assert (ledger.name in str(talk.problem)) == is_told


async def test_a_second_message_waits_for_the_first(
    room: tuple[ChatRoom, ContextCompressionManager], provider: ScriptedProvider
) -> None:
    talk, manager = room
    talk.start(manager, choose(provider), "endless")
    with pytest.raises(ConfigError, match="being written"):
        talk.start(manager, choose(provider), "and another")
    for empty in ("", "  \n"):
        await talk.stop()
        with pytest.raises(ConfigError, match="empty"):
            talk.start(manager, choose(provider), empty)


async def test_stopping_leaves_a_session_that_the_provider_takes(
    room: tuple[ChatRoom, ContextCompressionManager], provider: ScriptedProvider
) -> None:
    talk, manager = room
    talk.start(manager, choose(provider), "endless")
    async with asyncio.timeout(60):
        while len(talk.live.text) < 20:
            await asyncio.sleep(0.01)
    await talk.stop()
    assert talk.live.note == ("chat.stopped", {})
    talk.start(manager, choose(provider), "hello again")
    await finish(talk)
    assert talk.problem is None
    assert find_violations("openai-chat", provider.requests[-1].messages) == []
    assert manager.verify("chat") == []


async def test_a_session_that_no_model_of_a_chat_speaks_is_refused_and_the_words_come_back(
    room: tuple[ChatRoom, ContextCompressionManager], provider: ScriptedProvider
) -> None:
    talk, manager = room
    manager.append("chat", [{"type": "message", "role": "user", "content": "hello"}], format="openai-responses")
    talk.start(manager, choose(provider), "and you?")
    await finish(talk)
    assert "openai-responses" in str(talk.problem)
    assert talk.refused == "and you?"
    assert len(manager.ledger.list_messages("chat")) == 1


async def test_a_session_continues_with_a_model_of_another_kind(
    room: tuple[ChatRoom, ContextCompressionManager], provider: ScriptedProvider
) -> None:
    talk, manager = room
    for model in ("gpt-5", "claude-haiku-5-5"):
        talk.start(manager, choose(provider, model), "hello")
        await finish(talk)
        assert talk.problem is None
    assert len(manager.ledger.list_messages("chat")) == 4


class Recorded(ChatRoom):
    """A room that remembers what a tab could have seen."""

    def __init__(self, session_id: str) -> None:
        self.seen: list[tuple[bool, str]] = []
        super().__init__(session_id)

    def _change(self) -> None:
        super()._change()
        self.seen.append((self.live.is_compressing, self.live.note[0] if self.live.note else ""))


async def test_s3_11_optimising_is_told_while_it_runs_and_what_it_did_afterwards(
    tmp_path: Path, provider: ScriptedProvider
) -> None:
    with ContextCompressionManager(CompressionConfig(window=8_000), tmp_path) as manager:
        words = "The pump of hall nine was mended with a new valve. " * 40
        for turn in range(20):
            said = [{"role": "user", "content": f"{turn}?"}, {"role": "assistant", "content": f"{turn}: {words}"}]
            manager.append("chat", said, format="openai-chat")
        talk = Recorded("chat")
        talk.start(manager, choose(provider), "hello")
        await finish(talk)
        assert talk.problem is None
        assert (True, "") in talk.seen
        assert talk.seen[-1] == (False, "chat.compressed"), "it is shown until the next message"


async def test_closing_stops_every_run_and_idle_rooms_are_forgotten_first(
    tmp_path: Path, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refold.web.room.ROOMS_MAX", 3)
    rooms = Rooms()
    with ContextCompressionManager(CompressionConfig(), tmp_path) as manager:
        busy = rooms.find("busy")
        busy.start(manager, choose(provider), "endless")
        for number in range(10):
            rooms.find(f"idle {number}")
        assert rooms.find("busy") is busy
        await rooms.close()
        assert not busy.is_running


@pytest.mark.parametrize(
    ("words", "is_stuck"),
    [
        ("the same again. " * 30, True),
        ("哈" * 300, True),
        ("a" * 200, False),
        (" ".join(f"step {number} of the plan" for number in range(60)), False),
    ],
)
def test_a_model_that_only_repeats_itself_is_noticed(words: str, is_stuck: bool) -> None:
    assert is_repeating(words) is is_stuck
