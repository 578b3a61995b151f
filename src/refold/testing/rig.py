"""The rig of the integrations' contract: what a driver of a framework implements, and what runs its agents.

The agents of a case talk to a provider on loopback that refuses what providers refuse, and work in a workspace of
their own.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from refold.config import CompressionConfig
from refold.ledger.codec import load_json
from refold.manager import ContextCompressionManager
from refold.testing.provider_rules import find_violations
from refold.testing.script import RecordedRequest, Step
from refold.testing.server import ScriptedProvider

Mode = Literal["sync", "async", "stream", "async_stream"]
WINDOW, RESERVE = 8_000, 1_000
MODELS = {"openai-chat": "gpt-4o", "openai-responses": "gpt-4o", "anthropic": "claude-sonnet-5-5"}


def read_sensor(number: int) -> str:
    """Read one sensor.

    Args:
        number: the sensor's number.
    """
    if number >= 1_000:  # One result that no window holds.
        return "\n".join(f"sample {at} of sensor {number}: {at * 7919 % 100_003}" for at in range(6_000))
    lines = [f"sensor {number} minute {at}: {(number + 3) * (at + 11) * 7919 % 100_003} units" for at in range(40)]
    return f"reading-{number:03d}-begins\n" + "\n".join(lines)


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """The ingredients of an agent of the framework.

    ``url`` is the provider's address as the SDK of the wire wants it. ``saved`` is what ``save`` of an earlier agent
    returned; None for a fresh conversation. ``tools`` are plain functions. With ``has_context_tools`` the agent also
    offers refold's tools of its session. ``metadata`` is what the driver attaches to the user's messages, if it can.
    """

    url: str
    workspace: Path
    session: str = "s1"
    wire: str = "openai-chat"
    model: str = "gpt-4o"
    window: int = WINDOW
    reserve: int = RESERVE
    mode: Mode = "sync"
    tools: Sequence[Callable[..., str]] = (read_sensor,)
    has_context_tools: bool = False
    saved: Any = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def config(self) -> CompressionConfig:
        """Settings of a manager for this agent."""
        return CompressionConfig(window=self.window, reserve=self.reserve)


class DrivenAgent(Protocol):
    """An agent that the kit runs. ``run`` may be a coroutine function in the async modes."""

    def run(self, text: str, image: str = "") -> Any:
        """Run one turn with its tool calls and return the final text; ``image`` is a data URL, or empty."""
        ...

    def save(self) -> Any:
        """Return the framework's own history, so that another agent can continue it; it can be pickled."""
        ...


class IntegrationDriver(Protocol):
    """Plugs a framework into the kit.

    Optional on the agent: ``close``; ``sent``, the messages that the framework handed to its model last, in its own
    classes (without it, those of the provider's last request); ``load_view(messages)``, which replaces the framework's
    history by them; ``read_metadata(messages)``, which returns the metadata of each of them.
    """

    wire: str
    unsupported: Mapping[str, str]

    def make_agent(self, setup: AgentSetup) -> DrivenAgent: ...


class Rig:
    """One case's provider, workspace and agents."""

    def __init__(self, driver: IntegrationDriver, workspace: Path, count: Callable[[str], int]) -> None:
        self.driver, self.workspace, self.count = driver, workspace, count
        self._runner = asyncio.Runner()
        self._agents: list[Any] = []

    @contextmanager
    def provider(self, script: Step | Sequence[Step], window: int | None = WINDOW) -> Iterator[ScriptedProvider]:
        """Run a provider; when the case ends, check every request that it saw."""
        with ScriptedProvider(script, window=window) as provider:
            yield provider
            for request in list_requests(provider):
                assert find_violations(request.wire, request.messages) == []

    def find_url(self, provider: ScriptedProvider) -> str:
        """Return the provider's address as the SDK of the driver's wire wants it."""
        return provider.anthropic_url if self.driver.wire == "anthropic" else provider.openai_url

    def make(self, provider: ScriptedProvider | str, **changes: Any) -> Any:
        """Make an agent of the framework that talks to a provider, or to the one at an address."""
        url, wire = provider if isinstance(provider, str) else self.find_url(provider), self.driver.wire
        agent = self.driver.make_agent(
            replace(AgentSetup(url, self.workspace, wire=wire, model=MODELS[wire]), **changes)
        )
        self._agents.append(agent)
        return agent

    def run(self, agent: Any, text: str, image: str = "") -> str:
        """Run one turn, sync or async."""
        return str(self.wait(agent.run(text, image) if image else agent.run(text)))

    def wait(self, answer: Any) -> Any:
        """Return the result of an agent's method, awaited if it is async."""
        return self._runner.run(_wait(answer)) if inspect.isawaitable(answer) else answer

    def read_sent(self, agent: Any, provider: ScriptedProvider) -> list[Any]:
        """Return the messages that were sent last, in the framework's own classes."""
        last = list_requests(provider)[-1]
        assert has_record(last), "nothing was folded"
        return list(agent.sent if hasattr(agent, "sent") else last.messages)

    def cancel(self, agent: Any, text: str, when: Callable[[], bool]) -> None:
        """Start a turn and cancel it once ``when`` returns true."""

        async def work() -> None:
            task = asyncio.ensure_future(agent.run(text))
            for _ in range(400):
                await asyncio.sleep(0.02)
                if when() or task.done():
                    break
            task.cancel()
            await asyncio.wait({task}, timeout=20)

        self._runner.run(work())

    def manager(self) -> ContextCompressionManager:
        """Return another manager on the workspace: what a person or another process would see."""
        return ContextCompressionManager(CompressionConfig(window=WINDOW, reserve=RESERVE), self.workspace)

    def stored(self, session: str = "s1") -> list[Any]:
        with self.manager() as manager:
            return [load_json(message.raw) for message in manager.ledger.read_messages(session)]

    def count_request(self, request: RecordedRequest) -> int:
        """Return the tokens of a request's texts by ``count``, which is not refold's counter; pictures are left out."""
        named = ("messages", "input", "system", "instructions", "tools")
        body = {name: request.json[name] for name in named if name in request.json}
        return sum(map(self.count, list_texts(body)))

    def close(self) -> None:
        """Close what agents hold open."""
        for agent in self._agents:
            self.wait(agent.close() if hasattr(agent, "close") else None)
        self._runner.close()


async def _wait(answer: Any) -> Any:
    return await answer


def list_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if not value.startswith("data:"):
            yield value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            if key not in ("data", "signature", "encrypted_content"):
                yield from list_texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from list_texts(one)


def list_requests(provider: ScriptedProvider) -> list[RecordedRequest]:
    """Return the requests for an answer, without those for lists of models and counts."""
    return [one for one in provider.requests if one.method == "POST" and not one.path.endswith("count_tokens")]


def has_record(request: RecordedRequest) -> bool:
    """Return whether a request carries a fold."""
    return any("⟦" in text for text in list_texts(request.messages))
