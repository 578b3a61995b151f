"""Facts by rule: preferences, decisions, todos and key information, one verbatim sentence each, with its handle.

Meant to be few and right rather than many: a sentence must carry one of the ``cues``, be short, and be no question.
Summaries are never read for facts, only what people and the assistant said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from refold.conversation.edit import Fact, FactKind
from refold.stages.extract import cues
from refold.stages.extract.words import PASTED_CHARS, SCAN_CHARS, Saying, is_intent, is_rule, split_sentences

FACT_CHARS_MAX = 240
FACT_CHARS_MIN = 4
FACTS_MAX = 60
# S3.7: a summary, of ours or of another program, is hearsay.
_SUMMARY = (
    "[Context Summary]",
    "[Truncated Summary]",
    "[COMPACTED_CONTEXT]",
    "[Compressed History]",
    "[历史对话摘要]",
    "⟦",
)


def find_facts(sayings: Sequence[Saying]) -> list[Fact]:
    """Return the facts in what was said, in order, each sentence once, the newest if there are too many."""
    found: dict[str, Fact] = {}
    for saying in sayings:
        if saying.text.startswith(_SUMMARY):
            continue
        is_pasted = len(saying.text) > PASTED_CHARS and saying.role == "user"
        for sentence in split_sentences(saying.text[:SCAN_CHARS]):
            kind = None if is_pasted else classify_sentence(sentence, saying.role)
            if kind is not None:
                found.pop(sentence, None)
                found[sentence] = Fact(kind, sentence, saying.handle)
    return list(found.values())[-FACTS_MAX:]


def classify_sentence(sentence: str, role: str) -> FactKind | None:
    """Return what kind of fact a sentence is, or None."""
    if not FACT_CHARS_MIN <= len(sentence) <= FACT_CHARS_MAX or sentence[-1] in ":：" or cues.QUESTION.search(sentence):
        return None
    if role == "user":
        return _classify_user(sentence)
    if is_intent(sentence) or cues.CONDITION.match(sentence):
        return None
    if _is_open(sentence):
        return "todo"
    if _has(sentence, cues.DECIDES, cues.DECIDES_ZH):
        return "decision"
    return "key" if _has(sentence, cues.KEY, cues.KEY_ZH) else None


def _classify_user(sentence: str) -> FactKind | None:
    if _has(sentence, cues.USER_TODO, cues.USER_TODO_ZH):
        return "todo"
    if _has(sentence, cues.DECIDES, cues.DECIDES_ZH):
        return "decision"
    if is_rule(sentence) or _has(sentence, cues.USER_PREFERS, cues.USER_PREFERS_ZH):
        return "preference"
    if _is_open(sentence):
        return "todo"
    if cues.STATES_NOT.match(sentence) or cues.STATES_NOT_ZH.search(sentence):
        return None
    return "key" if cues.USER_STATES.match(sentence) or _has(sentence, cues.USER_KEY, cues.USER_KEY_ZH) else None


def _is_open(sentence: str) -> bool:
    return sentence.startswith(("[ ]", "- [ ]", "* [ ]")) or _has(sentence, cues.TODO, cues.TODO_ZH)


def _has(sentence: str, english: re.Pattern[str], chinese: re.Pattern[str]) -> bool:
    return bool(english.search(sentence) or (not sentence.isascii() and chinese.search(sentence)))


def merge_facts(earlier: Iterable[Fact], later: Iterable[Fact]) -> list[Fact]:
    """Carry the facts of an earlier fold on; what was said again counts as said last."""
    merged: dict[str, Fact] = {}
    for fact in (*earlier, *later):
        merged.pop(fact.text, None)
        merged[fact.text] = fact
    return list(merged.values())[-FACTS_MAX:]
