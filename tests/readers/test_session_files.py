"""Session files as they lie on disk: what is whole is read, what is broken is counted and named."""

import gzip
import json
from pathlib import Path

import pytest

from refold.errors import FormatError
from refold.readers.file import read_file, read_files
from refold.readers.session import read_time
from refold.replay.record import add_probes
from refold.testing.provider_rules import find_violations
from tests.rigs.convert import to_anthropic, to_responses
from tests.rigs.histories import ClaudeFile, agent_messages, claude_rows, codex_rows, write_rows


def test_a_claude_code_file_becomes_valid_anthropic_messages(tmp_path: Path) -> None:
    reading = read_file(str(write_rows(tmp_path / "s.jsonl", claude_rows())))
    main, side = reading.sessions
    assert reading.kind == "claude-code"
    assert (main.id, main.format, main.model) == ("s-1", "anthropic", "claude-opus-5-5")
    assert find_violations("anthropic", main.messages) == []
    roles = [(message["role"], [block["type"] for block in message["content"]]) for message in main.messages]
    assert roles[:4] == [
        ("user", ["text"]),
        ("assistant", ["thinking", "tool_use", "tool_use"]),
        ("user", ["tool_result", "tool_result"]),
        ("assistant", ["text"]),
    ]
    assert "continued from" not in json.dumps(main.messages), "its own summary is not part of the history"
    assert "toolu_9" not in json.dumps(main.messages), "a call without a result would be refused"
    assert [message["role"] for message in side.messages] == ["user", "assistant"]


def test_results_between_the_calls_of_one_answer_are_joined_to_it(tmp_path: Path) -> None:
    file = ClaudeFile()
    file.add("user", "Read both", 0)
    one = file.call(1, 1, "toolu_1")
    file.result(1, "toolu_1", one)
    two = file.call(1, 2, "toolu_2", parent=one)
    file.result(2, "toolu_2", two)
    file.add("assistant", [{"type": "text", "text": "Done."}], 3, answer=2)
    (session,) = read_file(str(write_rows(tmp_path / "s.jsonl", file.rows))).sessions
    assert [len(message["content"]) for message in session.messages] == [1, 2, 2, 1]
    assert find_violations("anthropic", session.messages) == []


def test_rows_that_share_a_uuid_are_counted_unless_they_are_copies(tmp_path: Path) -> None:
    file = ClaudeFile()
    for turn in range(100):
        file.add("user", f"Question {turn}", turn % 60)
        file.add("assistant", f"Answer {turn}", turn % 60, answer=turn)
    rows = [{**row, "uuid": "one"} for row in file.rows]
    reading = read_file(str(write_rows(tmp_path / "one.jsonl", [*rows, rows[0]])))
    assert [len(session.messages) for session in reading.sessions] == [1]
    (broken,) = reading.broken
    assert broken.line == 2
    assert broken.why.startswith("rows with the uuid of an earlier row but another message")
    assert broken.why.endswith(": 199")
    copied = read_file(str(write_rows(tmp_path / "copied.jsonl", [*file.rows, *file.rows])))
    assert [len(session.messages) for session in copied.sessions] == [200]
    assert list(copied.broken) == []


def test_a_branch_that_a_person_went_back_from_is_left_out(tmp_path: Path) -> None:
    file = ClaudeFile()
    file.add("user", "Rename it", 0)
    fork = file.add("assistant", [{"type": "text", "text": "To what?"}], 1, answer=1)
    file.add("user", "to zebra_1", 2)
    caller = file.call(2, 3, "toolu_1")
    file.result(3, "toolu_1", caller, "zebra_1 is taken")
    file.rows.append({"type": "system", "subtype": "turn_duration", "uuid": "sys", "parentUuid": fork})
    file.add("user", "to heron_2", 4, parent="sys")
    file.add("assistant", [{"type": "text", "text": "heron_2 it is."}], 5, answer=3)
    (session,) = read_file(str(write_rows(tmp_path / "s.jsonl", file.rows))).sessions
    assert "zebra_1" not in json.dumps(session.messages)
    assert [message["role"] for message in session.messages] == ["user", "assistant", "user", "assistant"]


def test_text_that_no_model_wrote_is_not_a_request(tmp_path: Path) -> None:
    file = ClaudeFile()
    file.add("user", "Hello", 0)
    file.add("assistant", [{"type": "text", "text": "API Error: 529"}], 1, answer=1, isApiErrorMessage=True)
    file.add("user", "seen only", 2, isVisibleInTranscriptOnly=True)
    file.add("assistant", [{"type": "text", "text": "Hello."}], 3, answer=2)
    (session,) = read_file(str(write_rows(tmp_path / "s.jsonl", file.rows))).sessions
    assert [message["content"][0]["text"] for message in session.messages] == ["Hello", "Hello."]


def test_a_session_that_continues_under_a_new_id_is_one_and_copied_rows_count_once(tmp_path: Path) -> None:
    file = ClaudeFile("old")
    file.add("user", "First", 0)
    file.add("assistant", [{"type": "text", "text": "One."}], 1, answer=1)
    file.rows += list(file.rows)
    last = file.last
    file.session = "new"
    boundary = {"type": "system", "subtype": "compact_boundary", "parentUuid": None, "logicalParentUuid": last}
    file.rows.append({**boundary, "uuid": "cut", "sessionId": "new"})
    file.add("user", "Summary of it all", 2, parent="cut", isCompactSummary=True)
    file.add("user", "Second", 3)
    file.add("assistant", [{"type": "text", "text": "Two."}], 4, answer=2)
    (session,) = read_file(str(write_rows(tmp_path / "s.jsonl", file.rows))).sessions
    assert session.id == "new"
    assert [message["content"][0]["text"] for message in session.messages] == ["First", "One.", "Second", "Two."]


def test_helpers_without_a_name_are_told_apart_by_where_they_began(tmp_path: Path) -> None:
    file = ClaudeFile()
    file.add("user", "Ask two", 0)
    starts = [file.add("user", f"go {n}", 1, parent=None, isSidechain=True) for n in (1, 2)]
    for n, start in reversed(list(enumerate(starts, 1))):
        text = [{"type": "text", "text": f"gone {n}"}]
        file.add("assistant", text, 2, answer=n, parent=start, isSidechain=True)
    file.add("assistant", [{"type": "text", "text": "Both are back."}], 3, answer=9)
    main, one, two = read_file(str(write_rows(tmp_path / "s.jsonl", file.rows))).sessions
    assert [len(session.messages) for session in (main, one, two)] == [2, 2, 2]
    assert [message["content"][0]["text"] for message in two.messages] == ["go 2", "gone 2"]


def test_parents_that_are_missing_or_go_in_circles_lose_nothing(tmp_path: Path) -> None:
    file = ClaudeFile()
    file.add("user", "A", 0, parent="uuid-0001")
    file.add("assistant", [{"type": "text", "text": "B"}], 1, answer=1, parent="uuid-0000")
    file.add("user", "C", 2, parent="nowhere")
    file.add("assistant", [{"type": "text", "text": "D"}], 3, answer=2)
    (session,) = read_file(str(write_rows(tmp_path / "s.jsonl", file.rows))).sessions
    assert [message["content"][0]["text"] for message in session.messages] == ["A", "B", "C", "D"]


def test_broken_lines_are_named_and_unknown_kinds_passed_over(tmp_path: Path) -> None:
    reading = read_file(str(write_rows(tmp_path / "s.jsonl", claude_rows())))
    assert [one.line for one in reading.broken] == [6, 13]
    assert "not JSON" in reading.broken[0].why
    assert "content" in reading.broken[1].why


def test_times_of_a_recording_are_kept(tmp_path: Path) -> None:
    main = read_file(str(write_rows(tmp_path / "s.jsonl", claude_rows()))).sessions[0]
    assert main.idle_before(3, 2) == 18 * 60
    assert main.idle_before(2, 3) == 0.0


def test_a_codex_file_becomes_valid_responses_items(tmp_path: Path) -> None:
    reading = read_file(str(write_rows(tmp_path / "rollout-1.jsonl", codex_rows())))
    (session,) = reading.sessions
    assert reading.kind == "codex"
    assert (session.id, session.system, session.model) == ("r-7", "Be brief.", "gpt-5.6")
    kinds = [item["type"] for item in session.messages]
    assert kinds == ["message", "message", "reasoning", "function_call", "function_call_output", "message", "message"]
    assert find_violations("openai-responses", session.messages) == []
    assert [one.line for one in reading.broken] == [11, 12]


def test_older_codex_files_hold_their_items_bare(tmp_path: Path) -> None:
    rows = [row["payload"] for row in codex_rows() if isinstance(row, dict) and row["type"] == "response_item"]
    session = read_file(str(write_rows(tmp_path / "rollout-0.jsonl", rows))).sessions[0]
    assert len(session.messages) == 9, "the event that takes a turn back is not in such a file"


@pytest.mark.parametrize("wire", ["openai-chat", "anthropic", "openai-responses"])
def test_a_log_that_resends_the_history_is_one_session_stored_once(tmp_path: Path, wire: str) -> None:
    messages = agent_messages(6)
    rows = []
    for end in (4, 8, 12):
        chat = {"messages": messages[:end]}
        body = {"openai-chat": chat, "anthropic": to_anthropic(chat["messages"])}.get(wire) or to_responses(
            chat["messages"]
        )
        rows.append({"timestamp": 1_000.0 + end, "request": {**body, "model": "m"}, "response": {"id": 1}})
    rows.append({"request": {"messages": [{"role": "user", "content": "something else"}]}})
    reading = read_file(str(write_rows(tmp_path / "log.jsonl", rows)))
    assert len(reading.sessions) == 2
    assert reading.sessions[0].format == wire
    assert len(reading.sessions[0].times) == len(reading.sessions[0].messages)
    assert reading.sessions[0].idle_before(len(reading.sessions[0].messages) - 1, 0) == 8.0


def test_an_export_brings_its_probes_and_other_files_get_theirs(tmp_path: Path) -> None:
    probe = {"step": 4, "value": "PARSE-4711", "cls": "id", "distance_in_messages": 3, "n_sources": 1}
    told = read_file(
        str(write_rows(tmp_path / "a.jsonl", [{"id": "x", "messages": agent_messages(3), "probes": [probe, 7]}]))
    )
    assert [one.value for one in told.sessions[0].probes] == ["PARSE-4711"]
    found = read_file(str(write_rows(tmp_path / "b.jsonl", [{"id": "x", "messages": agent_messages(12)}]))).sessions[0]
    reused = [one for one in add_probes(found).probes if one.value == "lib/used_003.py"]
    assert [(one.step, one.distance, one.is_hard) for one in reused] == [(18, 9, True)]


def test_messages_one_by_one_a_list_and_gzip_are_read(tmp_path: Path) -> None:
    messages = agent_messages(3)
    rows = read_file(str(write_rows(tmp_path / "rows.jsonl", list(messages)))).sessions
    whole = tmp_path / "whole.json.gz"
    whole.write_bytes(gzip.compress(json.dumps(messages, indent=1).encode()))
    packed = read_file(str(whole)).sessions
    assert len(rows[0].messages) == len(packed[0].messages) == len(messages)


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"[]", b"7", b"\xff\xfe\x00", b'{"a": 1}', b"[" * 100_000, b"\x1f\x8b\x08"]
)
def test_a_file_without_a_session_is_an_error_that_says_so(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"bad\.jsonl"):
        read_file(str(path))
    (told,) = read_files([str(path)])
    assert told.sessions == ()
    assert "bad.jsonl" in told.broken[0].why


def test_a_file_that_is_not_there_does_not_stop_the_others(tmp_path: Path) -> None:
    good = write_rows(tmp_path / "good.jsonl", [{"messages": agent_messages(2)}])
    missing, read = read_files([str(tmp_path / "none.jsonl"), str(good)])
    assert (len(missing.sessions), len(read.sessions)) == (0, 1)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(12, 12.0), (1.5, 1.5), (1_700_000_000_000, 1_700_000_000.0), ("1970-01-01T00:01:00Z", 60.0)],
)
def test_times_are_read_in_any_of_their_usual_forms(value: object, seconds: float) -> None:
    assert read_time(value) == seconds


@pytest.mark.parametrize("value", [None, True, "yesterday", [], float("nan"), float("inf")])
def test_an_invalid_time_counts_as_missing(value: object) -> None:
    assert read_time(value) is None
