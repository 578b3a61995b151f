"""The patterns of what a sentence claims fit their examples, and nothing that they must not."""

import re

import pytest

from refold.reading.rules import read_table

TABLE = read_table("rules/claims.toml")
RULES = [(name, rule) for name, rule in TABLE.items() if name != "deed"]
RULES += [(f"deed {at}", rule) for at, rule in enumerate(TABLE["deed"])]


@pytest.mark.parametrize(("name", "rule"), RULES, ids=[name for name, _ in RULES])
def test_a_pattern_fits_its_examples_alone(name: str, rule: dict[str, list[str]]) -> None:
    pattern = re.compile(str(rule["pattern"]), re.I)
    assert [one for one in rule["yes"] if not pattern.search(one)] == [], name
    assert [one for one in rule["no"] if pattern.search(one)] == [], name
    assert rule["yes"]
    assert rule["no"]
