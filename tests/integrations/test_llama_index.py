"""The LLM for LlamaIndex keeps the contract of integrations, with OpenAI's and with Anthropic's models."""

from __future__ import annotations

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

pytest.importorskip("llama_index.llms.openai", reason="needs llama-index-llms-openai: make integrations")
pytest.importorskip("llama_index.llms.anthropic")

from llama_index.core.agent.workflow import FunctionAgent, ReActAgent
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock
from llama_index.core.memory import Memory
from llama_index.core.tools import FunctionTool, call_tool_with_selection
from llama_index.llms.anthropic import Anthropic
from llama_index.llms.openai import OpenAI

from refold.integrations.llama_index import wrap_llm


def make_llm(setup: AgentSetup) -> Any:
    if setup.wire == "anthropic":
        return Anthropic(model=setup.model, base_url=setup.url, api_key="any", max_tokens=500, max_retries=0)
    options = {"stream_options": {"include_usage": True}} if "stream" in setup.mode else {}
    return OpenAI(
        model=setup.model,
        api_base=setup.url,
        api_key="any",
        max_tokens=500,
        max_retries=0,
        additional_kwargs=options,
    )


class LlamaAgent:
    """FunctionAgent where there is an event loop, else a loop on the LLM as people write it."""

    def __init__(self, setup: AgentSetup) -> None:
        self.setup = setup
        self.history: list[ChatMessage] = list(setup.saved or [])
        inner = make_llm(setup)
        self.sent = watch_method(inner, "chat")
        self.llm = wrap_llm(inner, setup.session, workspace=setup.workspace, window=setup.window, reserve=setup.reserve)
        self.tools = [FunctionTool.from_defaults(tool) for tool in setup.tools]
        self.tools += self.llm.refold.tools("llama_index") if setup.has_context_tools else []

    def run(self, text: str, image: str = "") -> Any:
        blocks: list[Any] = [TextBlock(text=text), *([ImageBlock(url=image)] if image else [])]
        asked = ChatMessage(role="user", blocks=blocks, additional_kwargs=dict(self.setup.metadata))
        return self._run_async(asked) if "async" in self.setup.mode else self._run(asked)

    async def _run_async(self, asked: ChatMessage) -> str:
        agent = FunctionAgent(
            tools=self.tools, llm=self.llm, streaming="stream" in self.setup.mode, system_prompt="You read sensors."
        )
        memory = Memory.from_defaults(token_limit=10_000_000)
        result = await agent.run(asked, chat_history=self.history, memory=memory, max_iterations=100)
        self.history = await memory.aget_all()
        return str(result)

    def _run(self, asked: ChatMessage) -> str:
        self.history.append(asked)
        parallel = {"allow_parallel_tool_calls": True}
        for _ in range(100):
            if self.setup.mode == "stream":
                *_, response = self.llm.stream_chat_with_tools(self.tools, chat_history=self.history, **parallel)
            else:
                response = self.llm.chat_with_tools(self.tools, chat_history=self.history, **parallel)
            self.history.append(response.message)
            calls = self.llm.get_tool_calls_from_response(response, error_on_no_tool_call=False)
            for call in calls:
                said = str(call_tool_with_selection(call, self.tools).content)
                kept = {"tool_call_id": call.tool_id}
                self.history.append(ChatMessage(role="tool", content=said, additional_kwargs=kept))
            if not calls:
                return str(response.message.content)
        raise AssertionError("the model never answered")

    def save(self) -> Any:
        return self.history

    def load_view(self, messages: list[Any]) -> None:
        self.history = messages

    def read_metadata(self, messages: list[Any]) -> list[Mapping[str, Any]]:
        return [message.additional_kwargs for message in messages]

    def close(self) -> None:
        self.llm.refold.manager.close()


class LlamaDriver:
    wire = "openai-chat"
    unsupported: ClassVar[Mapping[str, str]] = {
        "thinking": "chat completions do not carry thinking with a signature",
    }

    def make_agent(self, setup: AgentSetup) -> Any:
        return LlamaAgent(setup)


class LlamaClaudeDriver(LlamaDriver):
    wire = "anthropic"
    unsupported: ClassVar[Mapping[str, str]] = {}


@pytest.mark.parametrize("driver", [LlamaDriver, LlamaClaudeDriver], ids=lambda one: one.wire)
@pytest.mark.parametrize("case", CASES)
def test_it_keeps_the_contract_of_integrations(case: str, driver: Any, tmp_path: Path) -> None:
    run_case(case, driver(), tmp_path, count=lambda text: count_reference("o200k_base", text))


async def test_an_agent_that_calls_tools_in_its_text_fits_too(tmp_path: Path) -> None:
    steps = [f'Thought: I read.\nAction: read\nAction Input: {{"number": {n}}}' for n in range(20)]
    with ScriptedProvider([*steps, "Thought: I know.\nAnswer: All quiet."], window=4_000) as provider:
        setup = AgentSetup(provider.openai_url, tmp_path)
        llm = wrap_llm(make_llm(setup), "s1", workspace=tmp_path, window=4_000, reserve=500)

        def read(number: int) -> str:
            """Read one sensor."""
            return f"reading {number}: " + "loud " * (9_000 if number == 7 else 200)

        agent = ReActAgent(tools=[FunctionTool.from_defaults(read)], llm=llm)
        assert "All quiet" in str(await agent.run("Read all sensors.", max_iterations=50))
        assert "Read all sensors." in str(provider.requests[-1].messages)
    llm.refold.manager.close()


def test_only_an_llm_of_the_framework_can_be_wrapped(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a LLM of llama_index, not str"):
        wrap_llm("gpt-4o", "s1", workspace=tmp_path)


@pytest.mark.parametrize("session", ["s1", None], ids=["named", "by conversation"])
async def test_an_agent_that_a_tool_runs_does_not_overwrite_its_parents_session(
    session: str | None, tmp_path: Path
) -> None:
    with ScriptedProvider(Delegating(), window=WINDOW) as provider:
        llm = wrap_llm(
            make_llm(AgentSetup(provider.openai_url, tmp_path)),
            session,
            workspace=tmp_path,
            window=WINDOW,
            reserve=RESERVE,
        )
        reader = FunctionAgent(tools=[FunctionTool.from_defaults(read_sensor)], llm=llm, system_prompt="You read.")

        async def delegate(task: str) -> str:
            """Have sensors read."""
            return str(await reader.run(task, max_iterations=100))

        parent = FunctionAgent(
            tools=[FunctionTool.from_defaults(async_fn=delegate)], llm=llm, system_prompt="You report."
        )
        memory = Memory.from_defaults(token_limit=10_000_000)
        for turn in range(TURNS):
            await parent.run(ask(turn), memory=memory, max_iterations=100)
        check_apart(llm.refold.manager, provider, session)
    llm.refold.manager.close()
