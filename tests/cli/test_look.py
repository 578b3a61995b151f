"""``refold look``: histories of every client are found, read once, and shown as figures without a word of them."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.readers.test_client_histories import AIDER, OPENCODE, PI, QWEN, make_database
from tests.rigs.cli import ProcessShell, Shell
from tests.rigs.histories import ClaudeFile, codex_rows, write_rows

ALWAYS = ("--days", "36500")
SECRET = "hunter2-zebra"


def make_claude_rows(reads: int = 30, *, compacted_at: int = 20) -> list[Any]:
    """An agent that reads one long file again and again; half-way its client compacts, and forgets the ticket."""
    file = ClaudeFile()
    file.add("user", f"Repair src/app.py for ticket TCK-448812, the password is {SECRET}", 0)
    for number in range(1, reads):
        if number == compacted_at:
            file.add("user", "Earlier the file was read.", number, isCompactSummary=True)
            file.add("user", "Go on", number)
        caller = file.call(number, number, f"toolu_{number}")
        rows = "\n".join(f"line_{number} = {SECRET!r}" for number in range(300))
        file.result(number, f"toolu_{number}", caller, rows)
        usage = {"input_tokens": 10, "cache_read_input_tokens": 3_000 * number, "output_tokens": 40}
        next(row for row in file.rows if row["uuid"] == caller)["message"]["usage"] = usage
    close = {"type": "tool_use", "id": "toolu_x", "name": "Bash", "input": {"command": "close TCK-448812"}}
    caller = file.add("assistant", [close], 40, answer=40)
    file.result(41, "toolu_x", caller, "closed")
    return file.rows


def fill_home(home: Path) -> None:
    """Put a history of each client where that client puts it."""
    folders = {
        ".claude/projects/-w/a.jsonl": make_claude_rows(),
        ".codex/sessions/2026/11/01/rollout-a.jsonl": codex_rows(),
        ".qwen/projects/w/chats/a.jsonl": QWEN,
        ".pi/agent/sessions/w/a.jsonl": PI,
    }
    for name, rows in folders.items():
        (home / name).parent.mkdir(parents=True)
        write_rows(home / name, rows)
    (home / ".local/share/opencode").mkdir(parents=True)
    make_database(home / ".local/share/opencode/opencode.db", OPENCODE)
    (home / "code/app").mkdir(parents=True)
    (home / "code/app/.aider.chat.history.md").write_text(AIDER, encoding="utf-8")


def look(shell: Shell, *more: str, **environment: str) -> dict[str, Any]:
    ran = shell.refold("look", *ALWAYS, "--json", *more, **environment)
    assert ran.code == 0, ran.err
    found: dict[str, Any] = json.loads(ran.text)
    return found


def test_the_histories_of_six_clients_are_found(shell: Shell) -> None:
    fill_home(shell.folder / "home")
    found = look(shell)
    clients = {row[0] for row in found["clients"]}
    assert clients == {"claude-code", "codex", "opencode", "qwen-code", "pi", "aider"}
    assert found["tokens"] > 50_000
    assert found["dollars"] > 0


def test_what_a_session_did_is_counted(shell: Shell) -> None:
    fill_home(shell.folder / "home")
    found = look(shell)
    (full,) = [one for one in found["overflowed"] if one["client"] == "claude-code"]
    assert full["is_reported"]
    assert full["compactions"] == 1
    assert (full["used"], full["lost"]) == (2, 2), "ticket and path were used after a summary that names neither"
    assert full["repeated"] == 28, "29 reads of one unchanged file"
    habits = [name for name, _ in found["habits"]]
    assert {"read again", "instructions"} <= set(habits)
    assert len(habits) <= 5
    bills = [one["dollars"] for one in found["windows"]]
    assert [one["window"] for one in found["windows"]] == [64_000, 128_000, 200_000]
    assert all(0 < bill < 2 * found["dollars"] for bill in bills)


def test_a_narrow_terminal_cuts_no_figure(shell: Shell) -> None:
    fill_home(shell.folder / "home")
    costs = [f"${cost:,.2f}" for _, cost in look(shell)["habits"]]
    _, screen = shell.show("look", *ALWAYS, columns=40)
    assert [line.split()[-1] for line in screen.splitlines() if "$" in line][-len(costs) :] == costs


def test_the_terminal_shows_it_in_both_languages(shell: Shell) -> None:
    fill_home(shell.folder / "home")
    _, screen = shell.show("look", *ALWAYS, columns=120)
    assert "with refold" in screen
    assert "files read a second time, unchanged" in screen
    _, screen = shell.show("look", *ALWAYS, columns=120, REFOLD_LANGUAGE="zh")
    assert "第二次读取" in screen


def test_only_what_is_new_is_read_the_next_time(shell: Shell) -> None:
    home = shell.folder / "home"
    fill_home(home)
    assert "6 files read now" in shell.refold("look", *ALWAYS).err
    again = shell.refold("look", *ALWAYS)
    assert "0 files read now" in again.err
    write_rows(home / ".claude/projects/-w/b.jsonl", make_claude_rows(5))
    later = shell.refold("look", *ALWAYS)
    assert "1 file read now" in later.err
    assert later.text != again.text


def test_nothing_that_was_said_and_no_path_is_kept_or_shared(shell: Shell) -> None:
    home = shell.folder / "home"
    fill_home(home)
    shown = shell.refold("look", *ALWAYS, "--out", "share.html").text
    page = (shell.folder / "share.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "//" not in page.replace("<!doctype", ""), "no address"
    (kept,) = (home / ".local/state/refold/look").iterdir()
    assert kept.stat().st_mode & 0o077 == 0
    for text in (shown, page, kept.read_text(encoding="utf-8"), json.dumps(look(shell))):
        for word in (SECRET, "TCK-448812", "src/app.py", "Repair", "rename add", str(home), "/w"):
            assert word not in text


def test_only_the_days_that_were_asked_for_count(shell: Shell) -> None:
    folder = shell.folder / "home/.claude/projects/-w"
    folder.mkdir(parents=True)
    write_rows(folder / "a.jsonl", make_claude_rows(4))
    ran = shell.refold("look", "--days", "1")
    assert ran.code == 0
    assert "no session of the last 1 days" in ran.err, "the sessions are of another week"
    assert shell.refold("look", "--days", "0").code == 2


def test_the_clients_own_variables_are_followed(shell: Shell) -> None:
    elsewhere = shell.folder / "elsewhere"
    (elsewhere / "projects" / "-w").mkdir(parents=True)
    write_rows(elsewhere / "projects" / "-w" / "a.jsonl", make_claude_rows(4))
    assert look(shell)["sessions"] == 0
    assert look(shell, CLAUDE_CONFIG_DIR=str(elsewhere))["sessions"] == 1


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"{}\n[]\n3\n", b'{"type": "user", "message": {"role": "us'])
def test_files_that_hold_no_session_do_no_harm(shell: Shell, content: bytes) -> None:
    home = shell.folder / "home"
    fill_home(home)
    for name in (".claude/projects/-w/bad.jsonl", ".codex/sessions/bad.jsonl", "code/.aider.chat.history.md"):
        (home / name).write_bytes(content)
    (home / ".local/share/opencode/opencode.db").write_bytes(content)
    assert [row[1] for row in look(shell)["clients"]] == [1] * 5, "all but opencode's, whose database is spoilt"


def test_a_link_in_a_history_folder_is_not_followed(shell: Shell) -> None:
    outside = write_rows(shell.folder / "outside.jsonl", make_claude_rows(4))
    folder = shell.folder / "home" / ".claude" / "projects" / "-w"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").symlink_to(outside)
    assert look(shell)["sessions"] == 0


def test_a_damaged_store_is_made_again(shell: Shell) -> None:
    home = shell.folder / "home"
    fill_home(home)
    before = look(shell)
    (kept,) = (home / ".local/state/refold/look").iterdir()
    kept.write_bytes(kept.read_bytes()[:900] + b'\n{"place": 3}\n[]\n\xff\n')
    assert look(shell) == before


@pytest.mark.slow
def test_two_looks_at_the_same_time_agree(process: ProcessShell) -> None:
    fill_home(process.folder / "home")
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: process.refold("look", *ALWAYS, "--json"), range(2))
    assert first.code == second.code == 0
    assert first.out == second.out
    assert process.refold("look", *ALWAYS, "--json").out == first.out
