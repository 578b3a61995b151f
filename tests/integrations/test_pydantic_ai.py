"""The capability for Pydantic AI keeps the contract of integrations, with OpenAI's and with Anthropic's models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from refold.testing import ScriptedProvider
from refold.testing.integration import CASES, AgentSetup, run_case
from refold.testing.rig import read_sensor
from tests.integrations.delegating import CALM, RESERVE, TURNS, WINDOW, Delegating, ask, check_apart
from tests.rigs.oracle import count_reference

pytest.importorskip("pydantic_ai.capabilities", reason="needs pydantic-ai 2: make integrations")

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic_ai import Agent, ImageUrl, UsageLimits
from pydantic_ai.messages import ModelRequest, UserPromptPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from refold.integrations.pydantic_ai import Refold


class WatchedRefold(Refold):
    """Keeps what was fitted last: newer versions join requests that follow each other before they are sent."""

    fitted: Any = ()
    sent: Any = ()

    async def prepare_model_request(self, ctx: Any, request_context: Any) -> Any:
        prepared = await super().prepare_model_request(ctx, request_context)
        self.fitted = prepared.messages
        return prepared

    async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:
        self.sent = self.fitted or request_context.messages
        return await super().after_model_request(ctx, request_context=request_context, response=response)


class PydanticAgent:
    def __init__(self, setup: AgentSetup) -> None:
        self.setup = setup
        self.history: list[Any] = list(setup.saved or [])
        if setup.wire == "anthropic":
            self.client: Any = AsyncAnthropic(base_url=setup.url, api_key="any", max_retries=0)
            model: Any = AnthropicModel(setup.model, provider=AnthropicProvider(anthropic_client=self.client))
        else:
            self.client = AsyncOpenAI(base_url=setup.url, api_key="any", max_retries=0)
            model = OpenAIChatModel(setup.model, provider=OpenAIProvider(openai_client=self.client))
        self.refold = WatchedRefold(
            setup.session,
            workspace=setup.workspace,
            context_tools=setup.has_context_tools,
            window=setup.window,
            reserve=setup.reserve,
        )
        self.agent = Agent(
            model, tools=list(setup.tools), capabilities=[self.refold], model_settings={"max_tokens": 500}
        )

    async def run(self, text: str, image: str = "") -> str:
        asked: Any = [text, ImageUrl(url=image)] if image else text
        if self.setup.metadata:
            said = ModelRequest(parts=[UserPromptPart(asked)], metadata=dict(self.setup.metadata))
            self.history, asked = [*self.history, said], None
        options: dict[str, Any] = {
            "message_history": self.history,
            "usage_limits": UsageLimits(request_limit=None),
        }
        if "stream" not in self.setup.mode:
            result: Any = await self.agent.run(asked, **options)
            output = result.output
        else:
            async with self.agent.run_stream_events(asked, **options) as events:
                found = [event async for event in events]
            result = found[-1].result
            output = result.output
        self.history = result.all_messages()
        return str(output)

    def save(self) -> Any:
        return self.history

    @property
    def sent(self) -> list[Any]:
        return list(self.refold.sent)

    def load_view(self, messages: list[Any]) -> None:
        self.history = messages

    def read_metadata(self, messages: list[Any]) -> list[Any]:
        return [message.metadata for message in messages]

    async def close(self) -> None:
        await self.client.close()
        self.refold.manager.close()


class PydanticDriver:
    wire = "openai-chat"
    unsupported: ClassVar[Mapping[str, str]] = {
        "thinking": "chat completions do not carry thinking with a signature",
    }

    def make_agent(self, setup: AgentSetup) -> Any:
        return PydanticAgent(setup)


class PydanticClaudeDriver(PydanticDriver):
    wire = "anthropic"
    unsupported: ClassVar[Mapping[str, str]] = {}


@pytest.mark.parametrize("driver", [PydanticDriver, PydanticClaudeDriver], ids=lambda one: one.wire)
@pytest.mark.parametrize("case", CASES)
def test_it_keeps_the_contract_of_integrations(case: str, driver: Any, tmp_path: Path) -> None:
    run_case(case, driver(), tmp_path, count=lambda text: count_reference("o200k_base", text))


@pytest.mark.parametrize("session", ["s1", None], ids=["named", "by conversation"])
async def test_a_sub_agent_with_the_same_capability_is_apart_from_its_parent(
    session: str | None, tmp_path: Path
) -> None:
    refold = Refold(session, workspace=tmp_path, window=WINDOW, reserve=RESERVE)
    with ScriptedProvider(Delegating(), window=WINDOW) as provider:
        client = AsyncOpenAI(base_url=provider.openai_url, api_key="any", max_retries=0)
        model = OpenAIChatModel("gpt-4o", provider=OpenAIProvider(openai_client=client))
        settings: Any = {"capabilities": [refold], "model_settings": {"max_tokens": 500}}
        reader: Any = Agent(model, tools=[read_sensor], **settings)

        async def delegate(task: str) -> str:
            """Have sensors read."""
            return str((await reader.run(task)).output)

        parent: Any = Agent(model, tools=[delegate], **settings)
        history: list[Any] = []
        for turn in range(TURNS):
            result = await parent.run(ask(turn), message_history=history)
            history = result.all_messages()
            assert result.output == CALM
        check_apart(refold.manager, provider, session)
        await client.close()
    refold.manager.close()
