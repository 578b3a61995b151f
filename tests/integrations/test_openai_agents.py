"""The session for the OpenAI Agents SDK keeps the contract of integrations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from refold.testing.integration import CASES, AgentSetup, run_case
from tests.tokens.oracle import count_reference

pytest.importorskip("agents", reason="needs openai-agents: make integrations")

from agents import Agent, ModelSettings, OpenAIProvider, Runner, function_tool, set_tracing_disabled
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
