"""``refold chat`` through a pseudo-terminal: what a person sees, types, pastes and interrupts."""

import os
import re
import signal
import threading
from pathlib import Path

import pytest

pytest.importorskip("openai", reason="needs refold[llm]: the official clients")
pytest.importorskip("prompt_toolkit", reason="needs refold[chat]")
pytest.importorskip("pexpect", reason="needs pexpect: a pseudo-terminal")

from refold import ContextCompressionManager
from refold.cli.repl.screen import shorten_tokens
from refold.testing import RecordedRequest, ScriptedProvider, call_tool, drip, hang, say
from tests.agent.test_overflow import write_history
from tests.rigs.agent import check_stored, make_manager
from tests.rigs.terminal import chatting, wait_for


def test_an_answer_is_shown_as_markdown_and_the_gauge_follows(tmp_path: Path) -> None:
    with (
        ScriptedProvider(say("# Findings\n\nThe **port** is `7341`.\n")) as provider,
        chatting(tmp_path, provider) as chat,
    ):
        head = chat.begin()
        assert "gpt-4o @ http://127.0.0.1" in head
        assert "(asked for)" in head
        chat.send("which port?")
        chat.expect("The port is 7341.")
        chat.expect("compresses at")
        assert chat.end() == 0


@pytest.mark.slow
def test_commands_work_before_and_after_the_first_message(tmp_path: Path) -> None:
    with ScriptedProvider("All right.") as provider, chatting(tmp_path, provider) as chat:
        chat.begin()
        for line, answer in (
            ("/context", "no messages yet"),
            ("/undo", "there is no"),
            ("/cost", "has reported no usage yet"),
            ("/facts", "no facts yet"),
            ("/recal x", "did you mean /recall?"),
            ("/expand m:00000000", "Not found"),
            ("/memory", "no pages yet"),
            ("/help", "Ctrl-D leaves"),
        ):
            chat.send(line)
            chat.expect(answer)
            chat.ready()
        chat.send("hello")
        chat.expect("All right.")
        for line, answer in (
            ("/context", "next: compresses at"),
            ("/cost", "1 request ·"),
            ("/recall hello", "; /expand HANDLE gives the whole original"),
            ("/model", "gpt-4o @"),
            ("/sessions", "chat-"),
            ("/config keepRecent=5", "Set keep_recent = 5"),
            ("/export out.json", "wrote out.json"),
            ("/quit", "continue with: refold chat --session"),
        ):
            chat.send(line)
            chat.expect(answer)
    assert (tmp_path / "out.json").stat().st_size > 100


@pytest.mark.slow
def test_compact_says_before_and_after_and_undo_takes_it_back(tmp_path: Path) -> None:
    with make_manager(tmp_path) as manager:
        manager.append("long", write_history("openai-chat", 60), format="openai-chat")
        words = manager.status("long").tokens
    with ScriptedProvider("ok") as provider, chatting(tmp_path, provider, "--session", "long") as chat:
        assert "120 messages" in chat.begin()
        seen = chat.raw
        chat.send("/compact keep the ports")
        said = chat.expect("undo with /undo ")
        assert "freed" in said
        found = re.search(r"([\d,]+) → [\d,]+ tokens", said)
        assert found
        before = int(found[1].replace(",", ""))
        # With system prompt and tools, also before the first request: in the gauge of the resumed session as well.
        assert before > words + 300
        assert f" {shorten_tokens(before)}/" in seen
        assert "unchanged:" in said
        chat.ready()
        chat.send("/undo")
        chat.expect(f"→ {before:,} tokens")
        chat.send("/redo")
        chat.expect("redone")
        assert chat.end() == 0


@pytest.mark.slow
def test_a_compression_is_announced_and_reported_and_the_gauge_shows_the_new_figure(tmp_path: Path) -> None:
    with make_manager(tmp_path) as manager:
        manager.append("long", write_history("openai-chat", 60), format="openai-chat")
    more = {"REFOLD_WINDOW": "12000", "REFOLD_ECONOMIC": "off"}
    with ScriptedProvider("fine") as provider, chatting(tmp_path, provider, "--session", "long", **more) as chat:
        chat.begin()
        chat.send("and now?")
        chat.expect("Optimising context…")
        chat.expect("context ")
        told = chat.expect("undo with /undo")
        after = re.search(r"→ ([\d,]+) tokens", told)
        assert after
        chat.expect("fine")
        gauge = chat.expect("compresses at")
        shown = re.findall(r"([\d.]+)k/", gauge)
        # The figure after it, with this answer: never the one from before the compression.
        assert abs(float(shown[-1]) * 1_000 - int(after[1].replace(",", ""))) < 500
        assert chat.end() == 0


@pytest.mark.slow
def test_a_continued_session_shows_the_last_messages(tmp_path: Path) -> None:
    with make_manager(tmp_path) as manager:
        talk = [("user", "Where is it?"), ("assistant", "In shed 7.\x1b[2J"), ("user", "And the key?")]
        manager.append("s", [{"role": role, "content": text} for role, text in talk])
    with ScriptedProvider("ok") as provider, chatting(tmp_path, provider, "--resume") as chat:
        chat.expect("Ctrl-D leaves")
        chat.expect("answered: In shed 7.")
        chat.expect("you said: And the key?")
        assert chat.end() == 0
    assert "Where is it?" not in chat.raw


@pytest.mark.slow
def test_ctrl_c_at_the_prompt_says_how_to_leave_and_leaves_the_second_time(tmp_path: Path) -> None:
    with ScriptedProvider("All right.") as provider, chatting(tmp_path, provider) as chat:
        chat.begin()
        chat.press("c")
        chat.expect("press Ctrl-C again or Ctrl-D, or type /quit, to leave")
        chat.ready()
        chat.send("hello")
        chat.expect("All right.")
        chat.ready()
        chat.press("c")  # Something was said since: this is a first time again.
        chat.expect("press Ctrl-C again or Ctrl-D, or type /quit, to leave")
        chat.ready()
        chat.press("c")
        chat.expect("continue with: refold chat --session")


@pytest.mark.slow
def test_ctrl_c_during_an_answer_stops_the_answer_and_not_the_chat(tmp_path: Path) -> None:
    never = threading.Event()  # However late the key is pressed, the answer is not over.
    script = [drip("one two three " * 60, pause_s=0.05, until=never), say("resumed")]
    with ScriptedProvider(script) as provider, chatting(tmp_path, provider, "--session", "s") as chat:
        chat.begin()
        chat.send("count")
        chat.expect("one two")
        chat.press("c")
        chat.expect("stopped; the session is intact")
        chat.ready()
        chat.send("go on")
        chat.expect("resumed")
        assert chat.end() == 0
    with ContextCompressionManager(workspace_path=tmp_path) as manager:
        check_stored(manager, "openai-chat")


@pytest.mark.slow
def test_ctrl_c_during_a_compression_leaves_everything_as_it_was(tmp_path: Path) -> None:
    with make_manager(tmp_path) as manager:
        manager.append("s", write_history("openai-chat", 60), format="openai-chat")

    def answer(request: RecordedRequest) -> object:
        return say("fine") if request.json.get("tools") else hang(30)

    more = {"REFOLD_WINDOW": "12000", "REFOLD_ECONOMIC": "off"}
    options = ("--session", "s", "--summaries", "llm")
    with ScriptedProvider(answer) as provider, chatting(tmp_path, provider, *options, **more) as chat:  # type: ignore[arg-type]
        chat.begin()
        chat.send("/compact")
        chat.expect("Optimising context…")
        wait_for(lambda: provider.requests)
        chat.press("c")
        chat.expect("stopped; nothing was changed")
        chat.ready()
        chat.send("and now?")
        wait_for(lambda: len(provider.requests) > 1)
        chat.press("c")
        chat.expect("stopped; the session is intact")
        chat.ready()
        assert chat.end() == 0
    with ContextCompressionManager(workspace_path=tmp_path) as manager:
        assert manager.ledger.read_batches("s") == []
        assert manager.verify("s") == []
        check_stored(manager, "openai-chat")


@pytest.mark.slow
def test_a_resize_in_the_middle_of_an_answer_does_no_harm(tmp_path: Path) -> None:
    script = drip("A line of words that is wrapped to the width of the terminal. " * 30, pause_s=0.03)
    with ScriptedProvider(script) as provider, chatting(tmp_path, provider) as chat:
        chat.begin()
        chat.send("talk")
        chat.expect("A line")
        for rows, columns in ((10, 40), (50, 200), (5, 12), (30, 80)):
            chat.child.setwinsize(rows, columns)
            chat.expect("words")
        chat.ready()
        assert chat.end() == 0


@pytest.mark.slow
def test_after_kill_9_the_session_continues_where_it_stopped(tmp_path: Path) -> None:
    script = [call_tool("run_command", {"command": "touch started; sleep 30"}), say("I know what happened.")]
    with ScriptedProvider(script) as provider:
        with chatting(tmp_path, provider, "--session", "s", "--tools", "shell", "--yes") as chat:
            chat.begin()
            chat.send("run it")
            wait_for(lambda: (tmp_path / "started").exists())
            os.kill(chat.child.pid, signal.SIGKILL)
        with chatting(tmp_path, provider, "--resume") as chat:
            assert "session s" in chat.begin()
            chat.send("what happened?")
            chat.expect("1 calls had no result when the last run ended")
            chat.expect("I know what happened.")
            assert chat.end() == 0
    with ContextCompressionManager(workspace_path=tmp_path) as manager:
        assert manager.verify("s") == []
        check_stored(manager, "openai-chat")


@pytest.mark.slow
def test_a_paste_of_a_megabyte_is_one_message_and_is_quick(tmp_path: Path) -> None:
    pasted = "\n".join(f"line {number} of the log, all of it" for number in range(32_000))
    assert len(pasted) > 1_000_000
    with ScriptedProvider("got it") as provider, chatting(tmp_path, provider, REFOLD_WINDOW="2000000") as chat:
        chat.begin()
        chat.child.send("look: \x1b[200~")
        for at in range(0, len(pasted), 8_192):
            chat.child.send(pasted[at : at + 8_192])
        chat.child.send("\x1b[201~")
        chat.expect(f"[pasted #1: {len(pasted):,} characters]", timeout=120)
        chat.send("")
        chat.expect("got it", timeout=120)
        assert provider.requests[-1].prompt == f"look: {pasted}"
        assert chat.end() == 0


@pytest.mark.slow
def test_it_speaks_chinese_in_forty_columns_without_colour(tmp_path: Path) -> None:
    answer = "端口是 **7341**，已经写入配置文件。\n\n- 第一点\n- 第二点\n"
    with ScriptedProvider(answer) as provider, chatting(tmp_path, provider, columns=40, NO_COLOR="1") as chat:
        chat.begin()
        chat.send("端口是多少？")
        chat.expect("端口是 7341，")
        chat.expect("第二点")
        chat.ready()
        chat.send("/recall 端口")
        chat.expect("段；/expand HANDLE")
        assert chat.end() == 0


@pytest.mark.slow
def test_what_a_model_says_cannot_move_the_cursor(tmp_path: Path) -> None:
    with ScriptedProvider("before \x1b[2J\x1b]0;owned\x07 after") as provider, chatting(tmp_path, provider) as chat:
        chat.begin()
        chat.send("hi")
        chat.expect("before")
        chat.expect("after")
        assert "\x1b[2J" not in chat.raw
        assert "\x1b]0;owned" not in chat.raw
        assert chat.end() == 0


@pytest.mark.slow
def test_a_tool_asks_and_no_means_no(tmp_path: Path) -> None:
    script = [call_tool("write_file", {"path": "x.txt", "content": "hello"}), say("As you like.")]
    with ScriptedProvider(script) as provider, chatting(tmp_path, provider, "--tools", "files") as chat:
        chat.begin()
        chat.send("write")
        chat.expect('→ write_file({"path": "x.txt", "content": "hello"})')
        chat.expect("run it? ")
        chat.send("n")
        chat.expect("As you like.")
        assert chat.end() == 0
    assert not (tmp_path / "x.txt").exists()


@pytest.mark.slow
def test_what_is_typed_while_it_still_loads_is_not_lost(tmp_path: Path) -> None:
    with ScriptedProvider("Here I am.") as provider, chatting(tmp_path, provider) as chat:
        chat.send("are you there?")
        chat.expect("Here I am.")
        assert provider.requests[0].prompt == "are you there?"
        assert chat.end() == 0


@pytest.mark.slow
def test_a_wrong_option_ends_it_with_a_sentence_and_the_terminal_as_it_was(tmp_path: Path) -> None:
    with ScriptedProvider("x") as provider, chatting(tmp_path, provider, "--tools", "web") as chat:
        chat.expect("unknown group of tools 'web'; choose from files, shell")
        chat.child.wait()
        assert chat.child.exitstatus == 3
