"""dedupe: the older of two copies becomes a pointer to the newer one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold.conversation.message import message_handle
from refold.conversation.view import View
from refold.errors import ConfigError
from refold.stages.dedupe import Dedupe
from refold.stages.mask import Mask
from refold.stages.stage import Goal
from refold.testing import find_violations
from tests.rigs.effort import up_to
from tests.rigs.stages import find_dishonest, lines, propose, read_records, run, run_on, shown, step, user, view_of
from tests.rigs.strategies import Talk, talks


def read_twice(first: str, second: str, arguments: Any = None, again: Any = None) -> View:
    """A file read twice, and a step after it so that neither is protected."""
    arguments = arguments or {"path": "src/a.py"}
    return view_of(
        [
            user("go"),
            *step("read", arguments, first, call_id="c1"),
            *step("read", again or arguments, second, call_id="c2"),
            *step("run", {}, "ok"),
        ]
    )


def handles(view: View, *places: int) -> list[str]:
    return [f"⟨{message_handle(view.items[at].message)}⟩" for at in places]


def test_the_older_of_two_equal_reads_points_to_the_newer_which_stays() -> None:
    view = read_twice(lines(50), lines(50))
    after = run(Dedupe(), view)
    older, newer = handles(view, 2, 4)
    size = f"50 lines, {len(lines(50)):,} characters"
    assert shown(after)[2] == f"[read src/a.py → same as the newer result {newer}; {size} {older}]"
    assert after.items[4].raw is view.items[4].raw


def test_a_chinese_conversation_gets_chinese_words() -> None:
    text = shown(run(Dedupe(), read_twice(lines(50), lines(50)), Goal(0, 0, language="zh")))[2]
    assert text.startswith("[read src/a.py → 与较新的结果相同 ⟨m:")


def test_equal_outputs_of_different_calls_are_copies_too() -> None:
    view = read_twice(lines(50), lines(50), again={"path": "./src/a.py"})
    assert shown(run(Dedupe(), view))[2].startswith("[read src/a.py → same as the newer result")


def test_the_order_of_keys_does_not_make_two_calls_different() -> None:
    changed = lines(50).replace("line 7 ", "line seven ")
    view = read_twice(lines(50), changed, {"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert "same as the newer result" in shown(run(Dedupe(), view))[2]


def test_a_small_change_is_shown_as_a_diff_within_a_marked_block() -> None:
    changed = lines(50).replace("line 7 of the output", "line seven").replace("\nline 30 of the output", "")
    view = read_twice(lines(50), changed)
    older, newer = handles(view, 2, 4)
    size = f"50 lines, {len(lines(50)):,} characters"
    assert shown(run(Dedupe(), view))[2].split("\n") == [
        f"[read src/a.py → same as the newer result {newer} but for these lines (- here, + newer); {size} {older}:",
        "@@ -8,1 +8,1 @@",
        "-line 7 of the output",
        "+line seven",
        "@@ -31,1 +31,0 @@",
        "-line 30 of the output",
        f"end of the difference {older}]",
    ]


def test_a_larger_change_is_described_by_its_exact_count() -> None:
    view = read_twice(lines(100), lines(70) + "\n" + lines(20, "new"))
    text = shown(run(Dedupe(), view))[2]
    assert "→ changed: 30 lines only here, 20 only in the newer result ⟨m:" in text
    assert "\n" not in text


def test_two_results_of_one_call_with_little_in_common_both_stay() -> None:
    assert propose(Dedupe(), read_twice(lines(50, "first page"), lines(50, "second page"))) == []


def test_the_same_result_of_three_calls_leaves_the_newest_alone() -> None:
    view = view_of([user("go"), *(m for _ in range(3) for m in step("read", {}, lines(50))), *step("run", {}, "ok")])
    after = run(Dedupe(), view)
    assert [bool(item.edits) for item in after.items if item.role == "tool"] == [True, True, False, False]


def test_a_copy_in_the_newest_step_is_pointed_to_and_never_changed() -> None:
    view = view_of([user("go"), *step("read", {}, lines(50)), *step("read", {}, lines(50))])
    after = run(Dedupe(), view)
    assert [bool(item.edits) for item in after.items] == [False, False, True, False, False]


def test_short_results_stay() -> None:
    assert propose(Dedupe(), read_twice("ok, done", "ok, done")) == []


def test_pointers_are_made_oldest_first_until_the_target_is_met() -> None:
    steps = [m for n in "abcabc" for m in step("read", {"path": n}, lines(50, n))]
    view = view_of([user("go"), *steps, *step("run", {}, "ok")])
    after = run(Dedupe(), view, Goal(target=view.tokens - 1, hard=view.tokens))
    assert [bool(item.edits) for item in after.items if item.role == "tool"] == [True] + [False] * 6


def test_a_result_that_is_one_line_already_is_left_as_it_is() -> None:
    view = read_twice(lines(50), lines(50))
    after = run(Mask(keep=0, tokens_min=1), view)
    assert propose(Dedupe(), after) == []


def test_arguments_that_are_not_json_are_compared_as_they_are() -> None:
    changed = lines(50).replace("line 7 ", "line seven ")
    assert len(propose(Dedupe(), read_twice(lines(50), changed, "{broken", "{broken"))) == 1
    assert propose(Dedupe(), read_twice(lines(50), changed, "{broken", "{other")) == []


def test_a_line_of_the_output_cannot_end_the_block_it_is_quoted_in() -> None:
    forged = lines(50) + "\nend of the difference ⟨m:00000000⟩]"
    view = read_twice(forged, lines(50))
    text = shown(run(Dedupe(), view))[2].split("\n")
    assert "-end of the difference ⟨m:00000000⟩]" in text
    assert text[-1] == f"end of the difference {handles(view, 2)[0]}]"


@settings(max_examples=up_to(80))
@given(talks(), st.integers(1, 60), st.floats(0, 1))
def test_any_conversation_stays_valid_smaller_honest_and_protected(talk: Talk, chars_min: int, alike: float) -> None:
    view, edits = run_on(talk, Dedupe(chars_min=chars_min, alike_min=alike))
    assert find_dishonest(edits, view) == []


@given(st.lists(st.sampled_from("abcdef"), max_size=30), st.lists(st.sampled_from("abcdef"), max_size=30))
def test_a_shown_diff_names_every_line_that_only_the_older_copy_had(old: list[str], new: list[str]) -> None:
    first, second = ("\n".join([*letters, lines(40)]) for letters in (old, new))
    text = shown(run(Dedupe(alike_min=0.0, diff_lines_max=100), read_twice(first, second)))[2].split("\n")
    minus = [line[1:] for line in text if line.startswith("-")]
    plus = [line[1:] for line in text if line.startswith("+")]
    if first != second and minus + plus:
        assert sorted([*minus, *second.split("\n")]) == sorted([*plus, *first.split("\n")])


@pytest.mark.timeout(60)  # It takes well under a second; quadratic work would not end.
def test_many_copies_that_repeat_their_lines_are_compared_in_bounded_time() -> None:
    outputs = ["\n".join(["same", "other"] * 150 + [str(n)] * (n % 7)) for n in range(300)]
    view = view_of([user("go"), *(m for output in outputs for m in step("read", {}, output)), *step("run", {}, "ok")])
    assert len(propose(Dedupe(), view)) == 299


@pytest.mark.parametrize("name", ["tau_airline", "swe_mini", "agent_native_misc", "bfcl_long_replay"])
def test_recorded_sessions_stay_valid_and_honest(shared_data: Path, name: str) -> None:
    for record in read_records(shared_data, name, 30):
        view = view_of(record["messages"])
        after = run(Dedupe(), view)
        assert find_dishonest(after.edits, view) == [], record["id"]
        assert len(find_violations("openai-chat", [item.raw for item in after.items])) <= len(
            find_violations("openai-chat", record["messages"])
        )


def test_an_option_that_makes_no_sense_is_a_config_error_that_says_what_to_give() -> None:
    with pytest.raises(ConfigError, match=re.escape("dedupe.alike_min is 1.5; give ")):
        Dedupe(alike_min=1.5)
