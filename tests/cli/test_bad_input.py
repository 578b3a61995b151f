"""Whatever is wrong ends in one clear line, a documented exit code and no traceback, and changes nothing."""

import json
import os
from pathlib import Path

import pytest

from refold.cli.app import EXIT_CODES
from tests.cli.conftest import make_session
from tests.rigs.cli import Ran, Shell
from tests.rigs.effort import first_of

GOOD = json.dumps(make_session(2))
CONFIG, FORMAT, TOO_SMALL, OUTPUT = 3, 4, 5, 9


def assert_told(ran: Ran, code: int, *words: str) -> None:
    """One line that begins with our name and says what is wrong; nothing on standard output."""
    assert ran.code == code, ran.err
    assert ran.out == b""
    assert ran.err.startswith("refold: ")
    assert ran.err.count("\n") == 1
    assert "Traceback" not in ran.err
    for word in words:
        assert word in ran.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ["input.json is empty"]),
        ("  \n\t ", ["input.json is empty"]),
        ("hello", ["input.json:1:1", "not JSON"]),
        ('[{"role": "user"', ["not JSON"]),
        ('[{"role": "user",}]', ["input.json:1:18", "not JSON"]),
        ('{"a": 1}\n{"b": ', ["input.json:2", "not JSON"]),
        ("3", ["list of messages"]),
        ("null", ["list of messages"]),
        ('"text"', ["list of messages"]),
        ("{}", ["no messages"]),
        ('{"messages": 3}', ["messages"]),
        ('{"messages": {"role": "user"}}', ["messages"]),
        ("[1, 2]", ["messages[0]"]),
        ("[null]", ["messages[0]"]),
        ("[[]]", ["messages[0]"]),
        ('[{"content": "hi"}]', ["messages[0]", "role"]),
        ('[{"role": 5, "content": "hi"}]', ["messages[0]", "role"]),
        ('[{"role": "wizard", "content": "hi"}]', ["messages[0]", "wizard"]),
        ('[{"role": "user", "content": 7}]', ["messages[0]"]),
        ("[" * 100_000, ["nested too deeply"]),
        ("[" + "9" * 5_000 + "]", ["input.json"]),
        (b"\x00\x01\x02\x03" * 100, ["input.json"]),
        (b"\xff\xfe\xfa\xfb\xff", ["input.json"]),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), ["not text"]),
        (b"\x1f\x8b\x08\x00broken", ["damaged gzip"]),
    ],
    ids=lambda value: repr(value)[:30] if isinstance(value, str | bytes) else "",
)
def test_input_that_is_not_a_conversation_is_refused_with_its_place(
    shell: Shell, content: str, words: list[str]
) -> None:
    shell.write("input.json", content)
    assert_told(shell.refold("compact", "input.json", "--budget", "1000"), FORMAT, *words)


@pytest.mark.parametrize("command", [("compact", "--budget", "1000"), ("count",)])
def test_a_missing_file_is_reported(shell: Shell, command: tuple[str, ...]) -> None:
    assert_told(shell.refold(*command, "absent.json"), FORMAT, "absent.json does not exist")


def test_a_folder_is_reported(shell: Shell) -> None:
    (shell.folder / "data").mkdir()
    assert_told(shell.refold("count", "data"), FORMAT, "data is a folder")


def test_a_file_that_may_not_be_read_is_reported(shell: Shell) -> None:
    path = shell.write("secret.json", GOOD)
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything, so no file is unreadable")
    assert_told(shell.refold("count", "secret.json"), FORMAT, "secret.json cannot be read")


def test_a_name_that_no_disk_takes_is_reported(shell: Shell) -> None:
    assert_told(shell.refold("count", "x" * 5_000), FORMAT, "cannot be read")


def test_nothing_piped_in_is_reported(shell: Shell) -> None:
    assert_told(shell.refold("count", "-"), FORMAT, "standard input is empty")


@pytest.mark.parametrize("budget", ["0", "-1", "-99999999999999999999", "1000000001", "99999999999999999999999"])
def test_a_negative_or_absurd_budget_is_a_wrong_setting(shell: Shell, budget: str) -> None:
    shell.write("input.json", GOOD)
    assert_told(shell.refold("compact", "input.json", f"--budget={budget}"), CONFIG, "budget is")


@pytest.mark.parametrize("budget", ["many", "8kk", "1e3", "k", "8.5", ""])
def test_a_budget_that_is_not_a_number_is_a_wrong_command_line(shell: Shell, budget: str) -> None:
    shell.write("input.json", GOOD)
    ran = shell.refold("compact", "input.json", f"--budget={budget}")
    assert ran.code == 2
    assert "--budget" in ran.err
    assert "Traceback" not in ran.err


def test_a_budget_that_leaves_no_room_names_what_cannot_shrink(shell: Shell) -> None:
    messages = [{"role": "system", "content": "rule " * 500}, {"role": "user", "content": "word " * 400}]
    shell.write("input.json", json.dumps(messages))
    ran = shell.refold("compact", "input.json", "--budget", "300")
    assert_told(ran, TOO_SMALL, "system", "newest user message", "raise the budget")


def test_an_unknown_preset_is_refused_with_the_nearest(shell: Shell) -> None:
    shell.write("input.json", GOOD)
    ran = shell.refold("compact", "input.json", "--budget", "1000", "--preset", "archiv")
    assert_told(ran, CONFIG, "unknown preset 'archiv'", "did you mean 'archive'?")


def test_an_unknown_format_is_refused(shell: Shell) -> None:
    shell.write("input.json", GOOD)
    ran = shell.refold("compact", "input.json", "--budget", "1000", "--format", "antropic")
    assert_told(ran, FORMAT, "antropic", "anthropic")


def test_an_unknown_model_is_not_an_error_and_the_assumed_window_is_reported(shell: Shell) -> None:
    shell.write("input.json", GOOD)
    ran = shell.refold("compact", "input.json", "--model", "nobody-knows-1")
    assert ran.code == 0
    assert "not known" in ran.err
    assert "128,000" in ran.err


def test_an_unknown_key_in_the_project_file_is_refused_with_file_line_and_suggestion(shell: Shell) -> None:
    shell.write("input.json", GOOD)
    shell.write("refold.yaml", "compression:\n  window: 8000\n  retention_cont: 5\n")
    ran = shell.refold("compact", "input.json", "--budget", "1000")
    assert_told(ran, CONFIG, "refold.yaml:3", "retention_cont", "did you mean 'retention_count'?")


@pytest.mark.parametrize("target", ["home/../input.json", "input.json"])
def test_the_input_is_refused_as_output(shell: Shell, target: str) -> None:
    shell.write("input.json", GOOD)
    (shell.folder / "home").mkdir(exist_ok=True)
    ran = shell.refold("compact", "input.json", "--budget", "1000", "--out", target)
    assert_told(ran, OUTPUT, "is the input file")
    assert (shell.folder / "input.json").read_text(encoding="utf-8") == GOOD


def test_a_folder_as_output_is_reported(shell: Shell) -> None:
    shell.write("input.json", GOOD)
    ran = shell.refold("compact", "input.json", "--budget", "1000", "--out", "home")
    assert_told(ran, OUTPUT, "is a folder")


@pytest.mark.parametrize("args", [(), ("compact",), ("compat",), ("count", "a", "b"), ("--nope",), ("config", "wrong")])
def test_a_wrong_command_line_shows_how_it_is_used(shell: Shell, args: tuple[str, ...]) -> None:
    ran = shell.refold(*args)
    assert ran.code == 2
    assert "Usage: refold" in ran.err + ran.text
    assert "Traceback" not in ran.err


def test_a_traceback_is_shown_only_on_request(shell: Shell) -> None:
    shell.write("input.json", "nope")
    ran = shell.refold("count", "input.json", REFOLD_DEBUG="1")
    assert ran.code == FORMAT
    assert "Traceback" in ran.err
    assert ran.err.splitlines()[-1].startswith("refold: ")


def test_an_internal_error_ends_in_one_sentence_and_exit_code_70(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    from refold.cli import main as cli

    class Failing:
        registered_commands = ()

        def __call__(self, **_: object) -> None:
            raise KeyError("surprise")

    monkeypatch.setattr(cli, "_app", Failing())
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 70
    told = capsys.readouterr().err
    assert "unexpected KeyError" in told
    assert "Traceback" not in told
    assert sys.excepthook is sys.__excepthook__


def test_every_exit_code_an_error_carries_is_documented() -> None:
    from refold import errors
    from refold.cli.output import OutputError

    kinds = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.RefoldError)]
    assert {kind.exit_code for kind in [*kinds, OutputError]} <= set(EXIT_CODES)


def test_help_lists_every_exit_code(shell: Shell) -> None:
    told = " ".join(shell.refold("--help").text.split())
    for code, meaning in EXIT_CODES.items():
        assert f"{code} {meaning}" in told


def test_the_version_is_printed(shell: Shell) -> None:
    from refold import __version__

    assert shell.refold("--version").text == f"refold {__version__}\n"


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys; sys.argv = ['refold', '--help']\n"
        "from refold.cli.main import app\n"
        "try: app()\n"
        "except SystemExit: pass\n"
        "heavy = {'pydantic', 'yaml', 'orjson', 'apsw', 'prompt_toolkit', 'splintr', 'asyncio'}\n"
        "sys.stderr.write(','.join(sorted(heavy & set(sys.modules))))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Usage" in ran.stdout
    assert ran.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device to write to")
@pytest.mark.parametrize(
    "command",
    first_of(("compact input.json --budget 1000", "--help", "count input.json", "presets"), 1),
)
def test_a_full_disk_behind_standard_output_is_reported(shell: Shell, command: str) -> None:
    import subprocess
    import sys

    shell.write("input.json", GOOD)
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "refold", *command.split()],
            cwd=shell.folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ran.returncode == OUTPUT
    assert "cannot be written: No space left on device" in ran.stderr
    assert "bug of refold" not in ran.stderr
    assert "Exception ignored" not in ran.stderr
