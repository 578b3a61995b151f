"""What one chat holds: a manager, an agent, the session they work on, and what was said about cost.

Commands and the reading loop share it. Changing the model or the session makes a new agent over the same record.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from refold.agent import Agent, AgentLimits, Tool
from refold.agent.choosing import Chosen, find_endpoint
from refold.agent.running import Approve
from refold.cli.repl.gauge import write_gauge
from refold.errors import LedgerError
from refold.llm.conversation_model import converse_with
from refold.manager import ContextCompressionManager
from refold.manager.status import SessionStatus

SYSTEM = (
    "You are a helpful assistant in a terminal. Answer in the user's language, in short Markdown. Older parts of this "
    "conversation may be folded into summaries; context_recall and context_expand bring the originals back."
)


class Choose(Protocol):
    """Finds a model by its name; ``told`` says where the name came from."""

    def __call__(self, name: str, told: str = ...) -> Chosen: ...


@dataclass
class ChatSession:
    """The state of a chat."""

    manager: ContextCompressionManager
    chosen: Chosen
    choose: Choose
    session_id: str
    tools: list[Tool] = field(default_factory=list)
    system: str = SYSTEM
    limits: AgentLimits = field(default_factory=AgentLimits)
    approve: Approve | None = None
    agent: Agent = field(init=False)
    is_over: bool = False

    def __post_init__(self) -> None:
        self.open(self.session_id)

    def open(self, session_id: str) -> None:
        """Go on with a session, or begin it."""
        self.session_id = session_id
        self.agent = Agent(
            self.chosen.model,
            self.tools,
            self.manager,
            session_id=session_id,
            system=self.system,
            limits=self.limits,
            approve=self.approve,
            context_tools=not getattr(self.chosen.model, "refuses_tools", False),
        )

    def converse(self) -> AbstractContextManager[None]:
        """Name the model that is talked to as the one that writes summaries, for what is begun inside."""
        return converse_with(find_endpoint(self.chosen.model))

    def use_model(self, name: str) -> Chosen:
        """Talk to another model from now on."""
        self.chosen = self.choose(name)
        self.open(self.session_id)
        return self.chosen

    def status(self) -> SessionStatus | None:
        """Return how the session stands, with all that the next request carries; None before its first message."""
        tools, model = self.agent.write_tools() or None, self.chosen.model.name
        try:
            return self.manager.status(self.session_id, self.system, tools=tools, model=model)
        except LedgerError:
            return None

    def gauge(self) -> str:
        """Return the gauge as it is now; an empty session has none."""
        status = self.status()
        return write_gauge(status) if status is not None else ""


def name_session(now: datetime) -> str:
    """Return the name of a new session."""
    return f"chat-{now:%Y%m%d-%H%M%S}"
