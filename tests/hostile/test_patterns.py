"""Every pattern of the package is linear: four times the text never takes much more than four times the time."""

import pytest

from tests.rigs.patterns import (
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

# Patterns that never see more than so many characters, and where that is decided.
_WORDS = "_TAIL _NO_VALUE"
BOUNDED = {
    # classify_word sees one word of _WORD.
    **{f"refold.reading.values.{name}": 200 for name in _WORDS.split(" ")},
    "refold.recall.facts._FILLER": 60,  # _slots hands in what stands before a value
    "refold.recall.facts._NAME": 60,
}


# Every thirtieth pattern in ``make test``, and all of them in ``make test-slow``.
some_or_all = pytest.mark.parametrize("step", [30, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])


@some_or_all
def test_every_pattern_of_the_package_is_linear(step: int) -> None:
    patterns, uses = find_patterns(), find_uses()
    assert len(patterns) > 300, "the walk finds the patterns of all modules"
    faults = []
    for where, pattern in list(patterns.items())[::step]:
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


@some_or_all
def test_a_pattern_for_short_texts_is_quick_on_the_longest_it_sees(step: int) -> None:
    patterns = find_patterns()
    assert BOUNDED.keys() <= patterns.keys(), "an exception for a pattern that is gone"
    for where, chars in list(BOUNDED.items())[::step]:
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
