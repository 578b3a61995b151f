"""AutoGen: a model client, or a model context, that keeps every request inside its window.

    agent = AssistantAgent("guide", model_client=wrap_client(client, "s1", workspace="work"))
    agent = AssistantAgent("guide", model_client=client, model_context=RefoldContext("s1", workspace="work"))

The client sees all of a request: system messages, tools, usage and refusals. The context sees the messages alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from refold.errors import ConfigError
from refold.formats import ModelReply
from refold.integrations import MethodAdapter, open_session
from refold.integrations.parts import At, PartKind, PartsCodec

try:
    from autogen_core import FunctionCall, Image
    from autogen_core import models as m
    from autogen_core.model_context import ChatCompletionContext
    from autogen_core.tools import FunctionTool
except ImportError as error:
    raise ConfigError(f"wrap_client and RefoldContext need autogen-core 0.6.2 or newer ({error})") from error

_ROLES = {m.SystemMessage: "system", m.UserMessage: "user", m.AssistantMessage: "assistant"}


class AutoGenCodec(PartsCodec):
    """Converts AutoGen's messages to chat messages and back; sources and thoughts are kept."""

    kinds = (
        PartKind("text", str, text=At("text", str)),
        PartKind("call", FunctionCall, id="id", name="name", arguments=At("arguments", write=str)),
        PartKind("result", m.FunctionExecutionResult, id="call_id", content="content", name="name"),
        PartKind(
            "image_url", Image, url=At("image", lambda part: part.data_uri, lambda url: Image.from_uri(url).image)
        ),
    )

    def open(self, message: Any) -> tuple[str, list[Any]]:
        """Return a message's role and parts: texts, images, calls or results."""
        parts = message.content if isinstance(message.content, list) else [message.content]
        # Beside calls, the thought is the text that the provider gets; beside text, nobody gets it.
        thought = getattr(message, "thought", None) if isinstance(message.content, list) else None
        return _ROLES.get(type(message), "tool"), [*([thought] if thought else []), *parts]

    def close(self, role: str, parts: list[Any], origin: Any) -> Any:
        """Return a message with these parts."""
        text = "\n".join(part for part in parts if isinstance(part, str))
        others = [part for part in parts if not isinstance(part, str)]
        if others and isinstance(others[0], m.FunctionExecutionResult):
            return m.FunctionExecutionResultMessage(content=others)
        changes: dict[str, Any] = {"content": parts if others and role != "assistant" else others or text}
        if role == "assistant" and others:
            changes["thought"] = text or None
        if origin is not None:
            return origin.model_copy(update=changes)
        kind = next(kind for kind, name in _ROLES.items() if name == role)
        return kind(**changes) if role == "system" else kind(source=role, **changes)


class AutoGenAdapter(MethodAdapter):
    """Fits the requests of a model client."""

    codec = AutoGenCodec()
    methods: ClassVar = {"create": "call_async", "create_stream": "stream_async"}

    def read_request(self, owner: Any, messages: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return a request."""
        model = (getattr(owner, "_create_args", None) or {}).get("model")
        return {"messages": list(messages), "tools": _write_tools(options.get("tools", ())), "model": model}

    def watch(self, owner: Any, options: Mapping[str, Any]) -> Callable[[Any], ModelReply | None]:  # noqa: ARG002
        """Return a reader of answers; the last piece of a streamed one is the whole."""
        return _read_answer


def wrap_client(client: m.ChatCompletionClient, session: str, **options: Any) -> Any:
    """Return a copy of a model client whose requests fit their window; each agent needs one of its own.

    ``client.refold`` is the session: undo, recall, status.
    """
    return AutoGenAdapter(session, **options).fit_methods(client)


class RefoldContext(ChatCompletionContext):
    """A model context that returns messages inside the window, less ``system`` and ``tools``, which it does not see.

    ``refold`` is the session: undo, recall, status.
    """

    def __init__(
        self,
        session: str,
        *,
        system: str = "",
        tools: Sequence[Any] = (),
        initial_messages: list[Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(initial_messages)
        self._beside = {"system": system, "tools": _write_tools(tools)}
        self.refold = open_session(session, codec=AutoGenCodec(), format="openai-chat", **options)

    async def get_messages(self) -> list[Any]:
        """Return the messages of a request."""
        return (await self.refold.prepare_async(list(self._messages), **self._beside)).messages

    async def add_message(self, message: Any) -> None:
        """Add a message; an answer of the model is stored at once."""
        await super().add_message(message)
        if isinstance(message, m.AssistantMessage):
            await self.refold.commit_async([message])


def make_tool(tool: Any) -> FunctionTool:
    """Return a context tool as a tool of AutoGen."""
    return FunctionTool(tool.function, tool.description, tool.name)


def _read_answer(answer: Any) -> ModelReply | None:
    if not isinstance(answer, m.CreateResult):
        return None
    said = m.AssistantMessage(content=answer.content, thought=answer.thought, source="assistant")
    return ModelReply([said], answer.usage)


def _write_tools(tools: Sequence[Any]) -> list[dict[str, Any]]:
    schemas = [tool if isinstance(tool, Mapping) else tool.schema for tool in tools]
    return [{"type": "function", "function": dict(schema)} for schema in schemas]
