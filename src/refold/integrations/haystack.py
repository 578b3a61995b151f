"""Haystack: a chat generator around another one, for agents and pipelines.

generator = RefoldChatGenerator(OpenAIChatGenerator(model="gpt-4o"), session="s1", workspace="work")
agent = Agent(chat_generator=generator, tools=tools)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from refold.formats import ModelReply
from refold.integrations import MethodAdapter, needs
from refold.integrations.parts import At, PartKind, PartsCodec

with needs("RefoldChatGenerator", "haystack-ai 2.22"):
    from haystack import component, default_from_dict, default_to_dict
    from haystack.core.serialization import component_to_dict
    from haystack.dataclasses import ChatMessage, ChatRole, ImageContent, TextContent, ToolCall, ToolCallResult
    from haystack.dataclasses.chat_message import ReasoningContent
    from haystack.tools import Tool
    from haystack.utils.deserialization import deserialize_component_inplace

_ID = At("", lambda part: part.origin.id, lambda name: {"origin": ToolCall("", {}, name), "error": False})


class HaystackCodec(PartsCodec):
    """Converts Haystack's messages to chat messages and back; names and metadata are kept."""

    field = "_content"
    message = staticmethod(lambda role, _content: ChatMessage(_role=ChatRole(role), _content=_content))
    kinds = (
        PartKind("text", TextContent, text="text"),
        PartKind("call", ToolCall, name="tool_name", id="id", arguments="arguments"),
        PartKind("result", ToolCallResult, content="result", id=_ID),
        PartKind("thinking", ReasoningContent, thinking="reasoning_text", extra="extra"),
        PartKind("image_url", ImageContent, data="base64_image", media_type="mime_type"),
    )


class HaystackAdapter(MethodAdapter):
    """Fits the requests of a chat generator."""

    codec = HaystackCodec()
    methods: ClassVar = {"run": "call", "run_async": "call_async"}

    def watch(self, owner: Any, options: Mapping[str, Any]) -> Callable[[Any], ModelReply | None]:  # noqa: ARG002
        return lambda answer: next((ModelReply([one], one.meta.get("usage")) for one in answer["replies"]), None)


@component
class RefoldChatGenerator:
    """Sends every request of a chat generator inside its window and stores every reply. ``refold`` is the session."""

    def __init__(self, chat_generator: Any, session: str | Callable[[], str] = "", **options: Any) -> None:
        self.options = {**options, "session": session, "workspace": str(options.get("workspace", "."))}
        self.chat_generator = HaystackAdapter(**self.options).fit_methods(chat_generator)
        self.refold = self.chat_generator.refold
        for name in ("streaming_callback", "generation_kwargs"):
            component.set_input_type(self, name, Any, None)
        component.set_output_types(self, replies=list[ChatMessage])

    def run(self, messages: list[ChatMessage], tools: Any = None, **given: Any) -> Any:
        """Return the replies of the chat generator."""
        return self.chat_generator.run(messages, tools=tools, **given)

    async def run_async(self, messages: list[ChatMessage], tools: Any = None, **given: Any) -> Any:
        """The same as ``run``, for callers with an event loop."""
        return await self.chat_generator.run_async(messages, tools=tools, **given)

    def warm_up(self) -> None:
        """Warm up the chat generator."""
        getattr(self.chat_generator, "warm_up", lambda: None)()

    def to_dict(self) -> Any:
        """Return the component as Haystack saves it; a session that is a function cannot be saved."""
        return default_to_dict(self, chat_generator=component_to_dict(self.chat_generator, "inner"), **self.options)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Any:
        """Return the component that was saved."""
        deserialize_component_inplace(data["init_parameters"], key="chat_generator")
        return default_from_dict(cls, data)


def make_tool(tool: Any) -> Tool:
    """Return a context tool as a tool of Haystack."""
    return Tool(tool.name, tool.description, dict(tool.schema), tool.run_now)
