"""Of two statements about the same thing the newer one is the answer: it stands before the one that it replaced.

Looks at the few best results only, and only moves a later one up to the place of an earlier one: nothing is added,
nothing is left out. A question about how things were before is answered in the order of the match. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from refold.recall.contradict import contradicts
from refold.recall.words import find_words, is_value, query_words

if TYPE_CHECKING:
    from refold.recall.search import Recalled

LOOKED_AT = 8
# Who answers much worse is about something else, whatever words it has in common.
SCORE_SHARE = 0.5
# A statement about what is sought holds most of its words.
HELD_SHARE = 0.6
# A long sentence tells a story, and "now" in it is a word like any other.
_PLAIN_CHARS_MAX = 110
_SPOKEN_BY = ("user", "assistant")
_SENTENCE_ENDS = re.compile(r"(?<=[.!?;:])\s+|(?<=[。！？；：])|\n+")
_SENTENCES_MAX = 40
_CHANGE = re.compile(
    r"\b(?:actually|now|no longer|not any ?more|instead|from now on|chang(?:e|ed|es|ing)|mov(?:e|ed|es|ing)|"
    r"switch(?:ed|es|ing)?|updat(?:e|ed|es|ing)|rais(?:e|ed)|lower(?:ed)?|increas(?:e|ed)|reduc(?:e|ed)|renam(?:e|ed)|"
    r"replac(?:e|ed|es)|reschedul(?:e|ed)|postpon(?:e|ed)|delay(?:ed)?|correct(?:ion|ed)|turns out)\b|"
    r"现在|如今|改为|改成|改到|改用|换成|换到|换了|不再|更新|更正|推迟|提前|调整|以后|其实",
    re.I,
)
_PAST = re.compile(
    r"\b(?:used to|before|previous(?:ly)?|earlier|original(?:ly)?|first(?:ly)?|initial(?:ly)?|(?<!how )old|"
    r"former(?:ly)?|at the (?:start|beginning)|history)\b|以前|之前|原来|最初|一开始|曾经|过去|当时|起初|旧",
    re.I,
)


@dataclass(frozen=True, slots=True)
class _Statement:
    """What a result says about what is sought: its sentence that holds most of it, and which words these are."""

    place: int
    text: str
    held: frozenset[str]


def put_newer_first(found: Sequence[tuple[int, Recalled]], query: str) -> list[Recalled]:
    """Return results, best first, with a later statement before the earlier one that it replaced.

    Each comes with its place in the conversation.
    """
    ranked = [one for _, one in found]
    words = frozenset(word for word, weight in query_words(query).items() if weight >= 1)
    if len(found) < 2 or not words or is_value(query) or _PAST.search(query):
        return ranked
    stated = {id(one): _find_statement(place, one, words) for place, one in found[:LOOKED_AT]}
    at = 0
    while at < min(LOOKED_AT, len(ranked)) - 1:
        later = [
            other
            for other in ranked[at + 1 : LOOKED_AT]
            if other.score >= SCORE_SHARE * ranked[at].score and _replaces(stated[id(ranked[at])], stated[id(other)])
        ]
        if later:
            newest = max(later, key=lambda one: stated[id(one)].place)  # type: ignore[union-attr]
            moved = replace(newest, score=ranked[at].score)
            stated[id(moved)] = stated[id(newest)]
            ranked.remove(newest)
            ranked.insert(at, moved)
        at += 1
    return ranked


def _find_statement(place: int, one: Recalled, words: frozenset[str]) -> _Statement | None:
    if one.role not in _SPOKEN_BY:
        return None
    best: _Statement | None = None
    for sentence in _SENTENCE_ENDS.split(one.text)[:_SENTENCES_MAX]:
        held = words.intersection(find_words(sentence))
        if len(held) >= max(HELD_SHARE * len(words), len(best.held) if best else 0):
            best = _Statement(place, sentence.strip(), held)
    return best


def _replaces(earlier: _Statement | None, later: _Statement | None) -> bool:
    if earlier is None or later is None or later.place <= earlier.place or later.text.endswith(("?", "？")):
        return False
    if not earlier.held <= later.held:
        return False  # It may lack the very value that is asked about.
    is_plain = max(len(earlier.text), len(later.text)) <= _PLAIN_CHARS_MAX
    return (is_plain and _CHANGE.search(later.text) is not None) or contradicts(earlier.text, later.text)
