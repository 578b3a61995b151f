"""The capability for Pydantic AI keeps the contract of integrations, with OpenAI's and with Anthropic's models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from refold.manager.status import read_parent
from refold.testing import Fault, RecordedRequest, ScriptedCall, ScriptedProvider, ScriptedReply
from refold.testing.integration import CASES, DONE, AgentSetup, Steps, run_case
from refold.testing.rig import has_record, read_sensor
from tests.tokens.oracle import count_reference

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


class Delegating:
    """A model for two agents: the parent asks the sub-agent, which reads sensors."""

    def __init__(self) -> None:
        self.steps, self.asked = Steps(), 0

    def __call__(self, request: RecordedRequest) -> ScriptedReply | Fault:
        if "delegate" not in json.dumps(request.json.get("tools")):
            return self.steps(request)
        self.asked += 1
        call = ScriptedCall(
            "delegate", {"task": f"Read all sensors you have, part {self.asked}."}, f"call_d{self.asked}"
        )
        return ScriptedReply("It is CALM.") if self.asked % 2 == 0 else ScriptedReply("I ask.", (call,))


@pytest.mark.parametrize("session", ["s1", None], ids=["named", "by conversation"])
async def test_a_sub_agent_with_the_same_capability_is_apart_from_its_parent(
    session: str | None, tmp_path: Path
) -> None:
    refold = Refold(session, workspace=tmp_path, window=8_000, reserve=1_000)
    with ScriptedProvider(Delegating(), window=8_000) as provider:
        client = AsyncOpenAI(base_url=provider.openai_url, api_key="any", max_retries=0)
        model = OpenAIChatModel("gpt-4o", provider=OpenAIProvider(openai_client=client))
        settings: Any = {"capabilities": [refold], "model_settings": {"max_tokens": 500}}
        reader: Any = Agent(model, tools=[read_sensor], **settings)

        async def delegate(task: str) -> str:
            """Have sensors read."""
            return str((await reader.run(task)).output)

        parent: Any = Agent(model, tools=[delegate], **settings)
        history: list[Any] = []
        for turn in range(3):
            result = await parent.run(f"Report on hall seven, turn {turn}.", message_history=history)
            history = result.all_messages()
            assert result.output == "It is CALM."
        assert any(map(has_record, provider.requests))
        await client.close()
    rows = refold.manager.ledger.list_sessions()
    stored = {row.id: str(refold.refold.named(row.id).root.messages()) for row in rows}
    mains = [name for name, text in stored.items() if "Report on hall seven, turn 2." in text]
    assert len(mains) == 1, "the parent's conversation is one session"
    assert "reading-001-begins" not in stored[mains[0]]
    assert stored[mains[0]].count(DONE) == 3, "what the sub-agent answered is part of it"
    others = [row for row in rows if row.id != mains[0]]
    assert sum("reading-001-begins" in stored[row.id] for row in others) == 1
    assert session is None or {read_parent(row) for row in others} == {session}
    refold.manager.close()
