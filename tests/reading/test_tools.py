"""The table of tools and commands: its examples, and that every rule has some."""

import pytest

from refold.reading.rules import read_table
from refold.reading.shell import split_commands
from refold.reading.tools import find_command, find_tool, load_rules


@pytest.mark.parametrize("kind", ["tool", "command"])
def test_every_rule_has_an_example(kind: str) -> None:
    rules = read_table("rules/tools.toml")[kind]
    assert [rule["is"][:60] for rule in rules if not (rule.get("yes") or rule.get("acts"))] == []


def test_every_tool_of_an_example_is_found_by_its_own_rule() -> None:
    wrong = []
    for written, rule in zip(read_table("rules/tools.toml")["tool"], load_rules("tool"), strict=True):
        wrong += [f"{name}: not {rule.verb}" for name in written.get("yes", ()) if find_tool(name) is not rule]
        wrong += [f"{name}: {rule.verb}" for name in written.get("no", ()) if find_tool(name) is rule]
    assert wrong == []


def test_every_command_of_an_example_is_found_by_its_own_rule() -> None:
    wrong = []
    for written, rule in zip(read_table("rules/tools.toml")["command"], load_rules("command"), strict=True):
        for sign, lines in ((True, written.get("yes", ())), (False, written.get("no", ()))):
            for line in lines:
                (command,) = split_commands(line)
                if (find_command(command) is rule) is not sign:
                    wrong.append(f"{line}: {'not ' if sign else ''}{rule.verb}")
    assert wrong == []
