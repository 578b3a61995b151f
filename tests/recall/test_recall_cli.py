"""The commands as people run them, in processes of their own."""

import json
from pathlib import Path

import pytest

from tests.rigs.cli import Shell
from tests.rigs.recall import Workspace


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / ".refold").mkdir()
    workspace = Workspace(tmp_path / ".refold")
    workspace.say("older", "We decided to use port 8080.", "Fine.", now=1.0)
    workspace.say(
        "newer", "We decided to use port 8080.", "Fine.", "We decided to use port 9090.", "端口改好了。", now=2.0
    )
    workspace.ledger.close()
    return Shell(tmp_path)


def test_recall_prints_the_exact_words_and_their_handles(shell: Shell) -> None:
    ran = shell.refold("recall", "which port did we choose")
    assert ran.code == 0, ran.err
    assert "We decided to use port 9090." in ran.text
    assert "⟨m:" in ran.text


def test_recall_as_json_is_for_programs_and_expand_follows_its_handle(shell: Shell) -> None:
    ran = shell.refold("recall", "端口", "--limit", "1", "--json")
    (found,) = json.loads(ran.text)
    assert found["text"] == "端口改好了。"
    page = shell.refold("expand", found["handle"], "--offset", "2", "--limit", "3")
    assert page.text.strip() == "改好了"
    assert "--offset 5" in page.err
    whole = json.loads(shell.refold("expand", found["handle"], "--json").text)
    assert (whole["text"], whole["next_offset"]) == ("端口改好了。", None)


def test_sessions_are_searched_by_name_or_all_together(shell: Shell) -> None:
    assert "9090" not in shell.refold("recall", "port", "--session", "older").text
    both = json.loads(shell.refold("recall", "port", "--all", "--json").text)
    assert {one["session_id"] for one in both} == {"older", "newer"}


def test_facts_show_what_holds_and_with_history_what_was_replaced(shell: Shell) -> None:
    assert "8080" not in shell.refold("facts").text
    history = shell.refold("facts", "--history").text
    assert "replaced by: We decided to use port 9090." in history
    assert json.loads(shell.refold("facts", "--json").text)[0]["kind"] == "decision"


def test_errors_are_one_clear_line_with_their_exit_code(shell: Shell, tmp_path: Path) -> None:
    unknown = shell.refold("expand", "m:ffffffff")
    assert (unknown.code, "asking again will not help" in unknown.err) == (6, True)
    assert shell.refold("recall", "x", "--session", "nobody").code == 8
    empty = tmp_path / "empty"
    empty.mkdir()
    ran = shell.refold("recall", "x", "--workspace", str(empty))
    assert (ran.code, "no sessions yet in" in ran.text) == (0, True)
    assert not (empty / ".refold").exists()


def test_a_query_that_finds_nothing_ends_the_search(shell: Shell) -> None:
    ran = shell.refold("recall", "xylophone")
    assert ran.code == 0
    assert "nothing was found in any session" in ran.text
    one = shell.refold("recall", "xylophone", "--only")
    assert "nothing was found in session '" in one.text
    assert "--all searches every session" in one.text
