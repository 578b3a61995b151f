"""Answers that are not summaries, each with its reason."""

from typing import Any

import pytest

from refold.conversation.reason import Reason
from refold.stages.prompts import Demands, Question, write_demands
from refold.stages.stage import Reply
from refold.stages.summarise import find_rejection

HEADINGS = Demands().headings
GOOD = "## Current Status\nAll is well.\n## Pending Tasks\n- Nothing."


def judge(text: str, finish_reason: str = "stop", prompt: str = "", demands: str = "", **sizes: Any) -> Reason:
    return find_rejection(Reply(text, finish_reason), Question(prompt, demands), **sizes)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (judge(""), "empty"),
        (judge(" \n…\u200b"), "empty"),
        (judge(GOOD, "length"), "cut off"),
        (judge("", "tool_calls"), "tool call"),
        (judge('{"name": "read_file", "arguments": {"path": "x"}}'), "tool call"),
        (judge('<tool_call>{"x": 1}</tool_call>'), "tool call"),
        (judge("whatever", "refusal"), "refused"),
        (judge("", "content_filter"), "filter"),
        (judge("I'm sorry, but I can't help with that."), "refused"),
        (judge("I cannot summarise this conversation."), "refused"),
        (judge("抱歉，我无法完成这个请求。"), "refused"),
        (judge("<!DOCTYPE html><html><body>Sign in</body></html>"), "web page"),
        (judge('{"summary": "half of'), "data"),
        (judge('[{"role": "user"'), "data"),
        (judge(GOOD, tokens=71, source_tokens=100), "71 tokens, its source 100"),
        (judge("All is well.", headings=HEADINGS), "headings"),
    ],
)
def test_an_answer_that_is_not_a_summary_is_refused_with_its_reason(found: Reason, why: str) -> None:
    assert why in str(found)


def test_an_answer_that_repeats_its_prompt_is_refused() -> None:
    demands = write_demands(Demands(), "en")
    prompt = f"{demands}\n\nuser: {'words of the user. ' * 100}"
    assert "repeats" in str(judge(prompt, prompt=prompt, demands=demands))
    assert "repeats" in str(judge(f"Sure! {demands}", prompt=prompt, demands=demands))
    assert "repeats" in str(judge(prompt[-900:-100], prompt=prompt, demands=demands))


@pytest.mark.parametrize(
    "found",
    [
        judge(GOOD, headings=HEADINGS),
        judge("## Current Status\nAll is well.", headings=HEADINGS),
        judge("## 当前状态\n正常。\n## 待办事项\n无。", headings=HEADINGS),
        judge("**Current Status**\nx y\n**Key Decisions:**\nz w", headings=HEADINGS),
        judge(GOOD, tokens=70, source_tokens=100),
        judge("The user asked for a refund and the assistant could not help."),
        judge("I'm sorry was what the user wrote. " + "Then they went on to talk about it. " * 40),
    ],
)
def test_a_proper_summary_is_taken(found: Reason) -> None:
    assert not found
