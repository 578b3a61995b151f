"""merge: a message that says again what a newer one says becomes a pointer to it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold.conversation.message import message_handle
from refold.conversation.view import View
from refold.errors import ConfigError
from refold.stages.extract.words import split_sentences
from refold.stages.merge import Merge
from refold.stages.stage import Goal
from tests.effort import up_to
from tests.laws.strategies import Talk, talks
from tests.stages.sessions import assistant, find_dishonest, propose, run, run_on, shown, step, user, view_of

STATUS = (
    "The server starts, the tests of the storage layer pass, and the web page shows the list of orders. "
    "What remains is the export to CSV and the login page. Shall I go on with the export?"
)


def chat(*answers: str) -> View:
    messages = [message for n, answer in enumerate(answers) for message in (user(f"and now {n}?"), assistant(answer))]
    return view_of([*messages, user("thanks"), assistant("bye")])


def handle(view: View, at: int) -> str:
    return f"⟨{message_handle(view.items[at].message)}⟩"


def test_the_older_of_two_equal_answers_points_to_the_newer() -> None:
    view = chat(STATUS, "no", STATUS)
    after = run(Merge(), view)
    size = f"1 line, {len(STATUS)} characters"
    assert shown(after)[1] == f"[says the same as the newer message {handle(view, 5)}; {size} {handle(view, 1)}]"
    assert after.items[5].raw is view.items[5].raw


def test_what_only_the_older_answer_said_stays_word_for_word() -> None:
    long = STATUS + " The log of the last run has no warning, the page loads quickly, and every order is listed once."
    newer = long.replace("Shall I go on with the export?", "Shall I go on now with the export?")
    older = long.replace("Shall", "Order 88231 is left out. Shall")
    view = chat(older, newer)
    text = shown(run(Merge(), view))[1].split("\n")
    assert "but for what follows" in text[0]
    assert text[1:] == ["Order 88231 is left out.", "Shall I go on with the export?"]


def test_a_chinese_conversation_gets_chinese_words() -> None:
    status = (
        "服务器已经启动，存储层的测试全部通过，网页可以显示订单列表。剩下的是导出功能和登录页面，需要继续完成。" * 2
    )
    text = shown(run(Merge(), chat(status, "好", status), Goal(0, 0, language="zh")))[1]
    assert text.startswith("[与较新的消息 ⟨m:")


def test_answers_that_differ_stay() -> None:
    assert propose(Merge(), chat(STATUS, STATUS[::-1], "Something else entirely. " * 9)) == []


def test_a_users_words_are_merged_only_if_they_are_the_same() -> None:
    rule = "From now on always run the tests of the storage layer before you commit anything to the main branch. " * 3
    same = f"  {rule.upper()} "
    almost = rule.replace("always", "never")
    for second, merged in ((same, True), (almost, False)):
        view = view_of([user(rule), assistant("ok"), user(second), assistant("ok"), user("go"), assistant("ok")])
        assert bool(run(Merge(), view).items[0].edits) is merged


def test_a_message_of_the_user_never_points_to_one_of_the_assistant() -> None:
    view = view_of([user(STATUS), assistant(STATUS), user("go"), assistant("ok")])
    assert propose(Merge(), view) == []


def test_messages_with_calls_or_results_are_no_plain_messages() -> None:
    calls = [message for _ in range(3) for message in step("run", {}, STATUS)]
    for message in calls[::2]:
        message["content"] = STATUS
    assert propose(Merge(), view_of([user("go"), *calls, user("go"), assistant("ok")])) == []


def test_every_pointer_names_a_message_that_stays() -> None:
    view = chat(STATUS, STATUS, STATUS, STATUS)
    after = run(Merge(), view)
    assert [bool(item.edits) for item in after.items[1:8:2]] == [True, True, True, False]
    assert all(handle(view, 7) in text for text in shown(after)[1:7:2])


def test_merging_goes_oldest_first_and_stops_when_the_target_is_met() -> None:
    view = chat(STATUS, STATUS, STATUS)
    after = run(Merge(), view, Goal(target=view.tokens - 1, hard=view.tokens))
    assert [bool(item.edits) for item in after.items[1:6:2]] == [True, False, False]


def test_the_newest_messages_stay_even_if_they_repeat_each_other() -> None:
    view = view_of([user(STATUS), user(STATUS), assistant(STATUS)])
    assert [bool(item.edits) for item in run(Merge(), view).items] == [True, False, False]
    assert propose(Merge(), view_of([user("go"), assistant(STATUS)])) == []


@given(st.text(max_size=300))
def test_sentences_are_pieces_of_the_text_and_leave_no_word_out(text: str) -> None:
    pieces = split_sentences(text)
    assert all(piece in text and "\n" not in piece for piece in pieces)
    assert "".join("".join(piece.split()) for piece in pieces) == "".join(text.split())


@settings(max_examples=up_to(80))
@given(talks(), st.floats(0.1, 1.0))
def test_any_conversation_stays_valid_smaller_honest_and_protected(talk: Talk, alike: float) -> None:
    view, edits = run_on(talk, Merge(chars_min=10, alike_min=alike))
    assert find_dishonest(edits, view) == []


@settings(max_examples=up_to(50))
@given(st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8), min_size=2, max_size=8))
def test_the_index_misses_no_pair_that_comparing_all_with_all_would_find(letters: list[list[str]]) -> None:
    spoken = {letter: " ".join(f"{letter}{n}" for n in range(40)) + "." for letter in "abcdefgh"}
    answers = ["\n".join(spoken[letter] for letter in dict.fromkeys(some)) for some in letters]
    view = chat(*answers)
    merged = {edit.covers[0] for edit in propose(Merge(chars_min=1, alike_min=0.6), view)}
    kept = [set(some) for at, some in enumerate(letters) if view.items[2 * at + 1].message.id not in merged]
    for at, one in enumerate(kept):
        for other in kept[at + 1 :]:
            assert len(one & other) < 0.6 * len(one | other)


@pytest.mark.timeout(60)  # It takes about a second; quadratic work would not end.
def test_thousands_of_messages_that_share_their_words_take_bounded_time() -> None:
    answers = [f"{STATUS} Step {n} of {n * 7} is done with {n * 13} orders." for n in range(3_000)]
    view = chat(*answers)
    assert propose(Merge(alike_min=0.95), view) is not None


def test_an_option_that_makes_no_sense_is_a_config_error_that_says_what_to_give() -> None:
    with pytest.raises(ConfigError, match=re.escape("merge.alike_min is -0.1; give ")):
        Merge(alike_min=-0.1)
