"""Prompts for summaries: they fit, they update the earlier record, and nothing in them poses as an instruction."""

import pytest

from refold.conversation.view import FoldRecord
from refold.stages.prompts import (
    Demands,
    PromptRoom,
    Told,
    cut_middle,
    fit_record,
    write_demands,
    write_question,
    write_record,
    write_repair,
)
from refold.tokens import TokenCounter
from tests.rigs.model import chatting, parse, says, working

COUNT = TokenCounter().count_text
STYLES = ("sections", "archive", "importance", "hybrid", "turns")


def test_tool_text_is_cut_from_the_middle_out_only_as_far_as_it_must() -> None:
    messages = parse(working(10, lines=40))
    whole = write_record(messages, language="en", chars_max=1_000_000)
    sizes = [COUNT(whole) + 1, COUNT(whole) * 95 // 100, COUNT(whole) * 6 // 10, COUNT(whole) * 2 // 10]
    records = [fit_record(messages, PromptRoom(2_000, 10**6, size, COUNT), language="en") for size in sizes]
    assert records[0] == whole
    for record, size in zip(records, sizes, strict=True):
        assert COUNT(record) <= size
        assert "Log 9 comes next." in record, "words stay when tool text goes"
    assert "line 0: order 1000" in records[1]
    assert "line 39: order 1039" in records[1]
    assert [len(record) for record in records] == sorted((len(record) for record in records), reverse=True)


@pytest.mark.parametrize("tokens_max", [200, 500, 2_000])
def test_words_alone_are_cut_as_well_if_they_are_too_many(tokens_max: int) -> None:
    messages = parse(chatting(600, "zh"))
    record = fit_record(messages, PromptRoom(0, 10**6, tokens_max, COUNT), language="zh")
    assert COUNT(record) <= max(tokens_max, 250)


@pytest.mark.parametrize("style", STYLES)
def test_every_prompt_is_in_the_language_of_the_conversation_and_forbids_inventing(style: str) -> None:
    english = write_demands(Demands(style, 700, 300), "en")  # type: ignore[arg-type]
    chinese = write_demands(Demands(style, 700, 300), "zh")  # type: ignore[arg-type]
    assert english.isascii()
    assert "write none that does not occur there" in english.replace("\n", " ")
    assert "对话里没有的一概不写" in chinese
    assert not any(mark in english + chinese for mark in ("{tokens}", "{chars}", "{headings}"))


def test_the_earlier_record_comes_before_the_messages_since_and_can_be_told_from_them() -> None:
    earlier = FoldRecord("f:1", "- They began. ⟦end of record⟧ ⟨m:12345678⟩")
    question = write_question(
        parse(chatting(4)), [earlier], Demands(), PromptRoom(count=COUNT), language="en", told=Told("keep ⟦names⟧")
    )
    prompt = question.prompt
    assert prompt.startswith(question.demands)
    assert prompt.index("keep [[names]]") < prompt.index("- They began.") < prompt.index("Please explain step 0")
    assert "⟦" not in prompt
    assert "⟨" not in prompt
    assert prompt.endswith("End of the conversation.")


def test_the_repair_says_what_was_wrong_after_the_same_question() -> None:
    question = write_question(parse(chatting(4)), [], Demands(), PromptRoom(), language="zh")
    repair = write_repair(question, "the answer was empty", "zh")
    assert repair.startswith(question.prompt)
    assert "the answer was empty" in repair


def test_a_custom_prompt_may_hold_braces_and_percent_signs() -> None:
    text = write_demands(Demands("hybrid", 10, 20, custom='Give {"json": 1} in {chars} characters, 100 %s.'), "en")
    assert text.startswith('Give {"json": 1} in 20 characters, 100 %s.')
    assert Demands(custom="x").headings == ()


def test_restored_content_replaces_its_path() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    placeholder = "Tool result is at: offloaded/s/1.txt"
    messages = parse(
        [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": placeholder},
            says("user", placeholder),
        ]
    )
    record = write_record(messages, language="en", chars_max=0, restored={placeholder: "the real content"})
    assert "tool: the real content" in record
    assert f"user: {placeholder}" in record, "only a tool's result is restored"


def test_cutting_the_middle_says_how_much_is_missing() -> None:
    assert cut_middle("a" * 100, 10) == "aaaaaa\n[… 90 …]\naaaa"
    assert cut_middle("short", 10) == "short"
