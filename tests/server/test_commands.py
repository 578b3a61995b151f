"""``refold serve`` and ``refold key`` as an operator runs them: processes, signals, exit codes, settings."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from refold.cli.serve import make_application
from refold.errors import ConfigError, find_sentence
from refold.sentences import tr
from refold.server.settings import GatewaySettings, load_settings
from refold.testing import ScriptedProvider, drip
from tests.rigs.cli import Shell
from tests.rigs.server import make_body, make_dialog


@pytest.fixture
def shell(tmp_path):
    (tmp_path / ".git").mkdir()
    return Shell(tmp_path)


@contextmanager
def run_gateway(folder, *args, **environment):
    """Run the command in a process; give its address and the process."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("REFOLD_", "XDG_"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "refold", "serve", "--port", "0", *args],
        cwd=folder,
        env={**plain, "HOME": str(folder), **environment},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stderr.readline()
        address = re.search(r"http://[\d.]+:\d+", line)
        assert address, line + process.stderr.read()
        yield address[0], process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ask(url, stream=False):
    body = make_body("openai-chat", make_dialog(1), stream=stream)
    return httpx2.post(f"{url}/v1/chat/completions", json=body, trust_env=False, timeout=60)


def wait_ready(url):
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            if httpx2.get(f"{url}/readyz", trust_env=False).status_code == 200:
                return
        except httpx2.TransportError:
            time.sleep(0.05)
    raise AssertionError("the gateway did not become ready")


def test_a_gateway_serves_and_stops_without_an_error_when_told_to(tmp_path):
    with (
        ScriptedProvider(drip("word " * 30, pause_s=0.02)) as provider,
        run_gateway(tmp_path, REFOLD_OPENAI_UPSTREAM=provider.openai_url) as (url, process),
    ):
        wait_ready(url)
        with httpx2.stream(
            "POST",
            f"{url}/v1/chat/completions",
            json=make_body("openai-chat", make_dialog(1), stream=True),
            trust_env=False,
            timeout=60,
        ) as answer:
            process.send_signal(signal.SIGTERM)
            whole = b"".join(answer.iter_bytes())
        assert whole.endswith(b"data: [DONE]\n\n"), "the stream under way is finished first"
        assert process.wait(60) == 0
        log = process.stderr.read()
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert [line["path"] for line in lines if line["event"] == "request"] == ["/v1/chat/completions"]
    assert "refold stopped" in log


def write_user_file(home: Path, text: str) -> None:
    path = home / ".config" / "refold" / "config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_upstreams_come_from_the_file_the_environment_and_the_command_line(tmp_path, monkeypatch, empty_home):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    write_user_file(empty_home, "window: 9000\ngateway:\n  openai_upstream: http://file:1/v1\n  port: 7000\n")
    assert load_settings().openai_upstream == "http://file:1/v1"
    assert load_settings().port == 7000
    monkeypatch.setenv("REFOLD_OPENAI_UPSTREAM", "http://env:2/v1")
    assert load_settings().openai_upstream == "http://env:2/v1"
    assert load_settings(openai_upstream="http://call:3/v1", port=None).openai_upstream == "http://call:3/v1"
    monkeypatch.setenv("REFOLD_ANTHROPIC_KEY", "sk-held")
    assert load_settings().anthropic_key == "sk-held"


@pytest.mark.parametrize(
    ("block", "told"),
    [
        ("openai_upstrem: http://x/v1", "did you mean 'openai_upstream'"),
        ("openai_key: sk-secret", "REFOLD_OPENAI_KEY"),
        ("port: many", "gateway.port is 'many'; give a whole number"),
        ("body_bytes_max: 0", "refold.yaml:2: gateway.body_bytes_max is 0; give more than 0"),
        ("requests_max: .inf", "refold.yaml:2: gateway.requests_max is inf; give a finite number"),
        ("port: 77.5", "give a whole number"),
        ("port: 99999", "refold.yaml:2: gateway.port is 99999; give 65,535 or less"),
        ("cache_marks: sometimes", "give 'client' or 'auto'"),
        ("openai_upstream: ftp://x", "not an address"),
        ("openai_upstream: https://user:pw@x/v1", "bare address"),
        ("compress: perhaps", "give on or off"),
        ("port: yes", "give a number"),
        ("shutdown_s: yes", "refold.yaml:2: gateway.shutdown_s is True; give a number"),
        ("tenant_paths: /admin", "a path begins with /v1/"),
    ],
)
def test_a_wrong_setting_is_reported_with_its_place_and_never_with_a_secret(tmp_path, empty_home, block, told):
    (tmp_path / ".git").mkdir()
    (tmp_path / "refold.yaml").write_text(f"gateway:\n  {block}\n")
    with pytest.raises(ConfigError) as error:
        load_settings(tmp_path)
    assert told in str(error.value)
    assert "sk-secret" not in str(error.value)
    assert "pw@" not in str(error.value)


def test_advice_about_a_setting_is_translated_and_a_plain_off_is_taken(tmp_path, empty_home):
    (tmp_path / ".git").mkdir()
    (tmp_path / "refold.yaml").write_text("gateway:\n  port: yes\n")
    with pytest.raises(ConfigError) as error:
        load_settings(tmp_path)
    assert tr(find_sentence(error.value), "zh").endswith("gateway.port 是 True；请给出数字")
    (tmp_path / "refold.yaml").write_text("gateway:\n  summaries: off\n")
    assert load_settings(tmp_path).summaries == "off"


@pytest.mark.parametrize(
    ("given", "path", "url"),
    [
        ("http://h:1/v1", "/v1/chat/completions", "http://h:1/v1/chat/completions"),
        ("http://h:1", "/v1/models", "http://h:1/v1/models"),
        ("https://h/api/v1/", "/v1/responses", "https://h/api/v1/responses"),
        ("https://h/openai/v4", "/v1/responses", "https://h/openai/v4/responses"),
    ],
)
def test_an_openai_address_is_taken_as_its_clients_take_it(given, path, url):
    from refold.server.upstream import Upstreams

    assert str(Upstreams(GatewaySettings(openai_upstream=given)).make_url("openai", path)) == url


@pytest.mark.parametrize("given", ["http://h:1", "http://h:1/", "http://h:1/v1"])
def test_an_anthropic_address_is_taken_with_and_without_its_version(given):
    from refold.server.upstream import Upstreams

    made = Upstreams(GatewaySettings(anthropic_upstream=given)).make_url("anthropic", "/v1/messages", b"beta=true")
    assert str(made) == "http://h:1/v1/messages?beta=true"


def test_keys_are_made_listed_and_revoked(shell):
    made = shell.refold("key", "add", "alice")
    key = made.text.strip()
    assert made.code == 0
    assert key.startswith("rk-")
    listed = json.loads(shell.refold("key", "list", "--json").text)
    assert [(one["tenant"], set(one)) for one in listed] == [("alice", {"id", "tenant", "created_at"})]
    assert key not in shell.refold("key", "list").text
    assert shell.refold("key", "revoke", listed[0]["id"]).code == 0
    assert json.loads(shell.refold("key", "list", "--json").text) == []
    assert shell.refold("key", "revoke", "alice").code == 3
    assert shell.refold("key", "add", "No Such Name").code == 3


def test_serving_other_machines_without_a_key_is_refused(shell):
    ran = shell.refold("serve", "--host", "0.0.0.0", "--port", "0")  # noqa: S104
    assert ran.code == 3
    assert "refold key add" in ran.err


def test_a_port_in_use_is_reported_in_one_line(shell):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ran = shell.refold("serve", "--port", str(taken.getsockname()[1]))
    assert ran.code == 3
    assert "--port" in ran.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "key", "is_said"),
    [
        ("summariser: llm\n", "", True),
        ("summariser: llm\ngateway:\n  summaries: 'off'\n", "sk-held", True),
        ("summariser: llm\n", "sk-held", False),
        ("summariser: llm\ngateway:\n  summaries: client\n", "", False),
        ("summariser: llm\ncompact_model: small\ncompact_url: http://127.0.0.1:9/v1\n", "", False),
        ("preset: hybrid\n", "", True),
        ("preset: hybrid\n", "sk-held", False),
        ("preset: hybrid\ngateway:\n  summaries: 'off'\n", "", False),
        ("preset: hybrid\nsummariser: extract\n", "", False),
        ("preset: default\n", "", False),
    ],
)
def test_a_gateway_that_may_ask_no_model_says_so_when_it_starts(
    tmp_path, monkeypatch, empty_home, capsys, settings, key, is_said
):
    write_user_file(empty_home, settings)
    monkeypatch.setenv("REFOLD_OPENAI_KEY", key)
    make_application(str(tmp_path)).manager.close()
    said = capsys.readouterr().err
    assert ("the gateway may ask no model" in said) is is_said
    assert len(said.splitlines()) == is_said


@pytest.mark.slow
def test_two_gateways_on_one_ledger_and_one_after_a_restart_find_a_session_by_its_messages(tmp_path):
    dialog = make_dialog(2, words=5)

    def say(url, count):
        messages = dialog[: 2 * count - 1]
        answer = httpx2.post(
            f"{url}/v1/chat/completions", json=make_body("openai-chat", messages), trust_env=False, timeout=60
        )
        assert answer.status_code == 200
        return answer.headers["x-refold-session"], answer.headers["x-refold-reason"]

    with ScriptedProvider("Answer.") as provider:
        args = ("--quiet", "--openai-upstream", provider.openai_url)
        with run_gateway(tmp_path, *args) as (first, _), run_gateway(tmp_path, *args) as (second, _):
            wait_ready(first)
            wait_ready(second)
            session, _ = say(first, 1)
            assert say(second, 2) == (session, "unchanged")
            assert say(first, 3) == (session, "unchanged")
            other = httpx2.post(
                f"{second}/v1/chat/completions",
                json=make_body(
                    "openai-chat", [dialog[0], {"role": "assistant", "content": "Another talk."}, dialog[2]]
                ),
                trust_env=False,
                timeout=60,
            )
            assert other.headers["x-refold-session"] != session
        with run_gateway(tmp_path, *args) as (third, _):
            wait_ready(third)
            assert say(third, 3) == (session, "unchanged")
            stored = httpx2.get(f"{third}/api/sessions/{session}/originals", trust_env=False, timeout=60).json()
    assert len(stored["messages"]) == len(dialog)
