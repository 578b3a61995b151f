"""``refold wrap`` beside a running gateway of the workspace: when it is used, what is counted, and what if it ends.

The gateway runs in this process and so does the command; the wrapped program is a process of its own.
"""

import json
import logging
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from refold.config.load import open_user_folder
from refold.config.trust import BEACON_FILE
from refold.server.auth import KeyRing
from refold.server.beacon import find_running, lit, make_beacon, read_beacon
from refold.testing import ScriptedProvider
from tests.cli.test_wrap import CLIENT
from tests.rigs.cli import Ran, Shell
from tests.rigs.server import Rig, make_body, make_dialog, start_rig, wait_for

END = """
import signal, time
os.kill({pid}, signal.SIGTERM)
for _ in range(600):
    try:
        urllib.request.urlopen(os.environ["ANTHROPIC_BASE_URL"]).read()
    except OSError:
        sys.exit(5)
    time.sleep(0.1)
"""
BAD_ADDRESS = '{"url": "file:///etc/passwd", "pid": 1, "started": 1, "secret": "x"}'
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="starts programs by their POSIX names")


@pytest.fixture
def shell(tmp_path: Path, empty_home: Path) -> Iterator[Shell]:
    (tmp_path / ".git").mkdir()
    (tmp_path / "client.py").write_text(CLIENT)
    names = ("refold", "refold.server", "uvicorn", "uvicorn.error", "aiohttp", "asyncio")
    loggers = [logging.getLogger(name) for name in names]
    before = [(one, list(one.handlers), one.propagate, one.level) for one in loggers]
    logging.getLogger("refold.server").handlers.clear()  # An earlier test may have served in this process.
    yield Shell(tmp_path)
    for one, handlers, propagate, level in before:  # The command takes over the process's log.
        for added in set(one.handlers) - set(handlers):
            added.close()
        one.handlers[:], one.propagate = handlers, propagate
        one.setLevel(level)


def find_beacon(workspace: Path) -> Path:
    return open_user_folder(workspace).folder / BEACON_FILE


@pytest.fixture
def rig(tmp_path: Path, shell: Shell) -> Iterator[Rig]:
    with start_rig(tmp_path / "work") as rig, rig.application.announce(rig.url):
        yield rig


def wrap(shell: Shell, *args: str, turns: int = 1, work: str = "work", **environ: str) -> Ran:
    """Wrap a program that asks the OpenAI side so many times and ends with code 5."""
    command = ("--", sys.executable, str(shell.folder / "client.py"), "openai", str(turns))
    return shell.refold("wrap", "-w", str(shell.folder / work), *args, *command, **environ)


def test_a_running_gateway_of_the_workspace_is_used_and_only_this_run_is_counted(rig: Rig, shell: Shell) -> None:
    for _ in range(3):
        rig.post("openai-chat", make_body("openai-chat", make_dialog(1)))
    done = wrap(shell, turns=2)
    assert done.code == 5, done.err
    first, _, last = done.err.strip().splitlines()
    assert first.startswith(f"refold: gateway {rig.url}, already running (pid ")
    assert last.startswith("refold: 2 requests, ")
    assert len(rig.provider.requests) == 5
    # The part of the path that names the run is not sent on.
    assert {one.path for one in rig.provider.requests} == {"/v1/chat/completions"}


def test_a_run_counts_what_it_asks_the_model_not_what_it_counts_or_looks_up(rig: Rig) -> None:
    base, headers = "/wrap/0123456789abcdef", {"anthropic-version": "2023-06-01"}
    body = make_body("anthropic", make_dialog(1))
    for path in ("count_tokens", "", "count_tokens"):
        assert rig.http.post(f"{base}/v1/messages/{path}".rstrip("/"), json=body, headers=headers).status_code == 200
    assert rig.http.get(f"{base}/v1/models").status_code == 200
    assert rig.http.get(base).json()["requests"] == 1


@pytest.mark.slow  # The test above shows that a run counts its own.
def test_two_wraps_at_once_count_their_own_requests(rig: Rig, shell: Shell) -> None:
    command = [sys.executable, "-m", "refold", "wrap", "-w", str(shell.folder / "work"), "--", sys.executable]
    runs = [
        subprocess.Popen(
            [*command, str(shell.folder / "client.py"), wire, str(turns)],
            cwd=shell.folder,
            stderr=subprocess.PIPE,
            text=True,
            env=shell.make_environment({}),
        )
        for wire, turns in (("openai", 2), ("anthropic", 3))
    ]
    lines = [run.communicate(timeout=120)[1].strip().splitlines()[-1] for run in runs]
    assert [line.split(",")[0] for line in lines] == ["refold: 2 requests", "refold: 3 requests"]
    assert len(rig.provider.requests) == 5


@pytest.mark.slow
def test_a_gateway_that_ends_in_the_middle_is_named_at_the_end(shell: Shell, tmp_path: Path) -> None:
    with ScriptedProvider("ok") as provider:
        serve = [sys.executable, "-m", "refold", "serve", "-w", "work", "--port", "0", "--quiet"]
        serve += ["--openai-upstream", f"{provider.url}/v1"]
        with subprocess.Popen(serve, cwd=tmp_path, stderr=subprocess.PIPE, env=shell.make_environment({})) as gateway:
            try:
                wait_for(lambda: find_running(tmp_path / "work"))
                beacon = read_beacon(tmp_path / "work")
                assert beacon is not None
                assert beacon.pid == gateway.pid
                # The only request is answered; then the program ends the gateway and waits until it is gone.
                (tmp_path / "kill.py").write_text(CLIENT.replace("sys.exit(5)", END.format(pid=gateway.pid)))
                command = (sys.executable, str(tmp_path / "kill.py"), "openai", "1")
                done = shell.refold("wrap", "-w", str(tmp_path / "work"), "--", *command)
                assert gateway.wait(60) == 0
            finally:
                gateway.kill()
        assert len(provider.requests) == 1
    assert done.code == 5
    assert f"refold: the gateway {beacon.url} ended while the program was running" in done.err
    assert not find_beacon(tmp_path / "work").exists()


def test_a_file_that_a_killed_gateway_left_is_not_a_gateway(shell: Shell, tmp_path: Path) -> None:
    with start_rig(tmp_path / "work") as rig, rig.application.announce(rig.url):
        left = find_beacon(tmp_path / "work").read_bytes()
        assert find_running(tmp_path / "work") is not None
    assert not find_beacon(tmp_path / "work").exists()
    find_beacon(tmp_path / "work").write_bytes(left)
    assert find_running(tmp_path / "work") is None
    with ScriptedProvider("ok") as provider:
        done = wrap(shell, "--openai-upstream", f"{provider.url}/v1")
    assert done.code == 5, done.err
    assert "started for this run" in done.err.splitlines()[0]


@pytest.mark.parametrize("content", ["", "[]", "null", "{}", '{"url": 1}', BAD_ADDRESS])
def test_a_file_that_is_not_one_of_ours_is_not_a_gateway(tmp_path: Path, content: str) -> None:
    open_user_folder(tmp_path).write(BEACON_FILE, content.encode())
    assert find_running(tmp_path) is None


def test_a_stranger_on_the_port_gets_no_key_and_no_requests(tmp_path: Path) -> None:
    seen = []

    class Stranger(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(dict(self.headers))
            body = json.dumps({"proof": "0" * 64, "needs_key": False}).encode()
            self.send_response(401 if len(seen) % 2 else 302)
            self.send_header("location", f"http://127.0.0.1:{server.server_port}/other")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        with lit(make_beacon(f"http://127.0.0.1:{server.server_port}"), tmp_path):
            assert find_running(tmp_path, "rk-secret") is None
            assert find_running(tmp_path, "rk-secret") is None
        server.shutdown()
    assert len(seen) == 2
    assert "rk-secret" not in str(seen)


def test_a_copy_of_the_workspace_does_not_use_the_gateway_of_the_original(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir(exist_ok=True)
    shutil.copytree(tmp_path / "work", tmp_path / "copy")
    assert find_running(tmp_path / "work") is not None
    assert find_running(tmp_path / "copy") is None
    assert find_running(tmp_path / "copy" / ".." / "work") is not None


def test_the_file_of_a_gateway_that_started_later_stays(tmp_path: Path) -> None:
    first, second = make_beacon("http://127.0.0.1:1"), make_beacon("http://127.0.0.1:2")
    earlier, later = lit(first, tmp_path), lit(second, tmp_path)
    earlier.__enter__()
    later.__enter__()
    earlier.__exit__(None, None, None)
    assert read_beacon(tmp_path) == second
    later.__exit__(None, None, None)
    assert read_beacon(tmp_path) is None


FIRST = """
import os, sys, time
from pathlib import Path
for _ in range(1200):
    if Path(sys.argv[1]).exists():
        break
    time.sleep(0.05)
"""
SECOND = """
import json, os, sys, time, urllib.request
from pathlib import Path
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
def ask(text):
    body = json.dumps({"model": "gpt-5", "messages": [{"role": "user", "content": text}]}).encode()
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    return urllib.request.urlopen(request).read()
ask("before")
Path(sys.argv[1]).touch()
while os.path.exists("/proc/" + sys.argv[2]):
    time.sleep(0.05)
for _ in range(200):
    try:
        ask("after")
        sys.exit(5)
    except OSError:
        time.sleep(0.1)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_second_wrap_joins_the_first_and_goes_on_when_that_ends(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    with ScriptedProvider("ok") as provider:
        command = [
            sys.executable,
            "-m",
            "refold",
            "wrap",
            "-w",
            "work",
            "--openai-upstream",
            f"{provider.url}/v1",
            "--",
        ]
        environ = shell.make_environment({})
        program = [sys.executable, "-c", FIRST, str(tmp_path / "done")]
        with subprocess.Popen([*command, *program], cwd=tmp_path, env=environ) as first:
            wait_for(lambda: find_beacon(tmp_path / "work").exists())
            program = [sys.executable, "-c", SECOND, str(tmp_path / "done"), str(first.pid)]
            second = subprocess.Popen(
                [*command, *program], cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True
            )
            assert first.wait(60) == 0
            said = second.communicate(timeout=60)[1].splitlines()
    assert second.returncode == 5, said
    assert f"already running (pid {first.pid})" in said[0]
    assert said[-1].startswith("refold: 1 request")
    assert [one.json["messages"][0]["content"] for one in provider.requests] == ["before", "after"]
    assert not find_beacon(tmp_path / "work").exists()


def test_a_run_with_wishes_of_its_own_is_joined_by_no_other(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    look = "import os, sys, time, urllib.request; urllib.request.urlopen(os.environ['ANTHROPIC_BASE_URL']).read()\n"
    look += f"for _ in range(20):\n    if os.path.exists({str(find_beacon(tmp_path / 'work'))!r}): sys.exit(1)\n"
    look += "    time.sleep(0.05)"
    wrapped = ("wrap", "-w", str(tmp_path / "work"))
    assert shell.refold(*wrapped, "--", sys.executable, "-c", look).code == 1
    done = shell.refold(*wrapped, "--window", "40000", "--", sys.executable, "-c", look)
    assert done.code == 0, done.err


def test_a_gateway_with_keys_is_used_only_with_one_of_them(shell: Shell, tmp_path: Path) -> None:
    _, key = KeyRing(tmp_path / "work").add("alice")
    with start_rig(tmp_path / "work") as rig, rig.application.announce(rig.url):
        without = wrap(shell, OPENAI_BASE_URL=f"{rig.provider.url}/v1", OPENAI_API_KEY="sk-x")
        assert f"the gateway {rig.url} runs but is not used: it requires a key" in without.err
        assert without.code == 5
        sends_key = 'headers["authorization"] = "Bearer " + os.environ["OPENAI_API_KEY"]'
        (tmp_path / "client.py").write_text(CLIENT.replace("messages = []", f"{sends_key}; messages = []"))
        with_key = wrap(shell, OPENAI_API_KEY=key)
    assert with_key.code == 5, with_key.err
    assert "already running" in with_key.err
    assert "refold: 1 request, " in with_key.err
    assert "session @alice/" in with_key.err


def test_a_gateway_that_sends_requests_elsewhere_is_not_used(rig: Rig, shell: Shell) -> None:
    with ScriptedProvider("ok") as other:
        done = wrap(shell, OPENAI_BASE_URL=f"{other.url}/v1")
        assert len(other.requests) == 1
    assert f"is not used: it sends requests to {rig.provider.url}/v1" in done.err
    assert not rig.provider.requests
    # An address that leads to the gateway itself is not another place.
    done = wrap(shell, OPENAI_BASE_URL=f"{rig.url}/v1")
    assert "already running" in done.err
    assert len(rig.provider.requests) == 1
    # An address that only begins like the gateway's is.
    assert "is not used" in wrap(shell, OPENAI_BASE_URL=f"{rig.url}@127.0.0.1/v1").err
    assert len(rig.provider.requests) == 1


def test_wishes_that_the_running_gateway_does_not_meet_start_another(rig: Rig, shell: Shell, tmp_path: Path) -> None:
    upstream = ("--openai-upstream", f"{rig.provider.url}/v1/")
    assert "is not used: its preset is default" in wrap(shell, "--preset", "archive", *upstream).err
    assert "is not used: --log" in wrap(shell, "--log", str(tmp_path / "log"), *upstream).err
    assert "already running" in wrap(shell, "--preset", "default", *upstream).err


def test_counts_of_a_run_are_bounded_and_a_strange_id_is_not_a_run(rig: Rig) -> None:
    from refold.server.monitoring import RUNS_MAX

    body = json.dumps(make_body("openai-chat", make_dialog(1))).encode()

    def ask(run: str) -> int:
        request = urllib.request.Request(
            f"{rig.url}/wrap/{run}/v1/chat/completions", body, {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request) as response:
            return int(response.status)

    def counts_of(run: str) -> dict[str, Any]:
        """Return the counts of a run; a request is counted when it has ended, just after its answer has arrived."""
        while not (counts := rig.http.get(f"/wrap/{run}").json())["requests"]:
            time.sleep(0.01)
        return dict(counts)

    assert ask("a" * 16) == 200
    counts = counts_of("a" * 16)
    assert counts["requests"] == 1
    assert counts["tokens_before"] == counts["tokens_after"] > 0
    assert list(counts["sessions"].values()) == [1]
    # Claude Code checks in this way whether its address is reachable.
    assert rig.http.head(f"/wrap/{'b' * 16}").status_code == rig.http.head("/").status_code == 200
    for number in range(RUNS_MAX):
        rig.application.metrics._runs["", f"{number:08x}"] = rig.application.metrics.find_run("", "x")
    assert ask("c" * 16) == 200
    assert counts_of("c" * 16)["requests"] == 1
    assert len(rig.application.metrics._runs) == RUNS_MAX
    assert rig.http.get(f"/wrap/{'a' * 16}").json()["requests"] == 0
    for strange in ("x", "A" * 16, "a" * 33, "..%2f..", "aaaaaaaa%2f"):
        with pytest.raises(urllib.error.HTTPError):
            ask(strange)


def test_a_session_is_switched_off_and_on_while_the_gateway_serves_it(shell: Shell, tmp_path: Path) -> None:
    def grow(rig: Rig, turns: range) -> list[int]:
        """Return the number of edits after each request."""
        edits = []
        for turn in turns:
            answer = rig.post("openai-chat", make_body("openai-chat", make_dialog(turn)), x_refold_session="s1")
            assert answer.status_code == 200, answer.text
            edits.append(int(answer.headers["x-refold-edits"]))
        return edits

    with start_rig(tmp_path / "work", config={"window": 32_000, "threshold_tokens": 8_000}) as rig:
        work = ("-w", str(tmp_path / "work"), "-s", "s1")
        assert grow(rig, range(1, 5)) == [0] * 4
        assert "is off" in shell.refold("off", *work).err
        assert "automatic compression is off" in shell.refold("show", *work).text
        assert grow(rig, range(5, 16)) == [0] * 11, "8,000 tokens are reached with the seventh"
        assert "is on" in shell.refold("on", *work).err
        assert grow(rig, range(16, 18))[-1] > 0


def test_the_log_says_what_a_compression_cost_in_cache_and_what_it_saved(shell: Shell, tmp_path: Path) -> None:
    work = ("-w", str(tmp_path / "work"), "-s", "s1")
    with start_rig(tmp_path / "work", config={"window": 32_000, "threshold_tokens": 8_000}, caches=True) as rig:
        for turn in range(1, 13):
            body = make_body("openai-chat", make_dialog(turn), model="gpt-4.1")
            rig.post("openai-chat", body, x_refold_session="s1").raise_for_status()
        wait_for(lambda: len(rig.manager.figures("s1").requests) == 12)
        figures = rig.manager.figures("s1")
        events = json.loads(shell.refold("log", "--json", *work).text)
        shown = " ".join(shell.refold("log", *work).text.split())
    (folded,) = [event for event in events if event["kind"] == "compressed"]
    after = [one for one in figures.requests if one.time >= folded["at"]]
    assert 1 < len(after) < 12
    assert folded["effect"]["uncached"] == after[0].tokens - after[0].cached > after[1].tokens - after[1].cached
    assert folded["effect"]["dollars_saved"] == pytest.approx(sum(one.dollars_raw - one.dollars for one in after))
    assert f"{after[0].tokens - after[0].cached:,} of {after[0].tokens:,} tokens of the next request" in shown
    assert f"{len(after)} requests until the next one saved $" in shown
