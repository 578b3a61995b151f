"""Preparing contexts: stateless and incremental callers, restarts, forks, and what clients really send."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from refold import BudgetTooSmall, CompressionConfig, ConfigError, ContextCompressionManager, FormatError
from refold.testing.provider_rules import find_violations
from tests.rigs.manager import SMALL, agent, chat, steps


def open_manager(workspace: Path, config: CompressionConfig = SMALL) -> ContextCompressionManager:
    return ContextCompressionManager(config, workspace)


def test_making_a_manager_creates_nothing(tmp_path: Path) -> None:
    workspace = tmp_path / "not" / "there"
    open_manager(workspace)
    assert list(tmp_path.iterdir()) == []


def test_a_history_that_fits_comes_back_as_the_callers_own_objects(tmp_path: Path) -> None:
    history = chat(6)
    prepared = open_manager(tmp_path).prepare_context_sync("s1", history, "Be brief.")
    assert all(a is b for a, b in zip(prepared.messages, history, strict=True))
    assert prepared.summary is None
    assert prepared.system == "Be brief."


def test_total_tokens_include_the_system_prompt_and_the_tools(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    history = chat(2)
    bare = manager.prepare_context_sync("s1", history).total_tokens
    tools = [{"type": "function", "function": {"name": "run", "parameters": {}}}]
    full = manager.prepare_context_sync("s1", history, "You are careful. " * 10, tools=tools).total_tokens
    assert full > bare + 30
    assert manager.prepare_context_sync("s1", history).total_tokens == bare


def test_handing_in_the_whole_history_or_only_what_is_new_gives_the_same(tmp_path: Path) -> None:
    history = agent(30)
    whole, parts = open_manager(tmp_path / "whole"), open_manager(tmp_path / "parts")
    seen = 0
    for stop in range(1, len(history) + 1, 6):
        given = whole.prepare_context_sync("s1", history[:stop])
        parts.append("s1", history[seen:stop])
        seen = stop
        grown = parts.prepare_context_sync("s1")
        assert grown.messages == given.messages
        assert grown.total_tokens == given.total_tokens
    assert whole.status("s1").compression_count == parts.status("s1").compression_count > 1


def test_every_prepared_context_fits_and_the_provider_accepts_it(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    history = agent(1)
    for step in range(1, 40):
        history += steps(1, start=step)
        prepared = manager.prepare_context_sync("s1", history)
        assert prepared.report is not None
        assert prepared.total_tokens <= prepared.report.budget.hard
        assert find_violations("openai-chat", prepared.messages) == []


def test_between_two_compressions_the_prefix_stays_byte_for_byte(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    history = agent(1)
    before: list[Any] = []
    changes = 0
    for step in range(1, 40):
        history += steps(1, start=step)
        prepared = manager.prepare_context_sync("s1", history)
        assert prepared.report is not None
        if prepared.report.stages:
            changes += 1
        else:
            assert json.dumps(prepared.messages[: len(before)]) == json.dumps(before)
        before = prepared.messages
    assert changes == manager.status("s1").compression_count
    assert 1 < changes < 12


def test_a_restart_replays_the_same_bytes(tmp_path: Path) -> None:
    history = agent(30)
    first = open_manager(tmp_path).prepare_context_sync("s1", history)
    assert first.summary
    again = open_manager(tmp_path).prepare_context_sync("s1", copy.deepcopy(history))
    alone = open_manager(tmp_path).prepare_context_sync("s1")
    assert json.dumps(again.messages) == json.dumps(first.messages) == json.dumps(alone.messages)
    assert again.total_tokens == first.total_tokens == alone.total_tokens


def test_odd_content_survives_a_restart(tmp_path: Path) -> None:
    history = [
        {"role": "user", "content": "lone \ud83d surrogate, nul \x00, \u202e"},
        {"role": "assistant", "content": "你好 🙂", "x_new_field": {"kept": [1, None, 1.5, 2**70]}},
        {"role": "user", "content": [{"type": "text", "text": "parts"}], "n": 10**18},
    ]
    open_manager(tmp_path).prepare_context_sync("s1", history)
    assert open_manager(tmp_path).prepare_context_sync("s1").messages == history


@pytest.mark.parametrize(
    "session_id", ["../../etc/passwd", "a:b", "with space", "会话一", "x" * 256, ".", "\x00", "con", "é\ud800"]
)
def test_any_text_is_a_session_id_and_none_is_a_path(tmp_path: Path, session_id: str) -> None:
    config = CompressionConfig.preset("offload").replace(window=4_000, reserve=500)
    workspace = tmp_path / "deep" / "workspace"
    manager = open_manager(workspace, config)
    manager.prepare_context_sync(session_id, agent(30))
    assert open_manager(workspace, config).prepare_context_sync(session_id).messages
    inside = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert inside
    assert all(path.is_relative_to(workspace) for path in inside)


@pytest.mark.parametrize("session_id", ["", "x" * 257, None, 7])
def test_an_invalid_session_id_is_refused(tmp_path: Path, session_id: Any) -> None:
    with pytest.raises(FormatError, match="session id"):
        open_manager(tmp_path).prepare_context_sync(session_id, chat(1))


def test_messages_and_current_messages_are_one_argument(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    assert manager.prepare_context_sync("s1", current_messages=chat(2)).messages == chat(2)
    with pytest.raises(ConfigError, match="one argument with two names"):
        manager.prepare_context_sync("s1", chat(2), current_messages=chat(2))


@pytest.mark.parametrize("messages", ["text", b"bytes", 5, {"role": "user"}, [5], [None], [{"content": "no role"}]])
def test_input_that_is_not_a_conversation_is_refused_and_nothing_is_stored(tmp_path: Path, messages: Any) -> None:
    manager = open_manager(tmp_path)
    with pytest.raises(FormatError):
        manager.prepare_context_sync("s1", messages)
    assert manager.prepare_context_sync("s1").messages == []


def test_an_empty_history_is_an_empty_context(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    assert manager.prepare_context_sync("s1", []).messages == []
    assert manager.prepare_context_sync("s1").messages == []


def test_what_cannot_shrink_is_named_and_the_messages_are_kept(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    huge = [{"role": "user", "content": "word " * 9_000}]
    with pytest.raises(BudgetTooSmall, match="newest user message"):
        manager.prepare_context_sync("s1", huge)
    assert manager.ledger.read_session("s1").messages == 1
    assert [event.kind for event in manager.ledger.read_events("s1")] == ["failed"]


def test_the_budget_is_that_of_the_model_at_hand(tmp_path: Path) -> None:
    config = CompressionConfig(window={"small": 4_000, "large": 200_000}, reserve=500, tokenizer="cl100k_base")
    manager = open_manager(tmp_path, config)
    history = agent(30)
    assert manager.prepare_context_sync("s1", history, model="large").messages == history
    small = manager.prepare_context_sync("s1", history, model="small")
    assert small.total_tokens <= 3_500
    # What was folded stays folded: the prefix does not change for a larger window.
    assert manager.prepare_context_sync("s1", history, model="large").messages == small.messages


def test_an_unknown_model_is_reported(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, CompressionConfig())
    prepared = manager.prepare_context_sync("s1", chat(2), model="nobody-7b")
    assert prepared.report is not None
    assert any("'nobody-7b' is not known" in str(note) for note in prepared.report.notes)
    stated = manager.prepare_context_sync("s1", chat(2), model="nobody-7b", window=8_000)
    assert stated.report is not None
    assert stated.report.notes == ()


def test_a_client_that_edits_its_last_message_forks_and_the_rest_keeps_its_folds(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    history = agent(30)
    before = manager.prepare_context_sync("s1", history)
    history[-1] = {**history[-1], "content": "another answer altogether"}
    after = manager.prepare_context_sync("s1", history)
    assert after.messages[:-1] == before.messages[:-1]
    assert after.messages[-1] is history[-1]
    assert manager.status("s1").compression_count == 1


def test_a_client_that_trims_its_oldest_messages_keeps_what_still_holds(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, CompressionConfig(threshold_rounds=20, retention_count=10))
    history = chat(20)
    assert manager.prepare_context_sync("s1", history).summary
    trimmed = manager.prepare_context_sync("s1", history[12:])
    assert trimmed.messages == history[12:]
    assert manager.prepare_context_sync("s1", history).summary
    assert manager.status("s1").compression_count == 1


def test_marks_and_spellings_that_clients_move_about_do_not_lose_a_fold(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    history = agent(30)
    before = manager.prepare_context_sync("s1", history)
    moved = copy.deepcopy(history)
    moved[0]["content"] = [{"type": "text", "text": moved[0]["content"], "cache_control": {"type": "ephemeral"}}]
    call = moved[-2]["tool_calls"][0]["function"]
    call["arguments"] = json.dumps(json.loads(call["arguments"]), indent=2)
    after = manager.prepare_context_sync("s1", moved)
    assert manager.status("s1").compression_count == 1
    assert len(after.messages) == len(before.messages)
    # What is untouched goes out as this client wrote it this time.
    assert after.messages[-2] is moved[-2]


def test_a_retry_of_the_same_request_stores_nothing(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    history = chat(8)
    manager.prepare_context_sync("s1", history)
    version = manager.ledger.read_session("s1").path_version
    manager.prepare_context_sync("s1", copy.deepcopy(history))
    assert manager.ledger.read_session("s1").path_version == version


def test_a_caller_that_changes_its_objects_in_place_is_noticed(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    history = chat(130)
    manager.prepare_context_sync("s1", history)
    history[3]["content"] = "changed in place"
    assert manager.prepare_context_sync("s1", history).messages == history
    assert open_manager(tmp_path).prepare_context_sync("s1").messages == history


def test_a_session_that_began_with_plain_words_is_read_as_what_it_turns_out_to_be(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    history: list[Any] = [{"role": "user", "content": "hello"}]
    manager.append("s1", history)
    assert manager.status("s1").wire == "openai-chat"
    use = {"type": "tool_use", "id": "t1", "name": "run", "input": {}}
    history += [
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "done"}]},
    ]
    manager.append("s1", history[1:])
    assert manager.status("s1").wire == "anthropic"
    assert manager.prepare_context_sync("s1", history).messages == history


async def test_the_async_form_does_the_same(tmp_path: Path) -> None:
    history = agent(30)
    sync = open_manager(tmp_path / "a").prepare_context_sync("s1", history)
    prepared = await open_manager(tmp_path / "b").prepare_context("s1", history)
    assert prepared.messages == sync.messages


async def test_the_sync_form_works_inside_an_event_loop(tmp_path: Path) -> None:
    assert open_manager(tmp_path).prepare_context_sync("s1", agent(30)).summary


def test_only_so_many_sessions_are_held_in_memory(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    sessions = manager._keeper.sessions
    sessions.count_max = 4
    for number in range(12):
        manager.append(f"s{number}", chat(3))
    assert sessions.loaded <= 4
    assert manager.prepare_context_sync("s0").messages == chat(3)


def test_memory_holds_the_values_of_the_folds_in_view_only(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    history = agent(1)
    for step in range(1, 60):
        history += steps(1, start=step)
        prepared = manager.prepare_context_sync("s1", history)
    valued = {one.edit.id for one in manager.ledger.read_edits("s1") if one.edit.fold and one.edit.fold.artifacts}
    taken_over = {origin for edit in prepared.edits for origin in edit.made_from}
    assert valued & taken_over, "a fold was made from an earlier one that has values"
    held = {edit.id for edit in prepared.edits if edit.fold and edit.fold.artifacts}
    assert held == valued - taken_over
    manager.close()
    reopened = open_manager(tmp_path).prepare_context_sync("s1", history)
    assert {edit.id for edit in reopened.edits if edit.fold and edit.fold.artifacts} == held


def test_only_so_much_is_held_in_memory_whatever_the_number_of_sessions(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    sessions = manager._keeper.sessions
    manager.append("s0", chat(3))
    one = sessions.tokens
    assert one > 0
    sessions.tokens_max = 4 * one
    for number in range(1, 12):
        manager.append(f"s{number}", chat(3))
        assert sessions.tokens <= 4 * one
    assert sessions.loaded == 4
    manager.append("large", chat(60))
    assert sessions.loaded == 1
    assert manager.prepare_context_sync("s0").messages == chat(3)
    sessions.drop_all()
    assert (sessions.tokens, sessions.loaded) == (0, 0)


def test_a_closed_manager_opens_again_when_used(tmp_path: Path) -> None:
    with open_manager(tmp_path) as manager:
        manager.append("s1", chat(3))
    assert manager.prepare_context_sync("s1").messages == chat(3)


@pytest.mark.parametrize(
    ("held", "asked"),
    [("openai-chat", "anthropic"), ("openai-responses", "anthropic"), ("openai-responses", "openai-chat")],
)
def test_a_session_stays_readable_after_a_request_in_a_format_that_cannot_hold_it(
    tmp_path: Path, held: str, asked: str
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    histories: dict[str, list[Any]] = {
        "openai-chat": [
            {"role": "user", "content": "Read it."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
        ],
        "anthropic": [
            {"role": "user", "content": "Read it."},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "read", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "42"}]},
        ],
        "openai-responses": [
            {"role": "user", "content": "Read it."},
            {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "42"},
        ],
    }
    manager = open_manager(tmp_path)
    manager.prepare_context_sync("s1", histories[held], format=held)
    with pytest.raises(FormatError, match=f"'s1' holds {held} messages, and this request is in {asked}"):
        manager.prepare_context_sync("s1", histories[asked], format=asked)
    again = open_manager(tmp_path)
    assert again.status("s1").wire == held
    assert again.prepare_context_sync("s1").messages == histories[held]
    assert again.verify() == []


def test_a_caller_that_hands_in_many_messages_at_once_keeps_what_the_user_asked_for(tmp_path: Path) -> None:
    sample = Path(__file__).parents[2] / "examples" / "sessions" / "coding_agent.json"
    history = json.loads(sample.read_text(encoding="utf-8"))["messages"]
    manager = open_manager(tmp_path, CompressionConfig(model="gpt-4o", window=16_000, reserve=1_000))
    for stop in range(20, 181, 20):
        prepared = manager.prepare_context_sync("s1", history[:stop])
        assert prepared.total_tokens <= 15_000
    seen = json.dumps(prepared.messages, ensure_ascii=False)
    wanted = ("up to 7 attempts", "first delay 30 s", "CN-77", "we do not re-issue invoices", "E4220", "run the linter")
    assert [words for words in wanted if words not in seen] == []


def test_a_chat_of_like_answers_keeps_each_of_them_and_as_many_messages_as_the_target_allows(tmp_path: Path) -> None:
    with open_manager(tmp_path, CompressionConfig(window=24_000, reserve=3_000, economic=False)) as manager:
        target, sizes = 8_400, [0]  # Two fifths of the room.
        for turn in range(40):
            filler = " ".join(f"w{turn}x{at}" for at in range(200))
            manager.append("s1", [{"role": "user", "content": f"Question {turn}: look at file_{turn}.py. {filler}"}])
            prepared = manager.prepare_context_sync("s1", model="gpt-4o")
            sizes.append(prepared.total_tokens)
            if sizes[-1] < sizes[-2]:
                break
            answer = f"Answer {turn}: file_{turn}.py is fine. {filler}"
            manager.append("s1", [{"role": "assistant", "content": answer}])
        text = "\n".join(str(one["content"]) for one in prepared.messages)
        assert [at for at in range(turn) if f"file_{at}.py is fine" not in text] == []
        assert target * 0.8 < sizes[-1] <= target
