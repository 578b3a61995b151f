"""Hundreds of steps in a window of 8k: every request fits and is valid, and early values can still be found."""

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from refold.agent import AgentLimits
from refold.agent.events import Compressed, Finished, StepStarted, ToolFinished
from refold.testing import RecordedRequest, ScriptedCall, ScriptedProvider, ScriptedReply, say
from refold.testing.provider_rules import count_input
from tests.rigs.agent import both, check_stored, make_agent, make_manager, pick, run_all

pytest.importorskip("openai", reason="needs refold[llm]: the official clients")
pytest.importorskip("anthropic", reason="needs refold[llm]: the official clients")

WINDOW = 8_000
FACTS = {3: "PORT-7341", 17: "QX-5520-B", 31: "/srv/data/ledger-88.db"}


def read_log(number: int) -> str:
    """Read one log."""
    dice = random.Random(number)
    lines = [
        f"{number:03d}:{row:02d} worker {dice.randrange(9_999)} done in {dice.randrange(900)} ms" for row in range(30)
    ]
    if number in FACTS:
        lines[12] = f"NOTE the value to remember of log {number} is {FACTS[number]}"
    return "\n".join(lines)


def read_newest(request: RecordedRequest) -> str:
    return json.dumps(request.messages[-1], ensure_ascii=False)


class Worker:
    """Reads one log after the other, two at once now and then; then asks for what the first ones said."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.step = 0
        self.asked: list[int] = []

    def __call__(self, request: RecordedRequest) -> Any:
        self.step += 1
        if self.step < self.steps - len(FACTS):
            numbers = [self.step, self.step + 10_000] if self.step % 9 == 0 else [self.step]
            calls = tuple(ScriptedCall("read_log", {"number": one}, f"call_{one}") for one in numbers)
            return ScriptedReply(f"I read log {self.step}.", calls)
        left = [number for number in FACTS if number not in self.asked]
        if left:
            self.asked.append(left[0])
            query = f"the value to remember of log {left[0]} is"
            return ScriptedReply("", (ScriptedCall("context_recall", {"query": query}, f"recall_{left[0]}"),))
        return say("All logs are read.")


async def work_through(wire: str, steps: int, folder: Path, **settings: Any) -> None:
    with (
        ScriptedProvider(Worker(steps), window=WINDOW) as provider,
        make_manager(folder, window=WINDOW, **settings) as manager,
    ):
        agent = make_agent(provider, manager, wire, [read_log], limits=AgentLimits(steps_max=steps + 10))
        events = await run_all(agent, "Read all logs and remember what they say is to be remembered.")
        assert pick(events, Finished) == [Finished("All logs are read.", "stop", steps)]
        # Every one was accepted: the server refuses what does not fit or is not valid, and a refused one is sent again.
        assert len(provider.requests) == steps
        assert max(count_input(one.wire, one.json) for one in provider.requests) <= WINDOW
        compressions = pick(events, Compressed)
        # Prices and the window decide how often; each one helps, and never two for one request.
        assert compressions
        assert all(one.tokens_after < one.tokens_before for one in compressions)
        told = [one for one in events if isinstance(one, Compressed | StepStarted)]
        pairs = pairwise(told)
        assert not any(isinstance(one, Compressed) and isinstance(other, Compressed) for one, other in pairs)
        recalled = [one.text for one in pick(events, ToolFinished) if one.name == "context_recall"]
        assert len(recalled) == len(FACTS)
        for number, value in FACTS.items():
            assert any(f"log {number} is {value}" in text for text in recalled), number
        check_stored(manager, wire)
        assert manager.verify("s") == []


async def test_forty_steps_in_a_window_of_8k(tmp_path: Path) -> None:
    await work_through("anthropic", 40, tmp_path)


@pytest.mark.slow
@both
async def test_eighty_steps_in_a_window_of_8k(wire: str, tmp_path: Path) -> None:
    await work_through(wire, 80, tmp_path)


@pytest.mark.slow
@both
async def test_five_hundred_steps_in_a_window_of_8k(wire: str, tmp_path: Path) -> None:
    await work_through(wire, 500, tmp_path)


@pytest.mark.slow
@both
async def test_a_hundred_and_fifty_steps_where_only_the_window_decides(wire: str, tmp_path: Path) -> None:
    await work_through(wire, 150, tmp_path, economic=False)
