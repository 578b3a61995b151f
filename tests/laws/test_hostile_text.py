"""L9: no text, however it repeats itself, is walked over again and again. A stage that did would not end here."""

from __future__ import annotations

import pytest

from tests.laws.honesty import find_dishonest, make_cases, run_stage
from tests.rigs.effort import first_of

CHARS = 120_000
PIECES = ("7", "1,2,3,", "1.5,", "\n", "a/", '\\"', "([", "= ", "a.", "a:1:", "-", "a_", "a@b.", "http://a.b/c?", "'a")
OTHERS = (
    "E   ",
    "错误",
    "3元",
    "⟨m:dead",
    "⟦⟧",
    "\r\n",
    '"a" ',
    "$1,000,",
    "a b. ",
    "aB",
    "<a ",
    "👩‍👩‍👧",
    "exit code: ",
    "a-b",
)


@pytest.mark.parametrize("piece", first_of([*PIECES, *OTHERS], 2))
def test_a_text_that_repeats_one_piece_is_read_in_one_go(piece: str) -> None:
    text = (piece * (CHARS // len(piece) + 1))[:CHARS]
    for _, stage, view, goal in make_cases(text):
        after, edits = run_stage(stage, view, goal)
        assert after.tokens <= view.tokens
        assert [said for edit in edits for said in find_dishonest(edit, view)] == []
