"""Faults seen in other systems, each a test that this one does not have it, as far as it goes without a store."""

from __future__ import annotations

import json
from typing import Any

import pytest

import refold
from refold.conversation import Lens, apply
from refold.conversation.message import find_marks
from refold.conversation.view import extend
from refold.errors import BudgetTooSmall
from refold.formats import detect, parse_messages
from refold.stages.densify import densify_text
from refold.stages.stage import Ask, Reply
from refold.tokens import TokenCounter

PRESETS = ("default", "archive", "importance", "offload", "hybrid", "turns")


def call(call_id: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "run", "arguments": json.dumps(arguments)}}


def make_turn(steps: int, *, call_id: str = "call_1", lines: int = 30) -> list[dict[str, Any]]:
    """One user message and many steps; all calls have the same id, as in real traces."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Please find out why the build fails."}]
    for step in range(steps):
        output = "\n".join(f"step {step} line {n}: value {step * 1_000 + n}" for n in range(lines))
        messages.append({"role": "assistant", "content": None, "tool_calls": [call(call_id, {"step": step})]})
        messages.append({"role": "tool", "tool_call_id": call_id, "content": output})
    return messages


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("budget", [1_500, 4_000])
def test_the_newest_tool_result_is_never_hidden_before_the_model_has_read_it(preset: str, budget: int) -> None:
    messages = make_turn(40)
    prepared = refold.compress(messages, budget, preset=preset, strict=True)
    assert [one is two for one, two in zip(prepared.messages[-2:], messages[-2:], strict=True)] == [True, True]


@pytest.mark.parametrize("preset", PRESETS)
def test_results_with_a_repeated_call_id_each_stay_with_their_own_call(preset: str) -> None:
    prepared = refold.compress(make_turn(12, lines=12), 2_500, preset=preset, strict=True)
    seen: list[Any] = prepared.messages
    for at, message in enumerate(seen):
        if message["role"] != "tool":
            continue
        step = json.loads(seen[at - 1]["tool_calls"][0]["function"]["arguments"])["step"]
        marks = find_marks(message["content"])
        original = prepared.expand(marks[-1]) if marks else message["content"]
        assert original.startswith(f"step {step} line 0"), "a result is its own, or the placeholder of its own"


def test_a_configured_summariser_is_asked_and_its_error_never_becomes_the_summary() -> None:
    asked: list[Ask] = []

    def fail(ask: Ask) -> Reply:
        asked.append(ask)
        return Reply(error="HTTP 529: overloaded_error, please retry")

    config = refold.CompressionConfig(fold={"summariser": "llm"})
    prepared = refold.compress(make_turn(60), 2_000, config=config, answer=fail, strict=True)
    assert asked, "the model was asked"
    assert "overloaded" not in json.dumps(prepared.messages)
    assert prepared.summary
    assert "value" in json.dumps(prepared.messages), "the extract says something of what was there"


def test_the_summariser_sees_more_than_the_first_words_of_each_result() -> None:
    asked: list[Ask] = []

    def answer(ask: Ask) -> Reply:
        asked.append(ask)
        return Reply("The build fails.")

    config = refold.CompressionConfig(fold={"summariser": "llm"}, ladder=["fold", "window", "clamp"])
    refold.compress(make_turn(60), 2_000, config=config, answer=answer, strict=True)
    prompt = asked[0].prompt
    assert TokenCounter().count_text(prompt) > 4_000
    assert all(f"step {step} line 29: value {step * 1_000 + 29}" in prompt for step in range(40)), "their ends too"


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("budget", [1, 20, 60, 200, 700])
def test_no_empty_request_and_no_system_prompt_alone_is_ever_made(preset: str, budget: int) -> None:
    messages = [
        {"role": "system", "content": "Be exact."},
        *make_turn(5),
        {"role": "user", "content": "And now? " * 30},
    ]
    try:
        prepared = refold.compress(messages, budget, preset=preset, strict=True)
    except BudgetTooSmall as error:
        assert "newest user message" in error.parts
    else:
        assert any(message is messages[-1] for message in prepared.messages)


def test_one_long_user_turn_is_folded_inside() -> None:
    messages = make_turn(400, lines=4)
    prepared = refold.compress(messages, 3_000, strict=True)
    assert prepared.messages[0] is messages[0]
    assert any(edit.kind == "fold" for edit in prepared.edits)
    assert prepared.messages[-1] is messages[-1]


def test_a_fold_leaves_room_so_that_the_next_request_does_not_fold_again() -> None:
    messages = make_turn(120, lines=6)
    config = refold.CompressionConfig(window=6_000, reserve=500)
    edits: tuple[Any, ...] = ()
    batches = 0
    for count in range(3, len(messages) + 1, 2):
        prepared = refold.compress(messages[:count], config=config, edits=edits, strict=True)
        batches += len(prepared.edits) > len(edits)
        edits = prepared.edits
    assert 1 <= batches <= 8


def test_the_arguments_of_tool_calls_count() -> None:
    small = [{"role": "assistant", "content": None, "tool_calls": [call("a", {"text": ""})]}]
    large = [{"role": "assistant", "content": None, "tool_calls": [call("a", {"text": "word " * 1_000})]}]
    counter = TokenCounter()
    assert counter.count_messages(large) - counter.count_messages(small) >= 990


@pytest.mark.parametrize("preset", PRESETS)
def test_arguments_that_fill_the_window_are_brought_within_it(preset: str) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Write the files."}]
    for step in range(12):
        messages.append({"role": "assistant", "content": None, "tool_calls": [call("a", {"text": f"w{step} " * 900})]})
        messages.append({"role": "tool", "tool_call_id": "a", "content": "ok"})
    messages.append({"role": "user", "content": "Done?"})
    prepared = refold.compress(messages, 3_000, preset=preset, strict=True)
    assert TokenCounter("o200k_base").count_messages(prepared.messages) <= 3_000


@pytest.mark.parametrize("preset", PRESETS)
def test_null_content_is_not_an_error(preset: str) -> None:
    nothing: list[dict[str, Any]] = [{"role": "user", "content": None}, {"role": "assistant", "content": None}]
    messages = [*nothing, *make_turn(10), *nothing, {"role": "user", "content": "Go on."}]
    messages[3] = {**messages[3], "content": None}
    assert refold.compress(messages, 1_200, preset=preset).total_tokens <= 1_200


def test_search_hits_do_not_vanish_without_a_mark() -> None:
    hits = [f"src/module_{n}.py:{n * 3}: def handler_{n}(request):" for n in range(220)]
    messages = make_turn(6)
    messages[2] = {**messages[2], "content": "\n".join(hits)}
    prepared = refold.compress(messages, 2_200, strict=True)
    text = json.dumps(prepared.messages, ensure_ascii=False)
    gone = [hit for hit in hits if hit not in text]
    assert gone, "this budget cannot hold them all"
    texts = [prepared.expand(handle) for edit in prepared.edits for handle in find_marks(edit.text)]
    assert all(any(hit in whole for whole in texts) for hit in gone)
    assert "220" in text or any(edit.fold for edit in prepared.edits), "how many there were is said"


def test_source_code_is_not_treated_as_a_log() -> None:
    code = "\n".join(
        f"    def test_case_{n}(self) -> None:\n        self.assertEqual(run({n}), {n})\n" for n in range(200)
    )
    assert densify_text(code, "m:4f2a91c3") is None


def test_a_new_request_counts_only_what_is_new() -> None:
    messages = make_turn(50)
    form = detect(messages)
    counter = TokenCounter()
    counted: list[int] = []

    def count_parts(role: Any, parts: Any, name: str) -> int:
        counted.append(1)
        return counter.count_parts(role, parts, name)

    parsed = parse_messages(form, messages)
    view = apply(parsed[:-2], (), Lens(form, count_parts, counter.count_text))
    counted.clear()
    longer = extend(view, parsed[-2:])
    assert len(counted) == 2
    assert longer.tokens == apply(parsed, (), Lens(form, count_parts, counter.count_text)).tokens
