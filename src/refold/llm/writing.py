"""Writes tools and messages in each provider's format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from refold.llm.port import ToolResult


class ToolDefinition(Protocol):
    """A tool as a provider is offered it."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def schema(self) -> Mapping[str, Any]: ...


class Writing(Protocol):
    """Writes messages in one format."""

    wire: str

    def write_tools(self, tools: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
        """Return tools as the provider takes them."""
        ...

    def write_user(self, text: str) -> dict[str, Any]:
        """Return a user's message."""
        ...

    def write_answer(self, text: str) -> dict[str, Any]:
        """Return an assistant's message that is text alone."""
        ...

    def write_results(self, results: Sequence[ToolResult]) -> list[dict[str, Any]]:
        """Return the messages that carry the results of one step's calls."""
        ...


class OpenAIWriting:
    """Messages of chat completions."""

    wire: str = "openai-chat"

    def write_tools(self, tools: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
        """Return tools as chat completions take them."""
        return [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
            }
            for tool in tools
        ]

    def write_user(self, text: str) -> dict[str, Any]:
        """Return a user's message."""
        return {"role": "user", "content": text}

    def write_answer(self, text: str) -> dict[str, Any]:
        """Return an assistant's message that is text alone."""
        return {"role": "assistant", "content": text}

    def write_results(self, results: Sequence[ToolResult]) -> list[dict[str, Any]]:
        """Return one tool message for each result."""
        return [{"role": "tool", "tool_call_id": one.call.id, "content": one.text} for one in results]


class AnthropicWriting:
    """Messages of Anthropic."""

    wire: str = "anthropic"

    def write_tools(self, tools: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
        """Return tools as messages take them."""
        return [{"name": tool.name, "description": tool.description, "input_schema": tool.schema} for tool in tools]

    def write_user(self, text: str) -> dict[str, Any]:
        """Return a user's message."""
        return {"role": "user", "content": text}

    def write_answer(self, text: str) -> dict[str, Any]:
        """Return an assistant's message that is text alone."""
        return {"role": "assistant", "content": [{"type": "text", "text": text}]}

    def write_results(self, results: Sequence[ToolResult]) -> list[dict[str, Any]]:
        """Return one user message with all results, as the provider wants them."""
        blocks = [
            {
                "type": "tool_result",
                "tool_use_id": one.call.id,
                "content": one.text,
                **({"is_error": True} if one.is_error else {}),
            }
            for one in results
        ]
        return [{"role": "user", "content": blocks}]


WRITINGS: dict[str, Writing] = {one.wire: one for one in (OpenAIWriting(), AnthropicWriting())}
