"""``refold state``: where the work of a session or a file stands."""

from __future__ import annotations

import json

from tests.rigs.cli import Shell

TALK = [
    {"role": "user", "content": "Fix the crash in parse.py. Never touch the vendor folder."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "pytest -q"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "1", "content": "FAILED test_parse.py::test_empty\n1 failed, 11 passed in 0.4s"},
]


def test_a_file_shows_its_state_and_nothing_is_stored(shell: Shell) -> None:
    (shell.folder / "talk.json").write_text(json.dumps(TALK), "utf-8")
    ran = shell.refold("state", "talk.json")
    assert ran.code == 0
    assert ran.text.startswith("Task\n- Fix the crash in parse.py.")
    assert "fails: test_parse.py::test_empty" in ran.text
    assert not (shell.folder / ".refold").exists()


def test_a_session_is_named_or_the_newest_one(shell: Shell) -> None:
    (shell.folder / "talk.json").write_text(json.dumps(TALK), "utf-8")
    assert shell.refold("import", "talk.json").code == 0
    pages = {shell.refold(*args).text for args in (["state"], ["state", "talk"], ["state", "--session", "talk"])}
    assert len(pages) == 1
    assert "Never touch the vendor folder." in pages.pop()


def test_json_has_every_entry_with_its_source(shell: Shell) -> None:
    (shell.folder / "talk.json").write_text(json.dumps(TALK), "utf-8")
    state = json.loads(shell.refold("state", "talk.json", "--json").text)
    assert state["messages"] == 3
    assert state["rules"][0]["quote"]["handle"].startswith("m:")
    assert "pending" not in state


def test_the_page_is_in_the_language_of_the_terminal(shell: Shell) -> None:
    (shell.folder / "talk.json").write_text(json.dumps(TALK), "utf-8")
    text = shell.refold("state", "talk.json", LC_ALL="zh_CN.UTF-8").text
    assert text.startswith("任务\n")
    assert "失败项：test_parse.py::test_empty" in text


def test_control_characters_of_a_message_do_not_reach_the_terminal(shell: Shell) -> None:
    talk = [{"role": "user", "content": "Fix \x1b[31mred\x1b[0m text in parse.py, please."}]
    (shell.folder / "talk.json").write_text(json.dumps(talk), "utf-8")
    assert "\x1b" not in shell.refold("state", "talk.json").text


def test_neither_a_session_nor_a_file_is_an_error(shell: Shell) -> None:
    ran = shell.refold("state", "nothing.json")
    assert ran.code != 0
    assert "nothing.json" in ran.err


def test_an_empty_workspace_says_how_to_begin(shell: Shell) -> None:
    ran = shell.refold("state")
    assert ran.code == 0
    assert "no sessions yet" in ran.text
