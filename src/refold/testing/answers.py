"""How a reply looks on a wire: one whole answer, or the events of a stream. The rows of ``WIRES`` are the wires.

Shapes follow the providers' public references, down to the order of events. Ids and times are fixed, so that two
runs give the same bytes. Nothing here knows about HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from refold.testing import answers_anthropic, answers_chat, answers_responses
from refold.testing.script import ScriptedReply, ScriptedUsage

Raw = dict[str, Any]


def write_json(payload: object) -> str:
    """Return JSON that any encoding can carry: a lone surrogate has no UTF-8, but JSON can name it."""
    text = json.dumps(payload, ensure_ascii=False)
    return text if text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text) else json.dumps(payload)


@dataclass(frozen=True, slots=True)
class SentEvent:
    """One server-sent event; ``name`` is empty where the wire has none, ``data`` a table or a bare word."""

    data: Raw | str
    name: str = ""

    def encode(self) -> bytes:
        """Return the event as it goes over the line."""
        head = f"event: {self.name}\n" if self.name else ""
        return f"{head}data: {self.data if isinstance(self.data, str) else write_json(self.data)}\n\n".encode()


@dataclass(frozen=True, slots=True)
class Wire:
    """One provider's interface: how it answers whole, and how it streams."""

    name: str
    write_answer: Callable[[ScriptedReply, ScriptedUsage, str], Raw]
    write_events: Callable[[ScriptedReply, ScriptedUsage, Raw], Iterator[tuple[str, Raw]]]
    last_word: str = ""

    def stream(self, reply: ScriptedReply, usage: ScriptedUsage, request: Raw) -> Iterator[SentEvent]:
        """Yield the events of a streamed answer, the closing word included."""
        for name, payload in self.write_events(reply, usage, request):
            yield SentEvent(payload, name)
        if self.last_word:
            yield SentEvent(self.last_word)


WIRES = {
    "openai-chat": Wire("openai-chat", answers_chat.write_answer, answers_chat.write_events, "[DONE]"),
    "openai-responses": Wire("openai-responses", answers_responses.write_answer, answers_responses.write_events),
    "anthropic": Wire("anthropic", answers_anthropic.write_answer, answers_anthropic.write_events),
}
