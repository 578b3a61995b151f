"""What people and the assistant say, as events."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold.conversation.message import Part
from refold.reading.events import HarnessNote, PlanItem, Statement, Utterance, WorkPlan
from refold.reading.words import HEAD_CHARS, TAIL_CHARS, read_words, weigh
from tests.rigs.effort import up_to


def say(text: str) -> list[Statement]:
    return [event for event in read_words(Part("text", text), 0, "assistant") if isinstance(event, Statement)]


def ask(text: str) -> list[Utterance]:
    return [event for event in read_words(Part("text", text), 0, "person") if isinstance(event, Utterance)]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Never push to main.", "rule"),
        ("以后都用中文回答。", "rule"),
        ("No, use the other branch.", "correction"),
        ("不对，应该用另一个分支。", "correction"),
        ("OK, do that.", "approval"),
        ("行，就这么办。", "approval"),
        ("Could you rename the module?", "request"),
        ("Fix the login test.", "request"),
        ("帮我找一家便宜的酒店。", "request"),
        ("Why is it slow?", "question"),
        ("他是哪一年出生的？", "question"),
        ("My sister Anna lives in Oslo.", "remark"),
        ("她2010年受邀担任了嘉宾。", "remark"),
    ],
)
def test_a_persons_sentence_has_a_kind(text: str, kind: str) -> None:
    assert [event.kind for event in ask(text)] == [kind]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("The tests pass.", "finding"),
        ("It fails because the mock has no port.", "cause"),
        ("I'll use a lock instead of polling.", "decision"),
        ("I've added the test.", "done"),
        ("It has not been merged.", "finding"),
        ("Let me check the tests.", "intent"),
        ("Maybe it fails because the cache is stale.", "guess"),
        ("Why is it still called?", "guess"),
        ("Would you like me to merge it?", "question"),
        ("So the fix is to drop the cache.", "conclusion"),
        ("You're welcome!", "remark"),
        ("可能是缓存过期导致的。", "guess"),
        ("根因是锁没有释放。", "cause"),
        ("已修复并提交。", "done"),
        ("还没有提交。", "finding"),
        ("让我先看一下配置。", "intent"),
        ("需要我现在提交吗？", "question"),
    ],
)
def test_a_sentence_of_the_assistant_has_a_kind(text: str, kind: str) -> None:
    assert [event.kind for event in say(text)] == [kind]


def test_a_hypothesis_is_never_a_finding_and_wait_no_retracts() -> None:
    first, second = say("I think the lock is the root cause. Wait, no, that's wrong.")
    assert (first.kind, first.retracts) == ("guess", False)
    assert second.retracts


def test_the_last_sentence_of_a_long_thought_is_its_conclusion() -> None:
    thoughts = "".join(f"If case {number} holds, the header might be sent twice.\n" for number in range(600))
    events = say(f"{thoughts}\nThe second option keeps both callers working.")
    assert len(thoughts) > 30_000
    assert (events[-1].text, events[-1].kind) == ("The second option keeps both callers working.", "conclusion")
    assert [event.is_last for event in events].count(True) == 1
    assert events[-1].is_last
    assert max(events, key=weigh) is events[-1]


def test_politeness_does_not_close_a_message() -> None:
    events = say("Your flight has been changed to HAT266. If you need anything else, feel free to ask!")
    assert [event.is_last for event in events] == [True, False]


def test_a_giant_text_is_read_at_both_ends() -> None:
    text = "It begins here.\n" + "word " * (HEAD_CHARS + TAIL_CHARS) + "\nSo I will proceed with the second option."
    events = say(text)
    assert events[0].text == "It begins here."
    assert events[-1].text == "So I will proceed with the second option."
    assert all(text[event.start : event.stop] == event.text for event in events)


def test_items_of_a_list_are_marked_as_part_of_its_block() -> None:
    claim, *items, end = say("Two invoices charge a night too many:\n- INV-1 (Porto)\n- INV-2 (Faro)\nBoth are open.")
    assert claim.block == "- INV-1 (Porto)\n- INV-2 (Faro)"
    assert [item.in_block for item in items] == [True, True]
    assert [item.lead for item in items] == [claim.text] * 2
    assert not claim.in_block
    assert not end.in_block


def test_the_stamp_of_a_recorded_chat_says_who_speaks() -> None:
    (first, second) = ask("(1:56 pm on 8 May, 2023) Caroline: I adopted a cat. She is called Bailey.")
    assert first.text == "I adopted a cat."
    assert first.lead == second.lead == "(1:56 pm on 8 May, 2023) Caroline:"


def test_a_label_is_no_part_of_the_first_sentence() -> None:
    (event,) = say("THOUGHT: The tests passed.")
    assert (event.text, event.start) == ("The tests passed.", 9)


def test_a_notice_of_the_harness_is_one_event_and_never_a_wish() -> None:
    text = "Please always provide EXACTLY ONE action in triple backticks, found 2 actions."
    (event,) = read_words(Part("text", text), 0, "harness")
    assert isinstance(event, HarnessNote)
    assert (event.kind, event.text) == ("complaint", text)


@given(text=st.text(max_size=400), voice=st.sampled_from(["person", "assistant", "harness"]))
@settings(max_examples=up_to(200, quick=30))
def test_every_event_is_a_verbatim_slice_of_its_part(text: str, voice: str) -> None:
    for event in read_words(Part("text", text), 3, voice):
        assert text[event.start : event.stop] == event.text
        assert event.part == 3


def test_a_list_at_the_end_is_closed_by_what_it_says() -> None:
    text = "Everything was checked twice, on both systems. " * 15 + "Three files changed:\n- a.py\n- b.py\n- c.py"
    closing = [event for event in say(text) if event.is_last]
    assert [(event.text, event.kind) for event in closing] == [("Three files changed:", "conclusion")]


def test_the_next_step_at_the_end_of_a_long_thought_is_not_its_point() -> None:
    text = "The dtype is lost in the adapter. " * 20 + "But first, I should revert my debug prints."
    assert say(text)[-1].kind != "conclusion"


def test_a_list_of_boxes_is_a_plan() -> None:
    text = "The plan:\n- [x] write the test\n- [ ] fix the bug\n\nI start now."
    (plan,) = [event for event in read_words(Part("text", text), 0, "assistant") if isinstance(event, WorkPlan)]
    assert plan.items == (PlanItem("write the test", "[x]"), PlanItem("fix the bug", "[ ]"))
    assert text[plan.start : plan.stop] == plan.text


def test_a_document_corrects_and_approves_nothing() -> None:
    report = "That's wrong. The header must never be sent twice.\n"
    assert [event.kind for event in ask(report)] == ["correction", "rule"]
    assert {event.kind for event in ask("It is about headers.\n" * 12 + report * 60)} == {"remark", "rule"}
    assert ask("No, that's wrong.\n" + report * 60)[0].kind == "correction"
