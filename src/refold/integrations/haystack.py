"""Haystack: a chat generator around another one, for agents and pipelines.

generator = RefoldChatGenerator(OpenAIChatGenerator(model="gpt-4o"), session="s1", workspace="work")
agent = Agent(chat_generator=generator, tools=tools)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from refold.errors import ConfigError
from refold.formats import ModelReply
from refold.integrations import open_session
from refold.integrations.parts import At, PartKind, PartsCodec, image_at

try:
    from haystack import component, default_from_dict, default_to_dict
    from haystack.core.serialization import component_to_dict
    from haystack.dataclasses import ChatMessage, ChatRole, ImageContent, TextContent, ToolCall, ToolCallResult
    from haystack.dataclasses.chat_message import ReasoningContent
    from haystack.tools import Tool
    from haystack.utils.deserialization import deserialize_component_inplace
except ImportError as error:
    raise ConfigError(f"RefoldChatGenerator needs haystack-ai 2.22 or newer ({error})") from error


def _read_result(part: ToolCallResult) -> str:
    if isinstance(part.result, str):
        return part.result
    return "\n".join(one.text if isinstance(one, TextContent) else json.dumps(one.to_dict()) for one in part.result)


# Providers' signatures are among the extra fields.
_NO_SIGNATURE = At("", lambda _: "", lambda _: {})


class HaystackCodec(PartsCodec):
    """Converts Haystack's messages to chat messages and back; names and metadata are kept."""

    field = "_content"
    kinds = (
        PartKind("text", TextContent, text="text"),
        PartKind("call", ToolCall, id="id", name="tool_name", arguments="arguments"),
        PartKind(
            "result",
            ToolCallResult,
            content=At("result", _read_result),
            id=At("", lambda part: part.origin.id, lambda name: {"origin": ToolCall("", {}, name), "error": False}),
        ),
        PartKind("thinking", ReasoningContent, thinking="reasoning_text", signature=_NO_SIGNATURE, extra="extra"),
        PartKind("image_url", ImageContent, url=image_at("", "mime_type", "base64_image")),
    )

    def message(self, role: str, _content: list[Any]) -> ChatMessage:
        """Return a new message."""
        return ChatMessage(_role=ChatRole(role), _content=_content)


@component
class RefoldChatGenerator:
    """Sends every request of a chat generator inside its window and stores every reply. ``refold`` is the session."""

    def __init__(self, chat_generator: Any, session: str | Callable[[], str], **options: Any) -> None:
        if not callable(getattr(chat_generator, "run", None)):
            raise ConfigError(f"RefoldChatGenerator takes a chat generator, not {type(chat_generator).__name__}")
        self.chat_generator, self.session, self.options = chat_generator, session, options
        self.refold = open_session(session, codec=HaystackCodec(), format="openai-chat", **options)

    @component.output_types(replies=list[ChatMessage])
    def run(
        self,
        messages: list[ChatMessage],
        streaming_callback: Any = None,
        generation_kwargs: Any = None,
        tools: Any = None,
    ) -> dict[str, Any]:
        """Return the replies of the chat generator."""
        given = _list_given(streaming_callback, generation_kwargs, tools)
        return self.refold.call(
            lambda prepared: self.chat_generator.run(messages=prepared.messages, **given), **self._read(messages, tools)
        )

    @component.output_types(replies=list[ChatMessage])
    async def run_async(
        self,
        messages: list[ChatMessage],
        streaming_callback: Any = None,
        generation_kwargs: Any = None,
        tools: Any = None,
    ) -> dict[str, Any]:
        """The same as ``run``, for callers with an event loop."""
        given, run = _list_given(streaming_callback, generation_kwargs, tools), self.chat_generator.run_async
        return await self.refold.call_async(
            lambda prepared: run(messages=prepared.messages, **given), **self._read(messages, tools)
        )

    def warm_up(self) -> None:
        """Warm the chat generator up."""
        getattr(self.chat_generator, "warm_up", lambda: None)()

    def to_dict(self) -> Any:
        """Return the component as Haystack saves it; a session that is a function cannot be saved."""
        inner = component_to_dict(self.chat_generator, "chat_generator")
        options = {**self.options, "workspace": str(self.options.get("workspace", "."))}
        return default_to_dict(self, chat_generator=inner, session=self.session, **options)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Any:
        """Return the component that was saved."""
        deserialize_component_inplace(data["init_parameters"], key="chat_generator")
        return default_from_dict(cls, data)

    def _read(self, messages: Any, tools: Any) -> dict[str, Any]:
        model = getattr(self.chat_generator, "model", None)
        return {
            "messages": [ChatMessage.from_user(messages)] if isinstance(messages, str) else messages,
            "tools": [{"type": "function", "function": tool.tool_spec} for tool in _list_tools(tools)],
            "model": model if isinstance(model, str) else None,
            "reply": _read_answer,
        }


def make_tool(tool: Any) -> Tool:
    """Return a context tool as a tool of Haystack."""
    return Tool(tool.name, tool.description, dict(tool.schema), tool.run_now)


def _read_answer(answer: dict[str, Any]) -> ModelReply | None:
    return next((ModelReply([reply], reply.meta.get("usage")) for reply in answer["replies"]), None)


def _list_given(*values: Any) -> dict[str, Any]:
    """Return the arguments that were given: not every chat generator takes all of them."""
    named = zip(("streaming_callback", "generation_kwargs", "tools"), values, strict=True)
    return {name: value for name, value in named if value is not None}


def _list_tools(tools: Any) -> Iterator[Tool]:
    for one in tools or ():
        yield from (one,) if isinstance(one, Tool) else _list_tools(one)
