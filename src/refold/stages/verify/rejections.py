"""Why an answer is no summary at all: empty, cut off, a tool call, a refusal, the prompt again, too long, no form.

Each reason is a sentence for the report, and for the one time the model is asked again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# A summary longer than this share of what it replaces sums nothing up.
SIZE_SHARE_MAX = 0.7
HEADINGS_MIN = 2
ECHO_CHARS = 60
COPIED_CHARS = 400
# A refusal is short, or opens the answer; a summary may well tell of one that happened.
REFUSAL_CHARS_MAX = 600

_REASONS = {
    "length": "the answer was cut off",
    "tool_calls": "the answer was a tool call",
    "refusal": "the model refused",
    "content_filter": "the provider's filter stopped the answer",
    "error": "there was no answer",
}
_REFUSAL = re.compile(
    r"\A\W{0,4}(?:(?:I['’]?m|I am) (?:(?:very |really |so )?sorry|unable|not able)|(?:sorry|apologies|unfortunately),? "
    r"(?:but )?(?:I|as)\b|I (?:can(?:no|['’])t|could not|won['’]t|will not|must decline|do not feel)|as an AI\b|"
    r"很?抱歉|对不起|我(?:无法|不能|没有办法)|作为(?:一个|一名)?(?:AI|人工智能)|不好意思)",
    re.I,
)
_CALL = re.compile(
    r"\A\s*(?:```(?:json|xml)?\s*)?(?:<\|?(?:tool_call|function_call|tool_use|invoke|function=|antml)|"
    r"\[TOOL_CALLS?\]|\{\s*\"(?:name|tool|function|tool_name|tool_calls|action)\"\s*:)",
    re.I,
)
_PAGE = re.compile(r"\A\s*(?:<!doctype|<html|<\?xml|<head|<body)", re.I)
_DATA = re.compile(r"\A\s*(?:```(?:json)?\s*)?[\[{]\s*(?:[\"'{\[]|\Z)")
_WORD = re.compile(r"\w{2}|[\u3400-\u9fff]")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model answered, and what it was to be. ``headings`` are those of which some must be there."""

    text: str
    finish_reason: str = "stop"
    prompt: str = ""
    demands: str = ""
    tokens: int = 0
    source_tokens: int = 0
    headings: Sequence[str] = ()


def find_rejection(answer: Answer) -> str:
    """Return why an answer cannot be a summary; empty if it can."""
    told = _REASONS.get(answer.finish_reason, "")
    if told:
        return told
    text = answer.text.strip()
    if not _WORD.search(text):
        return "the answer was empty"
    if _CALL.match(text):
        return "the answer was a tool call"
    if _PAGE.match(text):
        return "the answer was a web page"
    if _REFUSAL.match(text) and len(text) <= REFUSAL_CHARS_MAX:
        return "the model refused"
    if is_echo(text, answer.prompt, answer.demands):
        return "the answer repeats its prompt"
    if answer.source_tokens and answer.tokens > answer.source_tokens * SIZE_SHARE_MAX:
        return f"the answer has {answer.tokens:,} tokens, what it sums up {answer.source_tokens:,}"
    if answer.headings and _count_headings(text, answer.headings) < min(HEADINGS_MIN, len(answer.headings)):
        return "the answer lacks the headings that were asked for"
    if _DATA.match(text):
        return "the answer was data, not words"
    return ""


def is_echo(text: str, prompt: str, demands: str) -> bool:
    """Tell whether an answer is the question again, or a long piece of it."""
    opening = " ".join(demands.split())[:ECHO_CHARS]
    if len(opening) >= ECHO_CHARS // 2 and opening in " ".join(text[:20_000].split()):
        return True
    return len(text) >= COPIED_CHARS and bool(prompt) and text in prompt


def _count_headings(text: str, headings: Sequence[str]) -> int:
    lines = {line.strip().strip("#*:： ").casefold() for line in text.splitlines() if len(line) < 80}
    return sum(heading.casefold() in lines for heading in headings)
