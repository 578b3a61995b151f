"""``refold wrap``: a program behind a gateway started for it, with its terminal and exit code; nothing stays behind."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from refold.testing import ScriptedProvider

Ran = subprocess.CompletedProcess[str]
CLIENT = """
import json, os, sys, urllib.request
kind, turns = sys.argv[1:]
headers = {"content-type": "application/json"}
if kind == "anthropic":
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
    headers["anthropic-version"] = "2023-06-01"
else:
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
messages = []
for turn in range(int(turns)):
    messages.append({"role": "user", "content": f"question {turn} " + "word " * 800})
    body = json.dumps({"model": "claude-sonnet-4-5", "max_tokens": 10, "messages": messages}).encode()
    urllib.request.urlopen(urllib.request.Request(url, body, headers)).read()
    messages.append({"role": "assistant", "content": "ok"})
sys.exit(5)
"""


@pytest.fixture
def folder(tmp_path: Path, empty_home: Path) -> Path:
    (tmp_path / "client.py").write_text(CLIENT)
    (tmp_path / "work").mkdir()
    return tmp_path


def run_wrapped(folder: Path, provider: ScriptedProvider | None, *command: str, **environ: str) -> Ran:
    upstreams = ("--openai-upstream", f"{provider.url}/v1", "--anthropic-upstream", provider.url) if provider else ()
    return subprocess.run(
        [sys.executable, "-m", "refold", "wrap", "-w", str(folder / "work"), *upstreams, *command],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_wrapped_program_talks_through_the_gateway_and_its_exit_code_is_ours(folder: Path) -> None:
    command = (sys.executable, str(folder / "client.py"), "anthropic", "14")
    with ScriptedProvider("ok", window=8_000) as provider:
        done = run_wrapped(folder, provider, "--window", "8000", "--", *command)
        assert done.returncode == 5, done.stderr
        assert len(provider.requests) == 14
        upstreams = f"refold: requests go to {provider.url}/v1 and {provider.url}"
    said = done.stderr.strip().splitlines()
    assert len(said) == 3
    assert re.fullmatch(r"refold: gateway (http://[\d.]+:\d+), started for this run; its page: \1/ui", said[0])
    assert said[1] == upstreams
    assert said[2].startswith("refold: 14 requests, ")
    assert " → " in said[2]
    assert ", session " in said[2]
    assert sorted(one.name for one in folder.iterdir()) == ["client.py", "home", "work"]
    assert {one.name for one in (folder / "work").iterdir()} == {".refold"}


def test_a_switch_gives_the_wrapped_agent_the_recall_tool(folder: Path) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    body = {"model": "gpt-5", "messages": [{"role": "user", "content": "hello"}], "tools": [tool]}
    ask = (
        "import os, urllib.request as r; u = os.environ['OPENAI_BASE_URL'] + '/chat/completions'\n"
        f"r.urlopen(r.Request(u, {json.dumps(body).encode()!r}, {{'content-type': 'application/json'}})).read()"
    )
    for switch, names in (((), ["look"]), (("--recall-tool",), ["look", "refold_recall"])):
        with ScriptedProvider("ok") as provider:
            done = run_wrapped(folder, provider, *switch, "--", sys.executable, "-c", ask)
            assert done.returncode == 0, done.stderr
            sent = json.loads(provider.requests[-1].body)["tools"]
        assert [one["function"]["name"] for one in sent] == names


@pytest.mark.slow
def test_a_project_that_has_memory_pages_gets_those_of_a_wrapped_program_too(folder: Path) -> None:
    (folder / "work" / "refold.yaml").write_text("window: 8000\n")
    (folder / "work" / "memory").mkdir()
    with ScriptedProvider("ok", window=8_000) as provider:
        done = run_wrapped(folder, provider, "--", sys.executable, str(folder / "client.py"), "anthropic", "14")
    assert done.returncode == 5, done.stderr
    assert list((folder / "work" / "memory").iterdir())


@pytest.mark.slow
def test_what_the_program_prints_goes_through_untouched(folder: Path) -> None:
    with ScriptedProvider() as provider:
        script = "import sys; sys.stdout.write('out\\n'); sys.stderr.write('err\\n'); print(sys.argv[1:])"
        done = run_wrapped(folder, provider, "--", sys.executable, "-c", script, "--log", "-w", "x")
    assert done.stdout == "out\n['--log', '-w', 'x']\n"
    assert done.stderr.splitlines()[2:] == ["err", "refold: no request came through"]


@pytest.mark.slow
def test_a_program_that_is_not_there_is_an_error_that_says_so(folder: Path) -> None:
    with ScriptedProvider() as provider:
        done = run_wrapped(folder, provider, "no-such-program-here")
    assert done.returncode == 3
    assert "'no-such-program-here' is not installed" in done.stderr
    assert "gateway" not in done.stderr, "none is started for it"


@pytest.mark.slow
def test_keys_of_the_workspace_do_not_lock_the_wrapped_program_out(folder: Path) -> None:
    from refold.server.auth import KeyRing

    KeyRing(folder / "work").add("alice")
    with ScriptedProvider("ok") as provider:
        done = run_wrapped(folder, provider, "--", sys.executable, str(folder / "client.py"), "openai", "1")
        assert done.returncode == 5, done.stderr


@pytest.mark.slow
def test_the_address_that_a_program_used_before_is_where_its_requests_go(folder: Path) -> None:
    with ScriptedProvider("ok") as provider:
        command = ("--", sys.executable, str(folder / "client.py"), "openai", "1")
        done = run_wrapped(folder, None, *command, OPENAI_BASE_URL=f"{provider.url}/v1")
        assert done.returncode == 5, done.stderr
        assert len(provider.requests) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="signals of a terminal")
def test_a_request_to_end_reaches_the_program_and_the_gateway_goes_with_it(folder: Path) -> None:
    script = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(9)); "
        "print('up', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-m", "refold", "wrap", "-w", str(folder / "work"), "--", sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "up\n"
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 9


@pytest.mark.skipif(sys.platform == "win32", reason="signals of a terminal")
@pytest.mark.parametrize(("number", "code"), [("SIGTERM", 128 + signal.SIGTERM), ("SIGINT", 3)])
def test_a_signal_while_the_program_is_being_started_is_for_the_program(number: str, code: int) -> None:
    program = "import sys, time; time.sleep(0.2); sys.exit(3)" if number == "SIGINT" else "import time; time.sleep(60)"
    script = (
        "import os, signal, subprocess, sys\n"
        "from refold.cli import wrap\n"
        "class Interrupted(subprocess.Popen):\n"
        "    def __init__(self, *args, **options):\n"
        "        super().__init__(*args, **options)\n"
        f"        os.kill(os.getpid(), signal.{number})\n"
        "subprocess.Popen = Interrupted\n"
        f"sys.exit(wrap.run_program([sys.executable, '-c', {program!r}], os.environ))\n"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=120, check=False).returncode == code


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ctrl_c_is_left_to_the_program_and_pressing_it_again_does_not_lose_the_last_line(folder: Path) -> None:
    script = (
        "import os, signal, time; signal.signal(signal.SIGINT, lambda *_: os._exit(7)); "
        "print(os.getpid(), flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-m", "refold", "wrap", "-w", str(folder / "work"), "--", sys.executable, "-c", script]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(command, cwd=folder, **pipes) as running:
        assert running.stdout is not None
        program = int(running.stdout.readline())
        while Path(f"/proc/{program}").exists():
            os.killpg(running.pid, signal.SIGINT)  # As a terminal does: to the whole group.
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(60) == 7
        assert running.stderr is not None
        assert running.stderr.read().endswith("refold: no request came through\n")


def test_an_address_that_cannot_be_read_is_a_clear_error(folder: Path) -> None:
    done = run_wrapped(folder, None, "--", sys.executable, "-c", "", ANTHROPIC_BASE_URL="http://[evil")
    assert done.returncode == 3
    assert "'http://[evil' is not a URL" in done.stderr


def test_a_program_that_ends_at_once_loads_no_gateway(folder: Path) -> None:
    look = "import sys; from refold.cli.main import main; sys.argv[1:] = ['wrap', '-w', 'work', '--', 'true']\n"
    look += "try: main()\nfinally: print([one for one in ('aiohttp', 'uvicorn', 'nicegui') if one in sys.modules])"
    done = subprocess.run([sys.executable, "-c", look], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"
    assert done.stderr.endswith("refold: no request came through\n")


def test_a_program_that_asks_nothing_is_noticed(folder: Path) -> None:
    code = "import refold.cli.wrap as wrap; wrap.SILENCE_S = 1.0; from refold.cli.main import main; main()"
    command = [sys.executable, "-c", code, "wrap", "-w", "work", "--", "sleep", "4"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert re.search(
        r"no request of sleep has arrived in 1 s.*set its base URL to http://127\.0\.0\.1:\d+", done.stderr
    )


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX terminals")
def test_a_program_with_the_whole_screen_that_asks_nothing_is_named_in_the_windows_title(folder: Path) -> None:
    import pty

    code = "import refold.cli.wrap as wrap; wrap.SILENCE_S = 1.0; from refold.cli.main import main; main()"
    screen = "import sys, time, tty; tty.setraw(2); time.sleep(4)"
    command = [sys.executable, "-c", code, "wrap", "-w", "work", "--", sys.executable, "-c", screen]
    ours, theirs = pty.openpty()
    try:
        subprocess.run(command, cwd=folder, stderr=theirs, stdin=theirs, timeout=60, check=False)
        shown = os.read(ours, 65_536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert re.search(r"\x1b\]2;refold: no request of python\S* has arrived in 1 s[^\n]*\x07", shown)


def test_a_gateway_that_cannot_start_says_so_before_the_program_runs(folder: Path) -> None:
    (folder / "work" / "refold.yaml").write_text("gateway:\n  requests_max: many\n")
    done = run_wrapped(folder, None, "--", sys.executable, "-c", "print('ran')")
    assert (done.returncode, done.stdout) == (3, "")
    assert "gateway.requests_max" in done.stderr


def test_two_commands_run_in_one_process(folder: Path) -> None:
    code = "import sys\nfrom refold.cli.main import main\n"
    code += "for words in (['wrap', '--', 'true'], ['presets'], ['--version']):\n"
    code += "    sys.argv[1:] = words\n    try: main()\n    except SystemExit as end: print(end.code)"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert [line for line in done.stdout.splitlines() if line.isdigit()] == ["0", "0", "0"], done.stderr
