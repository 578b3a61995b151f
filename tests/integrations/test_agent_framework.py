"""The middleware for Microsoft's Agent Framework keeps the contract of integrations."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from refold.testing import ScriptedProvider
from refold.testing.integration import CASES, AgentSetup, run_case
from refold.testing.rig import read_sensor
from tests.integrations.delegating import RESERVE, TURNS, WINDOW, Delegating, ask, check_apart
from tests.rigs.oracle import count_reference

pytest.importorskip("agent_framework", reason="needs agent-framework-core: make integrations")
pytest.importorskip("agent_framework_openai")

from agent_framework import Agent, ChatMiddleware, Content, Message, tool
from agent_framework.openai import OpenAIChatCompletionClient
from openai import AsyncOpenAI

from refold.integrations.agent_framework import RefoldChatMiddleware


class Watch(ChatMiddleware):
    """Keeps the messages that were sent last."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    async def process(self, context: Any, call_next: Any) -> None:
        self.sent = list(context.messages)
        await call_next()


class FrameworkAgent:
    def __init__(self, setup: AgentSetup) -> None:
        self.setup = setup
        self.watch = Watch()
        self.client = self.make_client()
        self.middleware = RefoldChatMiddleware(
            setup.session, workspace=setup.workspace, window=setup.window, reserve=setup.reserve
        )
        tools = [tool(one) for one in setup.tools]
        if setup.has_context_tools:
            tools += self.middleware.refold.tools("agent_framework")
        self.history: list[Any] = list(setup.saved or [])
        self.agent: Any = Agent(
            self.make_chat_client(),
            tools=tools,
            middleware=[self.middleware, self.watch],
            default_options={"max_tokens": 500},
        )

    def make_client(self) -> Any:
        return AsyncOpenAI(base_url=self.setup.url, api_key="any", max_retries=0)

    def make_chat_client(self) -> Any:
        chat = OpenAIChatCompletionClient(model=self.setup.model, async_client=self.client)
        chat.function_invocation_configuration["max_iterations"] = 100
        return chat

    async def run(self, text: str, image: str = "") -> str:
        parts: list[Any] = [Content.from_text(text)]
        if image:
            parts.append(Content.from_uri(image, media_type="image/png"))
        asked = Message("user", parts, additional_properties=dict(self.setup.metadata))
        given = [*self.history, asked]
        if "stream" in self.setup.mode:
            stream = self.agent.run(given, stream=True)
            async for _ in stream:
                pass
            answer = await stream.get_final_response()
        else:
            answer = await self.agent.run(given)
        self.history = [*given, *answer.messages]
        return str(answer.text)

    def save(self) -> Any:
        return copy.deepcopy(self.history)

    def load_view(self, messages: list[Any]) -> None:
        self.history = messages

    @property
    def sent(self) -> list[Any]:
        return self.watch.sent

    def read_metadata(self, messages: list[Any]) -> list[Mapping[str, Any]]:
        return [message.additional_properties for message in messages]

    async def close(self) -> None:
        await self.client.close()
        self.middleware.manager.close()


class FrameworkDriver:
    wire = "openai-chat"
    unsupported: ClassVar[Mapping[str, str]] = {
        "thinking": "chat completions do not carry thinking with a signature",
    }

    def make_agent(self, setup: AgentSetup) -> Any:
        return FrameworkAgent(setup)


class ClaudeFrameworkAgent(FrameworkAgent):
    def make_client(self) -> Any:
        from anthropic import AsyncAnthropic

        return AsyncAnthropic(base_url=self.setup.url, api_key="any", max_retries=0)

    def make_chat_client(self) -> Any:
        from agent_framework.anthropic import AnthropicClient

        chat = AnthropicClient(model=self.setup.model, anthropic_client=self.client)
        chat.function_invocation_configuration["max_iterations"] = 100
        return chat


class ClaudeFrameworkDriver(FrameworkDriver):
    wire = "anthropic"
    unsupported: ClassVar[Mapping[str, str]] = {}

    def make_agent(self, setup: AgentSetup) -> Any:
        return ClaudeFrameworkAgent(setup)


@pytest.mark.parametrize("driver", [FrameworkDriver, ClaudeFrameworkDriver], ids=lambda one: one.wire)
@pytest.mark.parametrize("case", CASES)
def test_it_keeps_the_contract_of_integrations(case: str, driver: Any, tmp_path: Path) -> None:
    run_case(case, driver(), tmp_path, count=lambda text: count_reference("o200k_base", text))


@pytest.mark.parametrize("session", ["s1", None], ids=["named", "by conversation"])
async def test_an_agent_that_is_a_tool_does_not_overwrite_its_parents_session(
    session: str | None, tmp_path: Path
) -> None:
    middleware = RefoldChatMiddleware(session, workspace=tmp_path, window=WINDOW, reserve=RESERVE)
    with ScriptedProvider(Delegating(), window=WINDOW) as provider:
        client = AsyncOpenAI(base_url=provider.openai_url, api_key="any", max_retries=0)

        def make(tools: list[Any]) -> Any:
            chat = OpenAIChatCompletionClient(model="gpt-4o", async_client=client)
            chat.function_invocation_configuration["max_iterations"] = 100
            return Agent(chat, tools=tools, middleware=[middleware], default_options={"max_tokens": 500})

        parent, history = make([make([tool(read_sensor)]).as_tool(name="delegate", description="Reads.")]), []
        for turn in range(TURNS):
            history.append(Message("user", [Content.from_text(ask(turn))]))
            history += (await parent.run(history)).messages
        check_apart(middleware.manager, provider, session)
        await client.close()
    middleware.manager.close()
