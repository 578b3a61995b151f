"""All commands: where they look for the workspace, how they name a session, how they show progress."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer.main

from refold import ContextCompressionManager
from refold.cli import config, measure, output, transfer
from refold.cli.app import PlainTyper, choose_command
from refold.cli.main import app, load_commands
from refold.cli.output import show_progress
from tests.rigs.cli import Shell
from tests.rigs.manager import chat


def list_commands() -> list[tuple[str, Any]]:
    load_commands()
    group: Any = typer.main.get_command(app)
    found: list[tuple[str, Any]] = []
    for name, command in group.commands.items():
        inner = getattr(command, "commands", {})
        found += [(f"{name} {one}", below) for one, below in inner.items()] or [(name, command)]
    return found


def store(folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with ContextCompressionManager(workspace_path=folder) as manager:
        manager.append(name, chat(2))


def test_a_session_is_named_by_the_same_option_in_every_command() -> None:
    named = {name: param for name, one in list_commands() for param in one.params if param.name == "session"}
    assert len(named) > 12
    assert {tuple(param.opts) for param in named.values()} == {("--session", "-s")}


def test_a_letter_means_one_thing_where_it_is_used_often() -> None:
    meanings = {"-n": "--limit", "-s": "--session", "-w": "--workspace", "-y": "--yes", "-a": "--all"}
    for name, command in list_commands():
        for param in command.params:
            for letter, option in meanings.items():
                assert letter not in param.opts or option in param.opts, f"{name} {letter}"


def test_a_session_given_as_an_argument_is_answered_with_the_option(shell: Shell) -> None:
    ran = shell.refold("show", "s1")
    assert ran.code == 2
    assert "name a session with --session" in ran.err


def test_the_workspace_is_found_upwards_and_the_nearest_one_is_used(shell: Shell) -> None:
    store(shell.folder, "outer")
    below = shell.folder / "src" / "deep"
    below.mkdir(parents=True)
    assert "outer" in Shell(below).refold("sessions").text
    store(shell.folder / "src", "inner")
    assert "inner" in Shell(below).refold("sessions").text
    assert "outer" not in Shell(below).refold("sessions").text
    assert "outer" in Shell(below).refold("sessions", "--workspace", "../..").text


def test_the_search_for_a_workspace_ends_at_the_root_of_a_repository(shell: Shell) -> None:
    store(shell.folder, "outer")
    inside = shell.folder / "project" / "src"
    inside.mkdir(parents=True)
    (shell.folder / "project" / ".git").mkdir()
    assert Shell(inside).refold("sessions").text.startswith("no sessions yet")


def test_serve_creates_the_workspace_that_it_is_given(shell: Shell) -> None:
    pytest.importorskip("uvicorn", reason="needs refold[server]")
    # A wrong address ends the command after the workspace was made.
    ran = shell.refold("serve", "--workspace", "new/folder", "--openai-upstream", "nowhere")
    assert ran.code == 3
    assert (shell.folder / "new" / "folder").is_dir()
    shell.write("file", "")
    assert "is not a folder" in shell.refold("serve", "--workspace", "file").err


def test_import_creates_the_workspace_that_it_is_given_if_there_is_something_to_store(shell: Shell) -> None:
    shell.write("talk.json", '[{"role": "user", "content": "hello"}]')
    assert shell.refold("import", "absent.json", "--workspace", "new/folder").code == 4
    assert not (shell.folder / "new").exists()
    assert shell.refold("import", "talk.json", "--workspace", "new/folder").code == 0
    assert "talk" in shell.refold("sessions", "--workspace", "new/folder").text


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "LINE_EVERY_S", 0.01)
    seen = ""
    with show_progress("replaying") as advance:
        advance(3, 40)
        for _ in range(3_000):
            seen += capsys.readouterr().err
            if "\n" in seen:
                break
            time.sleep(0.01)
    assert "replaying: 3 of 40, " in seen


def test_long_commands_show_progress() -> None:
    assert {module.show_progress for module in (config, measure, transfer)} == {show_progress}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "made"),
    [
        (("two-words", "--help"), {"two-words"}),
        (("named",), {"named"}),
        (("inner", "one"), {"two-words", "named", "inner"}),
        (("twowords",), {"two-words", "named", "inner"}),
        ((), {"two-words", "named", "inner"}),
    ],
)
def test_only_the_command_that_is_run_is_made(words: tuple[str, ...], made: set[str]) -> None:
    outer, inner = PlainTyper(), PlainTyper(name="inner")
    outer.callback()(lambda: None)
    outer.add_typer(inner)
    inner.command()(lambda: None)

    @outer.command()
    def two_words() -> None: ...

    @outer.command("named")
    def other() -> None: ...

    group: Any = typer.main.get_command(choose_command(outer, words))
    assert set(group.commands) == made
    whole: Any = typer.main.get_command(outer)
    assert set(whole.commands) == {"two-words", "named", "inner"}, "a second call in one process has them all"


def test_the_entry_point_can_be_called_twice_in_one_process(tmp_path: Path) -> None:
    code = (
        "import sys; from refold.cli.main import main\n"
        "for words in (['status'], ['sessions'], ['config', 'show'], ['sessions']):\n"
        "    sys.argv = ['refold', *words]\n"
        "    try: main()\n"
        "    except SystemExit as end: print('ended', end.code)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "No such command" not in done.stderr
    assert done.stdout.count("ended") == 4
