"""Help as people read it: grouped, one line a command, no types of programs in it, the same in a pipe."""

import io
import os
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from refold.cli.app import EXIT_CODES, PANELS, _tidy_record, run_to_end
from tests.rigs.cli import Shell, make_commands, replace_process


@cache
def read_help(*args: str, columns: int = 80) -> str:
    streams = io.BytesIO(), io.BytesIO(), io.BytesIO()
    with replace_process((*args, "--help"), streams, Path.cwd(), {**os.environ, "COLUMNS": str(columns)}):
        code = run_to_end(make_commands())
    assert (code, streams[2].getvalue()) == (0, b"")
    return streams[1].getvalue().decode()


@cache
def list_commands() -> list[tuple[str, ...]]:
    group: Any = make_commands()
    inner = [(name, one) for name, group in group.commands.items() for one in getattr(group, "commands", {})]
    return [*((name,) for name in group.commands), *inner]


def test_every_command_is_listed_under_one_heading_in_one_line() -> None:
    group: Any = make_commands()
    named = [name for names in PANELS.values() for name in names]
    assert sorted(named) == sorted(group.commands)
    told = read_help()
    for title, names in PANELS.items():
        section = told.split(f"\n{title}:\n")[1].split("\n\n")[0].splitlines()
        assert [line.split()[0] for line in section] == list(names)
        assert all(len(line) <= 80 and not line.endswith("...") for line in section)


def test_exit_codes_are_listed_once_and_not_under_every_command() -> None:
    assert " ".join(read_help().split()).count(f"70 {EXIT_CODES[70]}") == 1
    assert not any("Exit codes" in read_help(*command) for command in list_commands())


@pytest.mark.parametrize("command", list_commands(), ids=" ".join)
def test_help_names_values_and_not_types_of_programs(command: tuple[str, ...]) -> None:
    told = read_help(*command)
    assert not re.search(r"<\w+>|[{}]|<=|x>=|\[required\]", told)
    assert all(len(line) <= 80 for line in told.splitlines())
    assert told.startswith(f"Usage: refold {' '.join(command)}")


@pytest.mark.parametrize("command", [(), *list_commands()], ids=" ".join)
def test_every_example_names_commands_and_options_that_there_are(command: tuple[str, ...]) -> None:
    found = re.search(r"^Examples:\n((?:  .*\n)+)", read_help(*command), re.M)
    lines = re.findall(r"refold (?!--)(?!mcp$)\w.*", found[1]) if found else []
    for line in lines:
        words = shlex.split(line.split(" > ")[0].split("   ")[0].split("  ")[0])[1:]
        known = read_help(words[0], *(words[1:2] if (words[0], *words[1:2]) in set(list_commands()) else ()))
        assert all(word in known for word in words if word.startswith("-") and word != "-"), line


@pytest.mark.parametrize("args", [("help",), ("help", "count"), ("help", "key"), ("key", "help")])
def test_help_is_also_a_word(shell: Shell, args: tuple[str, ...]) -> None:
    ran = shell.refold(*args)
    assert ran.code == 0
    assert ran.text.startswith("Usage: refold")


def test_headings_are_bold_on_a_terminal_and_plain_elsewhere(shell: Shell) -> None:
    assert "\x1b[1mLook:\x1b[0m" in shell.show("--help")[1].splitlines()
    assert "Look:" in shell.show("--help", TERM="dumb")[1].splitlines()
    assert "Look:" in shell.refold("--help").text.splitlines()


def test_a_wide_terminal_is_used_up_to_a_hundred_columns(shell: Shell) -> None:
    assert 90 < max(map(len, shell.show("--help", columns=200, TERM="dumb")[1].splitlines())) <= 100


def test_defaults_and_limits_are_described_in_words() -> None:
    told = " ".join(read_help("replay").split())
    assert "comma-separated. [default: raw,default]" in told
    assert "[default: 1; 1 to 64]" in told
    assert _tidy_record("--by <str>", "Who. [default: extract; x>=0; required]") == ("--by", "Who. [default: extract]")
