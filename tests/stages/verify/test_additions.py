"""Essentials that a summary left out are added verbatim, where they belong."""

from refold.reading.advance import advance, make_reader
from refold.reading.state import State
from refold.stages.verify import add_missing
from tests.rigs.model import parse, says


def state_of(*raws: object) -> State:
    return advance(State(), parse(list(raws)), make_reader())


ASKED = (
    says("user", "Always answer in French."),
    says("assistant", "D'accord."),
    says("user", "Book the 7:30 train to Lyon."),
)


def test_an_open_ask_and_a_standing_rule_are_added_under_their_headings() -> None:
    added = add_missing(
        "## Pending Tasks\n- Write a mail.\n## Current Status\n- Fine.",
        state_of(*ASKED),
        len,
        tokens_max=500,
        layout="sections",
    )
    assert added.text == (
        "## Pending Tasks\n- Write a mail.\nU> Book the 7:30 train to Lyon.\n## Current Status\n- Fine.\n"
        "## User Preferences\nU> Always answer in French."
    )
    assert (added.pending, added.rules) == (1, 1)


def test_what_the_summary_says_already_is_not_said_twice() -> None:
    words = "The user said: Book the 7:30 train to Lyon. And: Always answer in French."
    assert add_missing(words, state_of(*ASKED), len, tokens_max=500).text == words


def test_without_headings_the_asks_follow_the_words_and_the_room_is_kept() -> None:
    added = add_missing("Small talk.", state_of(*ASKED), len, tokens_max=40, layout=None)
    assert added.text == "Small talk.\nU> Book the 7:30 train to Lyon."


def test_chinese_headings_are_used_in_a_chinese_conversation() -> None:
    span = state_of(says("user", "以后都用繁体字。"), says("assistant", "好"), says("user", "帮我订票"))
    added = add_missing("## 经过\n正常。", span, len, tokens_max=500, language="zh")
    assert "## 未完成\nU> 帮我订票" in added.text
    assert "## 用户的要求\nU> 以后都用繁体字。" in added.text
