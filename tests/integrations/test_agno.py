"""A wrapped model of Agno keeps the contract of integrations, with OpenAI's and with Anthropic's models."""

from __future__ import annotations

import base64
import copy
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from refold.errors import ConfigError
from refold.testing import ScriptedProvider
from refold.testing.integration import CASES, AgentSetup, run_case
from refold.testing.rig import read_sensor
from tests.integrations.delegating import RESERVE, TURNS, WINDOW, Delegating, ask, check_apart
from tests.integrations.gathering import watch_method
from tests.rigs.oracle import count_reference

pytest.importorskip("agno", reason="needs agno: make integrations")
pytest.importorskip("openai")
pytest.importorskip("anthropic")

from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.media import Image
from agno.models.anthropic import Claude
from agno.models.message import Message
from agno.models.openai import OpenAIChat
from agno.team import Team

from refold.integrations.agno import wrap_model


class AgnoAgent:
    def __init__(self, setup: AgentSetup) -> None:
        self.setup = setup
        self.history: list[Any] = list(setup.saved or [])
        if setup.wire == "anthropic":
            client = {"base_url": setup.url, "max_retries": 0}
            model: Any = Claude(id=setup.model, api_key="any", max_tokens=500, client_params=client)
        else:
            model = OpenAIChat(id=setup.model, base_url=setup.url, api_key="any", max_tokens=500, max_retries=0)
        self.sent = watch_method(model, "invoke")
        self.model = wrap_model(
            model, setup.session, workspace=setup.workspace, window=setup.window, reserve=setup.reserve
        )
        tools: list[Any] = list(setup.tools)
        if setup.has_context_tools:
            tools += self.model.refold.tools("agno")
        self.agent = Agent(model=self.model, tools=tools, telemetry=False)

    def run(self, text: str, image: str = "") -> Any:
        pictures = [Image(content=base64.b64decode(image.partition(",")[2]), mime_type="image/png")] if image else None
        asked = Message(role="user", content=text, images=pictures, **dict(self.setup.metadata))
        given = [*self.history, asked]
        if self.setup.mode == "sync":
            return self.finish(self.agent.run(given))
        if self.setup.mode == "stream":
            return self.finish(list(self.agent.run(given, stream=True, yield_run_output=True))[-1])
        return self.run_async(given)

    async def run_async(self, given: list[Any]) -> str:
        if self.setup.mode == "async":
            return self.finish(await self.agent.arun(given))
        found = [event async for event in self.agent.arun(given, stream=True, yield_run_output=True)]
        return self.finish(found[-1])

    def finish(self, output: Any) -> str:
        self.history = [message for message in output.messages if message.role != "system"]
        return str(output.content)

    def save(self) -> Any:
        return self.history

    def load_view(self, messages: list[Any]) -> None:
        self.history = [message for message in messages if message.role != "system"]

    def read_metadata(self, messages: list[Any]) -> list[Mapping[str, Any]]:
        return [{"ticket": getattr(message, "ticket", None)} for message in messages]

    def close(self) -> None:
        self.model.refold.manager.close()


class AgnoDriver:
    wire = "openai-chat"
    unsupported: ClassVar[Mapping[str, str]] = {
        "thinking": "chat completions do not carry thinking with a signature",
    }

    def make_agent(self, setup: AgentSetup) -> Any:
        return AgnoAgent(setup)


class AgnoClaudeDriver(AgnoDriver):
    wire = "anthropic"
    unsupported: ClassVar[Mapping[str, str]] = {}


@pytest.mark.parametrize("driver", [AgnoDriver, AgnoClaudeDriver], ids=lambda one: one.wire)
@pytest.mark.parametrize("case", CASES)
def test_it_keeps_the_contract_of_integrations(case: str, driver: Any, tmp_path: Path) -> None:
    run_case(case, driver(), tmp_path, count=lambda text: count_reference("o200k_base", text))


def test_calls_outside_a_run_are_not_part_of_the_session(tmp_path: Path) -> None:
    with ScriptedProvider(["Paris.", "A title.", "Berlin."]) as provider:
        plain = OpenAIChat(id="gpt-4o", base_url=provider.openai_url, api_key="any")
        model = wrap_model(plain, workspace=tmp_path, window=8_000)
        agent = Agent(model=model, telemetry=False)
        agent.run("What is the capital of France?", session_id="s1")
        copied = copy.deepcopy(model)
        assert copied.response(messages=[Message(role="user", content="Name this chat.")]).content == "A title."
        agent.run("And of Germany?", session_id="s2")
        adapter = model.refold_adapter
        found = {name: adapter.session_for(SimpleNamespace(session_id=name)).messages() for name in ("s1", "s2")}
        with pytest.raises(ConfigError, match="name the session"):
            _ = model.refold.id
        adapter.manager.close()
    assert [message.content for message in found["s1"]] == ["What is the capital of France?", "Paris."]
    assert [message.content for message in found["s2"]] == ["And of Germany?", "Berlin."]
    assert type(plain) is OpenAIChat
    assert isinstance(model, OpenAIChat)


@pytest.mark.parametrize("session", ["s1", None], ids=["named", "by conversation"])
def test_a_member_of_a_team_does_not_overwrite_the_teams_session(session: str | None, tmp_path: Path) -> None:
    script = Delegating("delegate_task_to_member", member_id="reader")
    with ScriptedProvider(script, window=WINDOW) as provider:
        plain = OpenAIChat(id="gpt-4o", base_url=provider.openai_url, api_key="any", max_tokens=500, max_retries=0)
        model = wrap_model(plain, session, workspace=tmp_path, window=WINDOW, reserve=RESERVE)
        reader = Agent(id="reader", name="reader", model=model, tools=[read_sensor], telemetry=False)
        team = Team([reader], model=model, db=InMemoryDb(), add_history_to_context=True, telemetry=False)
        for turn in range(TURNS):
            team.run(ask(turn), session_id="t1")
        check_apart(model.refold.manager, provider, session or "t1")
        model.refold.manager.close()
