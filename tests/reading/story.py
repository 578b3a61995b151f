"""A conversation that grows turn by turn, with the events of every message written by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from refold.conversation.message import Message
from refold.formats.detect import make_format, parse_messages
from refold.reading.advance import advance
from refold.reading.events import (
    Action,
    CallOutcome,
    FileChange,
    HarnessNote,
    ReadEvent,
    Statement,
    Utterance,
)
from refold.reading.state import State


class Story:
    """Messages with their events. ``state`` is what ``advance`` makes of them, one message at a time."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.events: list[tuple[ReadEvent, ...]] = []
        self.state = State()

    def read(self, message: Message, waiting: tuple[Action, ...]) -> Sequence[ReadEvent]:
        number = next(at for at, known in enumerate(self.messages) if known.id == message.id)
        return self.events[number]

    def add(self, raw: dict[str, Any], *events: ReadEvent) -> Story:
        parent = self.messages[-1].id if self.messages else ""
        self.messages += parse_messages(make_format("openai"), [raw], parent)
        self.events.append(events)
        self.state = advance(self.state, self.messages[-1:], self.read)
        return self

    def person(self, *said: tuple[str, str]) -> Story:
        """Add a message of a person: pairs of kind and sentence."""
        words = [Utterance(kind=kind, text=text) for kind, text in said]  # type: ignore[arg-type]
        return self.add({"role": "user", "content": " ".join(text for _, text in said)}, *words)

    def harness(self, text: str) -> Story:
        return self.add({"role": "user", "content": text}, HarnessNote(kind="complaint", text=text, stop=len(text)))

    def assistant(self, *said: tuple[str, str], retracts: int = -1) -> Story:
        """Add a message of the assistant without a call; ``retracts`` is the number of a sentence that takes back."""
        words = [
            Statement(kind=kind, text=text, retracts=number == retracts)  # type: ignore[arg-type]
            for number, (kind, text) in enumerate(said)
        ]
        return self.add({"role": "assistant", "content": " ".join(text for _, text in said)}, *words)

    def call(self, *acts: Action, changes: Sequence[FileChange] = ()) -> Story:
        calls = [
            {
                "id": act.call_id,
                "type": "function",
                "function": {"name": act.tool, "arguments": json.dumps({"x": act.text})},
            }
            for act in acts
        ]
        return self.add({"role": "assistant", "content": None, "tool_calls": calls}, *acts, *changes)

    def result(self, text: str, status: str = "ok", call_id: str = "c", **known: Any) -> Story:
        outcome = CallOutcome(call_id=call_id, status=status, text=text, **known)  # type: ignore[arg-type]
        return self.add({"role": "tool", "tool_call_id": call_id, "content": text}, outcome)

    def run(self, command: str, text: str, status: str = "ok", verb: str = "run", **known: Any) -> Story:
        """Call a shell and add its result."""
        kind, path = known.pop("change", ""), known.pop("path", ".")
        act = Action(call_id="c", tool="bash", verb=verb, text=command)  # type: ignore[arg-type]
        changes = [FileChange(call_id="c", path=path, kind=kind)] if kind else []
        return self.call(act, changes=changes).result(text, status, **known)

    def edit(self, path: str, removed: str, added: str, status: str = "ok", kind: str = "edited") -> Story:
        """Call an editor and add its result."""
        verb = {"edited": "edit", "created": "create", "deleted": "delete"}[kind]
        act = Action(call_id="c", tool="edit", verb=verb, text=path, targets=(path,))  # type: ignore[arg-type]
        change = FileChange(call_id="c", path=path, kind=kind, removed=removed, added=added)  # type: ignore[arg-type]
        return self.call(act, changes=[change]).result("no match" if status == "failed" else "done", status)
