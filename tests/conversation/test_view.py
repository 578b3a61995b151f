"""The view: what the model sees, computed from messages and a set of edits."""

from __future__ import annotations

from dataclasses import replace as replace_fields
from typing import Any

import pytest

from refold.conversation import Edit, Lens, View, amend, apply, extend
from refold.conversation.message import find_marks, fold_handle, mark, message_handle, read_handle
from refold.formats import detect, parse_messages
from refold.tokens import counter_for

COUNTED: list[str] = []


def make_lens(messages: Any) -> Lens:
    counter = counter_for("gpt-4o")

    def count_parts(role: Any, parts: Any, name: str) -> int:
        COUNTED.append(role)
        return counter.count_parts(role, parts, name)

    return Lens(detect(messages), count_parts, counter.count_text)


@pytest.fixture
def talk() -> View:
    COUNTED.clear()
    messages = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"message {n} " * 20} for n in range(10)]
    lens = make_lens(messages)
    return apply(parse_messages(lens.format, messages), (), lens)


def fold(view: View, start: int, stop: int, text: str = "short", level: int = 0) -> Edit:
    return Edit("fold", "test", tuple(m.id for m in view.messages[start:stop]), text=text, level=level)


def replace(view: View, at: int, text: str, level: int = 0) -> Edit:
    return Edit("replace", "test", (view.messages[at].id,), part=0, text=text, level=level)


def contents(view: View) -> list[str]:
    return [item.raw["content"] for item in view.items]  # type: ignore[index]


def test_without_edits_the_view_is_the_objects_that_came_in(talk: View) -> None:
    assert all(item.raw is message.raw for item, message in zip(talk.items, talk.messages, strict=True))


def test_a_fold_is_placed_at_the_first_message_it_covers(talk: View) -> None:
    view = amend(talk, [fold(talk, 2, 6)])
    assert len(view.items) == 7
    assert contents(view)[2] == "short"
    assert view.items[2].ids == tuple(m.id for m in talk.messages[2:6])


def test_a_fold_may_be_placed_before_a_message_that_it_does_not_cover(talk: View) -> None:
    ahead = replace_fields(fold(talk, 3, 6), before=talk.messages[1].id, id="")
    view = amend(talk, [ahead, replace(talk, 1, "edited")])
    assert contents(view)[:4] == [contents(talk)[0], "short", "edited", contents(talk)[2]]
    assert len(view.items) == 8
    assert ahead.id != fold(talk, 3, 6).id, "its place is part of what it does"
    lost = replace_fields(ahead, before="no such message", id="")
    assert contents(amend(talk, [lost]))[3] == "short", "otherwise it is placed at its first message"


def test_two_folds_at_one_place_keep_the_order_of_what_they_cover(talk: View) -> None:
    later = replace_fields(fold(talk, 5, 7, "later"), before=talk.messages[1].id, id="")
    view = amend(talk, [later, fold(talk, 1, 3, "earlier")])
    assert contents(view)[1:3] == ["earlier", "later"]


def test_a_fold_hides_every_other_edit_within_it(talk: View) -> None:
    inner, outer = fold(talk, 2, 4, "inner"), fold(talk, 1, 6, "outer", level=1)
    view = amend(talk, [replace(talk, 3, "x"), inner, outer])
    assert contents(view)[1] == "outer"
    assert contents(amend(talk, [replace(talk, 5, "x"), inner]))[2:5] == ["inner", talk.items[4].raw["content"], "x"]


def test_leaving_an_edit_out_gives_exactly_the_view_without_it(talk: View) -> None:
    inner, outer = fold(talk, 2, 4, "inner"), fold(talk, 1, 6, "outer", level=1)
    both = amend(talk, [inner, outer])
    assert both.items[1].edits == (outer,)
    assert contents(amend(talk, [inner])) == contents(apply(talk.messages, [inner], talk.lens))


def test_of_two_edits_on_one_part_the_higher_level_holds_in_any_order(talk: View) -> None:
    low, high = replace(talk, 1, "low"), replace(talk, 1, "high", level=1)
    assert contents(amend(talk, [low, high]))[1] == contents(amend(talk, [high, low]))[1] == "high"


def test_an_edit_whose_messages_are_not_all_there_does_not_hold(talk: View) -> None:
    edit = fold(talk, 2, 6)
    trimmed = apply(talk.messages[3:], [edit], talk.lens)
    assert contents(trimmed) == contents(talk)[3:]


def test_a_message_is_counted_once_however_often_the_view_is_computed(talk: View) -> None:
    counted = len(COUNTED)
    view = amend(talk, [fold(talk, 0, 2)])
    amend(view, [replace(talk, 5, "x")])
    apply(talk.messages, (), talk.lens)
    assert counted == 10
    assert len(COUNTED) == 12


def test_extending_counts_only_what_is_new_and_keeps_the_prefix(talk: View) -> None:
    more = parse_messages(talk.lens.format, [{"role": "user", "content": "new"}])
    view = extend(talk, more)
    assert view.items[:10] == talk.items
    assert view.tokens == talk.tokens + view.items[-1].tokens
    assert len(COUNTED) == 11


def test_memory_follows_the_view_when_the_rest_is_forgotten(talk: View) -> None:
    view = amend(talk, [fold(talk, 0, 8)])
    view.lens.forget_all(view.items)
    counted = len(COUNTED)
    assert contents(apply(talk.messages, view.edits, talk.lens)) == contents(view)
    assert len(COUNTED) == counted


def test_handles_are_prefixes_of_content_and_survive_a_round_through_text(talk: View) -> None:
    handle = message_handle(talk.messages[0])
    assert find_marks(f"see {mark(handle)} there") == [handle]
    assert read_handle(f" ⟨{handle.upper().replace('M:', 'm:')}⟩ ") == handle
    assert read_handle("../etc/passwd") is None
    assert fold_handle(talk.messages[:3]) != fold_handle(talk.messages[:4])


def test_an_edit_that_makes_no_sense_cannot_be_made(talk: View) -> None:
    with pytest.raises(ValueError, match="at least one message"):
        Edit("fold", "test", ())
    with pytest.raises(ValueError, match="need a part"):
        Edit("replace", "test", ("a",))


def test_of_reminders_that_repeat_each_other_only_the_newest_is_protected() -> None:
    left = "{} tokens left"
    said = [("system", left.format(9)), ("user", "go"), ("assistant", "one"), ("system", left.format(800))]
    said += [
        ("user", "on"),
        ("system", "another rule"),
        ("assistant", "two"),
        ("system", left.format(700)),
        ("user", "x"),
    ]
    messages = [{"role": role, "content": text} for role, text in said]
    lens = make_lens(messages)
    view = apply(parse_messages(lens.format, messages), (), lens)
    system = [at for at, (role, _) in enumerate(said) if role == "system"]
    assert [at for at in system if at not in view.protected] == [3], "that before the conversation stays, too"
    pinned = apply(view.messages, (), lens, pinned=frozenset((view.messages[3].id,)))
    assert 3 in pinned.protected


def test_system_messages_about_different_things_with_a_number_are_all_protected() -> None:
    rules = ["Customer 7 must not be called.", "Customer 8 must not be called.", "客户7不得联系。", "客户8不得联系。"]
    messages = [{"role": role, "content": text} for rule in rules for role, text in (("user", "go"), ("system", rule))]
    lens = make_lens(messages)
    view = apply(parse_messages(lens.format, messages), (), lens)
    assert {1, 3, 5, 7} <= view.protected
