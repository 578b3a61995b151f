"""A model of one kind in a session of another: requests are translated on their way out, answers on their way back.

The session keeps its format, so that its originals, edits and handles hold; what the model answers is stored in that
format too. Going back to a model of the session's own kind needs nothing at all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from refold.agent.tools import Tool
from refold.agent.wire import ChatModel, ChatReply, ChatRequest, Delta, ToolResult
from refold.agent.writing import WRITINGS
from refold.errors import ConfigError
from refold.formats.translate import can_translate, translate_messages, translate_tools


def speak(model: ChatModel, wire: str, session_id: str = "") -> ChatModel:
    """Return a model that takes messages of this format; ConfigError if nobody can translate them."""
    inner = model.model if isinstance(model, Translated) else model
    if inner.wire == wire:
        return inner
    if wire not in WRITINGS or not can_translate(wire, inner.wire):
        raise ConfigError(
            f"session {session_id!r} is in the format {wire}, the model {inner.name!r} speaks {inner.wire}; take a "
            "model of the same kind, or a new session"
        )
    return Translated(inner, wire)


class Translated:
    """A model behind a translator. ``wire`` is the session's format, ``model`` the one that answers."""

    def __init__(self, model: ChatModel, wire: str) -> None:
        self.model = model
        self.wire = wire
        self.name = model.name
        self._writing = WRITINGS[wire]

    @property
    def source(self) -> str:
        """Model and address as messages name them."""
        return str(getattr(self.model, "source", self.name))

    @property
    def limits_output(self) -> bool:
        """Whether the provider wants to be told how long an answer may be."""
        return bool(getattr(self.model, "limits_output", False))

    @property
    def refuses_tools(self) -> bool:
        """True once the server has said that it takes no tools."""
        return bool(getattr(self.model, "refuses_tools", False))

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta | ChatReply]:
        """Yield pieces, then the whole reply in the session's format."""
        theirs = replace(
            request,
            messages=translate_messages(request.messages, self.wire, self.model.wire),
            tools=translate_tools(request.tools, self.wire, self.model.wire),
        )
        async for item in self.model.stream(theirs):
            yield self._translate_reply(item) if isinstance(item, ChatReply) else item

    def _translate_reply(self, reply: ChatReply) -> ChatReply:
        # One message of an assistant, by itself, stays one.
        message = translate_messages([reply.message], self.model.wire, self.wire)[-1]
        return replace(reply, message=message)

    def write_tools(self, tools: Sequence[Tool]) -> list[dict[str, Any]]:
        """Return tools in the session's format."""
        return self._writing.write_tools(tools)

    def write_user(self, text: str) -> dict[str, Any]:
        """Return a user's message."""
        return self._writing.write_user(text)

    def write_answer(self, text: str) -> dict[str, Any]:
        """Return an assistant's message that is text alone."""
        return self._writing.write_answer(text)

    def write_results(self, results: Sequence[ToolResult]) -> list[dict[str, Any]]:
        """Return the messages that carry the results of one step's calls."""
        return self._writing.write_results(results)

    async def aclose(self) -> None:
        """Close connections; the next request opens them again."""
        await self.model.aclose()
