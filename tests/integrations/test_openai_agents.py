"""The session for the OpenAI Agents SDK keeps the contract of integrations."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from refold.errors import ConfigError
from refold.manager.status import read_parent
from refold.testing import Fault, RecordedRequest, ScriptedCall, ScriptedProvider, ScriptedReply
from refold.testing.integration import CASES, DONE, STEPS, AgentSetup, Steps, run_case
from refold.testing.rig import has_record, read_sensor
from refold.testing.script import drip
from tests.rigs.oracle import count_reference

pytest.importorskip("agents", reason="needs openai-agents: make integrations")

from agents import (
    Agent,
    ModelSettings,
    OpenAIProvider,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from agents.run import ModelInputData
from openai import AsyncOpenAI

from refold.integrations.openai_agents import RefoldSession

set_tracing_disabled(True)


class SdkAgent:
    def __init__(self, setup: AgentSetup) -> None:
        self.setup = setup
        self.client = AsyncOpenAI(base_url=setup.url, api_key="any", max_retries=0)
        self.session = RefoldSession(
            setup.session, workspace=setup.workspace, window=setup.window, reserve=setup.reserve
        )
        tools = [function_tool(tool) for tool in setup.tools]
        if setup.has_context_tools:
            tools += self.session.refold.tools("openai_agents")
        self.agent: Any = Agent(
            name="reader", model=setup.model, tools=tools, model_settings=ModelSettings(max_tokens=500, store=False)
        )

    async def run(self, text: str, image: str = "") -> str:
        parts = [{"type": "input_text", "text": text}, {"type": "input_image", "image_url": image, "detail": "auto"}]
        asked: Any = [{"role": "user", "content": parts}] if image else text
        config = self.session.run_config(model_provider=OpenAIProvider(openai_client=self.client))
        options: dict[str, Any] = {"session": self.session, "run_config": config, "max_turns": 100}
        if "stream" not in self.setup.mode:
            return str((await Runner.run(self.agent, asked, **options)).final_output)
        result = Runner.run_streamed(self.agent, asked, **options)
        async for _ in result.stream_events():
            pass
        return str(result.final_output)

    def save(self) -> Any:
        return None  # The session itself is the history.

    async def load_view(self, messages: list[Any]) -> None:
        await self.session.clear_session()
        await self.session.add_items(messages)

    async def close(self) -> None:
        await self.client.close()
        self.session.refold.manager.close()


class AgentsDriver:
    wire = "openai-responses"
    unsupported: ClassVar[Mapping[str, str]] = {
        "metadata": "an item of this interface has no field for any",
        "nameless": "the session is the history, and every session of the SDK has an id",
        "strangers": "the session is the history, and every session of the SDK has an id",
    }

    def make_agent(self, setup: AgentSetup) -> Any:
        return SdkAgent(setup)


@pytest.mark.parametrize("case", CASES)
def test_it_keeps_the_contract_of_integrations(case: str, tmp_path: Path) -> None:
    run_case(case, AgentsDriver(), tmp_path, count=lambda text: count_reference("o200k_base", text))


async def test_items_are_stored_once_and_can_be_popped_and_cleared(tmp_path: Path) -> None:
    session = RefoldSession("s1", workspace=tmp_path, window=8_000)
    items = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    await session.add_items(items)
    await session.add_items([items[-1], {"role": "user", "content": "three"}])
    assert [item["content"] for item in await session.get_items()] == ["one", "two", "three"]
    assert await session.get_items(1) == [{"role": "user", "content": "three"}]
    assert (await session.pop_item())["content"] == "three"
    await session.clear_session()
    assert await session.get_items() == []
    assert await session.pop_item() is None
    session.refold.manager.close()


HALL = "Report on hall seven, and end with the word CALM."


class Parent:
    """A model for two agents: the parent asks the sub-agent, which reads ten sensors and answers."""

    def __init__(self) -> None:
        self.steps = Steps(steps=10)

    def __call__(self, request: RecordedRequest) -> ScriptedReply | Fault:
        if not any("delegate" in json.dumps(tool) for tool in request.json.get("tools") or ()):
            return self.steps(request)
        is_done = any(item.get("type") == "function_call_output" for item in request.messages)
        asked = ScriptedCall("delegate", {"input": "Read all sensors you have."}, "call_delegate")
        return ScriptedReply("It is CALM.") if is_done else ScriptedReply("I ask.", (asked,))


def make_pair(url: str, workspace: Path, **options: Any) -> tuple[RefoldSession, Any, Any]:
    """Return a session, an agent with a sub-agent as its tool, and the run config."""
    session = RefoldSession("s1", workspace=workspace, window=8_000, reserve=1_000)
    settings = ModelSettings(max_tokens=500, store=False)
    reader = Agent(name="reader", model="gpt-4o", tools=[function_tool(read_sensor)], model_settings=settings)
    tool = reader.as_tool("delegate", "Reads sensors.")
    parent = Agent(name="parent", model="gpt-4o", tools=[tool], model_settings=settings, **options)
    client = AsyncOpenAI(base_url=url, api_key="any", max_retries=0)
    return session, parent, session.run_config(model_provider=OpenAIProvider(openai_client=client))


def read_texts(items: list[Any]) -> str:
    return json.dumps(items, ensure_ascii=False)


inherits = pytest.mark.skipif(
    "run_config" not in inspect.signature(Agent.as_tool).parameters, reason="its tools do not inherit the run config"
)


@inherits
@pytest.mark.parametrize("behaviour", ["run_llm_again", "stop_on_first_tool"])
async def test_a_sub_agent_that_runs_as_a_tool_is_a_child_of_its_parents_session(
    behaviour: Any, tmp_path: Path
) -> None:
    with ScriptedProvider(Parent(), window=8_000) as provider:
        session, parent, config = make_pair(provider.openai_url, tmp_path, tool_use_behavior=behaviour)
        for turn in range(2):
            await Runner.run(parent, f"{HALL} Turn {turn}.", session=session, run_config=config, max_turns=40)
            items = read_texts(await session.get_items())
            assert all(f"{HALL} Turn {one}." in items for one in range(turn + 1)), "the user's task is gone"
            assert "Read all sensors you have." in items, "the call of the sub-agent is part of the conversation"
            assert "reading-001-begins" not in items, "the sub-agent's history is not"
    children = [row.id for row in session.refold.manager.ledger.list_sessions() if row.id != "s1"]
    assert len(children) == 1
    assert "reading-001-begins" in read_texts(session.refold.manager.session(children[0]).messages())
    assert read_parent(session.refold.manager.ledger.read_session(children[0])) == "s1"
    session.refold.manager.close()


@inherits
async def test_a_run_that_is_cancelled_inside_a_sub_agent_leaves_the_task_in_the_session(tmp_path: Path) -> None:
    pair = Parent()

    def answer(request: RecordedRequest) -> ScriptedReply | Fault:
        return drip("word " * 400, pause_s=0.05) if pair.steps.answers == 3 else pair(request)

    with ScriptedProvider(answer, window=8_000) as provider:
        session, parent, config = make_pair(provider.openai_url, tmp_path)
        run = Runner.run(parent, HALL, session=session, run_config=config, max_turns=40)
        task = asyncio.ensure_future(run)
        for _ in range(1_000):
            if len(provider.requests) >= 5:
                break
            await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.wait({task}, timeout=20)
        items = read_texts(await session.get_items())
    assert HALL in items
    assert "reading-001-begins" not in items
    session.refold.manager.close()


@pytest.mark.parametrize("place", ["run_config", "agent"])
async def test_a_model_object_is_fitted_wherever_it_is(place: str, tmp_path: Path) -> None:
    session = RefoldSession("s1", workspace=tmp_path, window=8_000, reserve=1_000)
    with ScriptedProvider(Steps(), window=8_000) as provider:
        client = AsyncOpenAI(base_url=provider.openai_url, api_key="any", max_retries=0)
        model = OpenAIResponsesModel(model="gpt-4o", openai_client=client)
        settings = ModelSettings(max_tokens=500, store=False)
        agent = Agent(name="reader", tools=[function_tool(read_sensor)], model_settings=settings)
        if place == "agent":
            agent.model = model
        config = session.run_config(**({"model": model} if place == "run_config" else {}))
        result = await Runner.run(agent, HALL, session=session, run_config=config, max_turns=40)
        assert DONE in str(result.final_output)
        assert has_record(provider.requests[-1])
    session.refold.manager.close()


async def test_a_filter_of_the_users_own_runs_beside_ours_and_costs_no_item(tmp_path: Path) -> None:
    session, seen = RefoldSession("s1", workspace=tmp_path, window=8_000, reserve=1_000), []

    def hide(data: Any) -> Any:
        seen.append(len(data.model_data.input))
        items = [
            {**item, "output": "(hidden)"} if "reading-000-begins" in json.dumps(item) else item
            for item in data.model_data.input
        ]
        return ModelInputData(input=items, instructions=data.model_data.instructions)

    with ScriptedProvider(Steps(), window=8_000) as provider:
        client = AsyncOpenAI(base_url=provider.openai_url, api_key="any", max_retries=0)
        settings = ModelSettings(max_tokens=500, store=False)
        agent = Agent(name="reader", model="gpt-4o", tools=[function_tool(read_sensor)], model_settings=settings)
        looked_up = OpenAIProvider(openai_client=client)
        config = session.run_config(call_model_input_filter=hide, model_provider=looked_up)
        await Runner.run(agent, HALL, session=session, run_config=config, max_turns=40)
        assert has_record(provider.requests[-1])
        assert not any("reading-000-begins" in json.dumps(request.messages) for request in provider.requests)
    items = read_texts(await session.get_items())
    assert len(seen) == STEPS + 1
    assert all(f"reading-{n:03d}-begins" in items for n in range(STEPS)), "the session keeps what the filter hides"
    session.refold.manager.close()


async def test_a_forgotten_run_config_is_named_before_anything_is_sent(tmp_path: Path) -> None:
    session = RefoldSession("s1", workspace=tmp_path, window=8_000)
    with ScriptedProvider("Hello.") as provider:
        client = AsyncOpenAI(base_url=provider.openai_url, api_key="any", max_retries=0)
        agent = Agent(name="guide", model=OpenAIResponsesModel(model="gpt-4o", openai_client=client))
        with pytest.raises(ConfigError, match=r"run_config=session\.run_config\(\)"):
            await Runner.run(agent, "Hi.", session=session)
        assert not provider.requests
        assert (await Runner.run(agent, "Hi.", session=session, run_config=session.run_config())).final_output
    session.refold.manager.close()
