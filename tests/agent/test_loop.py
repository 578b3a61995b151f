"""The loop over real HTTP: answers, tools, usage, failures, limits; in both formats."""

import asyncio
import threading
from pathlib import Path

import pytest

from refold.agent import AgentLimits, make_tool
from refold.agent.events import (
    Finished,
    Retrying,
    StepStarted,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
    UsageReported,
    Warned,
)
from refold.errors import ConfigError, ProviderError, Unavailable
from refold.testing import (
    ScriptedCall,
    ScriptedProvider,
    ScriptedReply,
    ScriptedUsage,
    call_tool,
    drop,
    fail,
    hang,
    html_page,
    never_end,
    refuse,
    say,
)
from tests.rigs.agent import both, check_stored, make_agent, make_manager, pick, read_stored, run_all

pytest.importorskip("openai", reason="needs refold[llm]: the official clients")
pytest.importorskip("anthropic", reason="needs refold[llm]: the official clients")


def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    Args:
        a: the first
        b: the second
    """
    return a + b


@both
async def test_an_answer_comes_in_pieces_with_its_usage_and_is_stored(wire: str, tmp_path: Path) -> None:
    reply = ScriptedReply("Guten Tag. 你好。", usage=ScriptedUsage(120, 7, 20))
    with ScriptedProvider(reply) as provider, make_manager(tmp_path) as manager:
        events = await run_all(make_agent(provider, manager, wire, system="Be brief."), "Hello")
        assert "".join(one.text for one in pick(events, TextDelta)) == reply.text
        assert pick(events, Finished) == [Finished(reply.text, "stop", 1)]
        (usage,) = pick(events, UsageReported)
        assert (usage.input, usage.output, usage.cached) == (120, 7, 20)
        assert pick(events, StepStarted)[0].tokens > 0
        assert len(check_stored(manager, wire)) == 2
        (seen,) = provider.requests
    assert (seen.system, seen.prompt, seen.is_streaming) == ("Be brief.", "Hello", True)


@both
async def test_tools_get_typed_arguments_and_their_results_reach_the_model(wire: str, tmp_path: Path) -> None:
    script = [call_tool("add", {"a": 2, "b": 40}), say("42")]
    with ScriptedProvider(script) as provider, make_manager(tmp_path) as manager:
        events = await run_all(make_agent(provider, manager, wire, [add]), "2 + 40?")
        stored = check_stored(manager, wire)
        last = provider.requests[-1]
    assert pick(events, ToolStarted)[0].name == "add"
    assert [(one.text, one.is_error) for one in pick(events, ToolFinished)] == [("42", False)]
    assert [one["role"] for one in stored] == (
        ["user", "assistant", "tool", "assistant"]
        if wire == "openai-chat"
        else ["user", "assistant", "user", "assistant"]
    )
    offered = [one.get("name") or one["function"]["name"] for one in last.json["tools"]]
    assert offered[0] == "add"
    assert "context_recall" in offered


@both
async def test_several_calls_run_at_the_same_time_and_keep_their_order(wire: str, tmp_path: Path) -> None:
    started: list[str] = []
    all_started, others_ended = asyncio.Event(), asyncio.Event()

    async def wait(name: str) -> str:
        started.append(name)
        if len(started) == 3:
            all_started.set()
        await asyncio.wait_for(all_started.wait(), 60)
        if name == "slow":
            await asyncio.wait_for(others_ended.wait(), 60)
        elif name == "third":
            others_ended.set()
        return name

    calls = tuple(ScriptedCall("wait", {"name": name}, f"id_{name}") for name in ("slow", "quick", "third"))
    with ScriptedProvider([ScriptedReply(calls=calls), say("done")]) as provider, make_manager(tmp_path) as manager:
        events = await run_all(make_agent(provider, manager, wire, [wait]), "go")
        stored = check_stored(manager, wire)
    assert len(started) == 3
    assert [one.name for one in pick(events, ToolStarted)] == ["wait"] * 3
    results = stored[2:5] if wire == "openai-chat" else stored[2]["content"]
    assert [one["content"] for one in results] == ["slow", "quick", "third"]


@both
async def test_the_model_is_informed_of_errors_in_a_tool(wire: str, tmp_path: Path) -> None:
    def explode() -> str:
        raise ValueError("no such column: price")

    calls = (
        ScriptedCall("explode", {}, "a"),
        ScriptedCall("ad", {}, "b"),
        ScriptedCall("add", {"a": "many"}, "c"),
        ScriptedCall("add", '{"a": 1', "d"),
        ScriptedCall("add", {"a": 1, "z": 2}, "e"),
        ScriptedCall("add", "[1, 2]", "f"),
    )
    with ScriptedProvider([ScriptedReply(calls=calls), say("I see.")]) as provider, make_manager(tmp_path) as manager:
        events = await run_all(make_agent(provider, manager, wire, [add, explode]), "go")
        check_stored(manager, wire)
    finished = {one.id: one for one in pick(events, ToolFinished)}
    assert all(one.is_error for one in finished.values())
    assert finished["a"].text == "ValueError: no such column: price"
    assert finished["b"].text.startswith("there is no tool 'ad'. Did you mean 'add'?")
    assert "a: Input should be a valid integer" in finished["c"].text
    assert "not valid JSON" in finished["d"].text
    assert "z: Extra inputs are not permitted. The tool takes: a, b." in finished["e"].text
    assert "must be one JSON object" in finished["f"].text
    assert pick(events, Finished)[0].text == "I see."


async def test_a_tool_that_never_returns_is_given_up_in_time(tmp_path: Path) -> None:
    released = threading.Event()

    def sleep_long() -> str:
        released.wait(600)
        return "late"

    async def ignore_cancellation() -> str:
        for _ in range(100):
            try:
                await asyncio.sleep(0.2)
            except asyncio.CancelledError:
                continue
        return "late"

    calls = (ScriptedCall("sleep_long", {}, "a"), ScriptedCall("ignore_cancellation", {}, "b"))
    limits = AgentLimits(tool_timeout_s=0.2, delay_s=0.01)
    with ScriptedProvider([ScriptedReply(calls=calls), say("ok")]) as provider, make_manager(tmp_path) as manager:
        agent = make_agent(provider, manager, tools=[sleep_long, ignore_cancellation], limits=limits)
        events = await run_all(agent, "go")
        released.set()
        check_stored(manager, "openai-chat")
    texts = [one.text for one in pick(events, ToolFinished)]
    assert texts == ["the tool did not return within 0.2 s and was abandoned"] * 2
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        for _ in range(200):
            task.cancel()
            await asyncio.sleep(0)


async def test_a_tool_that_returns_20_mb_is_cut_with_an_exact_count(tmp_path: Path) -> None:
    whole = "first line\n" + "0123456789abcde\n" * 1_300_000 + "last line"

    def flood() -> str:
        return whole

    with (
        ScriptedProvider([call_tool("flood"), say("much")]) as provider,
        make_manager(tmp_path, truncate={"on_arrival": True}) as manager,
    ):
        events = await run_all(make_agent(provider, manager, tools=[flood]), "go")
        stored = check_stored(manager, "openai-chat")
        sent = provider.requests[-1].messages[-1]["content"]
    (done,) = pick(events, ToolFinished)
    assert done.chars_total == len(whole) > 20_000_000
    assert len(done.text) <= 1_000_000
    head, rest = done.text.split("... [truncated ", 1)
    missing, tail = rest.split(" characters] ...\n", 1)
    assert whole == head + whole[len(head) : len(head) + int(missing)] + tail
    assert stored[2]["content"] == done.text
    assert len(sent) < 60_000  # And the view has no more than the stage truncate lets in.


@both
async def test_a_lost_connection_is_tried_again_and_nothing_is_stored_twice(wire: str, tmp_path: Path) -> None:
    script = [fail(503), drop("half an ans"), say("whole")]
    with ScriptedProvider(script) as provider, make_manager(tmp_path) as manager:
        events = await run_all(make_agent(provider, manager, wire), "hi")
        assert len(check_stored(manager, wire)) == 2
    assert len(pick(events, Retrying)) == 2
    assert pick(events, Finished)[0].text == "whole"


@both
@pytest.mark.parametrize("fault", [fail(401, "bad key"), html_page(), fail(404)])
async def test_a_permanent_error_ends_the_run_at_once(wire: str, fault: object, tmp_path: Path) -> None:
    with ScriptedProvider(fault) as provider, make_manager(tmp_path) as manager:  # type: ignore[arg-type]
        with pytest.raises(ProviderError):
            await run_all(make_agent(provider, manager, wire), "hi")
        assert len(provider.requests) == 1
        check_stored(manager, wire)


@both
async def test_after_an_error_the_session_continues(wire: str, tmp_path: Path) -> None:
    with ScriptedProvider([fail(400, "nope"), say("yes")]) as provider, make_manager(tmp_path) as manager:
        agent = make_agent(provider, manager, wire)
        with pytest.raises(ProviderError, match="nope"):
            await run_all(agent, "hi")
        events = await run_all(agent, None)
        assert pick(events, Finished)[0].text == "yes"
        assert len(check_stored(manager, wire)) == 2


async def test_a_provider_that_goes_silent_is_unavailable_after_the_stall(tmp_path: Path) -> None:
    limits = AgentLimits(answer_stall_s=0.3, attempts_max=1)
    with ScriptedProvider(hang(20)) as provider, make_manager(tmp_path) as manager, pytest.raises(Unavailable):
        await run_all(make_agent(provider, manager, limits=limits), "hi")


@both
async def test_an_answer_without_end_stops_at_its_limit(wire: str, tmp_path: Path) -> None:
    limits = AgentLimits(answer_chars_max=5_000, attempts_max=1)
    with ScriptedProvider(never_end()) as provider, make_manager(tmp_path) as manager:
        events = await run_all(make_agent(provider, manager, wire, limits=limits), "hi")
    (end,) = pick(events, Finished)
    assert end.reason == "length"
    assert 5_000 < len(end.text) < 6_000


@both
async def test_a_refusal_is_an_answer_with_its_reason(wire: str, tmp_path: Path) -> None:
    with ScriptedProvider(refuse("I will not.")) as provider, make_manager(tmp_path) as manager:
        events = await run_all(make_agent(provider, manager, wire), "hi")
        check_stored(manager, wire)
    assert (pick(events, Finished)[0].reason, pick(events, Finished)[0].text) == ("refusal", "I will not.")


@both
async def test_thinking_is_reported_and_sent_back_with_the_calls_it_led_to(wire: str, tmp_path: Path) -> None:
    first = ScriptedReply("", (ScriptedCall("add", {"a": 1}),), thinking="let me see")
    with ScriptedProvider([first, say("2")]) as provider, make_manager(tmp_path) as manager:
        events = await run_all(make_agent(provider, manager, wire, [add]), "go")
        stored = check_stored(manager, wire)
    assert "".join(one.text for one in pick(events, ThinkingDelta)) == "let me see"
    if wire == "anthropic":
        assert stored[1]["content"][0]["type"] == "thinking"
        assert stored[1]["content"][0]["signature"]
    else:
        assert stored[1]["reasoning_content"] == "let me see"


async def test_a_parameter_that_a_server_refuses_is_left_out_from_then_on(tmp_path: Path) -> None:
    with ScriptedProvider("ok", unsupported=["stream_options"]) as provider, make_manager(tmp_path) as manager:
        agent = make_agent(provider, manager)
        assert await agent.ask("one") == await agent.ask("two") == "ok"
        assert ["stream_options" in one.json for one in provider.requests] == [True, False, False]


async def test_calls_that_bring_nothing_new_end_the_run(tmp_path: Path) -> None:
    with ScriptedProvider(call_tool("add", {"a": 1})) as provider, make_manager(tmp_path) as manager:
        events = await run_all(make_agent(provider, manager, tools=[add]), "go")
        check_stored(manager, "openai-chat")
    assert pick(events, Finished)[0].reason == "stuck"
    assert pick(events, Finished)[0].steps == 6
    assert "the same calls had the same results 6 times in a row" in pick(events, Warned)[0].text


async def test_the_number_of_steps_has_a_limit(tmp_path: Path) -> None:
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return count

    limits = AgentLimits(steps_max=4)
    with ScriptedProvider(call_tool("tick")) as provider, make_manager(tmp_path) as manager:
        events = await run_all(make_agent(provider, manager, tools=[tick], limits=limits), "go")
        check_stored(manager, "openai-chat")
    assert (pick(events, Finished)[0].reason, count) == ("steps", 4)


async def test_lone_surrogates_from_people_and_tools_do_not_stop_it(tmp_path: Path) -> None:
    def odd() -> str:
        return "broken \ud83d emoji"

    with ScriptedProvider([call_tool("odd"), say("fine")]) as provider, make_manager(tmp_path) as manager:
        events = await run_all(make_agent(provider, manager, tools=[odd]), "what is \udcff this")
        assert read_stored(manager)[0]["content"] == "what is � this"
    assert pick(events, ToolFinished)[0].text == "broken � emoji"


async def test_an_empty_prompt_is_refused_and_nothing_is_stored(tmp_path: Path) -> None:
    with ScriptedProvider("x") as provider, make_manager(tmp_path) as manager:
        with pytest.raises(ConfigError, match="prompt is empty"):
            await run_all(make_agent(provider, manager), "  \n")
        assert manager.ledger.read_session("s") is None


async def test_callbacks_hear_and_cannot_break_anything(tmp_path: Path) -> None:
    heard = []

    def fails(event: object) -> None:
        raise RuntimeError("mine")

    with ScriptedProvider("hello") as provider, make_manager(tmp_path) as manager:
        agent = make_agent(provider, manager)
        agent.on("finished", heard.append)
        agent.on("finished", fails)
        events = await run_all(agent, "hi")
        with pytest.raises(ConfigError, match="there is no event 'finishd'"):
            agent.on("finishd", heard.append)
    assert [one.kind for one in heard] == ["finished"]
    assert pick(events, Warned)[0].text == "a callback for finished failed: RuntimeError: mine"


async def test_a_tool_that_asks_is_not_run_without_a_yes(tmp_path: Path) -> None:
    ran = []

    def erase(path: str) -> str:
        ran.append(path)
        return "erased"

    answers = iter([False, True])

    async def approve(call: object, tool: object) -> bool:
        return next(answers)

    script = [call_tool("erase", {"path": path}) for path in "abc"] + [say("done")]
    with ScriptedProvider(script) as provider, make_manager(tmp_path) as manager:
        agent = make_agent(provider, manager, tools=[make_tool(erase, asks=True)], approve=approve)  # type: ignore[list-item]
        agent.limits = AgentLimits(steps_max=2)
        events = await run_all(agent, "go")
        agent.approve = None
        agent.limits = AgentLimits()
        events += await run_all(agent, None)
    assert ran == ["b"]
    assert [one.is_error for one in pick(events, ToolFinished)] == [True, False, True]
