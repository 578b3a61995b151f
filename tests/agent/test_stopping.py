"""Stopped at any moment, by a person or by the machine, a session stays one that the provider accepts."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from refold.agent.events import Compressing, Finished, TextDelta, ToolStarted, Warned
from refold.agent.loop import LOST, find_pending
from refold.testing import ScriptedCall, ScriptedProvider, ScriptedReply, drip, hang, say
from tests.agent.test_overflow import write_history
from tests.rigs.agent import check_stored, make_agent, make_manager, one_first, pick, run_all

pytest.importorskip("openai", reason="needs refold[llm]: the official clients")
pytest.importorskip("anthropic", reason="needs refold[llm]: the official clients")


@one_first
async def test_a_run_stopped_during_the_answer_keeps_the_received_part(wire: str, tmp_path: Path) -> None:
    script = [drip("one two three four five six seven eight nine ten " * 5, pause_s=0.03), say("resumed")]
    with ScriptedProvider(script) as provider, make_manager(tmp_path) as manager:
        agent = make_agent(provider, manager, wire)
        run = agent.run("count")
        async for event in run:
            if isinstance(event, TextDelta):
                break
        await run.aclose()  # type: ignore[attr-defined]
        stored = check_stored(manager, wire)
        assert "one two" in str(stored[-1])
        assert "interrupted by the user" in str(stored[-1])
        assert pick(await run_all(agent, "go on"), Finished)[0].text == "resumed"


@one_first
async def test_a_run_cancelled_before_the_first_word_can_continue(wire: str, tmp_path: Path) -> None:
    with ScriptedProvider([hang(120), say("later")]) as provider, make_manager(tmp_path) as manager:
        agent = make_agent(provider, manager, wire)
        task = asyncio.ensure_future(run_all(agent, "hello?"))
        while not provider.requests:
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        check_stored(manager, wire)
        assert pick(await run_all(agent, "again"), Finished)[0].text == "later"


@one_first
async def test_cancelled_while_tools_run_every_call_has_a_result(wire: str, tmp_path: Path) -> None:
    quick_ended = asyncio.Event()

    async def quick() -> str:
        quick_ended.set()
        return "quick result"

    async def slow() -> str:
        await asyncio.sleep(600)
        return "never"

    calls = ScriptedReply(calls=(ScriptedCall("quick", {}, "a"), ScriptedCall("slow", {}, "b")))
    with ScriptedProvider([calls, say("ok")]) as provider, make_manager(tmp_path) as manager:
        agent = make_agent(provider, manager, wire, [quick, slow])
        run = agent.run("go")
        started = 0
        async for event in run:
            started += isinstance(event, ToolStarted)
            if started == 2:
                await asyncio.wait_for(quick_ended.wait(), 60)
                for _ in range(100):  # Its result is taken in the next rounds of the event loop.
                    await asyncio.sleep(0)
                break
        await run.aclose()  # type: ignore[attr-defined]
        stored = str(check_stored(manager, wire))
        assert "quick result" in stored
        assert "interrupted by the user" in stored
        assert pick(await run_all(agent, "go on"), Finished)[0].text == "ok"


@one_first
async def test_cancelled_during_a_compression_it_is_made_whole_or_not_at_all(wire: str, tmp_path: Path) -> None:
    class Slow:
        async def complete(self, prompt: str) -> object:
            await asyncio.sleep(600)
            return "never"

    with ScriptedProvider("fine") as provider, make_manager(tmp_path, Slow(), window=16_000) as manager:
        manager.append("s", write_history(wire), format=wire)
        agent = make_agent(provider, manager, wire)
        run = agent.run("And now?")
        async for event in run:
            if isinstance(event, Compressing):
                await asyncio.sleep(0.2)
                break
        await run.aclose()  # type: ignore[attr-defined]
        assert manager.ledger.read_batches("s") == []
        assert manager.verify("s") == []
        assert provider.requests == []
        manager.configure(fold={"summariser": "extract"})
        assert pick(await run_all(agent, None), Finished)[0].text == "fine"
        check_stored(manager, wire)


WORKER = """
import asyncio, sys
from refold import ContextCompressionManager
from refold.agent import Agent
from refold.llm.openai import OpenAIModel

def wait_long() -> str:
    open(sys.argv[2] + "/started", "w").close()
    import time
    time.sleep(600)
    return "never"

async def main():
    manager = ContextCompressionManager(workspace_path=sys.argv[2])
    agent = Agent(OpenAIModel("gpt-4o", "k", sys.argv[1]), [wait_long], manager, session_id="s")
    async for event in agent.run("go"):
        pass

asyncio.run(main())
"""


@pytest.mark.slow
async def test_killed_while_a_tool_runs_the_next_run_tells_the_model(tmp_path: Path) -> None:
    calls = ScriptedReply(calls=(ScriptedCall("wait_long", {}, "a"), ScriptedCall("wait_long", {}, "b")))
    with ScriptedProvider([calls, say("I know.")]) as provider:
        worker = subprocess.Popen([sys.executable, "-c", WORKER, provider.openai_url, str(tmp_path)])
        until = time.monotonic() + 120
        while not (tmp_path / "started").exists() and time.monotonic() < until:
            await asyncio.sleep(0.05)
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
        with make_manager(tmp_path) as manager:
            events = await run_all(make_agent(provider, manager), "What happened?")
            stored = check_stored(manager, "openai-chat")
            assert manager.verify("s") == []
    assert [one["content"] for one in stored[2:4]] == [LOST, LOST]
    assert "2 calls had no result" in pick(events, Warned)[0].text
    assert pick(events, Finished)[0].text == "I know."


def test_only_calls_at_the_very_end_are_pending() -> None:
    call = {"role": "assistant", "tool_calls": [{"id": one, "function": {"name": "f"}} for one in "ab"]}
    result = {"role": "tool", "tool_call_id": "a", "content": "x"}
    assert [one.id for one in find_pending([call], "openai-chat")] == ["a", "b"]
    assert [one.id for one in find_pending([call, result], "openai-chat")] == ["b"]
    assert find_pending([call, result, {"role": "user", "content": "hi"}], "openai-chat") == []
    assert find_pending([{"role": "user", "content": "hi"}], "openai-chat") == []
    block = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}
    assert [one.id for one in find_pending([block], "anthropic")] == ["t"]
    answered = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}
    assert find_pending([block, answered], "anthropic") == []
    assert find_pending([], "openai-chat") == []
