"""Two agents on one adapter: a parent that delegates in every turn, and a sub-agent whose readings fill the window."""

from __future__ import annotations

import json
from typing import Any

from refold import ContextCompressionManager
from refold.manager.status import read_parent
from refold.testing import Fault, RecordedRequest, ScriptedCall, ScriptedProvider, ScriptedReply
from refold.testing.integration import DONE, Steps
from refold.testing.rig import has_record

WINDOW, RESERVE, TURNS = 8_000, 1_000, 3
CALM = "It is CALM."


class Delegating:
    """The model of both: the parent's requests have the tool ``name``, whose argument ``task`` is for the sub-agent.

    ``known`` are further arguments of that tool.
    """

    def __init__(self, name: str = "delegate", task: str = "task", **known: Any) -> None:
        self.name, self.task, self.known = name, task, known
        self.steps, self.asked = Steps(), 0

    def __call__(self, request: RecordedRequest) -> ScriptedReply | Fault:
        if f'"{self.name}"' not in json.dumps(request.json.get("tools")):
            return self.steps(request)
        self.asked += 1
        given = {self.task: f"Read all sensors you have, part {self.asked}.", **self.known}
        call = ScriptedCall(self.name, given, f"call_d{self.asked}")
        return ScriptedReply(CALM) if self.asked % 2 == 0 else ScriptedReply("I ask.", (call,))


def ask(turn: int) -> str:
    """Return what the user says to the parent in a turn."""
    return f"Report on hall seven, turn {turn}."


def check_apart(manager: ContextCompressionManager, provider: ScriptedProvider, session: str | None) -> None:
    """Check that the parent's session has all of its own turns, and nothing that the sub-agent read."""
    assert any(map(has_record, provider.requests)), "the sub-agent's requests fit"
    rows = manager.ledger.list_sessions()
    stored = {row.id: json.dumps([json.loads(one.raw) for one in manager.ledger.read_messages(row.id)]) for row in rows}
    mains = [name for name, text in stored.items() if ask(TURNS - 1) in text]
    assert len(mains) == 1, "the parent's conversation is one session"
    assert all(ask(turn) in stored[mains[0]] for turn in range(TURNS))
    assert "reading-001-begins" not in stored[mains[0]]
    assert stored[mains[0]].count(DONE) == TURNS, "what the sub-agent answered is part of it"
    others = [row for row in rows if row.id != mains[0]]
    assert sum("reading-001-begins" in stored[row.id] for row in others) == 1
    assert session is None or (mains == [session] and {read_parent(row) for row in others} == {session})
