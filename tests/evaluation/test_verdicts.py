"""What an evaluation finds: planted faults of compressors, and nothing in those that lose nothing."""

from pathlib import Path

import pytest

from refold.errors import ConfigError, FormatError
from refold.evaluation.arms import read_arm
from refold.evaluation.compare import compare_pairs
from refold.evaluation.questions import read_questions
from refold.evaluation.run import EvalTerms, SessionEvaluation, evaluate
from tests.rigs.trip import RULE, SESSION, TASK

WINDOW = 3_000


def run(name: str, window: int = WINDOW) -> SessionEvaluation:
    arm = read_arm(f"tests.rigs.compressors:{name}")
    return evaluate(SESSION, arm, EvalTerms(window=window))


def lost(made: SessionEvaluation, verdict: str) -> set[str]:
    return {loss.expected.text for loss in made.losses if loss.verdict == verdict}


@pytest.mark.parametrize("name", ["identity", "transcript"])
def test_a_compressor_that_loses_nothing_passes(name: str) -> None:
    made = run(name)
    assert made.problem == ""
    assert made.share("retained") == 1.0, [(loss.verdict, loss.expected) for loss in made.losses]
    assert made.invented == []
    kinds = {"task", "rule", "file", "check", "receipt", "value"}
    assert kinds <= set(made.verdicts), "the session has all of these"


def test_a_lost_task_and_rule_are_missing() -> None:
    made = run("forgets_the_task")
    assert {TASK, RULE} <= lost(made, "missing")


def test_another_amount_is_mutated_even_if_the_rest_is_there() -> None:
    assert "241.50" in run("changes_an_amount").invented


def test_a_rule_that_became_its_opposite_is_not_retained() -> None:
    made = run("denies")
    assert RULE in lost(made, "mutated") | lost(made, "missing")


def test_a_result_that_a_newer_one_replaced_is_stale() -> None:
    assert "3 passed in 0.31s" in lost(run("keeps_the_old_result"), "stale")


def test_requests_that_a_provider_refuses_are_counted() -> None:
    assert run("breaks_the_protocol").invalid > 0


def test_a_compressor_that_returns_no_messages_is_a_problem_of_the_session() -> None:
    assert "not a list of messages" in run("returns_nothing_of_use").problem


def test_refold_itself_loses_nothing_that_cannot_be_recovered() -> None:
    made = evaluate(SESSION, read_arm("default"), EvalTerms(window=WINDOW))
    assert (made.problem, made.unfit, made.invalid) == ("", 0, 0)
    assert made.share("retained", "recoverable") == 1.0, [(loss.verdict, loss.expected) for loss in made.losses]


def test_points_lie_where_the_window_is_full_and_are_the_same_for_all() -> None:
    made = [evaluate(SESSION, read_arm(name), EvalTerms(window=WINDOW, points=5)) for name in ("raw", "default")]
    assert [one.points for one in made] == [5, 5]
    assert run("identity", window=10**6).points == 1, "a session that always fits is looked at once, at its end"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("3", "a list"),
        ("- 3", "not a mapping"),
        ("- {question: x}", "an answer or a pattern"),
        ("- {question: x, answer: y, wen: 3}", "unknown field 'wen'"),
        ("- {question: x, pattern: '('}", "the pattern is invalid"),
        ("- {question: x, answer: y, after: -1}", "1 or more"),
        ("- [", "neither YAML nor JSON"),
    ],
)
def test_a_wrong_file_of_questions_says_what_is_wrong(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "questions.yaml"
    path.write_text(text)
    with pytest.raises(FormatError, match=why):
        read_questions(str(path))


@pytest.mark.parametrize("name", ["nothing", "default+depth", "no.such.module:f", "json:no_such", ""])
def test_a_name_that_means_no_compressor_is_an_error(name: str) -> None:
    with pytest.raises(ConfigError):
        read_arm(name)


def test_paired_statistics_agree_with_hand_counts() -> None:
    found = compare_pairs([0.5] * 6, [0.6] * 6)
    assert found.p_sign == pytest.approx(2 / 2**6)
    assert found.p_permutation == pytest.approx(2 / 2**6)
    assert (found.wins, found.losses, found.pairs) == (6, 0, 6)
    assert found.low == pytest.approx(0.1) == found.high
    same = compare_pairs([0.1, 0.9], [0.1, 0.9])
    assert (same.p_sign, same.p_permutation, same.mean) == (1.0, 1.0, 0.0)
    empty = compare_pairs([], [])
    assert (empty.pairs, empty.mean) == (0, 0.0)
