"""Facts by rule: preferences, decisions, todos and key information, one verbatim sentence each, with its handle.

Meant to be few and right rather than many: a sentence must carry one of the cues below, be short, and be no
question. Summaries are never read for facts, only what people and the assistant said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from refold.conversation.edit import Fact, FactKind
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

_QUESTION = re.compile(r"[?？]\s*$|吗\s*[?？。]?\s*$")
_USER_PREFERS = re.compile(
    r"\bI(?:'d| would)? (?:prefer|like|love|hate|dislike|want|need|only)\b|\bmy (?:favou?rite|preference)\b|"
    r"\bprefer(?:red|ably)?\b|我(?:更)?(?:喜欢|偏好|想要|希望|讨厌|不喜欢|只要|需要)|最好(?:是|用|能)",
    re.I,
)
_USER_KEY = re.compile(
    r"\b[Mm]y \w+(?: \w+){0,3} (?:is|are|was)\b|\b(?:I am|I'm|I live|I work|call me)\b|"
    r"\b(?:the|our) \w+(?: \w+)? (?:is|are) (?:at |in |on )?\S*[\d/_@]|"
    r"我(?:叫|是|住在|的\S{1,8}是|在\S{1,12}(?:工作|上班))"
)
_DECIDES = re.compile(
    r"\b(?:decided|we(?:'ll| will) (?:use|go with|keep)|let's (?:use|go with|keep)|(?:go|going|went) with|chose|chosen|"
    r"agreed|settled on|instead of|rather than|the (?:root )?cause|the (?:real )?(?:issue|problem|bug) (?:is|was) "
    r"(?:that|in|with|because|caused)|the (?:fix|solution) (?:is|was)|fixed by)\b|"
    r"决定|选择了|改用|采用|方案是|结论|原因是|根因|确定(?:了|用|为)|就(?:用|选|定)",
    re.I,
)
# An assistant that says "I need to look" has looked by the next step: only what outlives a step is a todo.
_TODO = re.compile(
    r"\b(?:TODO|FIXME)\b|\b(?:remaining|still (?:missing|open|failing|to do)|not yet (?:done|implemented)|left to do|"
    r"next steps?)\b|^(?:[-*] )?\[ \]|"
    r"待办|还需要(?:做|处理|完成|修改)|接下来(?:要|需)|下一步(?:是|要|需)|尚未完成|未完成"
)
_USER_TODO = re.compile(
    r"\b(?:we|you|I) (?:still )?(?:need|have) to\b|\bdon't forget\b|别忘了|记得(?:要|帮|把|给|提醒|去)", re.I
)
_KEY = re.compile(
    r"\b(?:confirmed|verified|all tests pass|tests? (?:pass|fail)|successfully|turns out|it appears that|"
    r"found (?:that|the)|is located (?:in|at)|is defined (?:in|at)|booked|cancell?ed|updated|refund(?:ed)?|created|"
    r"total (?:is|of|cost))\b|"
    r"已(?:经)?(?:完成|修复|创建|取消|预订|更新)|(?:预订|支付|创建|修改|部署)成功|通过测试",
    re.I,
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
    if not FACT_CHARS_MIN <= len(sentence) <= FACT_CHARS_MAX or sentence[-1] in ":：" or _QUESTION.search(sentence):
        return None
    if role == "user":
        return _classify_user(sentence)
    if is_intent(sentence):
        return None
    if _DECIDES.search(sentence):
        return "decision"
    if _TODO.search(sentence):
        return "todo"
    return "key" if _KEY.search(sentence) else None


def _classify_user(sentence: str) -> FactKind | None:
    if is_rule(sentence) or _USER_PREFERS.search(sentence):
        return "preference"
    if _USER_KEY.search(sentence):
        return "key"
    if _DECIDES.search(sentence):
        return "decision"
    return "todo" if _TODO.search(sentence) or _USER_TODO.search(sentence) else None


def merge_facts(earlier: Iterable[Fact], later: Iterable[Fact]) -> list[Fact]:
    """Carry the facts of an earlier fold on; what was said again counts as said last."""
    merged: dict[str, Fact] = {}
    for fact in (*earlier, *later):
        merged.pop(fact.text, None)
        merged[fact.text] = fact
    return list(merged.values())[-FACTS_MAX:]
