"""Reasons of the record on the Chinese page: every one that the code can make has its Chinese."""

from __future__ import annotations

import re
import time

import pytest

from refold.web.words import has_words
from refold.web.words.reasons import REASONS, say_reason
from tests.web.reasons_in_code import FIGURE, INNER, WORD, collect_kinds, collect_reasons

CHINESE = re.compile("[\u4e00-\u9fff]")
# An error's kind and its own words; nobody has a list of those.
FOREIGN = frozenset((f"{WORD}: {WORD}",))
COLLECTED = collect_reasons()


def test_the_reasons_are_found_in_the_code() -> None:
    assert len(COLLECTED) > 40
    assert {
        f"{FIGURE} tokens are over the limit of {FIGURE}",
        f"carrying {FIGURE} removable tokens has cost {FIGURE} in {FIGURE} requests, removing them costs {FIGURE}",
        f"vetoed: {INNER}",
        "the provider refused the last request as too long",
        "the last answer was cut off: finish reason length",
        "says nothing",
    } <= COLLECTED.keys()


@pytest.mark.parametrize("reason", sorted(COLLECTED.keys() - FOREIGN))
def test_every_reason_that_the_code_makes_has_its_chinese(reason: str) -> None:
    said = say_reason("zh", reason)
    assert CHINESE.search(said), f"{COLLECTED[reason]} gives a reason that words/reasons.py does not know: {reason!r}"
    english = re.findall(r"[A-Za-z]{3,}", re.sub(r"\b[a-z]+_[a-z_]+\b", "", said))
    assert english == [], f"half of it stays English: {said!r}"
    assert say_reason("en", reason) == reason


def test_no_translation_stands_for_a_reason_that_nobody_gives_any_more() -> None:
    chinese = {say_reason("zh", reason) for reason in COLLECTED}
    filled = {zh.replace("{n}", FIGURE) for _, zh in REASONS if "{t}" not in zh}
    # Told only within other reasons, or made from pieces that the code keeps apart.
    assert filled - chinese == set()


def test_figures_go_over_as_they_are_and_reasons_within_reasons_are_translated() -> None:
    said = say_reason("zh", "vetoed: 36,000 tokens are over the limit of 35,282")
    assert said == "已被否决：36,000 词元超过上限 35,282"
    assert say_reason("zh", "the provider reported 9,000 tokens, 92% of the window") == (
        "服务商报告 9,000 词元，占窗口的 92%"
    )


def test_what_is_not_ours_stays_as_it_came_and_costs_nothing() -> None:
    for odd in ("", "a plugin's own reason", "{n} {t} (s)", "<b>vetoed", "\ud800"):
        assert say_reason("zh", odd) == odd
    began = time.monotonic()
    say_reason("zh", "vetoed: " * 100_000)
    say_reason("zh", "automatic compression has stopped: " + "1 in a row did not help (" * 1_000)
    say_reason("zh", "a compression of 1 messages by 1 edits (" * 1_000)
    assert time.monotonic() - began < 2


def test_every_kind_of_event_has_its_name_in_both_languages() -> None:
    asked_before = {"before_compress"}  # A question to listeners; it is never stored.
    kinds = collect_kinds() - asked_before
    assert {"compressed", "waited", "recalled"} <= kinds
    assert [kind for kind in kinds if not has_words(f"statistics.kind_{kind}")] == []
