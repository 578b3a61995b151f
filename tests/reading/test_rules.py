"""Rules are data: their examples hold, their patterns are linear, and a language is one file."""

import re
import tomllib
from typing import Any

import pytest

from refold.reading.rules import (
    SENTENCE_CHARS,
    LanguageRules,
    SentenceRule,
    find_kinds,
    load_rules,
    load_weights,
    parse_rules,
    read_table,
)
from tests.rigs.patterns import TookTooLong, find_growth, find_slowest, list_texts, runs_of

EVERY = [
    pytest.param(rules, side, rule, id=f"{rules.language}-{side}-{rule.kind}-{number}")
    for rules in load_rules()
    for side, several in rules.rules.items()
    for number, rule in enumerate(several)
]
PATTERNS = [one for one in EVERY if one.values[2].pattern is not None]


def fits(rules: LanguageRules, rule: SentenceRule, sentence: str) -> bool:
    """Return whether this very rule fits a sentence: one of its words occurs, and its pattern."""
    lowered = sentence.lower()
    has_word = any(word.lower() in lowered for word in rule.words)
    return has_word and rule.fits(sentence.translate(str.maketrans("’‘", "''")))


@pytest.mark.parametrize(("rules", "side", "rule"), EVERY)
def test_a_rule_fits_its_examples_and_no_counterexample(rules: LanguageRules, side: str, rule: SentenceRule) -> None:
    assert rule.yes, "a rule has examples"
    assert rule.no, "a rule has counterexamples"
    assert [sentence for sentence in rule.yes if rule.kind not in find_kinds(sentence, side)] == []
    assert [sentence for sentence in rule.yes if not fits(rules, rule, sentence)] == []
    assert [sentence for sentence in rule.no if fits(rules, rule, sentence)] == []


@pytest.mark.parametrize(("rules", "side", "rule"), PATTERNS)
def test_the_pattern_of_a_rule_is_linear(rules: LanguageRules, side: str, rule: SentenceRule) -> None:
    run = runs_of("nowhere", rule.pattern, {})["finditer"]
    try:
        slowest = find_slowest(run, list(list_texts(rule.pattern)))
    except TookTooLong:
        pytest.fail("the pattern does not end on a short text")
    assert [growth for write in slowest if (growth := find_growth(run, write))] == []


def test_both_languages_have_the_same_kinds() -> None:
    kinds = [{(side, rule.kind) for side, several in one.rules.items() for rule in several} for one in load_rules()]
    assert len(kinds) >= 2
    assert all(one == kinds[0] for one in kinds)


def test_a_sentence_is_judged_by_its_beginning() -> None:
    assert "cause" in find_kinds("It failed because of the lock. ", "assistant")
    assert "cause" not in find_kinds("x" * SENTENCE_CHARS + " because of the lock", "assistant")


def test_every_kind_of_sentence_has_a_weight() -> None:
    weights = load_weights("sentences")
    unweighed = {"retraction", "negated", "polite", "step", "todo", "preference", "key", "finish", "undo", "leans"}
    unweighed |= load_weights("talk").keys()
    assert {rule.kind for one in load_rules() for several in one.rules.values() for rule in several} <= (
        weights.keys() | unweighed
    )
    assert len(weights) <= 17, "few weights"


GERMAN = """
language = "de"
unit = "word"
[[person]]
kind = "rule"
words = ["nie"]
pattern = '^(?:bitte )?nie'
yes = ["Nie auf main pushen."]
no = ["Das war nie so."]
[[assistant]]
kind = "cause"
words = ["weil"]
yes = ["Es scheitert, weil der Port fehlt."]
no = ["Es geht."]
[form]
negative = 'nicht'
"""


def test_another_language_is_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    german = parse_rules(tomllib.loads(GERMAN))
    loaded = (*load_rules(), german)
    monkeypatch.setattr("refold.reading.rules.load_rules", lambda: loaded)
    assert find_kinds("Nie auf main pushen.", "person") == {"rule"}
    assert "cause" in find_kinds("Es scheitert, weil der Port fehlt.", "assistant")
    assert "rule" in find_kinds("Never push to main.", "person")


def list_forms() -> list[tuple[str, dict[str, Any]]]:
    """Return the patterns of all files of rules that are used by their name."""
    tables = {name: read_table(f"rules/{name}.toml") for name in ("outputs", "tools", "words")}
    return [(f"{file} {name}", rule) for file, table in tables.items() for name, rule in table["form"].items()]


@pytest.mark.parametrize("rule", [rule for _, rule in list_forms()], ids=[name for name, _ in list_forms()])
def test_a_form_fits_its_examples_and_no_counterexample(rule: dict[str, Any]) -> None:
    pattern = re.compile(rule["is"])
    assert [text for text in rule["yes"] if not pattern.search(text)] == []
    assert [text for text in rule["no"] if pattern.search(text)] == []


def test_every_language_has_the_same_forms() -> None:
    first, *others = load_rules()
    assert len(first.forms) > 3
    assert all(rules.forms.keys() == first.forms.keys() for rules in others)
