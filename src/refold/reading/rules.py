"""Rules that say what a sentence means, one file for each language (``rules/en.toml``, ``rules/zh.toml``).

A rule has the kind that it recognises, words of which one must occur, a pattern for the sentences that have one, and
examples. Words are looked up first: most sentences are compared with a few patterns only. Another language is another
file; nothing here knows a language by name.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal

from refold.patterns import lazy_regex

Side = Literal["person", "assistant"]
Unit = Literal["word", "character"]

# A sentence shows what it is at its beginning.
SENTENCE_CHARS = 400

_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_CURLY = str.maketrans("’‘", "''")


@dataclass(frozen=True, slots=True, eq=False)
class SentenceRule:
    """One rule. ``yes`` are sentences that it fits, ``no`` sentences that it must not fit."""

    kind: str
    words: frozenset[str]
    pattern: re.Pattern[str] | None
    yes: tuple[str, ...]
    no: tuple[str, ...]

    def fits(self, sentence: str) -> bool:
        """Return whether a sentence that has one of the words fits the pattern."""
        return self.pattern is None or self.pattern.search(sentence) is not None


@dataclass(frozen=True, slots=True, eq=False)
class LanguageRules:
    """The rules of one language, by side, and by the words that call for them."""

    language: str
    unit: Unit
    rules: Mapping[Side, tuple[SentenceRule, ...]]
    by_word: Mapping[Side, Mapping[str, tuple[SentenceRule, ...]]]
    forms: Mapping[str, str]

    def find_kinds(self, sentence: str, side: Side) -> set[str]:
        """Return the kinds of all rules that fit a sentence."""
        by_word = self.by_word[side]
        if self.unit == "word":
            found = _WORD.findall(sentence.lower())
            # "what's" is found under "what", too.
            words = {*found, *(word.partition("'")[0] for word in found if "'" in word)}.intersection(by_word)
        else:
            words = {word for word in by_word if word in sentence}
        kinds: set[str] = set()
        for rule in {rule for word in words for rule in by_word[word]}:
            if rule.kind not in kinds and rule.fits(sentence):
                kinds.add(rule.kind)
        return kinds


def find_kinds(sentence: str, side: Side) -> frozenset[str]:
    """Return what a sentence of a person or of the assistant means, in any language that has rules."""
    return _find_kinds(sentence[:SENTENCE_CHARS], side)


# Reading, weighing and facts ask for the same sentences.
@lru_cache(maxsize=8_192)
def _find_kinds(sentence: str, side: Side) -> frozenset[str]:
    seen = sentence.translate(_CURLY)
    is_plain = seen.isascii()
    kinds: set[str] = set()
    for rules in load_rules():
        if rules.unit == "word" or not is_plain:
            kinds |= rules.find_kinds(seen, side)
    return frozenset(kinds)


@cache
def load_rules() -> tuple[LanguageRules, ...]:
    """Return the rules of every language, in the order of the names of their files."""
    # Loaded here: who only imports the package reads no file.
    from importlib.resources import files

    names = sorted(entry.name for entry in files("refold.reading").joinpath("rules").iterdir())
    found = (read_table(f"rules/{name}") for name in names if name.endswith(".toml"))
    return tuple(parse_rules(table) for table in found if "language" in table)


@cache
def read_table(name: str) -> Mapping[str, Any]:
    """Return a file of rules or weights as it is written, by its name in this package."""
    from importlib.resources import files

    return tomllib.loads(files("refold.reading").joinpath(*name.split("/")).read_text(encoding="utf-8"))


def find_rule(file: str, *keys: str) -> Any:
    """Return what a file of rules has under these keys."""
    found: Any = read_table(f"rules/{file}.toml")
    for key in keys:
        found = found[key]
    return found


@cache
def find_words(file: str, *keys: str) -> tuple[str, ...]:
    """Return a list of words, which a file of rules separates by blanks."""
    return tuple(str(find_rule(file, *keys)).split())


def lazy_rule(file: str, *keys: str, form: str = "{}") -> re.Pattern[str]:
    """Return a pattern of a file of rules, read and compiled when first used; ``form`` has a place for it."""
    return lazy_regex(lambda: form.replace("{}", find_rule(file, *keys)))


def lazy_form(name: str) -> re.Pattern[str]:
    """Return a form that every language has, for all of them: ``form`` in their files."""
    return lazy_regex(lambda: "|".join(rules.forms[name] for rules in load_rules()), re.IGNORECASE)


def parse_rules(table: Mapping[str, object]) -> LanguageRules:
    """Return the rules of one file, as it was read."""
    sides: tuple[Side, ...] = ("person", "assistant")
    rules = {side: tuple(_read_rule(entry) for entry in table[side]) for side in sides}  # type: ignore[attr-defined]
    unit: Unit = "word" if table["unit"] == "word" else "character"
    by_word = {side: _group(rules[side]) for side in sides}
    return LanguageRules(str(table["language"]), unit, rules, by_word, table["form"])  # type: ignore[arg-type]


def _read_rule(entry: Mapping[str, object]) -> SentenceRule:
    pattern = entry.get("pattern")
    words, yes, no = (tuple(map(str, entry[key])) for key in ("words", "yes", "no"))  # type: ignore[call-overload]
    compiled = re.compile(str(pattern), re.IGNORECASE) if pattern else None
    return SentenceRule(str(entry["kind"]), frozenset(words), compiled, yes, no)


def _group(rules: tuple[SentenceRule, ...]) -> dict[str, tuple[SentenceRule, ...]]:
    found: dict[str, tuple[SentenceRule, ...]] = {}
    for rule in rules:
        for word in rule.words:
            found[word] = (*found.get(word, ()), rule)
    return found


@cache
def load_weights(section: str) -> Mapping[str, float]:
    """Return a section of ``weights.toml``."""
    return {name: float(weight) for name, weight in read_table("weights.toml")[section].items()}
