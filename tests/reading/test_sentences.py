"""Sentences and the one cutter: verbatim slices in order, with the blocks and headings that belong to them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold.reading.sentences import shorten_text, split_sentences
from tests.rigs.effort import up_to

MARKS = (
    "```",
    "```py",
    "~~~",
    "# ",
    "- ",
    "1. ",
    "| a | b |",
    "> ",
    "**x**",
    ":",
    "：",
    "\n",
    "\n\n",
    "。",
    "？",
    ". ",
)
WORDS = (
    "e.g. ",
    "`",
    "<tag>",
    "    ",
    "中文",
    "word",
    "Word",
    "3.14",
    "\ud800",
    "\u2028",
    "\r\n",
    "\t",
    "…",
    "http://a.b/c?d",
)
PIECES = st.sampled_from((*MARKS, *WORDS))
TEXTS = st.one_of(st.text(max_size=300), st.lists(PIECES, max_size=60).map("".join))


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Use e.g. this one. See Fig. 3 for it.", ["Use e.g. this one.", "See Fig. 3 for it."]),
        ("It is 3.14, see http://a.b/c?d=e. Then stop.", ["It is 3.14, see http://a.b/c?d=e.", "Then stop."]),
        ("Call `a. B()` now. Done.", ["Call `a. B()` now.", "Done."]),
        ("He met J. Smith. They left.", ["He met J. Smith.", "They left."]),
        ("Wait... what. Then", ["Wait... what.", "Then"]),
        ("第一句。第二句！第三句？", ["第一句。", "第二句！", "第三句？"]),
        ("他说：“走吧。”然后走了；没有回来。", ["他说：“走吧。”", "然后走了；", "没有回来。"]),
        ("版本是 1.2.3。端口 8443", ["版本是 1.2.3。", "端口 8443"]),
        ("first line\nsecond line", ["first line", "second line"]),
        (
            "This line was wrapped by an editor after about sixty characters or\nso, and goes on here.",
            ["This line was wrapped by an editor after about sixty characters or\nso, and goes on here."],
        ),
        ("", []),
        ("---\n\n...", []),
    ],
)
def test_a_text_is_split_into_sentences(text: str, sentences: list[str]) -> None:
    assert [one.text for one in split_sentences(text)] == sentences


def test_a_sentence_keeps_the_list_that_it_introduces() -> None:
    text = "Two invoices are wrong:\n\n- INV-1 (Porto)\n- INV-2 (Lisboa)\n\nBoth were sent."
    first, item, other, last = split_sentences(text)
    assert first.block == "- INV-1 (Porto)\n- INV-2 (Lisboa)"
    assert (item.text, item.shape, item.lead) == ("INV-1 (Porto)", "item", "Two invoices are wrong:")
    assert (other.lead, last.lead) == ("Two invoices are wrong:", "")


def test_a_sentence_keeps_the_code_or_table_after_it() -> None:
    text = "It calls this.\n\n```python\na. b()\n```\nThe rates:\n\n| a | b |\n|---|---|\n| 1 | 2 |\nEnd."
    code, table, end = split_sentences(text)
    assert code.block == "```python\na. b()\n```"
    assert table.block == "| a | b |\n|---|---|\n| 1 | 2 |"
    assert end.text == "End."


def test_code_that_nothing_introduces_is_a_piece_of_its_own() -> None:
    (code,) = split_sentences("```\nnever closed\n")
    assert (code.shape, code.text) == ("code", "```\nnever closed\n")


def test_a_heading_leads_what_is_below_it() -> None:
    text = "## Cause\n\nThe lock is stale. It was never released.\n\n**Fix:**\n- drop it\n\nAll good."
    by_text = {one.text: one for one in split_sentences(text)}
    assert by_text["The lock is stale."].lead == by_text["It was never released."].lead == "Cause"
    assert by_text["drop it"].lead == "**Fix:**"
    assert by_text["All good."].lead == "Cause"


@given(text=TEXTS)
@settings(max_examples=up_to(400, quick=60))
def test_sentences_are_verbatim_slices_in_order_and_nothing_is_lost(text: str) -> None:
    at = 0
    covered = ""
    for one in split_sentences(text):
        assert text[one.start : one.stop] == one.text
        assert one.start >= at, "sentences do not overlap"
        assert one.lead in text
        assert one.block in text
        covered += one.text + one.block
        at = one.stop
    kept = {sign for sign in text if sign.isalpha()}
    assert kept <= set(covered)


@given(text=TEXTS, start=st.integers(0, 50))
@settings(max_examples=up_to(100))
def test_a_part_of_a_text_is_split_with_the_places_of_the_whole(text: str, start: int) -> None:
    for one in split_sentences(text, min(start, len(text)), max(0, len(text) - 5)):
        assert text[one.start : one.stop] == one.text


@given(text=TEXTS, chars_max=st.integers(0, 200), tail=st.sampled_from([0.0, 0.3, 0.5]))
@settings(max_examples=up_to(300, quick=60))
def test_a_shortened_text_counts_exactly_what_it_leaves_out(text: str, chars_max: int, tail: float) -> None:
    cut = shorten_text(text, chars_max, tail_share=tail)
    assert text.startswith(cut.head)
    assert text.endswith(cut.tail)
    assert len(cut.head) + cut.chars + len(cut.tail) == len(text)
    assert len(cut.head) + len(cut.tail) <= max(chars_max, 0) or not cut.chars
    assert text[len(cut.head) : len(text) - len(cut.tail)].count("\n") == cut.lines or not cut.chars
    if len(text) <= chars_max:
        assert (cut.head, cut.chars) == (text, 0)


def test_a_text_is_cut_between_sentences() -> None:
    text = "The first sentence is here. The second one follows. The third is in the middle. The last one ends it."
    cut = shorten_text(text, 70)
    assert cut.head == "The first sentence is here."
    assert cut.tail == "last one ends it."
    assert shorten_text("eight.nine ten", 8, tail_share=0).head == "eight.ni"
