"""Making results fit: each text whole where there is room, else the exact part of it around what was sought. Pure.

Nothing is reworded and nothing is put between: a shortened text is a substring, and its ``start`` and ``stop`` say of
what. Room that a short text leaves goes to those after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from refold.recall.words import find_words

if TYPE_CHECKING:
    from refold.recall.search import Recalled

# What the line above each result costs when results are written out.
HEAD_TOKENS = 14
_TOKENS_MIN = 8
_STEP = 24


def fit_texts(
    found: Sequence[Recalled], tokens_max: int, count_text: Callable[[str], int], words: Sequence[str]
) -> list[Recalled]:
    """Return results that have at most ``tokens_max`` tokens together; the last ones go if there is no room at all."""
    fitted: list[Recalled] = []
    left = tokens_max
    for at, one in enumerate(found):
        share = left // (len(found) - at) - HEAD_TOKENS
        if share < _TOKENS_MIN:
            # Few whole results say more than many shreds.
            share = min(left - HEAD_TOKENS, _TOKENS_MIN * 4)
            if share < _TOKENS_MIN:
                break
        fitting, tokens = _fit(one, share, count_text, words)
        left -= tokens + HEAD_TOKENS
        fitted.append(fitting)
    return fitted


def _fit(one: Recalled, share: int, count_text: Callable[[str], int], words: Sequence[str]) -> tuple[Recalled, int]:
    tokens = count_text(one.text)
    if tokens <= share:
        return one, tokens
    width = max(1, len(one.text) * share // tokens)
    while True:
        start = _find_window(one.text, width, words)
        text = one.text[start : start + width]
        tokens = count_text(text)
        if tokens <= share or width == 1:
            begin = one.start + start
            return replace(one, text=text, start=begin, stop=begin + len(text), is_whole=False), tokens
        width = max(1, min(width - 1, width * share // tokens))


def _find_window(text: str, width: int, words: Sequence[str]) -> int:
    """Return where the part of this width begins that holds most of the words, with some text on both sides of them."""
    wanted = set(words)
    starts = range(0, max(1, len(text) - width + 1), _STEP)
    held = [len(wanted.intersection(find_words(text[start : start + width]))) for start in starts]
    first = held.index(max(held))
    last = next((at for at in range(first, len(held)) if held[at] < held[first]), len(held)) - 1
    return starts[(first + last) // 2]
