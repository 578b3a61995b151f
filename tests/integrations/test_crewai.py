"""The LLM for CrewAI keeps the contract of integrations, with OpenAI's and with Anthropic's models."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import pytest

from refold.errors import ConfigError
from refold.testing import ScriptedProvider
from refold.testing.integration import CASES, AgentSetup, run_case
from tests.integrations.gathering import watch_method
from tests.rigs.oracle import count_reference

if find_spec("crewai") is None:
    pytest.skip("needs crewai: make integrations", allow_module_level=True)
# CrewAI reports home unless it is told not to before its import. Only here: other tests use OpenTelemetry.
os.environ.update(CREWAI_DISABLE_TELEMETRY="true", CREWAI_TRACING_ENABLED="false", OTEL_SDK_DISABLED="true")
pytest.importorskip("anthropic")

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool as make_crew_tool

from refold.integrations.crewai import wrap_llm


def make_llm(setup: AgentSetup) -> Any:
    named = f"{'anthropic' if setup.wire == 'anthropic' else 'openai'}/{setup.model}"
    options = {"api_key": "any", "base_url": setup.url, "max_tokens": 500, "max_retries": 0}
    return LLM(model=named, stream="stream" in setup.mode, **options)


class CrewAgent:
    def __init__(self, setup: AgentSetup) -> None:
        self.setup = setup
        self.history: list[Any] = list(setup.saved or [])
        inner = make_llm(setup)
        self.sent = watch_method(inner, "call")
        self.llm = wrap_llm(inner, setup.session, workspace=setup.workspace, window=setup.window, reserve=setup.reserve)
        tools = [make_crew_tool(one.__name__)(one) for one in setup.tools]
        tools += self.llm.refold.tools("crewai") if setup.has_context_tools else []
        # The same call with the same arguments may come again; CrewAI would answer it from its cache.
        self.agent = Agent(
            role="reader",
            goal="Read sensors.",
            backstory="Careful.",
            llm=self.llm,
            tools=tools,
            max_iter=100,
            cache=False,
        )

    def run(self, text: str, image: str = "") -> Any:
        given = [*self.history, {"role": "user", "content": text}]
        if "async" in self.setup.mode:
            return self._run_async(given)
        return self._finish(self.agent.kickoff(given))

    async def _run_async(self, given: list[Any]) -> str:
        return self._finish(await self.agent.kickoff_async(given))

    def _finish(self, result: Any) -> str:
        self.history = [message for message in result.messages if message["role"] != "system"]
        return str(result.raw)

    def save(self) -> Any:
        return self.history

    def load_view(self, messages: list[Any]) -> None:
        self.history = [message for message in messages if message["role"] != "system"]

    def close(self) -> None:
        self.llm.refold.manager.close()


class CrewDriver:
    wire = "openai-chat"
    unsupported: ClassVar[Mapping[str, str]] = {
        "thinking": "chat completions do not carry thinking with a signature",
        "images": "an agent's request is text; pictures are files of another package",
        "metadata": "messages are plain dicts, which CrewAI writes itself",
    }

    def make_agent(self, setup: AgentSetup) -> Any:
        return CrewAgent(setup)


class CrewClaudeDriver(CrewDriver):
    wire = "anthropic"
    unsupported: ClassVar[Mapping[str, str]] = {
        **CrewDriver.unsupported,
        "thinking": "CrewAI keeps thinking inside its LLM; its messages do not carry it",
    }


@pytest.mark.parametrize("driver", [CrewDriver, CrewClaudeDriver], ids=lambda one: one.wire)
@pytest.mark.parametrize("case", CASES)
def test_it_keeps_the_contract_of_integrations(case: str, driver: Any, tmp_path: Path) -> None:
    run_case(case, driver(), tmp_path, count=lambda text: count_reference("o200k_base", text))


def test_every_task_of_a_crew_is_a_session_of_its_own(tmp_path: Path) -> None:
    with ScriptedProvider("Done.") as provider:
        llm = wrap_llm(make_llm(AgentSetup(provider.openai_url, tmp_path)), workspace=tmp_path, window=8_000)
        agent = Agent(role="reader", goal="Read.", backstory="Careful.", llm=llm)
        tasks = [Task(description=f"Read hall {hall}.", expected_output="A word.", agent=agent) for hall in "AB"]
        Crew(agents=[agent], tasks=tasks).kickoff()
        for task, hall in zip(tasks, "AB", strict=True):
            said = str(llm.session_for(agent, task).messages())
            assert f"hall {hall}" in said
            assert "Done." in said
    llm.refold_adapter.manager.close()


def test_a_call_that_belongs_to_nobody_needs_no_name(tmp_path: Path) -> None:
    with ScriptedProvider("Hi.") as provider:
        llm = wrap_llm(LLM(model="openai/gpt-4o", api_key="any", base_url=provider.openai_url), workspace=tmp_path)
        assert llm.call("Hello.") == "Hi."
    assert [one["content"] for one in llm.refold.messages()] == ["Hello.", "Hi."]
    with pytest.raises(ConfigError, match="a BaseLLM of crewai, not str"):
        wrap_llm("gpt-4o", workspace=tmp_path)
    llm.refold_adapter.manager.close()
