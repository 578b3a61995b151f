"""Injection: whether the newest user message refers to what left the view, and the words that are put at the tail.

The decision is pure and says why. What is added stands between two marked lines, is exact, and is never longer than its
budget; it goes after everything else, so that no cached prefix changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from refold.conversation.handle import mark
from refold.conversation.language import detect_language
from refold.recall.options import RecallOptions
from refold.recall.passages import is_question
from refold.recall.search import Recalled
from refold.recall.words import find_words, query_words, value_words
from refold.stages.extract.frame import CLOSES, OPENS, neutralise

# Scores are shares of what the message asks about. Tuned by the tests' conversations: rather too quiet than too loud.
SCORE_CUED = 0.2
SCORE_VALUE = 0.25
SCORE_ASKED = 0.5
SCORE_ALWAYS = 0.05
_WORDS_MIN = 2
_CUE = re.compile(
    r"\b(?:earlier|previously|before|again|last time|you (?:said|told|mentioned|suggested|found)|"
    r"(?:we|I) (?:said|discussed|talked|decided|agreed|chose|mentioned|told|used|had|saw|picked)|"
    r"remember|remind me|did (?:we|I|you)|was (?:it|that)|go back to|the (?:same|first|original|previous))\b|"
    r"之前|刚才|上次|前面|早先|以前|还记得|记得吗|提到(?:过|的)|说过|讨论过|决定(?:的|了)|当时|先前|最初|原来的",
    re.I,
)
_WORDING = {
    "en": ("recalled from earlier in this conversation, exact; not part of the request", "end of recalled text"),
    "zh": ("以下为本次对话较早内容的原文摘录，不属于请求", "摘录结束"),
}


@dataclass(frozen=True, slots=True)
class Injection:
    """What goes to the tail, and why. ``text`` is empty unless ``acts``."""

    acts: bool
    reason: str
    snippets: tuple[Recalled, ...] = ()
    text: str = ""
    tokens: int = 0


def decide_injection(
    newest: str,
    found: Sequence[Recalled],
    options: RecallOptions,
    *,
    hidden: int,
    in_view: str,
    count_text: Callable[[str], int],
) -> Injection:
    """Say whether snippets of hidden messages go to the tail. ``in_view`` is the text that the model sees anyway."""
    if options.inject == "off":
        return Injection(False, "inject is off")
    if not hidden:
        return Injection(False, "nothing is folded")
    if not newest.strip():
        return Injection(False, "the newest user message has no words")
    # What only stands near a match may answer a search; unasked, it would be noise.
    asked = query_words(newest).keys()
    matching = [one for one in found if not asked.isdisjoint(find_words(one.text))]
    unseen = [one for one in matching if one.text.strip() not in in_view]
    if not unseen:
        return Injection(False, "nothing hidden matches" if not matching else "what matches is in view already")
    needed, why = _find_reason(newest, unseen, options, in_view)
    chosen = [one for one in unseen if one.score >= needed]
    if not chosen:
        return Injection(False, f"{why}; the best match tells {unseen[0].score:.0%} of it, {needed:.0%} is needed")
    return _write(newest, chosen[: options.inject_snippets_max], options, why, count_text)


def _find_reason(newest: str, unseen: Sequence[Recalled], options: RecallOptions, in_view: str) -> tuple[float, str]:
    """Return the score that a snippet needs, and what in the message speaks for adding it."""
    if options.inject == "always":
        return SCORE_ALWAYS, "inject is always"
    cue = _CUE.search(newest)
    if cue is not None and len(query_words(newest)) >= _WORDS_MIN:
        return SCORE_CUED, f"the message refers back ({cue.group()!r})"
    values = [value for value in value_words(newest) if value not in in_view.casefold()]
    named = next((value for value in values for one in unseen if value in one.text.casefold()), None)
    if named is not None:
        return SCORE_VALUE, f"the message names {named[:60]!r}, which is only in folded messages"
    if is_question(newest.strip()) and len(query_words(newest)) >= _WORDS_MIN:
        return SCORE_ASKED, "the message asks a question"
    return 2.0, "the message does not refer to folded messages"


def _write(
    newest: str, chosen: Sequence[Recalled], options: RecallOptions, why: str, count_text: Callable[[str], int]
) -> Injection:
    """Write the snippets out, fewer if they do not fit."""
    for count in range(len(chosen), 0, -1):
        text = write_snippets(chosen[:count], newest)
        tokens = count_text(text)
        if tokens <= options.inject_tokens_max:
            handles = ", ".join(mark(one.handle) for one in chosen[:count])
            return Injection(True, f"{why}: {handles} added", tuple(chosen[:count]), text, tokens)
    return Injection(False, f"{why}; but no snippet fits into {options.inject_tokens_max} tokens")


def write_snippets(found: Sequence[Recalled], like: str = "") -> str:
    """Return results between two lines that mark them as recalled; what is quoted cannot leave them."""
    opening, closing = _WORDING[detect_language([like or found[0].text])]
    body = "\n".join(f"{write_head(one)}\n{neutralise(one.text)}" for one in found)
    return f"{OPENS}{opening}{CLOSES}\n{body}\n{OPENS}{closing}{CLOSES}"


def write_head(one: Recalled) -> str:
    """Return the line above a result: its handle, who said it, and which part of it this is."""
    part = "" if one.is_whole else f", characters {one.start}–{one.stop}"
    return f"{mark(one.handle)} {one.role}{part}:"
