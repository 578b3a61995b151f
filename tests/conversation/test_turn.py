"""Turns, units and cuts: what stays or goes together."""

from __future__ import annotations

from typing import Any

from refold.conversation.turn import Unit, find_cuts, find_turns, find_units, newest_step
from refold.formats import detect, parse_messages


def parse(*messages: Any, wire: str = "openai-chat") -> Any:
    return parse_messages(detect(messages, name=wire), messages)


def user(text: str = "hi") -> dict[str, Any]:
    return {"role": "user", "content": text}


def calls(*ids: str, text: str | None = None) -> dict[str, Any]:
    made = [{"id": i, "type": "function", "function": {"name": "run", "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": text, "tool_calls": made}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "done"}


def spans(units: list[Unit]) -> list[tuple[int, int]]:
    return [(unit.start, unit.stop) for unit in units]


def test_parallel_calls_and_their_results_are_one_unit() -> None:
    assert spans(find_units(parse(user(), calls("a", "b"), result("b"), result("a"), user()))) == [
        (0, 1),
        (1, 4),
        (4, 5),
    ]


def test_a_call_id_used_again_belongs_to_the_call_right_before_it() -> None:
    messages = parse(user(), calls("a"), result("a"), calls("a"), result("a"))
    assert spans(find_units(messages)) == [(0, 1), (1, 3), (3, 5)]


def test_a_cut_may_fall_between_any_two_steps_of_one_long_turn() -> None:
    steps = [m for n in range(400) for m in (calls(f"c{n}"), result(f"c{n}"))]
    assert find_cuts(parse(user(), *steps)) == [0, 1, *range(3, 802, 2)]


def test_an_unanswered_call_does_not_swallow_what_follows() -> None:
    assert spans(find_units(parse(calls("a"), user(), user(), calls("b"), result("b")))) == [
        (0, 1),
        (1, 2),
        (2, 3),
        (3, 5),
    ]


def test_an_orphan_result_is_a_unit_of_its_own() -> None:
    assert spans(find_units(parse(result("x"), user(), calls("a"), result("b")))) == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_a_tool_result_inside_a_user_message_starts_no_turn() -> None:
    use = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "run", "input": {}}]}
    back = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "done"}]}
    messages = parse(user(), use, back, user("next"), wire="anthropic")
    assert find_turns(messages) == [0, 3]
    assert spans(find_units(messages)) == [(0, 1), (1, 3), (3, 4)]


def test_reasoning_items_go_with_the_call_they_led_to() -> None:
    items = [
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "id": "r1", "summary": []},
        {"type": "function_call", "call_id": "a", "name": "run", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "run", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "function_call_output", "call_id": "b", "output": "2"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
    ]
    assert spans(find_units(parse(*items, wire="openai-responses"))) == [(0, 1), (1, 6), (6, 7)]


def test_the_newest_step_is_the_last_thing_the_assistant_did_with_its_results() -> None:
    messages = parse(user(), calls("a"), result("a"), calls("b", "c"), result("b"), result("c"), user())
    assert newest_step(messages) == Unit(3, 6)
    assert newest_step(parse(user(), user())) is None
    assert newest_step(parse(user(), calls("a"), result("a"), {"role": "assistant", "content": "ok"})) == Unit(3, 4)


def test_an_empty_conversation_has_one_cut_and_no_unit() -> None:
    assert find_cuts([]) == [0]
    assert find_units([]) == []
    assert newest_step([]) is None
