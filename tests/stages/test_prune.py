"""prune: old thinking goes whole, empty messages go where the view stays valid without them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold.stages.prune import Prune
from refold.stages.stage import Goal
from refold.testing import find_violations
from tests.rigs.effort import up_to
from tests.rigs.stages import assistant, lines, propose, run, step, user, view_of
from tests.rigs.strategies import Talk, talks


def thought(n: int) -> dict[str, str]:
    return {"type": "thinking", "thinking": lines(30), "signature": f"sig{n}=="}


def think_and_call(n: int, *more: Any) -> list[dict[str, Any]]:
    return [
        assistant([thought(n), *more, {"type": "tool_use", "id": f"t{n}", "name": "run", "input": {}}]),
        user([{"type": "tool_result", "tool_use_id": f"t{n}", "content": "done"}]),
    ]


def kinds(view: Any) -> list[list[str]]:
    return [[part.kind for part in item.parts] for item in view.items]


def test_thinking_before_the_newest_step_goes_whole_and_the_newest_step_keeps_its_own() -> None:
    messages = [user("go"), *(message for n in range(3) for message in think_and_call(n))]
    after = run(Prune(), view_of(messages, "anthropic"))
    assert kinds(after) == [["text"], ["call"], ["result"], ["call"], ["result"], ["thinking", "call"], ["result"]]
    assert after.items[5].raw is messages[5]
    assert find_violations("anthropic", [item.raw for item in after.items]) == []


def test_redacted_thinking_goes_together_with_the_thinking_beside_it() -> None:
    redacted = {"type": "redacted_thinking", "data": "A" * 400}
    messages = [user("go"), *think_and_call(0, redacted), *think_and_call(1, redacted)]
    after = run(Prune(), view_of(messages, "anthropic"))
    assert kinds(after)[1] == ["call"]
    assert kinds(after)[3] == ["thinking", "thinking", "call"]


def test_pruning_goes_oldest_first_and_stops_when_the_target_is_met() -> None:
    view = view_of([user("go"), *(message for n in range(5) for message in think_and_call(n))], "anthropic")
    after = run(Prune(), view, Goal(target=view.tokens - 1, hard=view.tokens))
    assert kinds(after)[1] == ["call"]
    assert kinds(after)[3] == ["thinking", "call"]


def test_thinking_stays_if_the_option_says_so() -> None:
    view = view_of([user("go"), *(message for n in range(3) for message in think_and_call(n))], "anthropic")
    assert propose(Prune(thinking=False), view) == []


def test_the_thinking_field_of_a_chat_message_goes_and_its_calls_stay() -> None:
    steps = [message for n in range(3) for message in step("run", {"n": n}, "done")]
    for message in steps[::2]:
        message["reasoning_content"] = lines(30)
    after = run(Prune(), view_of([user("go"), *steps]))
    assert ["reasoning_content" in item.raw for item in after.items[1::2]] == [False, False, True]  # type: ignore[operator]
    assert all(item.raw["tool_calls"] for item in after.items[1::2])  # type: ignore[index]


def test_a_message_that_only_thought_goes_with_its_thinking() -> None:
    messages = [user("go"), assistant([thought(0)]), user("and?"), assistant("yes"), user("so?")]
    after = run(Prune(), view_of(messages, "anthropic"))
    assert [item.raw for item in after.items] == [messages[0], messages[2], messages[3], messages[4]]


def test_reasoning_of_the_responses_format_stays_with_its_call() -> None:
    items = [user("go")]
    for n in range(3):
        items.append({"type": "reasoning", "id": f"r{n}", "summary": [{"type": "summary_text", "text": lines(30)}]})
        items.append({"type": "function_call", "call_id": f"c{n}", "name": "run", "arguments": "{}"})
        items.append({"type": "function_call_output", "call_id": f"c{n}", "output": "done"})
    assert propose(Prune(), view_of(items, "openai-responses")) == []


@pytest.mark.parametrize("content", ["", None, "  \n", [], [{"type": "text", "text": ""}]])
def test_a_message_that_says_nothing_goes(content: Any) -> None:
    messages = [user("go"), assistant(content), user("go on"), assistant("yes"), user("and?")]
    after = run(Prune(), view_of(messages))
    assert [item.raw for item in after.items] == [messages[0], *messages[2:]]


def test_a_message_that_says_nothing_stays_if_the_option_says_so() -> None:
    messages = [user("go"), assistant(""), user("go on"), assistant("yes"), user("and?")]
    assert propose(Prune(empty=False), view_of(messages)) == []


def test_an_assistant_message_with_calls_stays_however_little_it_says() -> None:
    messages = [user("go"), *step("run", {}, ""), *step("run", {}, ""), *step("run", {}, "")]
    assert propose(Prune(), view_of(messages)) == []


def test_an_empty_first_message_stays_where_the_next_may_not_come_first() -> None:
    messages = [user(" "), assistant("hello, how can I help?"), user("go"), assistant("yes")]
    view = view_of(messages, "anthropic")
    assert propose(Prune(), view) == []


def test_one_removal_that_may_not_be_does_not_hold_back_the_others() -> None:
    middle = [message for n in range(9) for message in (assistant("fine."), user(" "))]
    messages = [user(" "), *middle, assistant("yes"), user("and?")]
    after = run(Prune(), view_of(messages, "anthropic"))
    assert [item.raw for item in after.items] == [messages[0], *middle[::2], *messages[-2:]]


@settings(max_examples=up_to(80))
@given(talks(), st.booleans(), st.booleans())
def test_any_conversation_stays_valid_and_nothing_but_thinking_and_silence_goes(
    talk: Talk, thinking: bool, empty: bool
) -> None:
    view = view_of(talk.messages, talk.wire)
    stage = Prune(thinking=thinking, empty=empty)
    edits = propose(stage, view)
    assert edits == propose(stage, view_of(talk.messages, talk.wire))
    by_id = {message.id: message for message in view.messages}
    for edit in edits:
        parts = by_id[edit.covers[0]].parts
        assert edit.kind == "drop"
        assert not parts or parts[edit.part or 0].kind == "thinking" or not parts[edit.part or 0].text.strip()
    after = run(stage, view)
    assert after.tokens <= view.tokens
    kept = {id(item.raw) for item in after.items}
    assert all(id(view.items[at].raw) in kept for at in view.protected)
    faults = find_violations(talk.wire, talk.messages)
    assert len(find_violations(talk.wire, [item.raw for item in after.items])) <= len(faults)
