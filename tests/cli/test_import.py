"""``refold import``, ``count`` and ``compact`` on what people have: session files, logs, folders of them."""

import json
from pathlib import Path

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.cli.compact import compact
from refold.cli.measure import count
from refold.cli.sessions import sessions
from refold.cli.transfer import export, run_import
from refold.errors import ConfigError, FormatError
from refold.manager.status import read_client, read_title
from tests.rigs.convert import to_anthropic
from tests.rigs.histories import agent_messages, claude_rows, codex_rows, write_rows


@pytest.fixture
def folder(tmp_path: Path, empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files that a person may have: a project of Claude Code, a rollout of Codex, a log, and files of other kinds."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    files = tmp_path / "files"
    (files / "project").mkdir(parents=True)
    write_rows(files / "project" / "claude.jsonl", claude_rows())
    write_rows(files / "rollout-1.jsonl", codex_rows())
    body = {**to_anthropic(agent_messages(3)), "system": "Be careful.", "model": "claude-opus-5-5"}
    (files / "request.json").write_text(json.dumps(body))
    (files / "package.json").write_text(json.dumps({"name": "x", "version": "1"}))
    return files


def test_a_folder_is_imported_whole_and_other_files_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_import([str(folder)], None, ".", as_json=False)
    told = capsys.readouterr()
    assert "imported 's-1': 7 messages" in told.out
    assert "4 sessions from 3 files" in told.out
    assert "package.json" in told.err
    with ContextCompressionManager(workspace_path=".") as manager:
        titles = {row.id: row.settings.get("title") for row in manager.ledger.list_sessions()}
    assert set(titles) == {"s-1", "s-1/a7", "r-7", "request"}
    assert titles["r-7"] == "List the files of lib_9001"
    run_import([str(folder)], None, ".", as_json=False)
    assert "4 sessions from 3 files" in capsys.readouterr().out, "what has not changed is no error"


def test_a_replayed_import_has_the_folds_and_the_bill_that_the_page_shows_and_goes_on_where_it_ended(
    folder: Path, project_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = json.loads((project_root / "examples" / "sessions" / "coding_agent.json").read_text("utf-8"))
    Path("refold.yaml").write_text("window: 16000\nreserve: 2000\n")
    file = folder / "agent.json"
    for size in (90, 120, 120):
        file.write_text(json.dumps({**example, "messages": example["messages"][:size]}))
        run_import([str(file)], None, ".", as_json=False, replay=True)
        assert "--replay" not in capsys.readouterr().out
        with ContextCompressionManager(CompressionConfig(window=16_000, reserve=2_000), ".") as manager:
            assert manager.status("agent").messages == size
            assert manager.status("agent").compression_count >= 1
            requests = manager.figures("agent").bill.requests
            assert requests == sum(one["role"] == "assistant" for one in example["messages"][:size])
            assert not manager.verify("agent")
    changed = [*example["messages"][:80], {"role": "user", "content": "Something else now."}]
    file.write_text(json.dumps({**example, "messages": changed}))
    run_import([str(file)], None, ".", as_json=False, replay=True)
    with ContextCompressionManager(CompressionConfig(), ".") as manager:
        assert manager.status("agent").messages == 81, "another recording of that name is played anew"
        manager.append("mine", [{"role": "user", "content": "My own words."}])
    with pytest.raises(FormatError, match="another conversation"):
        run_import([str(file)], "mine", ".", as_json=False, replay=True)
    run_import([str(file)], "plain", ".", as_json=False)
    assert "--replay plays them request by request" in " ".join(capsys.readouterr().err.split())


def test_a_claude_code_file_is_messages_never_opaque_rows(folder: Path) -> None:
    run_import([str(folder / "project" / "claude.jsonl")], None, ".", as_json=False)
    with ContextCompressionManager(workspace_path=".") as manager:
        prepared = manager.prepare_context_sync("s-1")
        assert manager.status("s-1").model == "claude-opus-5-5"
    assert [message["role"] for message in prepared.messages][:2] == ["user", "assistant"]
    kinds = {block["type"] for message in prepared.messages for block in message["content"]}
    assert kinds <= {"text", "thinking", "tool_use", "tool_result"}


def test_the_system_prompt_of_an_anthropic_request_is_kept_and_counted(folder: Path) -> None:
    run_import([str(folder / "request.json")], "mine", ".", as_json=False)
    with ContextCompressionManager(workspace_path=".") as manager:
        kept = manager.prepare_context_sync("mine")
        other = manager.prepare_context_sync("mine", system_prompt="Another one, much longer than the first. " * 5)
    assert kept.system == "Be careful."
    assert "".join(str(other.system)).startswith("Another one")
    assert other.total_tokens > kept.total_tokens


def test_one_name_is_for_one_session(folder: Path) -> None:
    with pytest.raises(ConfigError, match="--as names one session"):
        run_import([str(folder)], "mine", ".", as_json=False)
    with pytest.raises(ConfigError, match="holds 2"):
        run_import([str(folder / "project" / "claude.jsonl")], "mine", ".", as_json=False)


def test_count_reads_session_files_and_lists_several(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count(str(folder / "rollout-1.jsonl"), None, None, as_json=True)
    assert json.loads(capsys.readouterr().out)["format"] == "openai-responses"
    count(str(folder / "project" / "claude.jsonl"), None, None, as_json=False)
    told = capsys.readouterr()
    assert "s-1/a7" in told.out
    assert "not JSON" in told.err, "the half line at its end is named"


def test_count_of_a_folder_lists_every_conversation_and_names_other_files(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count(str(folder), None, None, as_json=True)
    told = capsys.readouterr()
    assert set(json.loads(told.out)) == {
        "project/claude.jsonl: s-1",
        "project/claude.jsonl: s-1/a7",
        "request.json",
        "rollout-1.jsonl",
    }
    assert "package.json holds no conversation" in told.err
    for one in ("request.json", "rollout-1.jsonl", "project/claude.jsonl"):
        (folder / one).unlink()
    with pytest.raises(FormatError, match="no conversation that can be counted"):
        count(str(folder), None, None, as_json=False)


def test_compact_writes_the_main_conversation_of_a_session_file(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claude = str(folder / "project" / "claude.jsonl")
    compact(claude, budget=2_000, out=str(tmp_path / "out.json"))
    written = json.loads((tmp_path / "out.json").read_text().splitlines()[0])
    assert written["role"] == "user"
    compact(str(folder / "rollout-1.jsonl"), budget=2_000, out=str(tmp_path / "codex.json"))
    capsys.readouterr()
    assert json.loads((tmp_path / "codex.json").read_text())["instructions"] == "Be brief."


def test_compact_of_several_conversations_says_what_to_do(folder: Path) -> None:
    rows = [{"id": f"s{at}", "messages": [{"role": "user", "content": f"Question {at}"}]} for at in range(3)]
    write_rows(folder / "log.jsonl", rows)
    with pytest.raises(FormatError, match=r"holds 3 conversations .*refold import"):
        compact(str(folder / "log.jsonl"), budget=2_000)


def test_a_folder_may_hold_exports_and_names_that_cannot_be_stored_as_they_are(folder: Path) -> None:
    run_import([str(folder / "request.json")], "mine", ".", as_json=False)
    inside = folder / "more"
    inside.mkdir()
    export("mine", str(inside / "export.json"), ".")
    odd = {"id": "odd \ud800", "messages": [{"role": "user", "content": "Half \ud800 a sign"}]}
    (inside / "odd.json").write_text(json.dumps(odd))
    Path("other").mkdir()
    run_import([str(inside)], None, "other", as_json=False)
    with ContextCompressionManager(workspace_path="other") as manager:
        rows = {row.id: row.settings.get("title") for row in manager.ledger.list_sessions()}
    assert set(rows) == {"mine", "odd ?"}
    assert rows["odd ?"] == "Half ? a sign"


def test_importing_a_log_again_brings_only_what_is_new(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": f"s{at}", "messages": [{"role": "user", "content": f"Question {at}"}]} for at in range(3)]
    run_import([str(write_rows(folder / "log.jsonl", rows[:2]))], None, ".", as_json=False)
    capsys.readouterr()
    run_import([str(write_rows(folder / "log.jsonl", rows))], None, ".", as_json=False)
    told = capsys.readouterr()
    assert "imported 's2': 1 message" in told.out
    assert "3 sessions from 1 file" in told.out


def test_imported_sessions_are_listed_by_their_agent_and_first_words(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_import([str(folder)], None, ".", as_json=True)
    capsys.readouterr()
    sessions(workspace=".")
    told = capsys.readouterr().out
    assert "compressions" in told
    assert "folds" not in told
    lines = {line.split()[0]: line for line in told.splitlines() if line.split()}
    assert "claude-code" in lines["s-1"]
    with ContextCompressionManager(workspace_path=".") as manager:
        rows = manager.ledger.list_sessions()
        assert {read_client(row) for row in rows} == {"claude-code", "codex", ""}
        assert all(read_title(manager.ledger, row) for row in rows)


def test_the_complete_file_of_a_session_that_was_imported_from_a_truncated_copy_completes_it(
    folder: Path,
) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "a.py"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "x = 1"}
    said = [
        {"role": "user", "content": "Please read a.py"},
        {"role": "assistant", "content": [{"type": "text", "text": "I read it."}], "id": "m1"},
        {"role": "assistant", "content": [call], "id": "m1"},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [{"type": "text", "text": "It sets x."}], "id": "m2"},
    ]
    rows = [
        {"type": one["role"], "sessionId": "s-9", "uuid": f"u{at}", "parentUuid": f"u{at - 1}" if at else None}
        | {"message": one}
        for at, one in enumerate(said)
    ]
    whole = write_rows(folder / "whole.jsonl", rows)
    text = whole.read_text(encoding="utf-8")
    for part in (text[: text.index("t1") - 10], text[: text.index("m2") - 10], text):
        (folder / "s-9.jsonl").write_text(part, encoding="utf-8")
        run_import([str(folder / "s-9.jsonl")], None, ".", as_json=False)
    with ContextCompressionManager(workspace_path=".") as manager:
        assert manager.ledger.read_session("s-9").messages == 4
        assert not manager.verify()
    run_import([str(folder / "s-9.jsonl")], None, ".", as_json=False)
    (folder / "s-9.jsonl").write_text(text.replace("Please read", "Please write"), encoding="utf-8")
    with pytest.raises(FormatError, match="session 's-9' already exists"):
        run_import([str(folder / "s-9.jsonl")], None, ".", as_json=False)


def test_files_of_a_folder_that_hold_no_conversation_are_named_in_one_line(
    tmp_path: Path, project_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_import([str(project_root / "examples" / "sessions")], None, str(tmp_path), as_json=False)
    told = capsys.readouterr()
    assert "4 sessions from 4 files" in told.out
    assert "no conversation in 4 files: anthropic_thinking.facts.json, chat_zh.facts.json" in told.err
    assert "not imported" not in told.err
