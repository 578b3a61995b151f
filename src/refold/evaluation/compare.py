"""Two compressors on the same sessions: paired differences with an exact sign test, a permutation test and an interval.

Everything is deterministic: the resamples come from a generator with a fixed seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

RESAMPLES = 4_000
EXACT_PAIRS_MAX = 12
_SEED = 20_261_118


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The second minus the first over all sessions. ``low`` and ``high`` bound the mean with 95 % confidence.

    ``p_sign`` and ``p_permutation`` are two-sided: how likely a difference of this size is if there is none.
    """

    pairs: int
    mean: float
    low: float
    high: float
    wins: int
    losses: int
    p_sign: float
    p_permutation: float


def compare_pairs(first: Sequence[float], second: Sequence[float]) -> PairedDifference:
    """Compare two sequences of figures, one pair for each session."""
    differences = [b - a for a, b in zip(first, second, strict=True)]
    wins, losses = sum(one > 0 for one in differences), sum(one < 0 for one in differences)
    low, high = _bootstrap(differences)
    return PairedDifference(
        pairs=len(differences),
        mean=_mean(differences),
        low=low,
        high=high,
        wins=wins,
        losses=losses,
        p_sign=_test_signs(wins, losses),
        p_permutation=_permute(differences),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _test_signs(wins: int, losses: int) -> float:
    """Return the two-sided probability of the exact sign test; ties do not count."""
    number = wins + losses
    tail = sum(math.comb(number, k) for k in range(min(wins, losses) + 1))
    return min(1.0, tail / float(1 << number) * 2)


def _bootstrap(differences: Sequence[float]) -> tuple[float, float]:
    if not differences:
        return 0.0, 0.0
    dice = random.Random(_SEED)
    means = sorted(_mean(dice.choices(differences, k=len(differences))) for _ in range(RESAMPLES))
    return means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES) - 1]


def _permute(differences: Sequence[float]) -> float:
    """Return the two-sided probability of a mean this large when the sign of every difference is a coin's."""
    found = abs(math.fsum(differences)) - 1e-12
    if not differences or found <= 0:
        return 1.0
    if len(differences) <= EXACT_PAIRS_MAX:
        signs = list(product((1, -1), repeat=len(differences)))
        return sum(abs(math.fsum(map(math.prod, zip(differences, one, strict=True)))) >= found for one in signs) / len(
            signs
        )
    dice = random.Random(_SEED)
    hits = sum(abs(math.fsum(one * dice.choice((1, -1)) for one in differences)) >= found for _ in range(RESAMPLES))
    return (hits + 1) / (RESAMPLES + 1)
