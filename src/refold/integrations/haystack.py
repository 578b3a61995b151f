"""Haystack: a chat generator around another one, for agents and pipelines.

generator = RefoldChatGenerator(OpenAIChatGenerator(model="gpt-4o"), session="s1", workspace="work")
agent = Agent(chat_generator=generator, tools=tools)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from refold.errors import ConfigError
from refold.integrations import open_session
from refold.integrations.parts import Block, PartsCodec, read_text
from refold.manager.flow import run_blocking

try:
    from haystack import component, default_from_dict, default_to_dict
    from haystack.core.serialization import component_to_dict
    from haystack.dataclasses import ChatMessage, ChatRole, ImageContent, TextContent, ToolCall, ToolCallResult
    from haystack.dataclasses.chat_message import ReasoningContent
    from haystack.tools import Tool
    from haystack.utils.deserialization import deserialize_component_inplace
except ImportError as error:
    raise ConfigError(f"RefoldChatGenerator needs haystack-ai 2.22 or newer ({error})") from error


class HaystackCodec(PartsCodec):
    """Converts Haystack's messages to chat messages and back; names and metadata are kept."""

    def open(self, message: ChatMessage) -> tuple[str, Sequence[Any]]:
        """Return a message's role and contents."""
        return message.role.value, message._content

    def close(self, role: str, parts: list[Any], origin: ChatMessage | None) -> ChatMessage:
        """Return a message with these contents."""
        if origin is None:
            return ChatMessage(_role=ChatRole(role), _content=parts)
        return replace(origin, _content=parts)

    def read(self, part: Any) -> Block:
        """Return a content of Haystack as a block of the codec."""
        if isinstance(part, TextContent):
            return {"type": "text", "text": part.text}
        if isinstance(part, ToolCall):
            written = json.dumps(part.arguments, ensure_ascii=False)
            return {"type": "call", "id": part.id, "name": part.tool_name, "arguments": written}
        if isinstance(part, ToolCallResult):
            return {"type": "result", "id": part.origin.id, "content": _read_result(part.result)}
        if isinstance(part, ReasoningContent):
            return {"type": "thinking", "thinking": part.reasoning_text, "signature": "", "extra": part.extra}
        if isinstance(part, ImageContent):
            return {"type": "image_url", "image_url": {"url": f"data:{part.mime_type};base64,{part.base64_image}"}}
        return {"type": "haystack_content", "kind": type(part).__name__, "content": part.to_dict()}

    def make(self, block: Block, origin: Any) -> Any:
        """Return the content of Haystack for a block; only text, calls and results ever change."""
        kind = block["type"]
        if kind == "call":
            given = json.loads(block["arguments"])
            return replace(origin, arguments=given) if origin else ToolCall(block["name"], given, block["id"])
        if kind == "result":
            text = read_text(block["content"])
            if origin is not None:
                return replace(origin, result=text)
            return ToolCallResult(text, ToolCall(block.get("name", ""), {}, block["id"]), error=False)
        if kind == "image_url":
            head, _, data = block["image_url"]["url"].partition(";base64,")
            return ImageContent(data, head.removeprefix("data:"), validation=False)
        if kind == "thinking":
            return ReasoningContent(block["thinking"], block.get("extra") or {})
        return TextContent(block["text"] if kind == "text" else json.dumps(block, ensure_ascii=False))


@component
class RefoldChatGenerator:
    """Sends every request of a chat generator inside its window and stores every reply. ``refold`` is the session."""

    def __init__(
        self,
        chat_generator: Any,
        session: str | Callable[[], str],
        workspace: str = ".",
        window: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        if not callable(getattr(chat_generator, "run", None)):
            raise ConfigError(f"RefoldChatGenerator takes a chat generator, not {type(chat_generator).__name__}")
        self.chat_generator, self.session, self.workspace = chat_generator, session, workspace
        self.window, self.options = window, options or {}
        self._codec = HaystackCodec()
        self.refold = open_session(
            session, workspace=workspace, window=window, codec=self._codec, format="openai-chat", **self.options
        )

    @component.output_types(replies=list[ChatMessage])
    def run(
        self,
        messages: list[ChatMessage],
        streaming_callback: Any = None,
        generation_kwargs: dict[str, Any] | None = None,
        *,
        tools: Any = None,
    ) -> dict[str, Any]:
        """Return the replies of the chat generator."""
        given = _list_given(streaming_callback, generation_kwargs, tools)
        answer: dict[str, Any] = self.refold.call(
            lambda prepared: self.chat_generator.run(messages=self._codec.gather(prepared), **given),
            **self._read(messages, tools),
        )
        for reply in answer["replies"][:1]:
            self.refold.commit([reply], reply.meta.get("usage") or None)
        return answer

    @component.output_types(replies=list[ChatMessage])
    async def run_async(
        self,
        messages: list[ChatMessage],
        streaming_callback: Any = None,
        generation_kwargs: dict[str, Any] | None = None,
        *,
        tools: Any = None,
    ) -> dict[str, Any]:
        """The same as ``run``, for callers with an event loop."""
        given = _list_given(streaming_callback, generation_kwargs, tools)
        answer: dict[str, Any] = await self.refold.call_async(
            lambda prepared: self.chat_generator.run_async(messages=self._codec.gather(prepared), **given),
            **self._read(messages, tools),
        )
        for reply in answer["replies"][:1]:
            await self.refold.commit_async([reply], reply.meta.get("usage") or None)
        return answer

    def warm_up(self) -> None:
        """Warm the chat generator up."""
        if hasattr(self.chat_generator, "warm_up"):
            self.chat_generator.warm_up()

    def to_dict(self) -> dict[str, Any]:
        """Return the component as Haystack saves it; a session that is a function cannot be saved."""
        inner = component_to_dict(self.chat_generator, "chat_generator")
        own = {"session": self.session, "workspace": str(self.workspace), "window": self.window}
        saved: dict[str, Any] = default_to_dict(self, chat_generator=inner, **own, options=self.options)
        return saved

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RefoldChatGenerator:
        """Return the component that was saved."""
        deserialize_component_inplace(data["init_parameters"], key="chat_generator")
        made: RefoldChatGenerator = default_from_dict(cls, data)
        return made

    def _read(self, messages: Any, tools: Any) -> dict[str, Any]:
        said = [ChatMessage.from_user(messages)] if isinstance(messages, str) else messages
        schemas = [{"type": "function", "function": tool.tool_spec} for tool in _list_tools(tools)]
        model = getattr(self.chat_generator, "model", None)
        return {"messages": said, "tools": schemas or None, "model": model if isinstance(model, str) else None}


def make_tool(tool: Any) -> Tool:
    """Return a context tool as a tool of Haystack."""
    return Tool(
        name=tool.name,
        description=tool.description,
        parameters=dict(tool.schema),
        function=lambda **arguments: run_blocking(lambda: tool.run(**arguments)),
    )


def _list_given(streaming_callback: Any, generation_kwargs: Any, tools: Any) -> dict[str, Any]:
    """Return the arguments that were given: not every chat generator takes all of them."""
    every = {"streaming_callback": streaming_callback, "generation_kwargs": generation_kwargs, "tools": tools}
    return {name: value for name, value in every.items() if value is not None}


def _list_tools(tools: Any) -> Iterator[Tool]:
    for one in tools or ():
        if isinstance(one, Tool):
            yield one
        else:
            yield from _list_tools(one)


def _read_result(result: Any) -> str:
    if isinstance(result, str):
        return result
    return "\n".join(part.text if isinstance(part, TextContent) else json.dumps(part.to_dict()) for part in result)
