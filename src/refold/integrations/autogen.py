"""AutoGen: a model client, or a model context, that keeps every request inside its window.

    agent = AssistantAgent("guide", model_client=wrap_client(client, "s1", workspace="work"))
    agent = AssistantAgent("guide", model_client=client, model_context=RefoldContext("s1", workspace="work"))

The client sees all of a request: system messages, tools, usage and refusals. The context sees the messages alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from refold.formats import ModelReply
from refold.integrations import MethodAdapter, needs
from refold.integrations.parts import At, PartKind, PartsCodec

with needs("wrap_client and RefoldContext", "autogen-core 0.6.2"):
    from autogen_core import FunctionCall, Image
    from autogen_core import models as m
    from autogen_core.model_context import ChatCompletionContext
    from autogen_core.tools import FunctionTool

_IMAGE = At("image", lambda part: part.data_uri, lambda url: Image.from_uri(url).image)


class AutoGenCodec(PartsCodec):
    """Converts AutoGen's messages to chat messages and back; sources and thoughts are kept."""

    field, aside = "content", "thought"  # Beside calls, the thought is the text that the provider gets.
    classes: ClassVar = {
        "system": m.SystemMessage, "user": m.UserMessage, "assistant": m.AssistantMessage,
        "tool": m.FunctionExecutionResultMessage,
    }  # fmt: skip
    kinds = (
        PartKind("text", str),
        PartKind("call", FunctionCall, name="name", id="id", json="arguments"),
        PartKind("result", m.FunctionExecutionResult, name="name", id="call_id", content="content"),
        PartKind("image_url", Image, url=_IMAGE),
    )

    def message(self, role: str, content: Any, **more: Any) -> Any:
        """Return a new message; its source, where such messages have one, is the role."""
        return self.classes[role](content=content or "", source=role, **more)


class AutoGenAdapter(MethodAdapter):
    """Fits the requests of a model client."""

    codec, model = AutoGenCodec(), "_create_args.model"
    methods: ClassVar = {"create": "call_async", "create_stream": "stream_async"}

    def watch(self, owner: Any, options: Mapping[str, Any]) -> Callable[[Any], ModelReply | None]:  # noqa: ARG002
        """Return a reader of answers; the last piece of a streamed one is the whole."""
        return _read_answer


wrap_client = AutoGenAdapter.wrap


class RefoldContext(ChatCompletionContext):
    """A model context that returns messages inside the window, less ``system`` and ``tools``, which it does not see.

    ``refold`` is the session: undo, recall, status.
    """

    def __init__(self, session: str = "", *, system: str = "", tools: Sequence[Any] = (), **options: Any) -> None:
        super().__init__(options.pop("initial_messages", None))
        self.refold, self._beside = AutoGenAdapter(session, **options).refold, {"system": system, "tools": tools}

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
