"""How runs end: sentences that fit a terminal and stay whole in a pipe, closed pipes, poor terminals, the keyboard."""

import json
import subprocess
import sys

import pytest

from tests.cli.conftest import make_session
from tests.rigs.cli import ProcessShell, Shell
from tests.rigs.effort import first_of
from tests.rigs.terminal import hear_interrupts, strip

LONG = "x" * 90
WRONG = ("count", f"{LONG}.json")


def run_in_terminal(shell: Shell, *args: str, columns: int, **more: str) -> tuple[int, list[str]]:
    """The exit code and the lines of a run in a pseudo-terminal."""
    pexpect = pytest.importorskip("pexpect", reason="pexpect is not installed")
    child = pexpect.spawn(
        sys.executable,
        ["-m", "refold", *args],
        cwd=str(shell.folder),
        env={"HOME": str(shell.folder), "LC_ALL": "C.UTF-8", "TERM": "xterm-256color", **more},
        dimensions=(30, columns),
        encoding="utf-8",
        timeout=240,
    )
    seen = strip(str(child.read()))
    child.close()
    return int(child.exitstatus or 0), seen.splitlines()


def test_on_a_terminal_an_error_is_wrapped_at_words(shell: Shell) -> None:
    code, printed = shell.show("count", "absent.json", columns=40)
    lines = strip(printed).splitlines()
    assert code == 4
    assert " ".join(lines) == "refold: absent.json does not exist; check the name"
    assert len(lines) == 2
    assert all(len(line) <= 40 for line in lines)


@pytest.mark.slow
def test_a_long_path_in_an_error_is_left_whole(shell: Shell) -> None:
    _, lines = run_in_terminal(shell, *WRONG, columns=40)
    assert f"refold: {LONG}.json" in lines


def test_in_a_pipe_an_error_is_one_line_however_narrow_the_terminal(shell: Shell) -> None:
    ran = shell.refold("count", f"{'ein langer Name ' * 8}.json", COLUMNS="40")
    assert (ran.code, ran.err.count("\n")) == (4, 1)


@pytest.mark.slow
def test_a_sentence_is_wrapped_on_a_terminal_and_whole_in_a_pipe(shell: Shell) -> None:
    _, lines = run_in_terminal(shell, "sessions", columns=60)
    assert len(lines) > 1
    assert " ".join(lines) + "\n" == shell.refold("sessions", COLUMNS="60").text


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("undoo", "x"), "refold: no such command 'undoo'; did you mean 'undo'?\n"),
        (("count",), "refold: missing argument 'FILE'\nUsage: refold count [OPTIONS] FILE\n"),
        (("count", "a", "--modl", "x"), "Try 'refold count --help'.\n"),
        (("replay", "a", "--jobs", "x"), "refold: invalid value for '--jobs' / '-j'"),
        (("compact", "a", "--budget", "many"), "'many' is not a number of tokens; write it as 8000"),
    ],
)
def test_a_wrong_command_line_is_reported_like_any_error(shell: Shell, args: tuple[str, ...], says: str) -> None:
    ran = shell.refold(*args)
    assert (ran.code, ran.out) == (2, b"")
    assert ran.err.startswith("refold: ")
    assert says in ran.err


@pytest.mark.parametrize(
    "command",
    first_of(("count session.json --json", "--help", "count session.json", "presets"), 1),
)
def test_a_pipe_that_is_closed_early_is_not_an_error(
    shell: Shell, session: list[dict[str, object]], command: str
) -> None:
    # Larger than what a pipe holds, so that the reader is gone before all is written.
    shell.write("session.json", json.dumps(make_session(400)))
    ran = subprocess.Popen(
        [sys.executable, "-m", "refold", *command.split()],
        cwd=shell.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert ran.stdout is not None
    assert ran.stderr is not None
    ran.stdout.readline()
    ran.stdout.close()
    told = ran.stderr.read()
    ran.stderr.close()
    assert (ran.wait(240), told) == (0, b"")


POOR = [*make_session(3), {"role": "assistant", "content": "端口 é → 😀"}, {"role": "user", "content": "ok"}]
ENCODINGS = ("ascii", "iso-8859-1", "gbk")


@pytest.mark.parametrize(
    "command", ["count session.json", "presets", "compact session.json -b 2k --dry-run", "config explain --all"]
)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_terminal_that_lacks_characters_gets_escapes_and_no_error(shell: Shell, command: str, encoding: str) -> None:
    shell.write("session.json", json.dumps(POOR))
    ran = shell.refold(*command.split(), PYTHONIOENCODING=encoding)
    assert ran.code == 0, ran.err
    assert ran.out.decode(encoding)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_process_with_a_poor_encoding_gets_escapes_and_no_error(process: ProcessShell, encoding: str) -> None:
    process.write("session.json", json.dumps(POOR))
    ran = process.refold("compact", "session.json", "-b", "2k", "--dry-run", PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert ran.code == 0, ran.err
    assert ran.out.decode(encoding)


def test_json_is_readable_where_it_can_be_and_valid_where_it_cannot(shell: Shell) -> None:
    shell.write("talk.json", json.dumps([{"role": "user", "content": "端口 é 😀"}], ensure_ascii=False))
    plain, poor = (shell.refold("count", "talk.json", "--json", PYTHONIOENCODING=name) for name in ("utf-8", "latin-1"))
    assert "端口 é 😀" in plain.text
    assert json.loads(poor.out) == json.loads(plain.out)


def test_ctrl_c_ends_a_long_command_with_130_and_no_traceback(shell: Shell) -> None:
    pexpect = pytest.importorskip("pexpect", reason="pexpect is not installed")
    shell.write("session.json", json.dumps(make_session(2_000)))
    command = ["-m", "refold", "replay", "session.json", "--window", "20k"]
    child = pexpect.spawn(
        sys.executable,
        command,
        cwd=str(shell.folder),
        encoding="utf-8",
        timeout=120,
        preexec_fn=hear_interrupts,
    )
    child.expect("replaying")
    child.sendintr()
    seen = child.read()
    child.close()
    assert child.exitstatus == 130
    assert "refold: stopped" in strip(seen)
    assert "Traceback" not in seen


def test_a_question_that_is_denied_changes_nothing_and_says_so(shell: Shell) -> None:
    from refold import ContextCompressionManager

    with ContextCompressionManager(workspace_path=shell.folder) as manager:
        manager.append("kept", make_session(2))
    code, printed = shell.show("delete", "-s", "kept", typed="n\n")
    asked, _, answered = printed.partition("This cannot be undone")
    assert "kept" in asked
    assert "not confirmed: nothing was changed" in answered
    assert code == 1
    assert "kept" in shell.refold("sessions").text


def test_a_chat_without_a_model_fails_before_anything_is_drawn_or_made(shell: Shell) -> None:
    pytest.importorskip("prompt_toolkit", reason="needs refold[chat]")
    code, printed = shell.show("chat", "--model", "nobody-1", columns=200)
    (line,) = strip(printed).splitlines()
    assert code == 3
    assert line.startswith("refold: nothing says where 'nobody-1' is: set OPENAI_API_KEY or ANTHROPIC_API_KEY")
    assert not (shell.folder / ".refold").exists()


def test_a_gateway_that_does_not_start_is_reported_with_its_own_error(shell: Shell) -> None:
    program = (
        "import sys; sys.modules['refold.server.gateway'] = None; sys.argv = ['refold', 'wrap', '--', 'sleep', '2']\n"
        "from refold.cli.main import main; sys.exit(main())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=shell.folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert "refold: the gateway did not start: import of refold.server.gateway halted" in ran.stderr
    assert "file descriptor" not in ran.stderr
    assert ran.returncode == 70


@pytest.mark.parametrize("absent", ["uvicorn", "httptools", "aiohttp"])
@pytest.mark.parametrize("command", first_of(("serve --port 0", "wrap true"), 1))
def test_a_command_whose_extra_is_not_installed_says_how_to_install_it(shell: Shell, command: str, absent: str) -> None:
    program = (
        f"import sys; sys.modules[{absent!r}] = None; sys.argv = ['refold', *{command.split()!r}]\n"
        "from refold.cli.main import main; sys.exit(main())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=shell.folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.stderr == f"refold: {absent} is not installed; install it with: pip install 'refold[server]'\n"
    assert ran.returncode == 3
