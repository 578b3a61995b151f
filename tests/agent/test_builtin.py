"""The built-in tools stay in their workspace, name their limits, and ask before they change anything."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from refold.agent import builtin
from refold.agent.builtin import Kept, make_builtin_tools
from refold.agent.tools import Tool
from refold.agent.workspace import OutsideWorkspace, Workspace
from refold.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    (work / "src").mkdir(parents=True)
    (work / "src" / "a.py").write_text("one\ntwo\nport = 7341\n", encoding="utf-8")
    (work / "说明.md").write_text("你好，世界\n", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("the secret", encoding="utf-8")
    (tmp_path / "work-evil").mkdir()
    (tmp_path / "work-evil" / "x").write_text("evil", encoding="utf-8")
    return work


def tools_in(folder: Path) -> dict[str, Tool]:
    return {tool.name: tool for tool in make_builtin_tools(["files", "shell"], folder)}


def call(folder: Path, name: str, **arguments: Any) -> str:
    made = tools_in(folder)[name].call(**arguments)
    return str(asyncio.run(made) if asyncio.iscoroutine(made) else made)


def test_files_are_read_listed_and_searched(folder: Path) -> None:
    assert call(folder, "read_file", path="src/a.py") == "one\ntwo\nport = 7341\n"
    assert call(folder, "read_file", path="src/a.py", line=2, lines=1) == "two\n\n[1 more lines; continue with line=3]"
    assert call(folder, "read_file", path="说明.md") == "你好，世界\n"
    assert call(folder, "list_files").split("\n") == ["说明.md", "src/a.py"]
    assert call(folder, "list_files", pattern="*.py") == "src/a.py"
    assert call(folder, "list_files", pattern="src/*.py") == "src/a.py"
    assert call(folder, "search_files", pattern=r"port = \d+") == "src/a.py:3: port = 7341"
    assert call(folder, "search_files", pattern="(unclosed") == "nothing matches '(unclosed'"


@pytest.mark.parametrize(
    "path",
    ["../secret.txt", "/etc/passwd", "src/../../secret.txt", "../work-evil/x", "link.txt", "out/secret.txt", "a\x00b"],
)
def test_no_path_leads_out_of_the_workspace(folder: Path, path: str) -> None:
    (folder / "link.txt").symlink_to(folder.parent / "secret.txt")
    (folder / "out").symlink_to(folder.parent, target_is_directory=True)
    for name, more in (("read_file", {}), ("list_files", {}), ("write_file", {"content": "x"})):
        with pytest.raises(OutsideWorkspace):
            call(folder, name, path=path, **more)
    with pytest.raises(OutsideWorkspace):
        call(folder, "search_files", pattern="secret", path=path)
    assert (folder.parent / "secret.txt").read_text() == "the secret"


def test_walking_does_not_follow_links_out(folder: Path) -> None:
    (folder / "link.txt").symlink_to(folder.parent / "secret.txt")
    (folder / "out").symlink_to(folder.parent, target_is_directory=True)
    (folder / "loop").symlink_to(folder / "loop")
    assert call(folder, "search_files", pattern="the secret") == "nothing matches 'the secret'"
    assert "link.txt" not in call(folder, "list_files")


def test_a_new_file_behind_a_link_that_leads_out_is_not_written(folder: Path) -> None:
    (folder / "new.txt").symlink_to(folder.parent / "not-there-yet.txt")
    with pytest.raises(OutsideWorkspace):
        call(folder, "write_file", path="new.txt", content="x")
    assert not (folder.parent / "not-there-yet.txt").exists()


@pytest.mark.parametrize("swapped", ["src", "src/a.py"])
def test_a_link_that_is_put_there_while_a_file_is_opened_leads_nowhere(
    folder: Path, swapped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder.parent / "a.py").write_text("the secret", encoding="utf-8")
    find = Workspace.find
    looks: list[str] = []
    last = [0]

    def find_then_swap(self: Workspace, name: str) -> Path:
        found = find(self, name)
        looks.append(name)
        if len(looks) == last[0]:
            (folder / swapped).rename(folder.parent / "aside")
            (folder / swapped).symlink_to(folder.parent / ("a.py" if "/" in swapped else "."))
        return found

    # Writing looks twice: whether the file is new, and to open it. What counts is the moment after the last look.
    for name, count, more in (("read_file", 1, {}), ("write_file", 2, {"content": "x"})):
        looks.clear()
        last[0] = count
        monkeypatch.setattr(Workspace, "find", find_then_swap)
        with pytest.raises(OutsideWorkspace, match="was changed while it was being opened"):
            call(folder, name, path="src/a.py", **more)
        monkeypatch.undo()
        (folder / swapped).unlink()
        (folder.parent / "aside").rename(folder / swapped)
    assert (folder.parent / "a.py").read_text() == "the secret"


def test_any_line_of_a_huge_file_can_be_read_and_what_is_left_is_counted(folder: Path) -> None:
    with (folder / "huge.log").open("wb") as file:
        for start in range(0, 600_000, 1_000):
            file.write(b"".join(b"%07d %s\n" % (number, b"x" * 40) for number in range(start, start + 1_000)))
    text = call(folder, "read_file", path="huge.log", line=500_001, lines=2)
    row = "x" * 40
    assert text == f"0500000 {row}\n0500001 {row}\n\n[99,998 more lines; continue with line=500003]"
    assert call(folder, "read_file", path="huge.log", line=600_000) == f"0599999 {row}\n"
    assert call(folder, "read_file", path="huge.log", line=600_001) == "(huge.log has fewer than 600,001 lines)"
    assert len(call(folder, "read_file", path="huge.log", lines=10**9)) < 1_000_200


def test_one_line_without_end_is_cut_and_says_so(folder: Path) -> None:
    (folder / "line").write_bytes(b"y" * 3_000_000)
    text = call(folder, "read_file", path="line")
    assert text == "y" * 1_000_000 + "\n[line 1 is cut: 1,000,000 bytes are shown at a time]"
    (folder / "empty").touch()
    assert call(folder, "read_file", path="empty") == "(empty is empty)"


def test_a_pattern_that_never_ends_is_stopped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "as").write_text("a" * 60 + "!", encoding="utf-8")
    monkeypatch.setattr(builtin, "SEARCH_S", 0.2)
    text = call(folder, "search_files", pattern="(a+)+$", files="as")
    assert text.startswith("the search took longer than 0.2 s and was stopped")


def test_a_search_imports_nothing_from_the_workspace_and_has_its_limit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "refold").mkdir()
    (folder / "refold" / "__init__.py").write_text("open('owned', 'w')", encoding="utf-8")
    (folder / "json.py").write_text("open('owned', 'w')", encoding="utf-8")
    (folder / "many").write_text("hit\n" * 1_000, encoding="utf-8")
    monkeypatch.chdir(folder)
    found = call(folder, "search_files", pattern="hit").split("\n")
    assert found[0] == "many:1: hit"
    assert found[-1] == "[more than 200 lines; be more exact]"
    assert len(found) == 201
    assert not (folder / "owned").exists()


def test_refolds_own_record_is_out_of_reach(folder: Path) -> None:
    (folder / ".refold").mkdir()
    (folder / ".refold" / "ledger.db").write_text("x")
    for path in (".refold/ledger.db", "./.refold/../.refold/ledger.db", ".REFOLD/ledger.db"):
        with pytest.raises(OutsideWorkspace, match="belongs to refold itself"):
            call(folder, "write_file", path=path, content="gone")
    assert ".refold" not in call(folder, "list_files")


def test_a_file_that_is_not_text_is_refused_with_a_message(folder: Path) -> None:
    (folder / "image").write_bytes(b"\x89PNG\x00\x00")
    os.mkfifo(folder / "pipe")
    assert call(folder, "read_file", path="image") == "image is not text; it has 6 bytes"
    for path, why in (("pipe", "not a regular file"), ("src", "is a folder"), ("none", "there is no file")):
        with pytest.raises(ConfigError, match=why):
            call(folder, "read_file", path=path)
    assert call(folder, "search_files", pattern="x") == "nothing matches 'x'"


def test_writing_and_running_ask_first_and_reading_does_not(folder: Path) -> None:
    assert {name for name, tool in tools_in(folder).items() if tool.asks} == {"write_file", "run_command"}
    assert call(folder, "write_file", path="new/b.txt", content="é\n") == "made new/b.txt: 3 bytes"
    assert call(folder, "write_file", path="new/b.txt", content="x") == "replaced new/b.txt: 1 bytes"


def test_an_unknown_group_is_a_clear_error() -> None:
    with pytest.raises(ConfigError, match="unknown group of tools 'web'; choose from files, shell"):
        make_builtin_tools(["web"])


async def run(folder: Path, command: str, **more: Any) -> str:
    return str(await tools_in(folder)["run_command"].call(command=command, **more))


async def test_a_command_has_its_output_and_exit_status(folder: Path) -> None:
    assert await run(folder, "cat src/a.py | head -1; exit 3") == "one\n[exit status 3]"
    assert await run(folder, "echo oops >&2") == "oops\n[exit status 0]"
    assert await run(folder, "true") == "[exit status 0]"
    assert await run(folder, "cat") == "[exit status 0]"  # It never waits for the keyboard.


async def test_a_command_that_prints_100_mb_is_bounded_and_counted(folder: Path) -> None:
    text = await run(folder, "head -c 100000000 /dev/zero | tr '\\0' 'x'; echo END")
    assert len(text) < 100_000
    assert "... [truncated 99920004 bytes] ..." in text
    assert text.endswith("END\n[exit status 0]")


async def test_a_command_that_never_ends_is_stopped_with_all_it_started(folder: Path) -> None:
    for timeout_s in (0.2, 10, 60):  # A busy machine may take longer than a moment to start the shell.
        text = await run(folder, "(sleep 777 & echo $! > child; wait)", timeout_s=timeout_s)
        assert text == f"[stopped after {timeout_s} s]"
        if (folder / "child").exists():
            break
    state = Path(f"/proc/{int((folder / 'child').read_text())}/stat")
    while state.exists() and state.read_text().split()[2] != "Z":
        await asyncio.sleep(0.01)


def test_what_is_kept_of_a_stream_is_exact() -> None:
    for size in (0, 5, 15, 16, 40, 1_000):
        source = bytes(97 + at % 26 for at in range(size))
        kept = Kept(10, 5)
        for at in range(0, size, 7):
            kept.add(source[at : at + 7])
        text = kept.read()
        if size <= 15:
            assert text == source.decode()
        else:
            assert text == f"{source[:10].decode()}\n... [truncated {size - 15} bytes] ...\n{source[-5:].decode()}"


def test_a_workspace_may_itself_be_behind_a_link(folder: Path) -> None:
    link = folder.parent / "here"
    link.symlink_to(folder, target_is_directory=True)
    assert Workspace(link).find("src/a.py") == folder.resolve() / "src" / "a.py"


async def test_a_command_sees_no_key_of_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "REFOLD_OPENAI_KEY", "AWS_SECRET_ACCESS_KEY", "MY_TOKEN", "LC_TOKEN")
    for name in keys:
        monkeypatch.setenv(name, "sk-secret-1")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    said = await run(folder, "env")
    assert "sk-secret-1" not in said
    assert "PATH=" in said
    assert "LC_ALL=C.UTF-8" in said


@pytest.mark.parametrize("child", ["sleep 30 &", "setsid sleep 5 &"])
async def test_a_child_in_the_background_does_not_hide_the_exit_status(
    folder: Path, child: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtin, "_DRAIN_S", 0.5)
    assert await run(folder, f"echo begun; {child} exit 4", timeout_s=20) == "begun\n[exit status 4]"
