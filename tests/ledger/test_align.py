"""Alignment over digests: what is the same keeps its place, in order, at a cost that is bounded."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.conversation.message import ROOT
from refold.ledger.align import align, chain_path, chain_tail
from refold.ledger.records import MessagePath
from tests.rigs.patterns import find_growth

DIGESTS = st.lists(st.sampled_from("abcdefgh"), max_size=30)


def find_new(known: str, incoming: str) -> str:
    """The incoming letters that are not recognised."""
    positions = align(known, incoming)
    return "".join(letter for letter, position in zip(incoming, positions, strict=True) if position < 0)


def count_matched(known: list[str], incoming: list[str]) -> int:
    return sum(place >= 0 for place in align(known, incoming))


def count_longest(known: list[str], incoming: list[str]) -> int:
    """The length of the longest common row, by the book."""
    row = [0] * (len(incoming) + 1)
    for a in known:
        before = row[:]
        for at, b in enumerate(incoming):
            row[at + 1] = before[at] + 1 if a == b else max(row[at], before[at + 1])
    return row[-1]


@pytest.mark.parametrize(
    ("known", "incoming", "new"),
    [
        ("", "", ""),
        ("", "ab", "ab"),
        ("abc", "", ""),
        ("abc", "abc", ""),
        ("abc", "abcde", "de"),
        ("abcd", "ab", ""),
        ("abcd", "abxy", "xy"),
        ("abcd", "abcx", "x"),
        ("abcdef", "cdefgh", "gh"),
        ("Sabcdef", "Sdefg", "g"),
        ("abcdef", "abRcdef", "R"),
        ("abRcdef", "abcdRef", "R"),
        ("abcRdefR", "abRcdRef", "RR"),
        ("abcd", "wxyz", "wxyz"),
        ("aXbXcX", "abc", ""),
        ("abc", "XaYbZcW", "XYZW"),
        ("okokokok", "okok", ""),
    ],
)
def test_only_what_is_new_is_new(known: str, incoming: str, new: str) -> None:
    assert find_new(known, incoming) == new


@given(DIGESTS, DIGESTS)
def test_a_match_is_the_same_content_in_the_same_order(known: list[str], incoming: list[str]) -> None:
    positions = align(known, incoming)
    matched = [(position, at) for at, position in enumerate(positions) if position >= 0]
    assert all(known[position] == incoming[at] for position, at in matched)
    assert [position for position, _ in matched] == sorted({position for position, _ in matched})


@given(st.lists(st.integers(), unique=True, max_size=25), st.lists(st.integers(), unique=True, max_size=25))
def test_where_no_message_repeats_the_match_is_the_longest(left: list[int], right: list[int]) -> None:
    known, incoming = [str(number) for number in left], [str(number) for number in right]
    assert count_matched(known, incoming) >= min(1, count_longest(known, incoming))
    # Common ends first may cost a longer match only where something was moved.
    shared = [digest for digest in incoming if digest in set(known)]
    if shared == [digest for digest in known if digest in set(incoming)]:
        assert count_matched(known, incoming) == len(shared)


@given(st.lists(st.text(alphabet="abc", max_size=1), max_size=40), st.data())
def test_what_a_client_takes_away_costs_nothing_else(known: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(known)))
    stop = data.draw(st.integers(start, len(known)))
    rest = known[:start] + known[stop:]
    assert -1 not in align(known, rest)


@given(st.lists(st.text(alphabet="abc", max_size=1), max_size=40), st.data())
def test_what_a_client_puts_in_is_all_that_is_new(known: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(known)))
    more = [*known[:at], "NEW", "NEWER", *known[at:]]
    assert align(known, more).count(-1) == 2


def count_steps(work: Callable[[], object]) -> int:
    """Lines of Python that run: a cost that does not depend on the machine."""
    steps = 0

    def trace(frame: object, event: str, arg: object) -> object:
        nonlocal steps
        steps += 1
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return steps


HARD_CASES = {
    "all the same, shorter": lambda n: (["ok"] * n, ["ok"] * (n // 2) + ["x"]),
    "all the same, with ends": lambda n: (["a"] + ["ok"] * n + ["b"], ["c"] + ["ok"] * (n + 7) + ["d"]),
    "two that alternate, uneven": lambda n: (["ok", "go"] * n, ["go"] + ["ok", "go", "go"] * n),
    "reversed": lambda n: (list(map(str, range(n))), list(map(str, reversed(range(n))))),
    "every second gone": lambda n: (list(map(str, range(n))), list(map(str, range(0, n, 2)))),
    "nothing shared": lambda n: (["a"] * n, ["b"] * n),
    "anchors that show one at a time": lambda n: (
        ["h", *[name for at in range(1, n) for name in (f"x{at}", f"x{at - 1}")]],
        ["i", *[name for at in range(1, n) for name in (f"x{at}", f"x{at - 1}", f"x{at - 1}")]],
    ),
}


@pytest.mark.parametrize("name", HARD_CASES)
def test_the_cost_grows_with_the_length_and_not_with_its_square(name: str) -> None:
    def cost(length: int) -> int:
        known, incoming = HARD_CASES[name](length)
        return count_steps(lambda: align(known, incoming))

    small, large = cost(400), cost(4_000)
    assert large < 25 * small + 1_000


def test_a_history_that_only_grew_is_one_comparison() -> None:
    known = [str(number) for number in range(10_000)]
    assert count_steps(lambda: align(known, [*known, "new"])) < 50
    assert align(known, [*known, "new"]) == [*range(10_000), -1]


@pytest.mark.parametrize(("known", "incoming"), [("aa{}", "axa{}b"), ("a{}", "ba{}"), ("ba{}", "a{}"), ("{}a", "a{}")])
def test_a_history_of_equal_messages_that_changes_at_its_beginning_is_chained_in_linear_time(
    known: str, incoming: str
) -> None:
    def chain(repeated: str) -> object:
        links = chain_tail(ROOT, list(known.format(repeated)))
        path = MessagePath(tuple(link.id for link in links), tuple(known.format(repeated)))
        return chain_path(path, list(incoming.format(repeated)))

    assert find_growth(chain, lambda chars: "b" * chars) == ""
