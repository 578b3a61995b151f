"""Essentials that a summary left out are added verbatim, where they belong."""

from refold.stages.extract.story import read_span
from refold.stages.verify import add_missing
from tests.fold_llm.talk import parse, says


def span_of(*raws: object, language: str = "en"):  # type: ignore[no-untyped-def]
    messages = parse(list(raws))
    return read_span(messages, messages, (), language)  # type: ignore[arg-type]


ASKED = (
    says("user", "Always answer in French."),
    says("assistant", "D'accord."),
    says("user", "Book the 7:30 train to Lyon."),
)


def test_an_open_ask_and_a_standing_rule_are_added_under_their_headings() -> None:
    added = add_missing(
        "## Pending Tasks\n- Write a mail.\n## Current Status\n- Fine.",
        span_of(*ASKED),
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
    assert add_missing(words, span_of(*ASKED), len, tokens_max=500).text == words


def test_without_headings_the_asks_follow_the_words_and_the_room_is_kept() -> None:
    added = add_missing("Small talk.", span_of(*ASKED), len, tokens_max=40, layout=None)
    assert added.text == "Small talk.\nU> Book the 7:30 train to Lyon."


def test_chinese_headings_are_used_in_a_chinese_conversation() -> None:
    span = span_of(says("user", "以后都用繁体字。"), says("assistant", "好"), says("user", "帮我订票"), language="zh")
    added = add_missing("## 经过\n正常。", span, len, tokens_max=500)
    assert "## 未完成\nU> 帮我订票" in added.text
    assert "## 用户的要求\nU> 以后都用繁体字。" in added.text
