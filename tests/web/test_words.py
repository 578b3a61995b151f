"""Texts of the page: all there in both languages, and filled alike."""

from __future__ import annotations

import re
import string
from pathlib import Path
from typing import get_args

import pytest

from refold.conversation.message import Kind, Role
from refold.conversation.reason import Language
from refold.conversation.view import RECALL, FactKind
from refold.sentences import choose_language, read_texts, tr
from refold.stages import STAGES
from refold.stages.record.values import SORT_NAMES as SORTS
from refold.web.visit import LANGUAGES

PAGE = Path(__file__).parents[2] / "src" / "refold" / "web"


def find_slots(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_both_languages_have_every_text_with_the_same_values_in_it() -> None:
    english, chinese = read_texts("en"), read_texts("zh")
    # Sentences have their English for a key, and reasons theirs in the code.
    keys = {key for key in chinese if re.fullmatch(r"[a-z]+\.[\w.-]+", key) and not key.startswith("reason.")}
    assert keys == english.keys()
    for key, text in english.items():
        assert text.strip(), key
        assert chinese[key].strip(), key
        assert find_slots(text) == find_slots(chinese[key]), key


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_text_is_written_twice(language: Language) -> None:
    lines = (PAGE.parent / "locale" / f"{language}.json").read_text("utf-8")
    keys = re.findall(r'^ "((?:[^"\\]|\\.)+)":', lines, re.M)
    assert sorted(keys) == sorted(set(keys)), "the later text would silently replace the earlier one"


def find_asked(pattern: str, text: str) -> set[str]:
    """Return the keys that a source asks for, a ``*`` in the place of what it fills in."""
    return {re.sub(r"\$?\{[^}]*\}", "*", key) for key in re.findall(pattern, text)}


def test_every_text_that_a_page_asks_for_exists() -> None:
    asked = set[str]()
    for path in PAGE.rglob("*.py"):
        asked |= find_asked(r'\b(?:say|_)\(\s*f?"([a-z_.{}]+)"', path.read_text("utf-8"))
    assert len(asked) > 100
    for key in asked - {"area.key"}:
        found = [one for one in read_texts("en") if re.fullmatch(re.escape(key).replace(r"\*", ".+"), one)]
        assert found, key


@pytest.mark.parametrize(("script", "prefix"), [("conversation rows", "session.talk_"), ("timeline", "session.time_")])
def test_every_text_that_the_browser_asks_for_exists(script: str, prefix: str) -> None:
    source = "".join((PAGE / "parts" / f"{name}.js").read_text("utf-8") for name in script.split())
    asked = find_asked(r'this\.say\(\s*[`"]([a-z_${}.]+)[`"]', source)
    asked |= set(re.findall(r'this\.say\([^()]*\? "([a-z_]+)" : "[a-z_]+"', source))
    asked |= set(re.findall(r'this\.say\([^()]*\? "[a-z_]+" : "([a-z_]+)"', source))
    assert len(asked) > 5
    for key in asked:
        found = [one for one in read_texts("en") if re.fullmatch(re.escape(prefix) + key.replace("*", ".+"), one)]
        assert found, key


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_name_that_the_browser_fills_into_a_key_has_words(language: Language) -> None:
    """A part, a stage, a sort of value or a kind of fact without words would show its key."""
    words = read_texts(language)
    stages = {*STAGES, RECALL, "archive"}
    filled = {
        "kind": get_args(Kind),
        "by": get_args(Role),
        "stage": stages,
        "fact": get_args(FactKind),
        "sort": SORTS,
    }
    for part, names in filled.items():
        assert names
        for name in names:
            assert f"session.talk_{part}_{name}" in words, f"{part}_{name}"


@pytest.mark.parametrize(
    ("chosen", "accepted", "language"),
    [
        ("", "", "en"),
        ("", "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("", "de-DE,de;q=0.9,zh;q=0.5,en;q=0.8", "en"),
        ("", "fr;q=1, zh-TW;q=0.3", "zh"),
        ("", "en;q=0, zh;q=0.1", "zh"),
        ("", ";;;q=x,,zh;q=abc", "en"),
        ("en", "zh-CN", "en"),
        ("zh", "en-US", "zh"),
        ("xx", "zh", "zh"),
    ],
)
def test_the_language_is_the_chosen_one_or_the_first_the_browser_accepts(
    chosen: str, accepted: str, language: str
) -> None:
    assert choose_language(chosen, accepted) == language


def test_values_are_filled_in_as_they_are() -> None:
    assert tr("shell.failed", "en", why="{0} <b> {x}") == "That did not work: {0} <b> {x}"
