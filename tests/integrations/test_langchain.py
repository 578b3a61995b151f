"""The middleware for LangChain keeps the contract of integrations, with OpenAI's and with Anthropic's models."""

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
from tests.rigs.oracle import count_reference

pytest.importorskip("langchain.agents.middleware", reason="needs langchain 1.0 or newer: make integrations")
pytest.importorskip("langchain_openai")
pytest.importorskip("langchain_anthropic")

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import MemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from refold.integrations.langchain import RefoldMiddleware
from refold.integrations.langchain_model import wrap_model


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


class WrappedModelAgent(LangChainAgent):
    """The same agent on a wrapped model, without the middleware."""

    def __init__(self, setup: AgentSetup) -> None:
        super().__init__(setup)
        settings: Any = {"api_key": "any", "max_tokens": 500, "max_retries": 0, "base_url": setup.url}
        chat = ChatAnthropic if setup.wire == "anthropic" else ChatOpenAI
        more = {} if setup.wire == "anthropic" else {"stream_usage": True}
        known = {"workspace": setup.workspace, "window": setup.window, "reserve": setup.reserve}
        model = wrap_model(chat(model=setup.model, **settings, **more), setup.session, **known)
        tools = model.refold.tools("langchain") if setup.has_context_tools else []
        self.agent = create_agent(model, [*setup.tools, *tools])
        del self.sent
        self.middleware = model  # Its manager is closed at the end.


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


class WrappedModelDriver(LangChainDriver):
    """The model sees LangChain's messages, not those that a middleware sends."""

    unsupported: ClassVar[Mapping[str, str]] = {
        **LangChainDriver.unsupported,
        "metadata": "what a model sends is no longer in LangChain's classes",
        "view": "what a model sends is no longer in LangChain's classes",
    }

    def make_agent(self, setup: AgentSetup) -> Any:
        return WrappedModelAgent(setup)


DRIVERS = {"openai-chat": LangChainDriver, "anthropic": LangChainClaudeDriver, "model": WrappedModelDriver}


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
@pytest.mark.parametrize("case", CASES)
def test_it_keeps_the_contract_of_integrations(case: str, driver: Any, tmp_path: Path) -> None:
    run_case(case, driver(), tmp_path, count=lambda text: count_reference("o200k_base", text))


def make_model(url: str) -> ChatOpenAI:
    return ChatOpenAI(model="gpt-4o", base_url=url, api_key="any", max_tokens=500, max_retries=0)


def list_sessions(adapter: Any) -> dict[str, str]:
    """Return every session's parent."""
    return {row.id: read_parent(row) for row in adapter.refold.manager.ledger.list_sessions()}


def test_without_any_name_a_conversation_is_one_session_and_two_are_two(tmp_path: Path) -> None:
    middleware = RefoldMiddleware(workspace=tmp_path, window=8_000, reserve=1_000)
    with ScriptedProvider(Steps(steps=3), window=8_000) as provider:
        agent = create_agent(make_model(provider.openai_url), [read_sensor], middleware=[middleware])
        histories: dict[str, list[Any]] = {"red": [], "blue": []}
        for turn in range(5):
            for hall, history in histories.items():
                history.append(HumanMessage(f"Read the {hall} hall, turn {turn}."))
                histories[hall] = agent.invoke({"messages": history}, {"recursion_limit": 500})["messages"]
                assert DONE in histories[hall][-1].text
        assert has_record(provider.requests[-1])
    stored = {name: str(middleware.refold.named(name).messages()) for name in list_sessions(middleware)}
    assert len(stored) == 2
    assert sorted("the red hall" in text for text in stored.values()) == [False, True]
    middleware.refold.manager.close()


def test_agents_that_are_nodes_of_a_graph_keep_their_sessions_over_turns(tmp_path: Path) -> None:
    middleware = RefoldMiddleware(workspace=tmp_path, window=8_000, reserve=1_000)
    with ScriptedProvider(Steps(steps=2), window=8_000) as provider:
        model = make_model(provider.openai_url)
        nodes = {
            name: create_agent(model, [read_sensor], system_prompt=f"You are the {name}.", middleware=[middleware])
            for name in ("reader", "checker")
        }
        graph: Any = StateGraph(MessagesState)
        graph.add_node("reader", nodes["reader"])
        graph.add_node("checker", lambda state: nodes["checker"].invoke({"messages": state["messages"]}))
        graph.add_edge(START, "reader")
        graph.add_edge("reader", "checker")
        compiled = graph.compile(checkpointer=MemorySaver())
        for turn in range(6):
            asked = {"messages": [HumanMessage(f"Turn {turn}: read two sensors.")]}
            compiled.invoke(asked, {"recursion_limit": 500, "configurable": {"thread_id": "t1"}})
        assert has_record(provider.requests[-1])
    assert list_sessions(middleware) == {"t1": ""}, "the nodes share one history"
    middleware.refold.manager.close()


class Deep:
    """A model for an agent that delegates: sub-agents read sensors, the parent asks for it twice."""

    def __init__(self) -> None:
        self.steps = Steps(steps=40)
        self.asked = 0

    def __call__(self, request: RecordedRequest) -> ScriptedReply | Fault:
        if "Read all sensors you have" in json.dumps(request.messages[:2]):
            return self.steps(request)
        self.asked += 1
        given = {"description": f"Read all sensors you have, part {self.asked}.", "subagent_type": "general-purpose"}
        asked = ScriptedCall("task", given, f"call_task_{self.asked}")
        return ScriptedReply("I ask.", (asked,)) if self.asked < 3 else ScriptedReply(DONE)


def test_the_sub_agents_of_deepagents_fit_and_are_children_of_the_thread(tmp_path: Path) -> None:
    deepagents = pytest.importorskip("deepagents")
    with ScriptedProvider(Deep(), window=24_000) as provider:
        model = wrap_model(make_model(provider.openai_url), workspace=tmp_path, window=24_000, reserve=1_000)
        agent = deepagents.create_deep_agent(model, [read_sensor])
        config = {"recursion_limit": 500, "configurable": {"thread_id": "t1"}}
        result = agent.invoke({"messages": [HumanMessage("Report on hall seven.")]}, config)
        assert DONE in result["messages"][-1].text
        assert sum(has_record(request) for request in provider.requests) > 1
    sessions = list_sessions(model)
    assert sorted(sessions.values()) == ["", "t1", "t1"]
    stored = str(model.refold.named("t1").root.messages())
    assert "Report on hall seven." in stored
    assert "reading-001-begins" not in stored
    model.refold.manager.close()
