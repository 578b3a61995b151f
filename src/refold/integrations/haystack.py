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
# Providers' signatures are among the extra fields.
_NO_SIGNATURE = At("", lambda _: "", lambda _: {})


class HaystackCodec(PartsCodec):
    """Converts Haystack's messages to chat messages and back; names and metadata are kept."""

    field = "_content"
    kinds = (
        PartKind("text", TextContent, text="text"),
        PartKind("call", ToolCall, name="tool_name", id="id", arguments="arguments"),
        PartKind("result", ToolCallResult, content="result", id=_ID),
        PartKind("thinking", ReasoningContent, thinking="reasoning_text", signature=_NO_SIGNATURE, extra="extra"),
        PartKind("image_url", ImageContent, data="base64_image", media_type="mime_type"),
    )

    def message(self, role: str, _content: list[Any]) -> ChatMessage:
        """Return a new message."""
        return ChatMessage(_role=ChatRole(role), _content=_content)


class HaystackAdapter(MethodAdapter):
    """Fits the requests of a chat generator."""

    codec = HaystackCodec()
    methods: ClassVar = {"run": "call", "run_async": "call_async"}

    def read_request(self, owner: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return a request."""
        said = options["messages"]
        messages = [ChatMessage.from_user(said)] if isinstance(said, str) else said
        return {"messages": messages, "tools": options.get("tools"), "model": getattr(owner, "model", None)}

    def watch(self, owner: Any, options: Mapping[str, Any]) -> Callable[[Any], ModelReply | None]:  # noqa: ARG002
        """Return a reader of answers."""
        return lambda answer: next((ModelReply([one], one.meta.get("usage")) for one in answer["replies"]), None)


@component
class RefoldChatGenerator:
    """Sends every request of a chat generator inside its window and stores every reply. ``refold`` is the session."""

    def __init__(self, chat_generator: Any, session: str | Callable[[], str], **options: Any) -> None:
        self.options = {**options, "session": session, "workspace": str(options.get("workspace", "."))}
        self.chat_generator = HaystackAdapter(**self.options).fit_methods(chat_generator)
        self.refold, self._given = self.chat_generator.refold, chat_generator
        for name in ("streaming_callback", "generation_kwargs"):
            component.set_input_type(self, name, Any, None)

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None, **given: Any) -> Any:
        """Return the replies of the chat generator."""
        return self.chat_generator.run(messages, **_list_given(tools=tools, **given))

    @component.output_types(replies=list[ChatMessage])
    async def run_async(self, messages: list[ChatMessage], tools: Any = None, **given: Any) -> Any:
        """The same as ``run``, for callers with an event loop."""
        return await self.chat_generator.run_async(messages, **_list_given(tools=tools, **given))

    def warm_up(self) -> None:
        """Warm the chat generator up."""
        getattr(self.chat_generator, "warm_up", lambda: None)()

    def to_dict(self) -> Any:
        """Return the component as Haystack saves it; a session that is a function cannot be saved."""
        return default_to_dict(self, chat_generator=component_to_dict(self._given, "chat_generator"), **self.options)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Any:
        """Return the component that was saved."""
        deserialize_component_inplace(data["init_parameters"], key="chat_generator")
        return default_from_dict(cls, data)


def make_tool(tool: Any) -> Tool:
    """Return a context tool as a tool of Haystack."""
    return Tool(tool.name, tool.description, dict(tool.schema), tool.run_now)


def _list_given(**values: Any) -> dict[str, Any]:
    """Return the arguments that were given: not every chat generator takes all of them."""
    return {name: value for name, value in values.items() if value is not None}
