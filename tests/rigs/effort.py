"""How much a test tries: some examples and some cases in ``make test``, all of them in ``make test-slow`` and -all."""

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest
from hypothesis import settings

QUICK = "quick"
QUICK_EXAMPLES = 4


def is_quick() -> bool:
    return settings.get_current_profile_name() == QUICK


def up_to(full: int, *, quick: int = QUICK_EXAMPLES) -> int:
    """Return the value for ``max_examples``: ``full``, or at most ``quick`` when the quick profile is loaded."""
    return min(full, quick) if is_quick() else full


def first_of(values: Iterable[Any], quick: int) -> list[Any]:
    """Return the values of a parametrised test; those after the first ``quick`` are for ``make test-all``."""
    return [
        value if at < quick else pytest.param(value, marks=pytest.mark.slow, id=str(value))
        for at, value in enumerate(values)
    ]


def each_once(*lists: Iterable[Any], quick_max: int | None = None) -> list[Any]:
    """Return all combinations for a parametrised test: ``make test`` runs as many as show every value once.

    ``quick_max`` bounds them where a case takes long and the values are shown by other tests.
    """
    values = [list(one) for one in lists]
    cases = [tuple(at % len(one) for one in values) for at in range(max(map(len, values)))]
    quick = set(cases[:quick_max])
    return [
        pytest.param(
            *(one[at] for one, at in zip(values, places, strict=True)),
            marks=() if places in quick else pytest.mark.slow,
        )
        for places in product(*(range(len(one)) for one in values))
    ]
