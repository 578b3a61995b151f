"""Agents of the tests: the real loop, the real clients, a scripted provider on loopback that checks every request."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.agent import Agent, AgentEvent, AgentLimits
from refold.ledger.codec import load_json
from refold.llm.anthropic import AnthropicModel
from refold.llm.openai import OpenAIModel
from refold.llm.port import ChatModel
from refold.testing import ScriptedProvider, find_violations
from tests.rigs.effort import first_of

FAST = AgentLimits(delay_s=0.01, delay_max_s=0.05, answer_stall_s=60.0, tool_timeout_s=60.0)
WIRES = ("openai-chat", "anthropic")
both = pytest.mark.parametrize("wire", WIRES)
# Where the wire hardly matters, `make test` shows it on one of them.
one_first = pytest.mark.parametrize("wire", first_of(reversed(WIRES), 1))


def make_model(provider: ScriptedProvider, wire: str = "openai-chat", name: str = "", **more: Any) -> ChatModel:
    if wire == "anthropic":
        return AnthropicModel(name or "claude-sonnet-5", "key", provider.anthropic_url, **more)
    return OpenAIModel(name or "gpt-4o", "key", provider.openai_url, **more)


def make_manager(folder: Path, llm: object = None, **settings: Any) -> ContextCompressionManager:
    # A script answers request by request: summaries are not among them unless a model of their own is handed in.
    given = settings if llm is not None else {"summariser": "extract", **settings}
    return ContextCompressionManager(CompressionConfig(**given), folder, llm=llm)


def make_agent(
    provider: ScriptedProvider,
    manager: ContextCompressionManager,
    wire: str = "openai-chat",
    tools: list[Callable[..., Any]] | None = None,
    **more: Any,
) -> Agent:
    options = {"session_id": "s", "limits": FAST, **more}
    name = options.pop("name", "")
    return Agent(make_model(provider, wire, name), tools or [], manager, **options)


async def run_all(agent: Agent, prompt: str | None) -> list[AgentEvent]:
    return [event async for event in agent.run(prompt)]


def pick(events: list[AgentEvent], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def read_stored(manager: ContextCompressionManager, session_id: str = "s") -> list[Any]:
    return [load_json(one.raw) for one in manager.ledger.read_messages(session_id)]


def check_stored(manager: ContextCompressionManager, wire: str, session_id: str = "s") -> list[Any]:
    """Return a session's messages, which a provider must accept with a user's message after them."""
    stored = read_stored(manager, session_id)
    assert find_violations(wire, [*stored, {"role": "user", "content": "go on"}]) == []
    return stored
