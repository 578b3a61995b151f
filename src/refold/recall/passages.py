"""Passages: a long text in pieces that can be found and shown, each with its place. Pure and linear.

A piece ends at a border of lines, sentences or words wherever there is one. Pieces follow each other without a gap and
without overlap, so that joining them gives the text back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# About 200 tokens. A Chinese character weighs about three Latin ones.
PASSAGE_WEIGHT_MAX = 900
_WIDE_WEIGHT = 3
_WIDE = re.compile(r"[\u0e00-\u0e7f\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]")
_BORDERS = (re.compile(r"\n"), re.compile(r"[.!?;。！？；][\s\"'”’)]|[。！？；]"), re.compile(r"[\s,，、|]"))
_QUESTION = re.compile(r"[?？]\W{0,4}(?:\[[^\]]{0,300}\]\W?)?$|[吗呢么][。.!！]?$")
_DIGIT = re.compile(r"\d|[一二两三四五六七八九十百千万]{1,6}[年月日号点分元块个岁]")


@dataclass(frozen=True, slots=True)
class Passage:
    """One piece of a text: ``text[start:stop]``."""

    start: int
    stop: int


def split_passages(text: str, weight_max: int = PASSAGE_WEIGHT_MAX) -> Iterator[Passage]:
    """Cut a text into passages of about the same weight; a short one is a single passage."""
    start, length = 0, len(text)
    while start < length:
        room = _measure_room(text, start, weight_max)
        if start + room >= length:
            yield Passage(start, length)
            return
        stop = _find_border(text, start + room // 2, start + room) or start + room
        yield Passage(start, stop)
        start = stop


def measure_weight(text: str) -> int:
    """Return how much a text weighs: about its characters, where a wide one counts three times."""
    return len(text) if text.isascii() else len(text) + (_WIDE_WEIGHT - 1) * len(_WIDE.findall(text))


def _measure_room(text: str, start: int, weight_max: int) -> int:
    """Return how many characters from ``start`` weigh as much as one passage may."""
    window = text[start : start + weight_max]
    wide = len(_WIDE.findall(window))
    if not wide:
        return weight_max
    # The share of wide characters in the window stands for the piece: one look is enough.
    share = wide / len(window)
    return max(1, int(weight_max / (1 + (_WIDE_WEIGHT - 1) * share)))


def _find_border(text: str, low: int, high: int) -> int | None:
    """Return the place after the last border of the best kind in ``text[low:high]``."""
    for pattern in _BORDERS:
        last = None
        for match in pattern.finditer(text, low, high):
            last = match.end()
        if last is not None:
            return last
    return None


def is_question(text: str) -> bool:
    """Tell whether a text ends as a question: it asks for what is looked for rather than telling it."""
    return _QUESTION.search(text[-320:].rstrip()) is not None


def has_number(text: str) -> bool:
    """Tell whether a text names a number, a date or an amount."""
    return _DIGIT.search(text) is not None
