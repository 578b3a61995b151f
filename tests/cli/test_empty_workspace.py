"""Where nothing has been stored yet, every command says so alike, says how a session comes to be, and makes nothing."""

import json

import pytest

from tests.rigs.cli import Shell

READING = ["sessions", "show", "show --edits", "show --originals", "log", "stats", "recall port", "recall port --all"]
READING += ["facts", "facts --all"]
NEEDING = ["undo", "redo", "export", "expand m:4f2a91c3"]
NAMING = ["show", "log", "stats", "verify", "undo", "redo", "export", "recall port", "facts", "expand m:00", "pin"]
NAMING += ["delete", "forget m:00"]


@pytest.mark.parametrize("command", READING)
def test_a_reading_command_says_how_a_session_comes_to_be(shell: Shell, command: str) -> None:
    before = set(shell.folder.iterdir())
    ran = shell.refold(*command.split())
    assert ran.code == 0
    assert ran.text.startswith("no sessions yet")
    assert all(word in ran.text for word in ("refold chat", "refold serve", "refold import", "--workspace"))
    assert ran.text.count("\n") == 1
    assert json.loads(shell.refold(*command.split(), "--json").text) is not None
    assert set(shell.folder.iterdir()) == before


@pytest.mark.parametrize("command", NEEDING)
def test_a_command_that_needs_a_session_fails_with_the_same_words(shell: Shell, command: str) -> None:
    ran = shell.refold(*command.split())
    assert (ran.code, ran.out) == (8, b"")
    assert "no sessions yet: 'refold chat'" in ran.err


@pytest.mark.parametrize("command", NAMING)
def test_a_session_that_is_not_there_is_reported_alike(shell: Shell, command: str) -> None:
    ran = shell.refold(*command.split(), "--session", "nobody")
    assert (ran.code, ran.out) == (8, b"")
    assert ran.err == "refold: there is no session 'nobody'; 'refold sessions' lists them\n"


@pytest.mark.parametrize("command", [*READING, *NEEDING, "verify", "memory"])
def test_a_workspace_that_is_not_a_folder_is_reported_alike(shell: Shell, command: str) -> None:
    ran = shell.refold(*command.split(), "--workspace", "absent")
    assert (ran.code, ran.out) == (3, b"")
    assert "'absent' is not a folder" in ran.err


def test_another_workspace_is_named_in_the_sentence(shell: Shell) -> None:
    (shell.folder / "elsewhere").mkdir()
    assert shell.refold("sessions", "-w", "elsewhere").text.startswith("no sessions yet in 'elsewhere': ")
