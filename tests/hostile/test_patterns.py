"""Every pattern of the package is linear: four times the text never takes much more than four times the time."""

from collections.abc import Iterable
from typing import TypeVar

from tests.effort import is_quick
from tests.hostile.patterns import (
    FLOOR_S,
    MADE,
    TookTooLong,
    find_growth,
    find_makers,
    find_patterns,
    find_slowest,
    find_uses,
    list_texts,
    measure,
    runs_of,
)

T = TypeVar("T")
# Patterns that never see more than so many characters, and where that is decided.
_WORDS = "_TAIL _HEX _UNIT _CODE _KEYED _MIXED _PATH _TREE _OUT_OF _DOTTED _SCOPED _SNAKE _CAMEL _CONST _KEBAB"
BOUNDED = {
    # classify_word sees one word of _WORD.
    **{f"refold.stages.extract.values.{name}": 200 for name in _WORDS.split(" ")},
    "refold.recall.facts._FILLER": 60,  # _slots hands in what stands before a value
    "refold.recall.facts._NAME": 60,
    "refold.stages.extract.actions._FILE": 201,  # _PATH of the same module
}


def some_of(patterns: Iterable[T]) -> list[T]:
    """Return every sixth pattern in ``make test``, and all of them in ``make test-all``."""
    return list(patterns)[:: 6 if is_quick() else 1]


def test_every_pattern_of_the_package_is_linear() -> None:
    patterns, uses = find_patterns(), find_uses()
    assert len(patterns) > 300, "the walk finds the patterns of all modules"
    faults = []
    for where, pattern in some_of(patterns.items()):
        if where in BOUNDED:
            continue
        writers = list(list_texts(pattern))
        for name, run in runs_of(where, pattern, uses).items():
            try:
                slowest = find_slowest(run, writers)
            except TookTooLong:
                faults.append(f"{where}.{name}: does not end on a short text")
                continue
            for write in slowest:
                if growth := find_growth(run, write):
                    faults.append(f"{where}.{name} on {write(60)!r}: {growth}")
                    break
    assert faults == []


def test_every_function_that_makes_a_pattern_is_listed_with_examples() -> None:
    assert find_makers() == MADE.keys()


def test_a_pattern_for_short_texts_is_quick_on_the_longest_it_sees() -> None:
    patterns = find_patterns()
    assert BOUNDED.keys() <= patterns.keys(), "a pattern that is gone is no exception any more"
    for where, chars in some_of(BOUNDED.items()):
        pattern = patterns[where]
        for write in list_texts(pattern):
            text = write(chars)
            assert max(measure(pattern.fullmatch, text), measure(pattern.search, text)) < FLOOR_S, (where, text[:40])


def test_the_walk_knows_a_quadratic_pattern_when_it_sees_one() -> None:
    import re

    pattern = re.compile(r"^\s*x", re.M)
    run = runs_of("nowhere", pattern, {})["finditer"]
    slowest = find_slowest(run, list(list_texts(pattern)))
    # Other work on the machine may hide the growth in one measurement.
    assert any(find_growth(run, write) for _ in range(5) for write in slowest)
    linear = re.compile(r"^[^\S\n]*+x", re.M)
    run = runs_of("nowhere", linear, {})["finditer"]
    assert not any(find_growth(run, write) for write in find_slowest(run, list(list_texts(linear))))
