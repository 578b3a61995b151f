"""Tool results that a framework sends as a user's text: they may shrink, and the task stays."""

from pathlib import Path
from typing import Any

import pytest

from refold import BudgetTooSmall, CompressionConfig, ConfigError, ContextCompressionManager, compress
from refold.integrations import open_session
from tests.rigs.effort import first_of

CONFIG = CompressionConfig(window=4_000, reserve=500)
HUGE = "\n".join(f"row {n}: {n * 7919}" for n in range(6_000))
TASK = {"role": "user", "content": "Find the row with 7919 in it."}


@pytest.mark.parametrize(
    "begins",
    [
        "Observation: ",
        "Observation:\n",
        "Call id: call_7\nObservation:\n",
        "OBSERVATION:\n",
        "Tool result: ",
        "Tool output from read_file: ",
        "EXECUTION RESULT of [bash]:\n",
        "Execution logs:\n",
        "<tool_response>\n",
        "[read_file for 'rows.txt'] Result:\n",
        "观察：",
        "工具返回：",
    ],
)
def test_a_result_in_a_users_text_that_no_window_holds_is_cut(begins: str, tmp_path: Path) -> None:
    asked = {"role": "assistant", "content": "Thought: I read the rows.\nAction: read_rows"}
    history = [TASK, asked, {"role": "user", "content": f"{begins}{HUGE}"}]
    prepared = ContextCompressionManager(CONFIG, tmp_path).prepare_context_sync("s1", history)
    assert prepared.total_tokens <= 3_500
    assert prepared.messages[0] is TASK
    assert [source.kind for source in prepared.sources] == ["whole", "whole", "shortened"]
    assert prepared.messages[2]["content"].startswith(begins.split(":")[0][:10].strip())


def test_a_run_of_text_observations_keeps_the_task_and_every_original(tmp_path: Path) -> None:
    manager = ContextCompressionManager(CONFIG, tmp_path)
    history: list[Any] = [TASK]
    for n in range(30):
        history.append({"role": "assistant", "content": f"Thought: step {n}.\nAction: read({n})"})
        text = "\n".join(f"minute {at}: {(n + 1) * (at + 7) * 7919 % 10_007} units" for at in range(25))
        history.append({"role": "user", "content": f"Observation: sensor {n}\n{text}"})
        prepared = manager.prepare_context_sync("s1", history)
        assert prepared.total_tokens <= 3_500
        assert prepared.messages[0] is TASK
        assert prepared.messages[-1] is history[-1]
    assert manager.status("s1").compression_count > 0


def grow_react(manager: ContextCompressionManager, begins: str, *, results: int = 1) -> list[Any]:
    """Run a ReAct loop of 20 steps, one of whose results no window holds; return the last view."""
    history: list[Any] = [TASK]
    for n in range(20):
        history.append({"role": "assistant", "content": f"Thought: step {n}.\nAction: read({n})"})
        for part in range(results):
            text = HUGE if n == 11 else f"sensor {n}.{part} reads {n * 7919 % 10_007} units. " * 20
            history.append({"role": "user", "content": f"{begins}{text}"})
        prepared = manager.prepare_context_sync("s1", history)
        assert prepared.total_tokens <= 3_500
        assert prepared.messages[0] is TASK
        if n != 11:
            assert prepared.messages[-1] is history[-1]
    texts = [message["content"] for message in manager.session("s1").messages()]
    assert texts == [message["content"] for message in history], "every original is stored once"
    return prepared.messages


@pytest.mark.parametrize("results", first_of([2, 1], 1))
def test_a_react_loop_with_a_result_larger_than_the_window_runs_on(results: int, tmp_path: Path) -> None:
    view = grow_react(ContextCompressionManager(CONFIG, tmp_path), "Observation: ", results=results)
    record = next(message["content"] for message in view if "⟦" in message["content"])
    assert "U> Observation" not in record, "a tool's result is nobody's words"


def test_a_predicate_says_which_user_messages_are_results(tmp_path: Path) -> None:
    def is_result(message: Any) -> bool:
        return message["content"].startswith("RESULT>")

    with pytest.raises(BudgetTooSmall):
        grow_react(ContextCompressionManager(CONFIG, tmp_path / "without"), "RESULT> ")
    view = grow_react(ContextCompressionManager(CONFIG, tmp_path / "with", is_observation=is_result), "RESULT> ")
    assert "U> RESULT" not in next(message["content"] for message in view if "⟦" in message["content"])
    asked = [TASK, {"role": "assistant", "content": "I read."}, {"role": "user", "content": f"RESULT> {HUGE}"}]
    assert compress(asked, 2_000, is_observation=is_result).total_tokens <= 2_000
    # The predicate decides alone: text that the built-in patterns match is a person's again.
    asked[-1] = {"role": "user", "content": f"Observation: {HUGE}"}
    with pytest.raises(BudgetTooSmall):
        compress(asked, 2_000, is_observation=is_result)


def test_a_setting_names_how_results_begin_and_the_built_in_patterns_still_hold(tmp_path: Path) -> None:
    config = CONFIG.replace(observations=r"RESULT>|=== output of \w+ ===")
    for at, begins in enumerate(("RESULT> ", "=== output of ls ===\n", "Observation: ")):
        grow_react(ContextCompressionManager(config, tmp_path / str(at)), begins)
    with pytest.raises(ConfigError, match=r"observations is .*regular expression"):
        CONFIG.replace(observations="(")


def test_a_predicate_is_given_to_an_integration_or_to_its_manager(tmp_path: Path) -> None:
    session = open_session("s1", workspace=tmp_path, window=4_000, is_observation=lambda m: "RESULT" in m["content"])
    asked = [TASK, {"role": "assistant", "content": "I read."}, {"role": "user", "content": f"RESULT> {HUGE}"}]
    assert session.prepare(asked).total_tokens <= 4_000
    with pytest.raises(ConfigError, match="is_observation"):
        open_session("s2", manager=session.manager, is_observation=bool)
    session.manager.close()


def test_a_person_who_begins_so_is_not_taken_for_a_tool() -> None:
    with pytest.raises(BudgetTooSmall):
        compress([{"role": "user", "content": f"Observation: {HUGE}"}], 2_000)


def test_a_trajectory_in_one_message_is_cut() -> None:
    run = "\n".join(f"[[ ## observation_{n} ## ]]\n{HUGE[n * 2_000 : n * 2_000 + 2_000]}" for n in range(12))
    history = [{"role": "system", "content": "Use tools."}, {"role": "user", "content": f"Task: rows.\n{run}"}]
    done = compress(history, 2_000)
    assert done.total_tokens <= 2_000
    assert done.messages[1]["content"].startswith("Task: rows.")


def test_a_window_that_nobody_named_is_reported(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "Hi."}]
    assert any("no model is named" in str(note) for note in compress(said).report.notes)  # type: ignore[union-attr]
    assert any("'mystery-9' is not known" in str(n) for n in compress(said, model="mystery-9").report.notes)  # type: ignore[union-attr]
    for done in (compress(said, 1_000), compress(said, model="gpt-4o")):
        assert done.report is not None
        assert done.report.notes == ()
    prepared = ContextCompressionManager(workspace_path=tmp_path).prepare_context_sync("s1", said)
    assert prepared.report is not None
    assert any("no model is named" in str(note) for note in prepared.report.notes)


def test_a_session_is_found_by_its_history(tmp_path: Path) -> None:
    manager = ContextCompressionManager(CONFIG, tmp_path)
    made = {}
    for name in ("red", "blue"):
        made[name] = [
            {"role": "user", "content": "Open the door."},
            {"role": "assistant", "content": f"The {name} door?"},
            {"role": "user", "content": "Yes."},
            {"role": "assistant", "content": "Open."},
        ]
        manager.append(name, made[name])
    for name, history in made.items():
        assert manager.find_session([*history, {"role": "user", "content": "Close it."}]) == name
        assert manager.find_session(history[:2]) == name
    assert manager.find_session([{"role": "user", "content": "Open the window."}]) is None
    assert manager.find_session(made["red"][:1]) is None, "before an answer the two cannot be told apart"


def test_a_session_is_found_by_a_record_that_replaced_its_beginning(tmp_path: Path) -> None:
    manager = ContextCompressionManager(CONFIG, tmp_path)
    history: list[dict[str, Any]] = []
    for n in range(12):
        history += [{"role": "user", "content": f"Say {n}."}, {"role": "assistant", "content": f"{n} " + "word " * 300}]
    history.append({"role": "user", "content": "Go on."})
    view = manager.prepare_context_sync("s1", history).messages
    at = next(at for at, message in enumerate(view) if message not in history)
    assert manager.find_session(view[at:]) == "s1"
    quoted = {"role": "user", "content": f"What is this? {view[at]['content']}"}
    assert manager.find_session([quoted]) is None


def test_a_view_that_replaces_a_stored_history_is_stored_as_the_originals(tmp_path: Path) -> None:
    session = ContextCompressionManager(CONFIG, tmp_path).session("s1")
    history: list[dict[str, Any]] = []
    for n in range(12):
        history += [{"role": "user", "content": f"Say {n}."}, {"role": "assistant", "content": f"{n} " + "word " * 300}]
    history.append({"role": "user", "content": "Go on."})
    view = session.prepare(history).messages
    assert view != history
    session.append([{"role": "assistant", "content": "Well."}, view[0], *(m for m in view if m not in history)])
    assert session.messages()[len(history) :] == [{"role": "assistant", "content": "Well."}, view[0]]
    session.truncate(0)
    session.append(view)
    assert session.messages() == history
    assert session.prepare().messages == view


@pytest.mark.parametrize("is_text", [True, False])
def test_a_record_that_a_library_joined_to_the_next_message_is_recognised(is_text: bool, tmp_path: Path) -> None:
    session = ContextCompressionManager(CONFIG, tmp_path).session("s1", format="openai-chat")
    history: list[dict[str, Any]] = []
    for n in range(12):
        history += [{"role": "user", "content": f"Say {n}."}, {"role": "assistant", "content": f"{n} " + "word " * 300}]
    view = session.prepare([*history, {"role": "user", "content": "Go on."}]).messages
    at = next(at for at, message in enumerate(view) if message not in history)
    texts = [view[at]["content"], "And then?"]
    joined = "\n\n".join(texts) if is_text else [{"type": "text", "text": text} for text in texts]
    sent = session.prepare([*view[:at], {"role": "user", "content": joined}]).messages
    stored = [message["content"] for message in session.messages()]
    assert not any("⟦" in text for text in stored)
    assert [text for text in stored if "And then?" in text] == ["And then?"]
    assert len(str(sent)) < 2 * len(str(view))
