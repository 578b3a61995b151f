"""The model client and the model context for AutoGen keep the contract of integrations."""

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
from tests.integrations.gathering import watch_method
from tests.rigs.oracle import count_reference

pytest.importorskip("autogen_agentchat", reason="needs autogen-agentchat: make integrations")
pytest.importorskip("autogen_ext.models.openai")

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import MultiModalMessage, TextMessage
from autogen_agentchat.tools import AgentTool
from autogen_core import Image
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient

from refold.integrations.autogen import RefoldContext, wrap_client

INFO = {"vision": True, "function_calling": True, "json_output": True, "family": "gpt-4o", "structured_output": True}


class AutoGenAgent:
    """An agent whose client is wrapped; the history is its own."""

    def __init__(self, setup: AgentSetup) -> None:
        self.setup = setup
        self.inner = OpenAIChatCompletionClient(
            model=setup.model,
            base_url=setup.url,
            api_key="any",
            max_retries=0,
            max_tokens=500,
            model_info=INFO,
            include_name_in_message=False,
        )
        self.sent = watch_method(self.inner, "create")
        self.tools: list[Any] = [FunctionTool(tool, tool.__doc__ or "") for tool in setup.tools]
        self.client, self.context = self.plug(self.inner)
        if setup.has_context_tools:
            self.tools += self.refold.tools("autogen")
        self.agent = AssistantAgent(
            "reader",
            model_client=self.client,
            model_context=self.context,
            tools=self.tools,
            system_message=None,
            max_tool_iterations=100,
            model_client_stream="stream" in setup.mode,
        )

    def plug(self, inner: Any) -> tuple[Any, Any]:
        options = {"window": self.setup.window, "reserve": self.setup.reserve, "workspace": self.setup.workspace}
        client = wrap_client(inner, self.setup.session, **options)
        self.refold = client.refold
        return client, UnboundedChatCompletionContext(initial_messages=list(self.setup.saved or []))

    async def run(self, text: str, image: str = "") -> str:
        said: Any = TextMessage(content=text, source="ann")
        if image:
            picture = Image.from_base64(image.partition(",")[2])
            assert base64.b64decode(image.partition(",")[2])
            said = MultiModalMessage(content=[text, picture], source="ann")
        if "stream" not in self.setup.mode:
            return str((await self.agent.run(task=said)).messages[-1].to_text())
        found = [event async for event in self.agent.run_stream(task=said)]
        return next(str(one.messages[-1].to_text()) for one in found if isinstance(one, TaskResult))

    def save(self) -> Any:
        return self.context._messages

    def load_view(self, messages: list[Any]) -> None:
        self.context._messages = messages

    async def close(self) -> None:
        await self.client.close()
        self.refold.manager.close()


class AutoGenDriver:
    wire = "openai-chat"
    unsupported: ClassVar[Mapping[str, str]] = {
        "thinking": "chat completions do not carry thinking with a signature",
        "metadata": "a message of AutoGen has no field for any",
    }

    def make_agent(self, setup: AgentSetup) -> Any:
        return AutoGenAgent(setup)


class ContextAgent(AutoGenAgent):
    """An agent whose context is refold's; the client is AutoGen's own."""

    def plug(self, inner: Any) -> tuple[Any, Any]:
        options = {"window": self.setup.window, "reserve": self.setup.reserve, "workspace": self.setup.workspace}
        saved = list(self.setup.saved or [])
        context = RefoldContext(self.setup.session, tools=self.tools, initial_messages=saved, **options)
        self.refold = context.refold
        return inner, context


class ContextDriver(AutoGenDriver):
    unsupported: ClassVar[Mapping[str, str]] = {
        **AutoGenDriver.unsupported,
        "usage": "a model context does not see what a request used; wrap_client does",
        "overflow": "a model context does not see refusals; wrap_client does",
    }

    def make_agent(self, setup: AgentSetup) -> Any:
        return ContextAgent(setup)


@pytest.mark.parametrize("driver", [AutoGenDriver, ContextDriver], ids=lambda one: one.__name__)
@pytest.mark.parametrize("case", CASES)
def test_it_keeps_the_contract_of_integrations(case: str, driver: Any, tmp_path: Path) -> None:
    run_case(case, driver(), tmp_path, count=lambda text: count_reference("o200k_base", text))


@pytest.mark.parametrize("session", ["s1", None], ids=["named", "by conversation"])
async def test_an_agent_that_is_a_tool_does_not_overwrite_its_parents_session(
    session: str | None, tmp_path: Path
) -> None:
    with ScriptedProvider(Delegating(), window=WINDOW) as provider:
        known: Any = {"base_url": provider.openai_url, "api_key": "any", "max_retries": 0, "model_info": INFO}
        inner = OpenAIChatCompletionClient(model="gpt-4o", max_tokens=500, parallel_tool_calls=False, **known)
        client = wrap_client(inner, session, workspace=tmp_path, window=WINDOW, reserve=RESERVE)
        settings: Any = {"model_client": client, "max_tool_iterations": 100}
        reader = AssistantAgent("delegate", tools=[read_sensor], description="Reads sensors.", **settings)
        parent = AssistantAgent("parent", tools=[AgentTool(reader, return_value_as_last_message=True)], **settings)
        for turn in range(TURNS):
            await parent.run(task=ask(turn))
        check_apart(client.refold.manager, provider, session)
        await client.close()
    client.refold.manager.close()
