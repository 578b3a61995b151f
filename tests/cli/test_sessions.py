"""The commands over stored sessions: what they print, what they change, how they end."""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from refold import CompressionConfig, ContextCompressionManager
from tests.rigs.cli import ProcessShell, Shell
from tests.rigs.manager import agent, chat
from tests.rigs.terminal import hear_interrupts

OFFLOAD = CompressionConfig.preset("offload").replace(window=12_000, reserve=500, compact_trigger_threshold=500)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filled")
    manager = ContextCompressionManager(CompressionConfig(window=4_000, reserve=500), folder)
    manager.prepare_context_sync("s1", agent(30), model="gpt-5")
    manager.prepare_context_sync("../会话 一", chat(3))
    manager.append("quiet", chat(2))
    manager.close()
    return folder


@pytest.fixture
def stored(shell: Shell, filled: Path) -> Shell:
    """A workspace with a folded session, one with a strange name, and one that nothing happened to."""
    shutil.copytree(filled, shell.folder, dirs_exist_ok=True)
    return shell


def test_in_an_empty_workspace_nothing_is_listed_and_nothing_is_made(shell: Shell) -> None:
    before = set(shell.folder.iterdir())
    assert "no sessions yet" in shell.refold("sessions").text
    assert json.loads(shell.refold("sessions", "--json").text) == []
    assert "no pages yet" in shell.refold("memory").text
    assert "no differences" in shell.refold("verify").text
    assert set(shell.folder.iterdir()) == before


def test_sessions_lists_what_is_there(stored: Shell) -> None:
    ran = stored.refold("sessions")
    assert ran.code == 0
    assert all(name in ran.text for name in ("s1", "../会话 一", "quiet", "gpt-5"))
    rows = json.loads(stored.refold("sessions", "--json").text)
    assert {row["id"]: row["messages"] for row in rows} == {"s1": 61, "../会话 一": 3, "quiet": 2}


def test_long_chinese_first_words_leave_room_for_the_id_in_a_pipe(shell: Shell) -> None:
    manager = ContextCompressionManager(workspace_path=shell.folder)
    manager.append("flat", [{"role": "user", "content": "你好，我刚在城西买了一套二手房，想在春节前装修好" * 4}])
    manager.close()
    assert shell.refold("sessions").text.splitlines()[2].startswith("flat ")


def test_in_a_pipe_an_id_is_never_cut(shell: Shell) -> None:
    name = "agent-" + "0123456789" * 15
    with ContextCompressionManager(workspace_path=shell.folder) as manager:
        manager.append(name, chat(2))
    assert name in shell.refold("sessions").text.splitlines()[-1].split()


def test_any_conversation_can_be_imported_and_is_called_after_its_file(shell: Shell) -> None:
    shell.write("会话.json", json.dumps(agent(3)))
    assert "imported '会话': 7 messages" in shell.refold("import", "会话.json").text
    assert json.loads(shell.refold("show", "-s", "会话", "--json").text) == agent(3)
    assert shell.refold("import", "会话.json").code == 0, "the same file again changes nothing"
    shell.write("会话.json", json.dumps(agent(3)[::-1]))
    again = shell.refold("import", "会话.json")
    assert (again.code, "give another name with --as" in again.err) == (4, True)
    rows = "\n".join(json.dumps(row) for row in agent(3)).encode()
    assert shell.refold("import", "-", "--as", "piped", stdin=rows).code == 0
    nameless = shell.refold("import", "-", stdin=rows)
    assert (nameless.code, "give one with --as" in nameless.err) == (3, True)
    assert json.loads(shell.refold("verify", "--json").text)["left"] == []


def test_for_a_misspelt_name_the_message_suggests_the_right_one(stored: Shell) -> None:
    assert "(did you mean 'quiet'?)" in stored.refold("show", "-s", "quite").err


def test_small_things_are_said_and_not_left_to_guess(stored: Shell) -> None:
    assert stored.refold("export", "-s", "s1", "--out", "s1.json").err == "wrote s1.json\n"
    nothing = stored.refold("recall", "  ")
    assert (nothing.code, "the query is empty" in nothing.err) == (2, True)
    handle = json.loads(stored.refold("show", "-s", "s1", "--originals", "--json").text)[0]["handle"]
    behind = stored.refold("expand", handle, "-s", "s1", "--offset", "9999")
    assert (behind.out, "has 42 characters" in behind.err) == (b"", True)
    assert "'refold config explain --all' lists them" in stored.refold("config", "explain", "zzz").err


def test_a_handle_of_another_session_is_found_there(stored: Shell) -> None:
    handle = json.loads(stored.refold("show", "-s", "s1", "--originals", "--json").text)[0]["handle"]
    assert json.loads(stored.refold("sessions", "--json").text)[0]["id"] == "quiet"
    found = stored.refold("expand", handle)
    assert (found.text, found.err) == (f"{agent(1)[0]['content']}\n", "session quiet\nfound in session s1\n")
    assert stored.refold("expand", handle, "--session", "quiet").code == 6
    assert stored.refold("expand", "m:ffffffff").code == 6


def test_show_prints_the_view_the_originals_and_the_edits(stored: Shell) -> None:
    view = stored.refold("show", "-s", "s1")
    assert view.code == 0
    assert "61 messages, " in view.text
    assert "⟨f:" in view.text
    assert "are folded" in stored.refold("show", "-s", "s1", "--originals").text
    edits = stored.refold("show", "-s", "s1", "--edits")
    assert "in force" in edits.text
    assert '{"role": "user"' not in stored.refold("show", "-s", "s1", "--originals").text
    assert "no edits" in stored.refold("show", "-s", "quiet", "--edits").text
    assert max(map(len, view.text.splitlines())) <= 80
    shown = json.loads(stored.refold("show", "-s", "s1", "--json").text)
    originals = json.loads(stored.refold("show", "-s", "s1", "--originals", "--json").text)
    assert [one["message"] for one in originals] == agent(30)
    assert len(shown) < len(originals)
    assert sum(one["compressed"] for one in originals) > len(originals) // 2
    assert json.loads(stored.refold("show", "-s", "s1", "--edits", "--json").text)[0]["is_active"] is True


def test_an_edit_that_a_later_fold_took_in_is_not_called_in_force(shell: Shell) -> None:
    with ContextCompressionManager(CompressionConfig(retention_count=4), shell.folder) as manager:
        for new in (agent(10), agent(20)[len(agent(10)) :]):
            manager.append("grown", new)
            manager.compress("grown")
    edits = json.loads(shell.refold("show", "-s", "grown", "--edits", "--json").text)
    told = shell.refold("show", "-s", "grown", "--edits").text
    assert all(edit["is_active"] for edit in edits)
    assert told.count("in force") + told.count("covered") == len(edits)
    assert "covered" in told


def test_show_goes_by_the_window_that_the_program_gave_its_session(stored: Shell) -> None:
    assert "of 3,500 tokens" in stored.refold("show", "-s", "s1").text.replace("\n", " ")
    stored.write("refold.yaml", "window: 64000\nreserve: 4000\n")
    assert "of 60,000 tokens" in stored.refold("show", "-s", "s1").text.replace("\n", " "), "our settings come first"
    with ContextCompressionManager(CompressionConfig(), stored.folder) as manager:
        manager.prepare_context_sync("s1", [*agent(30), {"role": "user", "content": "go on"}], model="gpt-5")
        assert manager.status("s1").window == 400_000, "the newest request was given no window"


def test_show_takes_one_question_at_a_time(stored: Shell) -> None:
    ran = stored.refold("show", "-s", "s1", "--edits", "--originals")
    assert ran.code == 3
    assert "pass only one of" in ran.err


def test_undo_and_redo_say_what_became_of_the_view(stored: Shell) -> None:
    assert "undone" in stored.refold("undo", "-s", "s1").text
    assert json.loads(stored.refold("show", "-s", "s1", "--json").text) == agent(30)
    redone = json.loads(stored.refold("redo", "-s", "s1", "--json").text)
    assert redone["tokens_after"] < redone["tokens_before"]
    edit = json.loads(stored.refold("show", "-s", "s1", "--edits", "--json").text)[0]["id"]
    assert stored.refold("undo", "-s", "s1", edit[:10]).code == 0
    assert stored.refold("undo", "-s", "s1", "nonsense").code == 6
    assert stored.refold("redo", "-s", "quiet").code == 6


def test_log_and_stats_report_what_happened(stored: Shell) -> None:
    assert "compressed" in stored.refold("log", "-s", "s1").text
    assert json.loads(stored.refold("log", "-s", "s1", "--json").text)[0]["kind"] == "compressed"
    assert "no events yet" in stored.refold("log", "-s", "quiet").text
    told = stored.refold("stats").text
    assert "1 (0 by hand, 0 undone)" in told
    assert "fold." not in told, "reasons are in words"
    figures = json.loads(stored.refold("stats", "-s", "s1", "--json").text)
    assert figures["compressions"] == 1
    assert figures["tokens_freed"] > 0
    assert json.loads(stored.refold("stats", "-s", "quiet", "--json").text)["compressions"] == 0


def test_memory_prints_the_page(stored: Shell) -> None:
    page = stored.refold("memory").text
    assert page.startswith("---\nid: ")
    assert "## Session s1... context archived" in page
    (date,) = json.loads(stored.refold("memory", "--json").text)["dates"]
    assert stored.refold("memory", date).text == page
    assert stored.refold("memory", "2020-01-01").code == 4
    assert stored.refold("memory", "../../etc/passwd").code == 4


def test_verify_ends_with_one_and_a_list_if_anything_differs(shell: Shell) -> None:
    manager = ContextCompressionManager(OFFLOAD, shell.folder)
    manager.prepare_context_sync("s1", agent(45))
    manager.close()
    assert shell.refold("verify").code == 0
    victim = next((shell.folder / "offloaded" / "s1").glob("*.txt"))
    victim.unlink()
    ran = shell.refold("verify")
    assert ran.code == 1
    assert victim.name in ran.text
    assert json.loads(shell.refold("verify", "--json").text)["findings"][0]["is_derived"] is True
    assert shell.refold("verify", "--repair").code == 0
    assert shell.refold("verify").code == 0
    assert victim.exists()


def test_an_imported_conversation_keeps_the_model_that_it_names(shell: Shell) -> None:
    shell.write("request.json", json.dumps({"model": "gpt-5.2", "messages": chat(3)}))
    assert shell.refold("import", "request.json").code == 0
    told = json.loads(shell.refold("sessions", "--json").text)
    assert told[0]["model"] == "gpt-5.2"
    assert "counted by o200k_base" in shell.refold("show", "-s", "request").text


@pytest.mark.parametrize("model", ["\ud800", "m" * 5_000, "", 7, None])
def test_a_strange_model_does_not_keep_a_conversation_out(shell: Shell, model: object) -> None:
    shell.write("request.json", json.dumps({"model": model, "messages": chat(3)}))
    assert shell.refold("import", "request.json").code == 0
    assert shell.refold("sessions").code == 0
    assert shell.refold("verify").code == 0


def test_a_pinned_message_is_listed_stays_in_view_and_can_be_let_go(stored: Shell) -> None:
    assert "nothing is pinned" in stored.refold("pin", "--session", "quiet").text
    original = json.loads(stored.refold("show", "-s", "s1", "--originals", "--json").text)[3]
    handle = original["handle"]
    assert handle in stored.refold("pin", handle, "--session", "s1").text
    stored.refold("undo", "-s", "s1")
    assert stored.refold("compact", "--session", "s1").code == 0
    assert original["message"] in json.loads(stored.refold("show", "-s", "s1", "--json").text)
    assert json.loads(stored.refold("pin", "-s", "s1", "--json").text) == {"session": "s1", "pinned": [handle]}
    assert "nothing is pinned" in stored.refold("pin", handle, "--off", "-s", "s1").text


def test_what_cannot_be_pinned_is_said(stored: Shell) -> None:
    assert stored.refold("pin", "m:00000000", "-s", "s1").code == 6
    assert stored.refold("pin", "--off", "-s", "s1").code == 3
    assert stored.refold("pin", "m:00000000", "-s", "nobody").code == 8


def test_one_message_is_counted_as_one(stored: Shell) -> None:
    stored.write("one.json", '[{"role": "user", "content": "hello"}]')
    assert stored.refold("import", "one.json", "--as", "one").code == 0
    assert "\n1 message, 1 in view; " in stored.refold("show", "-s", "one").out.decode()


def test_an_export_can_be_read_by_its_owner_alone_like_the_ledger(stored: Shell) -> None:
    assert stored.refold("export", "-s", "s1", "--out", "s1.json").code == 0
    assert (stored.folder / "s1.json").stat().st_mode & 0o777 == 0o600


def test_export_and_import_move_a_session_byte_for_byte(stored: Shell) -> None:
    stored.refold("undo", "-s", "s1")
    stored.refold("redo", "-s", "s1")
    assert stored.refold("export", "-s", "s1", "--out", "s1.json").code == 0
    piped = stored.refold("export", "-s", "s1")
    assert json.loads(piped.out) == json.loads((stored.folder / "s1.json").read_bytes())
    (stored.folder / "other").mkdir()
    ran = stored.refold("import", "s1.json", "--workspace", "other")
    assert ran.code == 0, ran.err
    for what in ("--view", "--originals"):
        assert (
            stored.refold("show", "-s", "s1", what, "--json", "-w", "other").text
            == stored.refold("show", "-s", "s1", what, "--json").text
        )
    assert stored.refold("verify", "-w", "other").code == 0
    assert json.loads(stored.refold("export", "-s", "s1", "-w", "other").out)["edits"][0]["edit"]
    again = stored.refold("import", "s1.json", "-w", "other")
    assert again.code == 4
    assert "session 's1' already exists" in again.err
    assert stored.refold("import", "-", "--as", "copy", stdin=piped.out).code == 0
    assert stored.refold("undo", "-s", "copy").code == 0


@pytest.mark.parametrize("content", ["[]", "{}", '{"refold_session": 1}', '{"refold_session": 2}', "no json"])
def test_a_file_that_is_not_an_export_is_refused_and_nothing_is_made(shell: Shell, content: str) -> None:
    shell.write("x.json", content)
    assert shell.refold("import", "x.json").code == 4
    assert json.loads(shell.refold("sessions", "--json").text) == []


def test_an_export_that_was_changed_is_refused(stored: Shell) -> None:
    value = json.loads(stored.refold("export", "-s", "s1").out)
    value["messages"][3]["raw"]["content"] = "put in afterwards"
    stored.write("changed.json", json.dumps(value))
    ran = stored.refold("import", "changed.json", "--as", "copy")
    assert ran.code == 4
    assert "messages[3] is not what its id says" in ran.err
    value = json.loads(stored.refold("export", "-s", "s1").out)
    value["edits"][0]["edit"]["text"] = "put in afterwards"
    stored.write("changed.json", json.dumps(value))
    assert "it was changed after the export" in stored.refold("import", "changed.json", "--as", "copy").err
    assert "copy" not in stored.refold("sessions").text


def test_delete_and_forget_do_nothing_unasked(stored: Shell) -> None:
    for command in (("delete", "-s", "s1"), ("forget", "m:" + "0" * 8, "-s", "s1")):
        ran = stored.refold(*command)
        assert ran.code != 0
    assert "pass --yes" in stored.refold("delete", "-s", "s1").err
    assert json.loads(stored.refold("show", "-s", "s1", "--originals", "--json").text)
    assert stored.refold("delete", "-s", "s1", "--yes").code == 0
    assert stored.refold("show", "-s", "s1").code == 8


def test_forget_erases_what_is_behind_a_handle(stored: Shell) -> None:
    handle = json.loads(stored.refold("show", "-s", "quiet", "--originals", "--json").text)[0]["handle"]
    assert "pass --yes" in stored.refold("forget", handle, "-s", "quiet").err
    assert "forgot 1 message" in stored.refold("forget", handle, "-s", "quiet", "--yes").text
    assert json.loads(stored.refold("show", "-s", "quiet", "--originals", "--json").text)[0]["message"] is None
    assert stored.refold("verify").code == 0


@pytest.mark.parametrize("command", [(name, "-s", "nobody") for name in ("show", "undo", "redo", "log", "stats")])
def test_a_session_that_is_not_there_is_one_clear_line(stored: Shell, command: tuple[str, ...]) -> None:
    ran = stored.refold(*command)
    assert ran.code == 8
    assert ran.err == "refold: there is no session 'nobody'; 'refold sessions' lists them\n"


def test_a_workspace_that_is_not_there_is_one_clear_line(shell: Shell) -> None:
    ran = shell.refold("sessions", "--workspace", "nowhere")
    assert ran.code == 3
    assert "'nowhere' is not a folder" in ran.err


def test_what_a_session_says_cannot_move_the_cursor(shell: Shell) -> None:
    manager = ContextCompressionManager(CompressionConfig(), shell.folder)
    manager.append("\x1b[2Jname", [{"role": "user", "content": "\x1b[2J[bold]words\u202e"}])
    manager.close()
    for command in (("sessions",), ("show", "-s", "\x1b[2Jname"), ("show", "-s", "\x1b[2Jname", "--originals")):
        ran = shell.refold(*command)
        assert ran.code == 0
        assert "\x1b" not in ran.text
    assert "[bold]words" in shell.refold("show", "-s", "\x1b[2Jname").text


@pytest.mark.slow  # The commands are proved in this process above; tests/cli/test_ending.py starts real ones.
def test_in_real_processes_a_session_is_shown_undone_exported_and_deleted(process: ProcessShell) -> None:
    manager = ContextCompressionManager(CompressionConfig(window=4_000, reserve=500), process.folder)
    manager.prepare_context_sync("s1", agent(30))
    manager.close()
    assert "⟨f:" in process.refold("show", "-s", "s1").text
    assert json.loads(process.refold("undo", "-s", "s1", "--json").text)["undone"]
    exported = process.refold("export", "-s", "s1").out
    assert process.refold("delete", "-s", "s1", "--yes").code == 0
    assert process.refold("import", "-", stdin=exported).code == 0
    missing = process.refold("log", "-s", "nobody")
    assert missing.code == 8
    assert missing.err == "refold: there is no session 'nobody'; 'refold sessions' lists them\n"


def test_without_a_name_the_session_that_changed_last_is_meant_and_said(shell: Shell) -> None:
    told = shell.refold("undo")
    assert told.code == 8
    assert "'refold chat' and 'refold serve' create them" in told.err
    with ContextCompressionManager(CompressionConfig(window=12_000), shell.folder) as manager:
        manager.append("older", chat(4))
        manager.append("newer", chat(30))
        manager.compress("newer")
    for command in ("show", "log", "undo", "redo", "export"):
        ran = shell.refold(command)
        assert ran.code == 0, ran.err
        assert ran.err.startswith("session newer\n")


def test_an_original_is_printed_on_a_terminal_without_what_a_terminal_obeys(shell: Shell) -> None:
    hostile = "one\x1b[2J\x1b]0;title\x07\ttwo\x1b]8;;http://x\x1b\\three\r\x9b31m\nfour"
    with ContextCompressionManager(CompressionConfig(), shell.folder) as manager:
        manager.append("s1", [{"role": "user", "content": hostile}])
        handle = f"m:{manager.ledger.read_messages('s1')[0].digest[:8]}"
    assert shell.show("expand", handle, "-s", "s1") == (0, "one\ttwothree31m\nfour\n")
    assert shell.refold("expand", handle, "-s", "s1").text == f"{hostile}\n"


def test_compressions_are_followed_as_they_come(tmp_path: Path, empty_home: Path) -> None:
    work = tmp_path / "work"
    with ContextCompressionManager(CompressionConfig(window=8_000), work) as manager:
        manager.append("talk", [{"role": "user", "content": "hello"}])
        command = [sys.executable, "-u", "-m", "refold", "log", "--follow", "-w", str(work)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, cwd=tmp_path, preexec_fn=hear_interrupts, **pipes) as running:
            assert running.stderr is not None
            assert running.stdout is not None
            assert "following" in running.stderr.readline()
            history = [{"role": "user", "content": "hello"}]
            for turn in range(30):
                history += [{"role": "assistant", "content": f"answer {turn} " + "word " * 300}]
                history += [{"role": "user", "content": f"question {turn}"}]
                manager.prepare_context_sync("talk", history)
            line = running.stdout.readline()
            running.send_signal(signal.SIGINT)
            assert running.wait(30) == 130
    assert re.match(r"\d\d:\d\d:\d\d talk \w+ [\d,]+ → [\d,]+ tokens; ", line), line
