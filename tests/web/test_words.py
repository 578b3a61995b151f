"""Texts of the page: all there in both languages, and filled alike."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest

from refold.web.words import _WORDS, choose_tongue, say_in

PAGE = Path(__file__).parents[2] / "src" / "refold" / "web"


def find_slots(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_both_languages_have_every_text_and_the_same_values_in_it() -> None:
    for key, (english, chinese) in _WORDS.items():
        assert english.strip(), key
        assert chinese.strip(), key
        assert find_slots(english) == find_slots(chinese), key


def test_every_text_that_a_page_asks_for_is_there() -> None:
    asked = {
        key for path in PAGE.rglob("*.py") for key in re.findall(r'\bsay\(\s*"([a-z_.]+)"', path.read_text("utf-8"))
    }
    assert asked
    assert asked - {"area.key"} <= _WORDS.keys()


def test_every_text_that_the_conversation_asks_for_in_the_browser_is_there() -> None:
    script = (PAGE / "parts" / "conversation.js").read_text("utf-8")
    asked = set(re.findall(r'this\.say\("([a-z_]+)"', script))
    assert asked
    assert {f"session.talk_{key}" for key in asked} <= _WORDS.keys()


@pytest.mark.parametrize(
    ("chosen", "accepted", "tongue"),
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
    chosen: str, accepted: str, tongue: str
) -> None:
    assert choose_tongue(chosen, accepted) == tongue


def test_values_are_filled_in_as_they_are() -> None:
    assert say_in("en", "shell.failed", why="{0} <b> {x}") == "That did not work: {0} <b> {x}"
