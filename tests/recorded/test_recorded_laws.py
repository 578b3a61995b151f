"""The laws over real sessions: every data set × every format × budgets of 80, 40, 20 and 10%."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import refold
from refold.config import CompressionConfig
from refold.conversation.message import find_marks
from refold.testing import find_violations
from tests.rigs.convert import to_anthropic, to_responses
from tests.rigs.recorded import CHATS, read_records

SHARES = (0.8, 0.4, 0.2, 0.1)
ROOM = 1_500
# A look at each set, one session out of so many; the tests of every session read all.
EVERY = {
    "tau_airline": 6,
    "swe_mini": 4,
    "agent_long": 3,
    "agent_native_misc": 2,
    "bfcl_long_replay": 6,
    "locomo": 1,
    "zh_dialogues": 20,
    "zh_long_concat": 3,
}


def every(name: str) -> int:
    return EVERY.get(name, 1)


def least_budget(prepared: refold.PreparedContext, messages: list[Any], tools: Any) -> int:
    counter = refold.TokenCounter("o200k_base")
    spoken = [m for m in messages if m["role"] == "user"]
    system = [m for m in messages if m["role"] == "system"]
    # A person's newest words are the task, where a program sent everything after it as user text.
    words = max((counter.count_messages([one]) for one in (*spoken[:1], *spoken[-1:])), default=0)
    return counter.count_messages(system) + words + counter.count_tools(tools) + ROOM


def check_session(session: dict[str, Any], wire: str, preset: str) -> None:
    messages, tools, system = session["messages"], session.get("tools"), None
    if wire == "anthropic":
        body = to_anthropic(messages, tools)
        messages, tools, system = body["messages"], body.get("tools"), body.get("system")
    elif wire == "openai-responses":
        body = to_responses(messages, tools)
        messages, tools, system = body["input"], body.get("tools"), body.get("instructions")
    asked = {"system": system, "tools": tools, "format": wire, "preset": preset}
    # Presets that go by counts act however large the budget; the default is quiet.
    whole = refold.compress(messages, 10**9, **{**asked, "preset": "default"})
    assert whole.messages == messages
    known = find_violations(wire, messages)
    for share in SHARES:
        budget = max(int(whole.total_tokens * share), least_budget(whole, session["messages"], tools) + 200)
        prepared = refold.compress(messages, budget, strict=True, **asked)
        assert prepared.total_tokens <= budget, (session["id"], share)
        assert len(find_violations(wire, prepared.messages)) <= len(known), (session["id"], share)
        mine = {id(message) for message in messages}
        changed = [message for message in prepared.messages if id(message) not in mine]
        assert bool(changed) <= bool(prepared.edits)
        written = {handle for edit in prepared.edits for handle in find_marks(edit.text)}
        assert all(prepared.expand(edit.fold.handle) for edit in prepared.edits if edit.fold)
        assert written or not prepared.edits or all(edit.kind == "drop" for edit in prepared.edits)


@pytest.mark.parametrize("name", CHATS)
def test_the_laws_hold_on_recorded_sessions(shared_data: Path, name: str) -> None:
    seen = 0
    for session in read_records(shared_data, name, every(name)):
        check_session(session, "openai-chat", "default")
        seen += 1
    assert seen


@pytest.mark.parametrize("wire", ["anthropic", "openai-responses"])
def test_the_laws_hold_on_recorded_sessions_in_the_other_formats(shared_data: Path, wire: str) -> None:
    for name in ("tau_airline", "swe_mini", "agent_native_misc"):
        for session in read_records(shared_data, name, 24):
            check_session(session, wire, "default")


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize("wire", ["openai-chat", "anthropic", "openai-responses"])
def test_the_laws_hold_on_every_recorded_session(shared_data: Path, name: str, wire: str) -> None:
    for session in read_records(shared_data, name):
        check_session(session, wire, "default")


@pytest.mark.parametrize("preset", ["archive", "importance", "offload", "hybrid", "turns"])
@pytest.mark.parametrize("name", CHATS)
def test_the_laws_hold_for_every_preset(shared_data: Path, name: str, preset: str) -> None:
    for session in read_records(shared_data, name, every(name)):
        check_session(session, "openai-chat", preset)


SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.4, 0.2])
def test_how_to_finish_is_in_the_view_of_every_request(shared_data: Path, share: float, tmp_path: Path) -> None:
    counter = refold.TokenCounter("o200k_base")
    folded = 0
    for session in read_records(shared_data, "swe_mini", 3):
        messages = session["messages"]
        task = next(message["content"] for message in messages if message["role"] == "user")
        window = max(int(counter.count_messages(messages) * share), counter.count_messages(messages[:2]) + ROOM)
        config = CompressionConfig(window=window, reserve=0)
        manager = refold.ContextCompressionManager(config, tmp_path / session["id"])
        for at in range(2, len(messages)):
            if messages[at]["role"] == "assistant":
                prepared = manager.prepare_context_sync("s", messages[:at], model="gpt-4o")
                stated = [one["content"] for one in prepared.messages if SUBMIT in str(one["content"])]
                assert task in stated, (session["id"], at)
                folded += bool(prepared.edits)
        manager.close()
    assert folded
