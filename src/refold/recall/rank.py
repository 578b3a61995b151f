"""Ranking: which places of a session answer a query best. Pure, deterministic, and bounded by what it is given.

A place counts what it says itself (BM25) and, fading with distance, what was said around it: in a conversation the
value is often named a few turns after its subject. Words that are said nearby count once, at their strongest.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

# Tuned on one half of the recorded questions, reported on the other: benchmarks/bench_recall.py.
SATURATION = 1.2
LENGTH_SHARE = 0.3
# Among very short messages a passage of a tool output would else not count at all.
LENGTH_MAX = 4.0
AFTER_FIRST = 0.75
AFTER_FADE = 0.9
AFTER_MAX = 15
BEFORE = (0.3, 0.15)
QUESTION_SHARE = 0.85
NUMBER_BONUS = 1.15

BLOCK = 8
BLOCKS_MAX = 64

_WANTS_NUMBER = re.compile(
    r"\bhow (?:many|much|long|old|often|far|tall|big|large)\b|\bwhen\b|\bwhat (?:time|date|number|id)\b|"
    r"\b(?:which|what) (?:port|version|year|month|day)\b|\b(?:phone|price|cost|fee|total|amount|code)\b|"
    r"电话|号码|评分|票价|门票|价格|费用|时间|多少|几|时长|片长|年份|哪年|生日|日期|身高|体重|人均|端口|版本|编号",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Said:
    """What ranking knows of one place."""

    weight: int
    is_question: bool = False
    has_number: bool = False


@dataclass(frozen=True, slots=True)
class Sought:
    """One word of a query: its weight, and its places in order."""

    weight: float
    places: Sequence[int]


def weigh_word(count: int, total: int) -> float:
    """Return the weight of a word that is in ``count`` of ``total`` places."""
    return math.log(1 + (max(total, count) - count + 0.5) / (count + 0.5))


def wants_number(query: str) -> bool:
    """Return whether a query asks for a number, a date, an amount."""
    return _WANTS_NUMBER.search(query) is not None


def choose_blocks(sought: Iterable[Sought], blocks_max: int = BLOCKS_MAX) -> list[int]:
    """Return the blocks of places that hold, or follow, most of what is sought, in order of place."""
    scores: defaultdict[int, float] = defaultdict(float)
    for word in sought:
        blocks = {place // BLOCK for place in word.places}
        for block in blocks:
            scores[block] += word.weight
            if block + 1 not in blocks:
                scores[block + 1] += word.weight * AFTER_FIRST
    best = sorted(scores, key=lambda block: (-scores[block], -block))[:blocks_max]
    return sorted(best)


def join_ranges(blocks: Iterable[int]) -> list[tuple[int, int]]:
    """Return the ranges of places to read for these blocks, with the places that lend them words."""
    ranges: list[tuple[int, int]] = []
    for block in blocks:
        low, high = max(0, block * BLOCK - AFTER_MAX), (block + 1) * BLOCK + len(BEFORE)
        if ranges and low <= ranges[-1][1]:
            ranges[-1] = ranges[-1][0], high
        else:
            ranges.append((low, high))
    return ranges


def score_places(
    sought: Iterable[Sought], said: Mapping[int, Said], weight_mean: float, *, asks_number: bool = False
) -> dict[int, float]:
    """Return the score of every place in ``said``, 0 to about 1: the share of what is sought that it tells."""
    order = sorted(said)
    own = [_saturate(said[place].weight, weight_mean) for place in order]
    totals = [0.0] * len(order)
    most = 0.0
    for word in sought:
        most += word.weight
        held = said.keys() & set(word.places)
        if held:
            shares = [share if place in held else 0.0 for place, share in zip(order, own, strict=True)]
            for at, share in enumerate(spread_word(order, shares)):
                if share:
                    totals[at] += word.weight * share
    scores: dict[int, float] = {}
    for place, total in zip(order, totals, strict=True):
        if total > 0:
            one = said[place]
            share = total / most * (QUESTION_SHARE if one.is_question else 1.0)
            scores[place] = share * NUMBER_BONUS if asks_number and one.has_number else share
    return scores


def spread_word(order: Sequence[int], shares: Sequence[float]) -> list[float]:
    """Return what each place has of a word: its own share, or what reaches it from places around it.

    Stretches that nothing reaches are skipped, so a rare word costs little.
    """
    spread = list(shares)
    held = [at for at, share in enumerate(shares) if share]
    for at in held:
        for back, share in enumerate(BEFORE, 1):
            before = at - back
            if before >= 0 and order[at] - order[before] == back and shares[at] * share > spread[before]:
                spread[before] = shares[at] * share
    at, carried, age = (held[0] if held else len(order)) + 1, 0.0, 0
    while at < len(order):
        step = order[at] - order[at - 1]
        if step > 1:
            carried *= AFTER_FADE ** (step - 1)
            age += step - 1
        fresh = shares[at - 1] * AFTER_FIRST if step == 1 else 0.0
        carried *= AFTER_FADE
        age += 1
        if fresh >= carried or age > AFTER_MAX:
            carried, age = fresh, 1
        if carried > spread[at]:
            spread[at] = carried
        elif not carried and not shares[at]:
            following = bisect_left(held, at)
            at = held[following] if following < len(held) else len(order)
        at += 1
    return spread


def _saturate(weight: int, weight_mean: float) -> float:
    length = 1 - LENGTH_SHARE + LENGTH_SHARE * min(LENGTH_MAX, weight / max(1.0, weight_mean))
    return (1 + SATURATION) / (1 + SATURATION * length) / ((1 + SATURATION) / (1 + SATURATION * (1 - LENGTH_SHARE)))
