"""The table of telling lines: its examples."""

import re

import pytest

from refold.reading.outputs import TABLE, LineRule, find_lines, is_frame, load_line_rules
from refold.reading.rules import read_table
from tests.rigs.patterns import TookTooLong, find_growth, find_slowest, list_texts, runs_of

RULES = [pytest.param(rule, id=f"{rule['kind']}-{at}") for at, rule in enumerate(read_table(TABLE)["line"])]


@pytest.mark.parametrize("rule", RULES)
def test_the_examples_of_a_rule_hold(rule: dict[str, object]) -> None:
    pattern = re.compile(str(rule["is"]), re.M)
    match = pattern.search if rule.get("anywhere") else pattern.match
    assert rule["yes"], "a rule needs an example"
    assert [line for line in rule["yes"] if not match(line)] == []  # type: ignore[attr-defined]
    assert [line for line in rule.get("no", ()) if match(line)] == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("rule", load_line_rules(), ids=lambda rule: f"{rule.kind}-{rule.rank}")
def test_the_pattern_of_lines_is_linear(rule: LineRule) -> None:
    run = runs_of("nowhere", rule.pattern, {})["finditer"]
    try:
        slowest = find_slowest(run, list(list_texts(rule.pattern)))
    except TookTooLong:
        pytest.fail("the pattern does not end on a short text")
    assert [growth for write in slowest if (growth := find_growth(run, write))] == []


def test_a_line_that_says_how_it_ended_is_no_frame() -> None:
    kept = [line for rule in read_table(TABLE)["line"] if rule["kind"] not in ("frame", "exit") for line in rule["yes"]]
    assert [line for line in kept if is_frame(line)] == []


def test_names_of_failing_tests_are_found() -> None:
    text = "collected 3\nFAILED tests/a.py::test_b - AssertionError: x\n--- FAIL: TestGo (0.0s)\nok\n"
    assert [line.name for line in find_lines(text, 0, len(text)) if line.kind == "failing"] == [
        "tests/a.py::test_b",
        "TestGo",
    ]


def test_every_kind_of_line_has_one_pattern() -> None:
    assert len({(rule.kind, rule.rank) for rule in load_line_rules()}) == len(load_line_rules())
