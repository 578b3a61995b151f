"""The middleware for LangChain keeps the contract of integrations, with OpenAI's and with Anthropic's models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from refold.testing.integration import CASES, AgentSetup, run_case
from tests.tokens.oracle import count_reference

pytest.importorskip("langchain.agents.middleware", reason="needs langchain 1.0 or newer: make integrations")
pytest.importorskip("langchain_openai")
pytest.importorskip("langchain_anthropic")

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI

from refold.integrations.langchain import RefoldMiddleware


class Watch(AgentMiddleware):
    """Keeps the messages that were sent last."""

    sent: ClassVar[list[Any]] = []

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        self.sent[:] = request.messages
        return handler(request)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(request)


class LangChainAgent:
    def __init__(self, setup: AgentSetup) -> None:
        self.setup = setup
        self.history: list[Any] = list(setup.saved or [])
        if setup.wire == "anthropic":
            model: Any = ChatAnthropic(
                model=setup.model, base_url=setup.url, api_key="any", max_tokens=500, max_retries=0
            )
        else:
            model = ChatOpenAI(
                model=setup.model, base_url=setup.url, api_key="any", max_tokens=500, max_retries=0, stream_usage=True
            )
        self.middleware = RefoldMiddleware(
            setup.session,
            workspace=setup.workspace,
            context_tools=setup.has_context_tools,
            window=setup.window,
            reserve=setup.reserve,
        )
        self.agent = create_agent(model, list(setup.tools), middleware=[self.middleware, Watch()])
        self.sent = Watch.sent

    def run(self, text: str, image: str = "") -> Any:
        parts = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": image}}]
        asked = HumanMessage(content=parts if image else text, additional_kwargs=dict(self.setup.metadata))
        given = {"messages": [*self.history, asked]}
        return {"sync": self._run, "stream": self._stream}.get(self.setup.mode, self._run_async)(given)

    def _run(self, given: dict[str, Any]) -> str:
        return self._finish(self.agent.invoke(given, {"recursion_limit": 500})["messages"])

    def _stream(self, given: dict[str, Any]) -> str:
        found = [
            state
            for mode, state in self.agent.stream(given, {"recursion_limit": 500}, stream_mode=["values", "messages"])
            if mode == "values"
        ]
        return self._finish(found[-1]["messages"])

    async def _run_async(self, given: dict[str, Any]) -> str:
        if self.setup.mode == "async":
            return self._finish((await self.agent.ainvoke(given, {"recursion_limit": 500}))["messages"])
        stream = self.agent.astream(given, {"recursion_limit": 500}, stream_mode=["values", "messages"])
        found = [state async for mode, state in stream if mode == "values"]
        return self._finish(found[-1]["messages"])

    def _finish(self, messages: list[Any]) -> str:
        self.history = list(messages)
        return str(messages[-1].text)

    def save(self) -> Any:
        return self.history

    def load_view(self, messages: list[Any]) -> None:
        self.history = list(messages)

    def read_metadata(self, messages: list[Any]) -> list[Mapping[str, Any]]:
        return [message.additional_kwargs for message in messages]

    def close(self) -> None:
        self.middleware.refold.manager.close()


class LangChainDriver:
    wire = "openai-chat"
    unsupported: ClassVar[Mapping[str, str]] = {
        "thinking": "chat completions do not carry thinking with a signature",
    }

    def make_agent(self, setup: AgentSetup) -> Any:
        return LangChainAgent(setup)


class LangChainClaudeDriver(LangChainDriver):
    wire = "anthropic"
    unsupported: ClassVar[Mapping[str, str]] = {}


@pytest.mark.parametrize("driver", [LangChainDriver, LangChainClaudeDriver], ids=lambda one: one.wire)
@pytest.mark.parametrize("case", CASES)
def test_it_keeps_the_contract_of_integrations(case: str, driver: Any, tmp_path: Path) -> None:
    run_case(case, driver(), tmp_path, count=lambda text: count_reference("o200k_base", text))
