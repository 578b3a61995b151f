"""score: how much a message matters, with reasons (S1.2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.conversation.message import Part
from refold.stages.score import MessageImportance, ScoreOptions, important_units, score_message
from tests.rigs.stages import assistant, lines, step, user, view_of

PLAIN = "we went to the park and saw some ducks"


def text(words: str) -> list[Part]:
    return [Part("text", words)]


@pytest.mark.parametrize(
    ("role", "words", "score", "reasons"),
    [
        ("user", PLAIN, 0.2, ("user +0.2",)),
        ("assistant", PLAIN, 0.0, ()),
        ("user", "You must never touch the migrations folder", 0.4, ("user +0.2", "keyword 'must' +0.2")),
        ("user", "以后不要修改数据库迁移文件，先运行测试", 0.4, ("user +0.2", "keyword '不要' +0.2")),
        ("user", "please run `pytest -q` in the folder", 0.3, ("user +0.2", "code or command +0.1")),
        ("user", "ok", 0.1, ("user +0.2", "too short −0.1")),
        ("assistant", "ok", 0.0, ("too short −0.1",)),
        ("user", "park and ducks " * 20, 0.3, ("user +0.2", "rich +0.1")),
        ("assistant", "The decision: ```python\nx = 1\n``` " + "and ducks " * 20, 0.4, None),
        ("user", "", 0.1, ("user +0.2", "too short −0.1")),
    ],
)
def test_the_weights_add_up_as_documented(role: str, words: str, score: float, reasons: tuple[str, ...] | None) -> None:
    found = score_message(role, text(words))
    assert found.score == score
    assert reasons is None or found.reasons == reasons


def test_a_tool_result_loses_two_tenths_and_the_score_never_falls_below_zero() -> None:
    found = score_message("tool", [Part("result", "Error: it must be fixed in server.py, line 3")])
    assert found == MessageImportance(0.0, ("keyword 'must' +0.2", "tool result −0.2"))
    assert score_message("tool", [Part("result", PLAIN)]).score == 0.0


def test_a_result_inside_a_user_message_is_a_tool_result_not_a_user() -> None:
    assert score_message("user", [Part("result", PLAIN)]).reasons == ("tool result −0.2",)


def test_a_keyword_within_another_word_does_not_count() -> None:
    assert score_message("assistant", text("the mustard was on the forgetting shelf here")).reasons == ()


def test_a_call_counts_as_a_command_and_is_not_too_short() -> None:
    assert score_message("assistant", [Part("call", "{}", "bash")]).reasons == ("code or command +0.1",)


def test_weights_keywords_and_lengths_can_be_set() -> None:
    options = ScoreOptions(user=0.05, keyword=1.0, keywords=("ducks",), rich_chars_min=10)
    found = score_message("user", text(PLAIN), options)
    assert found == MessageImportance(1.0, ("user +0.05", "keyword 'ducks' +1", "rich +0.1"))


def test_a_score_at_the_threshold_is_kept_without_float_drift() -> None:
    assert 0.1 + 0.2 > 0.3, "floats drift"
    assert score_message("user", text("park and ducks " * 20)).reaches(0.3)
    assert MessageImportance(0.29).reaches(0.3) is False
    assert MessageImportance(0.3).reaches(0.1 + 0.2)


@given(st.sampled_from(["user", "assistant", "tool", "system"]), st.text(max_size=400))
def test_every_score_lies_between_zero_and_one_in_whole_hundredths(role: str, words: str) -> None:
    found = score_message(role, text(words))
    assert 0 <= found.score <= 1
    assert found.score == round(found.score * 100) / 100
    assert found == score_message(role, text(words))


def test_importance_keeps_whole_units() -> None:
    view = view_of(
        [
            user("hello there, nice to meet you"),
            assistant("hi"),
            {**step("bash", {"command": "make"}, lines(40))[0], "content": "Decision: we must use make here."},
            step("bash", {"command": "make"}, lines(40))[1],
            user("From now on always run the tests first"),
        ]
    )
    assert important_units(view, 0.3) == {2: 0.3, 3: 0.4}
    assert [(unit.start, unit.stop) for unit in view.units][2] == (2, 4)
    assert important_units(view, 0.0).keys() == set(range(len(view.units)))
    assert important_units(view, 1.0) == {}
