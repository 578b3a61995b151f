"""The words of the people: what was asked, which rules stand, what is still open; and what the assistant concluded.

Everything here is verbatim. A long text is shortened at borders of sentences, with the exact number of characters
left out; nothing is reworded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from refold.conversation.handle import message_handle
from refold.conversation.message import Message

# A pasted document is not a list of the user's wishes: in a long message a rule must open its sentence.
PASTED_CHARS = 1_500
RULE_CHARS_MAX = 300
RULES_MAX = 40
SCAN_CHARS = 40_000

# Where a sentence or a line ends.
BORDER = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])|\n+")
_RULE_STARTS = re.compile(
    r"[-*•\d.)\s]{0,6}(?:and |but |also,? |so |ok,? |please,? )?"
    r"(?:always (?!been|had|was|rooting|by|in|there)|never (?!mind|been|had|heard|seen|thought)|"
    r"don't (?!you|think|know|worry)|do not (?!think|know)|you (?:must (?!have)|should(?:n't| not| never| always)\b)|"
    r"must (?!have|be so)|make sure|ensure|remember (?:to|that|:)|from now on|avoid |only use|use only|"
    r"stop \w+ing|keep in mind|no more |important:)",
    re.I,
)
_RULE_INSIDE = re.compile(
    r"\bfrom now on\b|\bunder no circumstances\b|\bat all times\b|\bmust (?:not|never|always|only|use)\b|"
    r"\b(?:you|please|should) (?:always|never|not|only)\b|\bplease (?:don't|do not|avoid|make sure|use|keep)\b|"
    r"\bI (?:only want|never want|always want|don't want|do not want|prefer)\b",
    re.I,
)
_RULE_ZH = re.compile(
    r"以后(?:都|请|不|别|要|用|每|再|统一)|从现在(?:起|开始)|今后|记住|务必|必须(?![的啊呀得知])|不要再|请不要|千万(?:别|不)|"
    r"禁止|不许|不准|一律|永远不|每次都|^(?:请|你)?一定要|^(?:请)?(?:不要|别|只用|只能|始终|总是)"
)
# Words that open a step rather than tell what came of it.
_INTENT = re.compile(
    r"(?:THOUGHT:\s*)?(?:[-*] )?(?:(?:ok(?:ay)?|now|so|wait|hmm|first|next|then|great|perfect|excellent)[,!.]? )*"
    r"(?:let me|let's|I'll|I will|I should|I need to|I'm going to|maybe|now (?:run|check|insert))\b",
    re.I,
)
_QUESTION = re.compile(r"[?？]\s*+$|吗\s*+(?:[?？。]\s*+)?$")


@dataclass(frozen=True, slots=True)
class Saying:
    """Something said in one message, verbatim."""

    at: int
    text: str
    handle: str
    role: str = "user"


def find_sayings(messages: Sequence[Message], role: str) -> list[Saying]:
    """Return what a person (``user``) or the assistant said, one for each message with words, in order."""
    found = []
    for at, message in enumerate(messages):
        if message.role != role:
            continue
        text = "\n".join(part.text for part in message.parts if part.kind == "text" and part.text.strip())
        if text:
            found.append(Saying(at, text.strip(), message_handle(message), role))
    return found


def split_sentences(text: str) -> list[str]:
    """Return the sentences and lines of a text, each verbatim, blanks around them left out."""
    return [piece for raw in BORDER.split(text) if (piece := raw.strip())]


def find_rules(asks: Iterable[Saying]) -> list[Saying]:
    """Return the sentences in which a person set a standing rule, newest last, each once."""
    rules: dict[str, Saying] = {}
    for ask in asks:
        is_pasted = len(ask.text) > PASTED_CHARS
        for sentence in split_sentences(ask.text[:SCAN_CHARS]):
            if len(sentence) <= RULE_CHARS_MAX and is_rule(sentence, is_pasted=is_pasted):
                rules.pop(sentence, None)
                rules[sentence] = Saying(ask.at, sentence, ask.handle)
    return list(rules.values())[-RULES_MAX:]


def is_rule(sentence: str, *, is_pasted: bool = False) -> bool:
    """Tell whether a sentence of a person sets a rule for what comes after."""
    if _QUESTION.search(sentence):
        return False
    if _RULE_STARTS.match(sentence):
        return True
    return not is_pasted and bool(_RULE_INSIDE.search(sentence) or _RULE_ZH.search(sentence))


def is_intent(sentence: str) -> bool:
    """Tell whether a sentence only says what the assistant is about to do."""
    return bool(_INTENT.match(sentence))


def find_pending(messages: Sequence[Message], asks: Sequence[Saying]) -> list[Saying]:
    """Return the asks at the end of a span that the assistant has not begun to answer."""
    begun = max((at for at, message in enumerate(messages) if message.role == "assistant"), default=-1)
    return [ask for ask in asks if ask.at > begun]


def shorten(text: str, chars_max: int) -> tuple[str, int, str]:
    """Return head, exact number of characters left out, and tail; the number is 0 if the text is short enough.

    Cuts fall at borders of sentences where one lies near, so that what is kept reads whole.
    """
    if len(text) <= chars_max:
        return text, 0, ""
    head_end = _border_before(text, max(1, chars_max * 7 // 10))
    tail_start = _border_after(text, len(text) - chars_max * 3 // 10)
    if tail_start <= head_end:
        return text, 0, ""
    head, tail = text[:head_end].rstrip(), text[tail_start:].lstrip()
    return head, len(text) - len(head) - len(tail), tail


def shorten_words(text: str, chars_max: int) -> str:
    """Return the whole sentences at the beginning that fit; of a first one that does not, what fits."""
    if len(text) <= chars_max:
        return text
    end = 0
    for border in BORDER.finditer(text):
        if border.start() > chars_max:
            break
        end = border.start()
    if end:
        return text[:end].rstrip()
    space = text.rfind(" ", chars_max // 2, chars_max)
    return text[: space if space > 0 else chars_max].rstrip()


def _border_before(text: str, at: int) -> int:
    window = text[max(0, at - at // 2) : at]
    last = max((match.end() for match in BORDER.finditer(window)), default=0)
    if not last:
        space = window.rfind(" ")
        last = space + 1 if space > 0 else len(window)
    return at - len(window) + last


def _border_after(text: str, at: int) -> int:
    window = text[at : at + (len(text) - at) // 2]
    first = BORDER.search(window)
    if first:
        return at + first.end()
    space = window.find(" ")
    return at + (space + 1 if space >= 0 else 0)
