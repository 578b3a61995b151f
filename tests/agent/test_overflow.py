"""Providers that refuse a request as too long: compressed without a model, sent again changed, remembered."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from refold.agent.events import Compressed, Finished, Retrying, WindowLowered
from refold.errors import BudgetTooSmall, ContextOverflow
from refold.ledger.codec import load_json
from refold.testing import RecordedRequest, ScriptedModel, ScriptedProvider, ScriptedUsage, fail, say
from refold.testing.provider_rules import count_input
from tests.rigs.agent import check_stored, make_agent, make_manager, one_first, pick, run_all

pytest.importorskip("openai", reason="needs refold[llm]: the official clients")
pytest.importorskip("anthropic", reason="needs refold[llm]: the official clients")

WINDOW = 24_000


def write_history(wire: str, steps: int = 60) -> list[dict[str, Any]]:
    """Turns of question and answer, about 300 tokens each."""
    turns: list[dict[str, Any]] = []
    for at in range(steps):
        fact = f"The port of service {at} is {4_000 + at * 7}."
        turns.append({"role": "user", "content": f"Question {at}: " + f"please look at item {at} again. " * 12})
        turns.append({"role": "assistant", "content": f"{fact} " + f"I looked at it, item {at} is fine. " * 12})
    return turns


def digests(requests: list[RecordedRequest]) -> list[bytes]:
    return [request.body for request in requests]


@one_first
async def test_a_window_of_a_third_is_discovered_reported_and_remembered(wire: str, tmp_path: Path) -> None:
    third = WINDOW // 3
    with (
        ScriptedProvider("fine", window=third) as provider,
        make_manager(tmp_path, window=WINDOW, economic=False) as manager,
    ):
        manager.append("s", write_history(wire, 45), format=wire)
        agent = make_agent(provider, manager, wire)
        events = await run_all(agent, "And now?")
        (lowered,) = pick(events, WindowLowered)
        assert (lowered.window_before, lowered.window_after) == (WINDOW, third)
        assert str(lowered.reason) == "the provider says its window has 8,000 tokens"
        assert pick(events, Finished)[0].text == "fine"
        assert len(pick(events, Compressed)) == 1
        assert len(provider.requests) == 2
        assert manager.status("s").window == third
        assert pick(await run_all(agent, "Again?"), WindowLowered) == []
        assert len(provider.requests) == 3
        check_stored(manager, wire)
    with (
        ScriptedProvider("fine", window=third) as provider,
        make_manager(tmp_path, window=WINDOW, economic=False) as manager,
    ):
        manager.append("s", [{"role": "user", "content": "word " * 6_000}], format=wire)
        await run_all(make_agent(provider, manager, wire, context_tools=False), "after a restart")
        assert manager.status("s").window == third
        assert len(provider.requests) == 1  # Known from the start: nothing was refused.


@one_first
async def test_recovery_asks_no_model_and_the_summariser_is_back_afterwards(wire: str, tmp_path: Path) -> None:
    llm = ScriptedModel("A summary of it all, in a few words.")
    with (
        ScriptedProvider("fine", window=WINDOW // 3) as provider,
        make_manager(tmp_path, llm, window=WINDOW, economic=False) as manager,
    ):
        manager.append("s", write_history(wire, 45), format=wire)
        assert manager.config.summariser == "auto"
        await run_all(make_agent(provider, manager, wire), "And now?")
        assert llm.requests == []
        assert manager.config.summariser == "auto"
        manager.append("s", write_history(wire, 45), format=wire)
        manager.compress("s")
        assert llm.requests
        assert not any("Sum" in request.prompt for request in provider.requests)


@one_first
async def test_recovery_does_not_wait_for_a_summary_that_is_being_written(wire: str, tmp_path: Path) -> None:
    asked: list[str] = []

    class Slow:
        async def complete(self, prompt: str) -> object:
            asked.append(prompt)
            await asyncio.sleep(600)
            return "never"

    with (
        ScriptedProvider("fine", window=WINDOW // 3) as provider,
        make_manager(tmp_path, Slow(), window=WINDOW, economic=False, trigger_ratio=0.5) as manager,
    ):
        manager.append("s", write_history(wire, 42), format=wire)
        events = await run_all(make_agent(provider, manager, wire), "And now?")
        assert len(asked) <= 1  # The one that was begun in the background, before the refusal.
        assert pick(events, Finished)[0].text == "fine"
        (summary,) = manager.summaries("s")
        assert "4126" in summary.content
        check_stored(manager, wire)


@one_first
async def test_a_refused_request_is_never_sent_again_unchanged(wire: str, tmp_path: Path) -> None:
    refusal = fail(400, "prompt is too long")
    with ScriptedProvider(refusal) as provider, make_manager(tmp_path, window=WINDOW, economic=False) as manager:
        manager.append("s", write_history(wire), format=wire)
        with pytest.raises((ContextOverflow, BudgetTooSmall)):
            await run_all(make_agent(provider, manager, wire), "And now?")
        sent = digests(provider.requests)
        assert len(sent) == len(set(sent)) <= 1 + manager.config.max_compaction_attempts
        check_stored(manager, wire)


async def test_a_provider_that_names_no_limit_still_teaches_us_one(tmp_path: Path) -> None:
    def answer(request: RecordedRequest) -> Any:
        too_long = count_input(request.wire, request.json) > 6_000
        return fail(400, "prompt is too long") if too_long else say("fine")

    with ScriptedProvider(answer) as provider, make_manager(tmp_path, window=WINDOW, economic=False) as manager:
        manager.append("s", write_history("openai-chat", 24), format="openai-chat")
        events = await run_all(make_agent(provider, manager), "And now?")
    assert pick(events, Finished)[0].text == "fine"
    assert pick(events, WindowLowered)[-1].window_after < 10_000


async def test_a_stated_limit_above_the_refused_size_does_not_end_the_recovery(tmp_path: Path) -> None:
    output_tokens, window = 5_000, 16_000

    def answer(request: RecordedRequest) -> Any:
        is_over = count_input(request.wire, request.json) + output_tokens > window
        said = f"This model's maximum context length is {window} tokens. However, you requested more."
        return fail(400, said) if is_over else say("fine")

    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    with ScriptedProvider(answer) as provider, make_manager(tmp_path, window=WINDOW, economic=False) as manager:
        found = " ".join(f"word{at} is here," for at in range(2_000))
        history = [{"role": "assistant", "content": None, "tool_calls": [call]}]
        history.append({"role": "tool", "tool_call_id": "c1", "content": found})
        manager.append("s", [{"role": "user", "content": "Read."}, *history], format="openai-chat")
        events = await run_all(make_agent(provider, manager), "And now?")
    assert pick(events, Finished)[0].text == "fine"
    assert [one.window_after < window for one in pick(events, WindowLowered)] == [True]
    assert len(provider.requests) == 2


async def test_a_provider_that_refuses_everything_for_a_while_leaves_the_session_usable(tmp_path: Path) -> None:
    script = [fail(413, "Request Entity Too Large")] * 12
    with (
        ScriptedProvider(lambda _: script.pop() if script else say("fine")) as provider,
        make_manager(tmp_path, window=WINDOW, economic=False) as manager,
    ):
        manager.append("s", write_history("openai-chat"), format="openai-chat")
        agent = make_agent(provider, manager)
        for _ in range(12):
            if script:
                with pytest.raises(ContextOverflow):
                    await run_all(agent, "And now?")
        assert pick(await run_all(agent, "And now?"), Finished)[0].text == "fine"


async def test_automatic_compression_switched_off_does_not_stop_recovery(tmp_path: Path) -> None:
    with (
        ScriptedProvider("fine", window=WINDOW // 3) as provider,
        make_manager(tmp_path, window=WINDOW, economic=False, auto_compress=False) as manager,
    ):
        manager.append("s", write_history("openai-chat"), format="openai-chat")
        events = await run_all(make_agent(provider, manager), "And now?")
    assert pick(events, Finished)[0].text == "fine"


async def test_what_cannot_shrink_is_named_and_the_session_continues(tmp_path: Path) -> None:
    with (
        ScriptedProvider("fine", window=2_000) as provider,
        make_manager(tmp_path, window=WINDOW, economic=False) as manager,
    ):
        agent = make_agent(provider, manager, context_tools=False)
        with pytest.raises((BudgetTooSmall, ContextOverflow), match=r"newest user message|too long|does not fit"):
            await run_all(agent, "word " * 5_000)
        assert len(provider.requests) == 1
        events = await run_all(agent, "A short one then.")
        assert pick(events, Finished)[0].text == "fine"
        check_stored(manager, "openai-chat")


@one_first
async def test_length_near_the_window_compresses_and_asks_again(wire: str, tmp_path: Path) -> None:
    cut = say("half an", finish_reason="length", usage=ScriptedUsage(WINDOW - 500, 500))
    with (
        ScriptedProvider([cut, say("whole")]) as provider,
        make_manager(tmp_path, window=WINDOW, economic=False) as manager,
    ):
        manager.append("s", write_history(wire, 30), format=wire)
        events = await run_all(make_agent(provider, manager, wire), "And now?")
        stored = check_stored(manager, wire)
        first, second = provider.requests
    assert pick(events, Finished)[0].text == "whole"
    assert len(second.messages) < len(first.messages)
    assert "cut off" in pick(events, Retrying)[0].reason
    assert "half an" not in str(stored)


async def test_length_far_from_the_window_is_the_answers_own_limit(tmp_path: Path) -> None:
    cut = say("half an", finish_reason="length", usage=ScriptedUsage(900, 500))
    with ScriptedProvider(cut) as provider, make_manager(tmp_path, window=WINDOW, economic=False) as manager:
        events = await run_all(make_agent(provider, manager), "And now?")
        assert len(provider.requests) == 1
    assert (pick(events, Finished)[0].text, pick(events, Finished)[0].reason) == ("half an", "length")


async def test_a_model_that_is_always_cut_off_is_asked_a_limited_number_of_times(tmp_path: Path) -> None:
    cut = say("half an", finish_reason="length", usage=ScriptedUsage(WINDOW - 500, 500))
    with ScriptedProvider(cut) as provider, make_manager(tmp_path, window=WINDOW, economic=False) as manager:
        manager.append("s", write_history("openai-chat", 30), format="openai-chat")
        events = await run_all(make_agent(provider, manager), "And now?")
        assert len(provider.requests) <= 1 + manager.config.max_compaction_attempts
        assert load_json(manager.ledger.read_messages("s")[-1].raw)["content"] == "half an"  # type: ignore[index]
    assert pick(events, Finished)[0].reason == "length"
