"""``refold chat`` without a terminal: one answer for a pipe, a turn for every line, a sentence where nothing works."""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from refold.agent.models import NO_MODEL, Wanted, choose_chat_model, find_ollama
from refold.errors import ConfigError
from refold.testing import ScriptedProvider, call_tool, fail, say
from tests.rigs.cli import Ran, Shell

pytest.importorskip("openai", reason="needs refold[llm]: the official clients")

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / ".git").mkdir()
    return Shell(tmp_path)


def chat(shell: Shell, provider: ScriptedProvider, *options: str, stdin: str | None = None) -> Ran:
    given = None if stdin is None else stdin.encode()
    return shell.refold("chat", "-m", "gpt-4o", "--base-url", provider.openai_url, *options, stdin=given)


def test_once_answers_the_pipe_and_the_answer_alone_is_on_standard_output(shell: Shell) -> None:
    with ScriptedProvider("# Hi\n\n你好 **there**") as provider:
        ran = chat(shell, provider, "--once", stdin="hi\nthere\n")
        assert provider.requests[0].prompt == "hi\nthere\n"
    assert (ran.code, ran.text) == (0, "# Hi\n\n你好 **there**\n")
    assert "gpt-4o @" in ran.err
    assert "\x1b" not in ran.text + ran.err


def test_a_prompt_on_the_command_line_is_answered_too(shell: Shell) -> None:
    with ScriptedProvider("42") as provider:
        assert chat(shell, provider, "what is it?").text == "42\n"


def test_every_line_of_a_pipe_is_a_turn_and_commands_work(shell: Shell) -> None:
    with ScriptedProvider(["one", "two"]) as provider:
        ran = chat(shell, provider, stdin="first\n/context\nsecond\n/nonsense\n/quit\nthird\n")
        assert len(provider.requests) == 2
        assert len(provider.requests[1].messages) == 4  # system, first, one, second
    assert ran.code == 0
    assert ran.text.startswith("one\n")
    assert "two\n" in ran.text
    assert "system prompt" in ran.text
    assert "there is no command /nonsense" in ran.err


@pytest.mark.parametrize("command", ["/compress", "/compact", "/fold"])
def test_a_compression_has_the_three_names_that_people_try(shell: Shell, command: str) -> None:
    words = "the pump of hall nine was mended with a new valve and two bolts; " * 40
    with ScriptedProvider([words] * 6) as provider:
        ran = chat(shell, provider, stdin="".join(f"question {turn}\n" for turn in range(6)) + f"{command}\n/quit\n")
    assert ran.code == 0
    assert "there is no command" not in ran.err
    assert re.search(r"[\d,]+ → [\d,]+ tokens", ran.text + ran.err), ran.err[-400:]


def test_settings_without_a_value_say_so_in_the_language_of_the_chat(shell: Shell) -> None:
    with ScriptedProvider("ok") as provider:
        words = ("chat", "-m", "gpt-4o", "--base-url", provider.openai_url)
        english, chinese = (
            shell.refold(*words, stdin=b"/config\n", COLUMNS="120", LC_ALL=language).text
            for language in ("C.UTF-8", "zh_CN.UTF-8")
        )
    assert len(re.findall(r" unset ", english)) == len(re.findall(r" 未设置 ", chinese)) > 0
    assert "unset" not in chinese
    # These are typed as they are shown: /config auto=off.
    assert re.search(r"\bon\b", chinese)


def test_an_error_of_the_provider_is_one_line_and_its_exit_code(shell: Shell) -> None:
    with ScriptedProvider(fail(401, "wrong key")) as provider:
        ran = chat(shell, provider, "--once", stdin="hi")
    assert ran.code == 7
    assert "wrong key" in ran.err
    assert "Traceback" not in ran.err
    assert ran.text == ""


def test_an_empty_pipe_says_how_to_use_it(shell: Shell) -> None:
    with ScriptedProvider("x") as provider:
        ran = chat(shell, provider, "--once", stdin=" \n")
    assert ran.code == 4
    assert "the input is empty" in ran.err


def test_tools_that_ask_are_refused_where_nobody_can_answer_unless_told(shell: Shell) -> None:
    script = [call_tool("write_file", {"path": "x.txt", "content": "x"}), say("done")] * 2
    with ScriptedProvider(script) as provider:
        refused = chat(shell, provider, "--once", "--tools", "files", stdin="write")
        assert not (shell.folder / "x.txt").exists()
        allowed = chat(shell, provider, "--once", "--tools", "files", "--yes", stdin="write")
    assert "did not agree" in refused.err
    assert allowed.code == 0
    assert (shell.folder / "x.txt").read_text() == "x"


def test_sessions_continue_by_name_and_by_resume(shell: Shell) -> None:
    with ScriptedProvider("ok") as provider:
        chat(shell, provider, "--once", "--session", "work", stdin="first")
        chat(shell, provider, "--once", "--resume", stdin="second")
        assert [one["content"] for one in provider.requests[-1].messages[1:]] == ["first", "ok", "second"]
        below = Shell(shell.folder / "below")
        below.folder.mkdir()
        chat(below, provider, "--once", "--resume", stdin="third")
        assert [one["content"] for one in provider.requests[-1].messages[-2:]] == ["ok", "third"]
    with ScriptedProvider("ok") as provider:
        empty = Shell(shell.folder / "other")
        (empty.folder / ".git").mkdir(parents=True)  # The search for a workspace ends here.
        assert "no session to resume" in chat(empty, provider, "--resume", "hi").err


def test_without_any_model_one_sentence_says_how_to_get_one(shell: Shell) -> None:
    with pytest.raises(ConfigError, match="no model to talk to: set OPENAI_API_KEY"):
        choose_chat_model(Wanted(), {}, ollama_url=NOWHERE, find_local=lambda: None)
    assert NO_MODEL.count("\n") == 0


@pytest.mark.parametrize(
    ("values", "wanted", "wire", "why"),
    [
        ({"OPENAI_API_KEY": "k"}, Wanted(), "openai-chat", "OPENAI_API_KEY is set"),
        ({"ANTHROPIC_API_KEY": "k"}, Wanted(), "anthropic", "ANTHROPIC_API_KEY is set"),
        ({"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}, Wanted(), "openai-chat", "OPENAI_API_KEY is set"),
        (
            {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"},
            Wanted(),
            "openai-chat",
            "OPENAI_API_KEY and OPENAI_BASE_URL are set",
        ),
        ({"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}, Wanted("claude-sonnet-5"), "anthropic", "asked for"),
        ({}, Wanted("x", "http://127.0.0.1:1/v1"), "openai-chat", "asked for"),
    ],
)
def test_the_first_available_provider_is_used_and_named(
    values: dict[str, str], wanted: Wanted, wire: str, why: str
) -> None:
    chosen = choose_chat_model(wanted, values, ollama_url=NOWHERE)
    assert (chosen.model.wire, chosen.why) == (wire, why)
    assert "'k'" not in repr(chosen)  # A key stands in no representation.


def test_an_ollama_on_this_machine_is_found(shell: Shell) -> None:
    class Tags(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"models": [{"name": "qwen3:4b"}, {"name": "llama4"}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Tags) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        chosen = choose_chat_model(Wanted(), {}, ollama_url=url)
        assert (chosen.model.name, chosen.why) == ("qwen3:4b", "no key is set; Ollama answers on this machine")
        assert choose_chat_model(Wanted("llama4"), {}, ollama_url=url).model.name == "llama4"
        with pytest.raises(ConfigError, match="nothing says where 'gpt-9' is"):
            choose_chat_model(Wanted("gpt-9"), {}, ollama_url=url)
        server.shutdown()
    assert find_ollama(NOWHERE) == []
