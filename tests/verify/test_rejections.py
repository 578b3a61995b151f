"""Answers that are no summary, each with its reason."""

import pytest

from refold.stages.prompts import Demands, write_demands
from refold.stages.summarise import Answer, find_rejection

HEADINGS = Demands().headings
GOOD = "## Current Status\nAll is well.\n## Pending Tasks\n- Nothing."


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(""), "empty"),
        (Answer(" \n…\u200b"), "empty"),
        (Answer(GOOD, "length"), "cut off"),
        (Answer("", "tool_calls"), "tool call"),
        (Answer('{"name": "read_file", "arguments": {"path": "x"}}'), "tool call"),
        (Answer('<tool_call>{"x": 1}</tool_call>'), "tool call"),
        (Answer("whatever", "refusal"), "refused"),
        (Answer("", "content_filter"), "filter"),
        (Answer("I'm sorry, but I can't help with that."), "refused"),
        (Answer("I cannot summarise this conversation."), "refused"),
        (Answer("抱歉，我无法完成这个请求。"), "refused"),
        (Answer("<!DOCTYPE html><html><body>Sign in</body></html>"), "web page"),
        (Answer('{"summary": "half of'), "data"),
        (Answer('[{"role": "user"'), "data"),
        (Answer(GOOD, tokens=71, source_tokens=100), "71 tokens, its source 100"),
        (Answer("All is well.", headings=HEADINGS), "headings"),
        (Answer("## Current Status\nAll is well.", headings=HEADINGS), "headings"),
    ],
)
def test_an_answer_that_is_not_a_summary_is_refused_with_its_reason(answer: Answer, why: str) -> None:
    assert why in str(find_rejection(answer))


def test_an_answer_that_repeats_its_prompt_is_refused() -> None:
    demands = write_demands(Demands(), "en")
    prompt = f"{demands}\n\nuser: {'words of the user. ' * 100}"
    assert "repeats" in str(find_rejection(Answer(prompt, prompt=prompt, demands=demands)))
    assert "repeats" in str(find_rejection(Answer(f"Sure! {demands}", prompt=prompt, demands=demands)))
    assert "repeats" in str(find_rejection(Answer(prompt[-900:-100], prompt=prompt, demands=demands)))


@pytest.mark.parametrize(
    "answer",
    [
        Answer(GOOD, headings=HEADINGS),
        Answer("## 当前状态\n正常。\n## 待办事项\n无。", headings=HEADINGS),
        Answer("**Current Status**\nx y\n**Key Decisions:**\nz w", headings=HEADINGS),
        Answer(GOOD, tokens=70, source_tokens=100),
        Answer("The user asked for a refund and the assistant could not help."),
        Answer("I'm sorry was what the user wrote. " + "Then they went on to talk about it. " * 40),
    ],
)
def test_a_proper_summary_is_taken(answer: Answer) -> None:
    assert not find_rejection(answer)
