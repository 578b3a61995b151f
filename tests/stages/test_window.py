"""window: the newest stays, a small summary replaces the rest."""

from __future__ import annotations

from refold.stages.fold import Fold
from refold.stages.stage import Goal
from refold.stages.window import Window
from tests.rigs.stages import assistant, lines, propose, run, shown, step, user, view_of


def chat(count: int) -> list[dict[str, object]]:
    return [
        user(f"question {n} {lines(8)}") if n % 2 == 0 else assistant(f"answer {n} {lines(8)}") for n in range(count)
    ]


def test_the_oldest_units_go_until_the_target_is_met() -> None:
    view = view_of(chat(40))
    after = run(Window(), view, Goal(target=view.tokens // 2, hard=view.tokens // 2))
    assert after.tokens <= view.tokens // 2
    assert after.items[0].is_fold
    assert [item.raw for item in after.items[1:]] == [item.raw for item in view.items[-len(after.items) + 1 :]]


def test_with_a_number_of_turns_all_before_them_goes() -> None:
    view = view_of(chat(40))
    after = run(Window(keep_turns=3), view, Goal(target=view.tokens - 1, hard=view.tokens - 1))
    assert len(after.items) == 7


def test_more_turns_than_there_are_does_not_keep_it_from_fitting() -> None:
    view = view_of(chat(40))
    after = run(Window(keep_turns=500), view, Goal(target=view.tokens // 3, hard=view.tokens // 3))
    assert after.tokens <= view.tokens // 3


def test_what_lies_before_and_after_the_newest_question_is_told_apart() -> None:
    steps = [message for n in range(6) for message in step("run", {"n": n}, lines(40))]
    view = view_of([*chat(6), user("the question"), *steps])
    after = run(Window(), view, Goal(target=400, hard=400))
    kinds = ["fold" if item.is_fold else item.role for item in after.items]
    assert kinds == ["fold", "user", "fold", "assistant", "tool"]
    assert "the question" in shown(after)[1]


def test_an_earlier_fold_is_taken_in_and_its_originals_stay_reachable() -> None:
    view = view_of(chat(40))
    once = run(Window(), view, Goal(target=view.tokens // 2, hard=view.tokens // 2))
    room = once.items[0].tokens + once.items[-1].tokens - 1
    twice = run(Window(), once, Goal(target=room, hard=room))
    assert sum(item.is_fold for item in twice.items) == 1
    assert twice.items[0].edits[0].made_from == (once.items[0].edits[0].id,)
    assert set(once.items[0].ids) < set(twice.items[0].ids)


def test_without_room_for_a_summary_one_line_says_how_many_left() -> None:
    view = view_of([user("a question"), *chat(10), user("short")])
    (edit,) = propose(Window(), view, Goal(target=60, hard=60))
    assert edit.text.startswith("[10 earlier messages")
    assert edit.fold is not None
    assert edit.fold.handle in edit.text


def test_in_a_chinese_conversation_the_line_is_chinese() -> None:
    view = view_of([user("第一个问题" * 20), assistant("第一个回答" * 20), user("好的"), assistant("好")])
    (edit,) = propose(Window(), view, Goal(target=30, hard=30, language="zh"))
    assert edit.text.startswith("[较早的对话共 2 条消息")


def test_a_conversation_of_protected_messages_only_is_left_alone() -> None:
    assert propose(Window(), view_of([user("only this " * 50)]), Goal(target=10, hard=10)) == []


def test_turns_that_do_not_fit_go_too_instead_of_being_left_to_clamp() -> None:
    view = view_of(chat(40))
    goal = Goal(target=view.tokens // 4, hard=view.tokens // 4)
    folded = run(Window(keep_turns=19), view, goal)
    assert run(Window(keep_turns=19), folded, goal).tokens <= goal.hard


def test_a_view_that_is_over_by_a_little_gives_its_summary_up_before_the_newest_step() -> None:
    view = view_of([user("the question"), *chat(2), *step("run", {}, lines(300))])
    small = run(Window(summary_tokens_max=0), view, Goal(target=0, hard=0))
    for hard in (small.tokens, small.tokens + 7, small.tokens + 150, small.tokens + 400):
        if hard < view.tokens:
            after = run(Window(), view, Goal(target=hard, hard=hard))
            assert after.tokens <= hard
            assert after.items[-1].raw is view.items[-1].raw


def test_the_record_uses_the_room_that_the_target_leaves() -> None:
    talk = [
        message for n in range(60) for message in (user(f"What is port_{n:02}?"), assistant(f"7{n:03}. {lines(8)}"))
    ]
    view = view_of([*talk, user("Read it."), *step("read", {"path": "a.log"}, lines(900))])
    newest = sum(item.tokens for item in view.items[-3:])
    after = run(Window(), view, Goal(target=newest + 2_500, hard=newest + 2_500))
    record = next(item for item in after.items if item.is_fold)
    assert 1_000 < record.tokens + sum(item.tokens for item in after.items[:-3] if not item.is_fold) <= 2_500
    alone = run(
        Window(),
        view_of([user("Go."), *talk[1:], user("Read it."), *step("read", {}, lines(900))]),
        Goal(target=newest + 900, hard=newest + 900),
    )
    assert max(item.tokens for item in alone.items if item.is_fold) > 100


def test_earlier_records_stay_where_the_view_fits_with_them() -> None:
    view = view_of(chat(40))
    once = run(Fold(), view, Goal(target=view.tokens // 2, hard=view.tokens))
    record = next(item for item in once.items if item.is_fold)
    after = run(Window(), once, Goal(target=once.tokens * 7 // 8, hard=once.tokens * 7 // 8))
    assert record.raw in [item.raw for item in after.items]
    tight = run(Window(), once, Goal(target=record.tokens, hard=record.tokens))
    assert record.raw not in [item.raw for item in tight.items]


def test_a_secret_is_not_listed_among_the_exact_values_of_what_left_the_view() -> None:
    secret = "AKIAQ7WLM2XV9B3ZKT4D"
    steps = [m for n in range(8) for m in step("deploy", {"region": f"eu-west-{n}", "key": secret}, lines(30))]
    view = view_of([user("roll it out"), *steps, user("go on")])
    goal = Goal(target=view.tokens // 2, hard=view.tokens // 2, secrets=frozenset({secret}))
    (edit,) = propose(Window(), view, goal)
    assert edit.fold is not None
    assert secret not in [artifact.value for artifact in edit.fold.artifacts]
    assert secret not in edit.text.partition("## Exact values")[2]


def test_results_sent_as_user_text_are_nobodys_words() -> None:
    steps = [
        message
        for n in range(12)
        for message in (assistant(f"Part {n} fails because port {n} is closed."), user(f"Observation: {lines(60)}"))
    ]
    view = view_of([user("fix it"), *steps, user("go on")])
    (edit,) = propose(Window(), view, Goal(target=view.tokens // 2, hard=view.tokens // 2))
    assert "U> Observation" not in edit.text
    assert "A> Part 6 fails because port 6 is closed." in edit.text
