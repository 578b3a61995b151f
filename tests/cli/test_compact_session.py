"""``refold compact --session``: a stored session is compressed when a person says so, and can be taken back."""

import json
from pathlib import Path

import pytest

from refold import ContextCompressionManager
from tests.rigs.cli import Shell
from tests.rigs.manager import agent


@pytest.fixture
def stored(shell: Shell) -> Shell:
    """A workspace with one session that nobody compressed yet."""
    with ContextCompressionManager(workspace_path=shell.folder) as manager:
        manager.append("s1", agent(40))
    return shell


def count_view(folder: Path) -> int:
    with ContextCompressionManager(workspace_path=folder) as manager:
        return len(manager.read_view("s1"))


@pytest.mark.parametrize("command", ["compress", "compact", "fold"])
def test_a_stored_session_is_compressed_and_undo_takes_it_back(stored: Shell, command: str) -> None:
    before = count_view(stored.folder)
    ran = stored.refold(command, "--session", "s1")
    assert ran.code == 0
    assert "fold −" in ran.text
    assert "requested manually" in ran.text
    assert "refold undo --session s1" in ran.text
    assert count_view(stored.folder) < before
    assert stored.refold("undo", "-s", "s1").code == 0
    assert count_view(stored.folder) == before


def test_a_dry_run_names_what_would_go_and_changes_nothing(stored: Shell) -> None:
    before = count_view(stored.folder)
    ran = stored.refold("compact", "-s", "s1", "--dry-run")
    assert "would do" in ran.text
    assert "⟨f:" in ran.text
    assert "refold undo" not in ran.text
    assert count_view(stored.folder) == before


def test_instructions_decide_what_the_summary_of_a_stored_session_keeps(shell: Shell) -> None:
    lines = [f"Shed {n} holds {thing} for the winter." for n, thing in enumerate(["rope", "marzipan", "tar"] * 12)]
    talk = [{"role": "user", "content": "List the sheds."}, {"role": "assistant", "content": "\n".join(lines)}]
    with ContextCompressionManager(workspace_path=shell.folder) as manager:
        manager.append("s1", [*talk, *agent(40)])
    kept = {}
    for wanted in ("", "keep every mention of marzipan"):
        told = json.loads(shell.refold("compact", "-s", "s1", "--instructions", wanted, "--json").text)
        assert told["tokens_saved"] > 0
        with ContextCompressionManager(workspace_path=shell.folder) as manager:
            kept[wanted] = "".join(one.content for one in manager.summaries("s1")).count("marzipan")
        shell.refold("undo", "-s", "s1")
    assert kept["keep every mention of marzipan"] > kept[""]


def test_programs_get_the_report_as_json(stored: Shell) -> None:
    told = json.loads(stored.refold("compact", "-s", "s1", "--json").text)
    assert told["session"] == "s1"
    assert told["tokens_after"] < told["tokens_before"]
    assert any(edit["kind"] == "fold" for stage in told["stages"] for edit in stage["edits"])


def test_where_nothing_can_go_it_says_so_and_offers_no_undo(shell: Shell) -> None:
    with ContextCompressionManager(workspace_path=shell.folder) as manager:
        manager.append("short", [{"role": "user", "content": "Hello."}])
    ran = shell.refold("compact", "-s", "short", "--explain")
    assert ran.code == 0
    assert "±0%" in ran.text
    assert "refold undo" not in ran.text


@pytest.mark.parametrize("option", ["--budget=8k", "--out=x.json", "--preset=turns", "--model=gpt-5", "session.json"])
def test_what_is_meant_for_a_file_is_refused_beside_a_session(stored: Shell, option: str) -> None:
    ran = stored.refold("compact", "--session", "s1", option)
    assert ran.code == 2
    assert "session" in ran.err


def test_a_session_that_is_not_there_is_reported_with_the_nearest_name(stored: Shell) -> None:
    ran = stored.refold("compact", "--session", "s11")
    assert (ran.code, "did you mean 's1'" in ran.err) == (8, True)


def test_for_a_session_named_like_a_file_the_message_names_the_option(stored: Shell) -> None:
    ran = stored.refold("compact", "s1")
    assert (ran.code, "--session" in ran.err) == (4, True)


def test_neither_file_nor_session_is_a_wrong_command_line(shell: Shell) -> None:
    ran = shell.refold("compact")
    assert (ran.code, "--session" in ran.err) == (2, True)
