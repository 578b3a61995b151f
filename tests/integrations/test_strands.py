"""The plugin for Strands keeps the contract of integrations, with OpenAI's and with Anthropic's models."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from refold.testing import ScriptedProvider
from refold.testing.integration import CASES, AgentSetup, run_case
from refold.testing.rig import read_sensor
from tests.integrations.delegating import RESERVE, TURNS, WINDOW, Delegating, ask, check_apart
from tests.rigs.oracle import count_reference

pytest.importorskip("strands.middleware", reason="needs strands-agents: make integrations")

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models.anthropic import AnthropicModel
from strands.models.openai import OpenAIModel

from refold.integrations.strands import RefoldAgentPlugin


class StrandsAgent:
    def __init__(self, setup: AgentSetup) -> None:
        self.setup = setup
        self.sent: list[Any] = []
        # A sync call runs in an event loop of its own, and a connection does not outlive its loop.
        headers = {"Connection": "close"}
        client = {"base_url": setup.url, "api_key": "any", "max_retries": 0, "default_headers": headers}
        if setup.wire == "anthropic":
            model: Any = AnthropicModel(client_args=client, model_id=setup.model, max_tokens=500)
        else:
            model = OpenAIModel(client_args=client, model_id=setup.model, params={"max_tokens": 500})
        self.plugin = RefoldAgentPlugin(
            setup.session,
            workspace=setup.workspace,
            context_tools=setup.has_context_tools,
            window=setup.window,
            reserve=setup.reserve,
        )
        self.agent = Agent(
            model=model,
            tools=[tool(one) for one in setup.tools],
            messages=list(setup.saved or []),
            plugins=[self.plugin],
            conversation_manager=NullConversationManager(),
            callback_handler=None,
        )
        from strands.middleware import InvokeModelStage

        self.agent.add_middleware(InvokeModelStage, self.watch)

    async def watch(self, context: Any, next_fn: Any) -> Any:
        self.sent = context.messages
        async for event in next_fn(context):
            yield event

    def run(self, text: str, image: str = "") -> Any:
        blocks: list[Any] = [{"text": text}]
        if image:
            data = base64.b64decode(image.partition(",")[2])
            blocks.append({"image": {"format": "png", "source": {"bytes": data}}})
        asked: Any = blocks
        if self.setup.metadata:
            asked = [{"role": "user", "content": blocks, "metadata": {"custom": dict(self.setup.metadata)}}]
        if self.setup.mode.startswith("async"):
            return self._run_async(asked)
        return read_answer(self.agent(asked))

    async def _run_async(self, asked: Any) -> str:
        if self.setup.mode == "async":
            return read_answer(await self.agent.invoke_async(asked))
        found = [event async for event in self.agent.stream_async(asked)]
        return read_answer(next(event["result"] for event in found if "result" in event))

    def save(self) -> Any:
        return self.agent.messages

    def load_view(self, messages: list[Any]) -> None:
        self.agent.messages = messages

    def read_metadata(self, messages: list[Any]) -> list[Any]:
        return [message.get("metadata", {}).get("custom") for message in messages]

    def close(self) -> None:
        self.plugin.manager.close()


def read_answer(result: Any) -> str:
    return "".join(block.get("text", "") for block in result.message["content"])


class StrandsDriver:
    wire = "openai-chat"
    unsupported: ClassVar[Mapping[str, str]] = {
        "thinking": "chat completions do not carry thinking with a signature",
    }

    def make_agent(self, setup: AgentSetup) -> Any:
        return StrandsAgent(setup)


class StrandsClaudeDriver(StrandsDriver):
    wire = "anthropic"
    unsupported: ClassVar[Mapping[str, str]] = {}


@pytest.mark.parametrize("driver", [StrandsDriver, StrandsClaudeDriver], ids=lambda one: one.wire)
@pytest.mark.parametrize("case", CASES)
def test_it_keeps_the_contract_of_integrations(case: str, driver: Any, tmp_path: Path) -> None:
    run_case(case, driver(), tmp_path, count=lambda text: count_reference("o200k_base", text))


@pytest.mark.parametrize("session", ["s1", None], ids=["named", "by conversation"])
def test_an_agent_that_is_a_tool_does_not_overwrite_its_parents_session(session: str | None, tmp_path: Path) -> None:
    plugin = RefoldAgentPlugin(session, workspace=tmp_path, window=WINDOW, reserve=RESERVE)
    with ScriptedProvider(Delegating(task="input"), window=WINDOW) as provider:
        client = {"base_url": provider.openai_url, "api_key": "any", "default_headers": {"Connection": "close"}}

        def make(name: str, tools: list[Any]) -> Any:
            model = OpenAIModel(client_args=client, model_id="gpt-4o", params={"max_tokens": 500})
            kept: Any = {"conversation_manager": NullConversationManager(), "callback_handler": None}
            return Agent(model=model, name=name, tools=tools, plugins=[plugin], **kept)

        reader = make("reader", [tool(read_sensor)])
        parent = make("parent", [reader.as_tool(name="delegate", description="Have sensors read.")])
        for turn in range(TURNS):
            parent(ask(turn))
        check_apart(plugin.manager, provider, session)
        plugin.manager.close()
