"""The chat generator for Haystack keeps the contract of integrations, with OpenAI's and with Anthropic's models."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from refold.errors import ConfigError
from refold.testing import ScriptedProvider
from refold.testing.integration import CASES, AgentSetup, run_case
from refold.testing.rig import read_sensor
from tests.integrations.delegating import RESERVE, TURNS, WINDOW, Delegating, ask, check_apart
from tests.integrations.gathering import watch_method
from tests.rigs.oracle import count_reference

pytest.importorskip("haystack", reason="needs haystack-ai: make integrations")
pytest.importorskip("haystack_integrations.components.generators.anthropic")

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage, ImageContent
from haystack.tools import create_tool_from_function
from haystack.utils import Secret
from haystack_integrations.components.generators.anthropic import AnthropicChatGenerator

from refold.integrations.haystack import RefoldChatGenerator


def make_generator(setup: AgentSetup) -> Any:
    key = Secret.from_token("any")
    if setup.wire == "anthropic":
        # The component has no argument for the address.
        os.environ["ANTHROPIC_BASE_URL"] = setup.url
        return AnthropicChatGenerator(
            api_key=key, model=setup.model, generation_kwargs={"max_tokens": 500}, max_retries=0
        )
    options: dict[str, Any] = {"max_tokens": 500}
    if "stream" in setup.mode:
        options["stream_options"] = {"include_usage": True}
    return OpenAIChatGenerator(
        api_key=key, model=setup.model, api_base_url=setup.url, generation_kwargs=options, max_retries=0
    )


async def listen(chunk: Any) -> None:
    """A streaming callback."""


class HaystackAgent:
    def __init__(self, setup: AgentSetup) -> None:
        self.setup = setup
        self.history: list[ChatMessage] = list(setup.saved or [])
        inner = make_generator(setup)
        self.sent = watch_method(inner, "run")
        self.generator = RefoldChatGenerator(
            inner,
            setup.session,
            workspace=str(setup.workspace),
            window=setup.window,
            reserve=setup.reserve,
        )
        tools = [create_tool_from_function(tool) for tool in setup.tools]
        tools += self.generator.refold.tools("haystack") if setup.has_context_tools else []
        self.agent = Agent(chat_generator=self.generator, tools=tools, max_agent_steps=100)
        self.agent.warm_up()

    def run(self, text: str, image: str = "") -> Any:
        data = ImageContent(image.partition(",")[2], "image/png") if image else None
        parts = [text, data] if data else None
        metadata = dict(self.setup.metadata)
        asked = ChatMessage.from_user(text if parts is None else None, meta=metadata, content_parts=parts)
        given: dict[str, Any] = {"messages": [*self.history, asked]}
        if "async" in self.setup.mode:
            return self._run_async(given)
        if self.setup.mode == "stream":
            given["streaming_callback"] = lambda chunk: None
        return self._finish(self.agent.run(**given))

    async def _run_async(self, given: dict[str, Any]) -> str:
        if "stream" in self.setup.mode:
            given["streaming_callback"] = listen
        return self._finish(await self.agent.run_async(**given))

    def _finish(self, result: dict[str, Any]) -> str:
        self.history = list(result["messages"])
        return str(self.history[-1].text)

    def save(self) -> Any:
        return self.history

    def load_view(self, messages: list[Any]) -> None:
        self.history = messages

    def read_metadata(self, messages: list[Any]) -> list[Mapping[str, Any]]:
        return [message.meta for message in messages]

    def close(self) -> None:
        self.generator.refold.manager.close()


class HaystackDriver:
    wire = "openai-chat"
    unsupported: ClassVar[Mapping[str, str]] = {
        "thinking": "chat completions do not carry thinking with a signature",
    }

    def make_agent(self, setup: AgentSetup) -> Any:
        return HaystackAgent(setup)


class HaystackClaudeDriver(HaystackDriver):
    wire = "anthropic"
    unsupported: ClassVar[Mapping[str, str]] = {}


@pytest.mark.parametrize("driver", [HaystackDriver, HaystackClaudeDriver], ids=lambda one: one.wire)
@pytest.mark.parametrize("case", CASES)
def test_it_keeps_the_contract_of_integrations(case: str, driver: Any, tmp_path: Path) -> None:
    run_case(case, driver(), tmp_path, count=lambda text: count_reference("o200k_base", text))


def test_the_component_is_saved_and_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    made = RefoldChatGenerator(OpenAIChatGenerator(model="gpt-4o"), "s1", workspace=str(tmp_path), window=8_000)
    saved = made.to_dict()
    again = RefoldChatGenerator.from_dict(saved)
    assert again.to_dict() == made.to_dict()
    assert again.refold.id == "s1"
    made.refold.manager.close()
    again.refold.manager.close()


def test_only_a_chat_generator_can_be_wrapped(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="str cannot be wrapped: it has no method 'run'"):
        RefoldChatGenerator("gpt-4o", "s1", workspace=str(tmp_path))


@pytest.mark.parametrize("session", ["s1", None], ids=["named", "by conversation"])
def test_an_agent_that_a_tool_runs_does_not_overwrite_its_parents_session(session: str | None, tmp_path: Path) -> None:
    with ScriptedProvider(Delegating(), window=WINDOW) as provider:
        inner = make_generator(AgentSetup(provider.openai_url, tmp_path))
        options: Any = {"workspace": str(tmp_path), "window": WINDOW, "reserve": RESERVE}
        generator = RefoldChatGenerator(inner, session or "", **options)

        def make(tool: Any) -> Any:
            return Agent(chat_generator=generator, tools=[create_tool_from_function(tool)], max_agent_steps=100)

        reader = make(read_sensor)

        def delegate(task: str) -> str:
            """Have sensors read."""
            return str(reader.run(messages=[ChatMessage.from_user(task)])["messages"][-1].text)

        parent, history = make(delegate), []
        for turn in range(TURNS):
            history = parent.run(messages=[*history, ChatMessage.from_user(ask(turn))])["messages"]
        check_apart(generator.refold.manager, provider, session)
    generator.refold.manager.close()
