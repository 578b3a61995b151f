"""Tools that a client loads during a session, as Claude Code does: they stay loaded however often the session folds.

A deferred tool is visible to the model only while a ``tool_reference`` in the history names it, or a system message
with ``tool_addition`` that no later ``tool_removal`` takes back.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.server import Rig, make_body, start_rig

SEARCH = {"name": "ToolSearch", "input_schema": {"type": "object"}}
BASH = {"name": "Bash", "input_schema": {"type": "object"}}
NAMES = ("mcp__shop__find", "mcp__shop__order", "mcp__mail__send")
TOOLS = [SEARCH, BASH, *({"name": name, "input_schema": {"type": "object"}, "defer_loading": True} for name in NAMES)]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with start_rig(tmp_path, config={"window": 8_000}, window=8_000) as rig:
        yield rig


def call(number: int, name: str, given: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": given}


def load(number: int, *names: str) -> list[dict[str, Any]]:
    """Return the step in which a client loads tools."""
    references = [{"type": "tool_reference", "tool_name": name} for name in names]
    result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": references}
    words = {"type": "text", "text": f"I need {', '.join(names)}."}
    asked = call(number, "ToolSearch", {"query": f"select:{','.join(names)}"})
    return [{"role": "assistant", "content": [words, asked]}, {"role": "user", "content": [result]}]


def work(number: int) -> list[dict[str, Any]]:
    output = "\n".join(f"step {number} line {line}: the value is {number * line}" for line in range(60))
    result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": output}
    asked = call(number, "Bash", {"command": f"run step {number}"})
    return [{"role": "assistant", "content": [asked]}, {"role": "user", "content": [result]}]


def list_loaded(body: dict[str, Any]) -> list[str]:
    """Return the tools that a request's history loads, in order, each as often as it does."""
    found = []
    for message in body["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            inside = block.get("content") if block["type"] == "tool_result" else None
            found += [one["tool_name"] for one in inside or () if isinstance(one, dict) and "tool_name" in one]
            if block["type"] == "tool_addition":
                assert message["role"] == "system", "a provider takes it in a system message only"
                found.append(block["tool"]["name"])
    return found


def send(rig: Rig, messages: list[dict[str, Any]]) -> dict[str, Any]:
    response = rig.post("anthropic", make_body("anthropic", messages, tools=TOOLS, system="You are an agent."))
    assert response.status_code == 200, response.text
    body = rig.provider.requests[-1].json
    assert isinstance(body, dict)
    return body


def test_tools_that_were_loaded_stay_loaded_after_every_fold(rig: Rig) -> None:
    messages = [{"role": "user", "content": "Order what is missing in the shop, then write a mail."}]
    loaded: set[str] = set()
    shortest = 0
    for number in range(40):
        if number in (2, 3, 20):
            name = NAMES[(2, 3, 20).index(number)]
            messages += load(number, name)
            loaded.add(name)
        else:
            messages += work(number)
        body = send(rig, messages)
        shortest = max(shortest, len(messages) - len(body["messages"]))
        assert set(list_loaded(body)) == loaded, number
    assert shortest > 40, "it was folded"


def test_of_two_steps_that_load_the_same_tool_the_earlier_one_may_be_folded(rig: Rig) -> None:
    messages = [{"role": "user", "content": "Order what is missing in the shop."}]
    for number in range(40):
        messages += load(number, NAMES[0]) if number % 4 == 0 else work(number)
        body = send(rig, messages)
        assert NAMES[0] in list_loaded(body)
    assert len(list_loaded(body)) < 6


def test_tools_that_a_system_message_adds_stay_added(rig: Rig) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Order what is missing in the shop."}]
    added: list[str] = []
    for number in range(40):
        messages += work(number)
        if number in (2, 3, 20):
            name = NAMES[(2, 3, 20).index(number)]
            block = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": name}}
            messages.append({"role": "system", "content": [block, {"type": "text", "text": f"{name} is there now."}]})
            added.append(name)
        body = send(rig, messages)
        assert list_loaded(body) == added, number
    assert len(body["messages"]) < 40
