"""Agno: a model that keeps every request inside its window.

    agent = Agent(model=wrap_model(OpenAIChat(id="gpt-4o"), "s1", workspace="work"), tools=tools)

Without ``session`` each session of the agent is one of refold's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from refold.errors import ConfigError
from refold.formats import ModelReply
from refold.integrations import MethodAdapter
from refold.integrations.parts import At, PartKind, PartsCodec, write_url
from refold.manager.managed import ManagedSession

try:
    from agno.media import Image
    from agno.models.base import Model
    from agno.models.message import Message
    from agno.tools.function import Function
except ImportError as error:
    raise ConfigError(f"wrap_model needs agno 3.0 or newer ({error})") from error


def _read_image(image: Image) -> str:
    return write_url(image.mime_type, image.content) if image.content else str(image.url or image.filepath or image.id)


class Thought(NamedTuple):
    """Thinking with a signature, which Agno keeps in two fields of a message."""

    text: str
    signature: str


_KINDS = (str, Image, dict, Thought)


class AgnoCodec(PartsCodec):
    """Converts Agno's messages to chat messages and back; ids, metrics and references are kept."""

    kinds = (
        PartKind("text", str, text=At("text", str)),
        PartKind("image_url", Image, url=At("url", _read_image)),
        PartKind("call", dict, name="function.name", id="id", arguments=At("function.arguments", write=str)),
        PartKind("thinking", Thought, thinking="text", signature="signature"),
        PartKind(
            "result", Message, {"role": "tool"}, content=At("content", Message.get_content_string), id="tool_call_id"
        ),
    )

    def open(self, message: Message) -> tuple[str, list[Any]]:
        """Return a message's role and what it consists of; a tool's result is one part, the message itself."""
        if message.role == "tool":
            return "tool", [message]
        signature, text = (message.provider_data or {}).get("signature"), message.get_content_string()
        thought = [Thought(message.reasoning_content, signature)] if signature and message.reasoning_content else []
        said = [*thought, *([text] if text else []), *(message.images or ())]
        return message.role, [*said, *(message.tool_calls or ())]

    def close(self, role: str, parts: list[Any], origin: Message | None) -> Message:
        """Return a message that consists of these parts."""
        if role == "tool":
            return parts[0]
        kept: dict[type, list[Any]] = {kind: [one for one in parts if isinstance(one, kind)] for kind in _KINDS}
        changes: dict[str, Any] = {
            "content": "".join(kept[str]) or None,
            "images": kept[Image] or None,
            "tool_calls": kept[dict] or None,
        }
        if origin is None:
            return Message(role=role, **changes)
        # The provider's own blocks would be sent in the place of the new content; a signature belongs to thinking.
        thought = next(iter(kept[Thought]), None)
        changes |= {"provider_data": thought and {"signature": thought.signature}}
        return origin.model_copy(update={**changes, "reasoning_content": thought and thought.text})


class AgnoAdapter(MethodAdapter):
    """Fits the requests of a model.

    Agno also asks an agent's model for titles, summaries and memories, outside any run: these calls pass unchanged.
    """

    codec = AgnoCodec()
    methods: ClassVar = {
        "invoke": "call", "ainvoke": "call_async", "invoke_stream": "stream", "ainvoke_stream": "stream_async"
    }  # fmt: skip

    def find_name(self, run: Any) -> str:
        """Return the name of Agno's session."""
        return str(run.session_id)

    def find_session(self, options: Mapping[str, Any]) -> ManagedSession | None:
        """Return the session of a run."""
        run = options.get("run_response")
        return None if run is None else self.session_for(run)

    def read_request(self, owner: Any, messages: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return a request of a run."""
        return {"messages": list(messages), "tools": options.get("tools"), "model": owner.id}

    def watch(self, owner: Any, options: Mapping[str, Any]) -> Callable[[Any], ModelReply | None]:  # noqa: ARG002
        """Return a reader of usage: Agno makes the message of an answer later."""
        return lambda answer: ModelReply([], answer.response_usage) if answer.response_usage else None

    def store(self, messages: list[Message], options: Mapping[str, Any]) -> None:
        """Store the last answer of a loop of calls: the others come back with the next request."""
        session = self.find_session(options)
        if session is not None and messages and messages[-1].role == "assistant":
            session.commit(messages[-1:])


class StoringModel(Model):
    """The loops of a model, each of which stores its last answer. ``wrap_model`` adds them."""

    refold_adapter: AgnoAdapter

    def response(self, messages: list[Message], **rest: Any) -> Any:
        """Run the loop of calls."""
        answer = super().response(messages=messages, **rest)
        self.refold_adapter.store(messages, rest)
        return answer

    async def aresponse(self, messages: list[Message], **rest: Any) -> Any:
        """The same as ``response``, for callers with an event loop."""
        answer = await super().aresponse(messages=messages, **rest)
        await asyncio.to_thread(self.refold_adapter.store, messages, rest)
        return answer

    def response_stream(self, messages: list[Message], **rest: Any) -> Iterator[Any]:
        """The same as ``response``, piece by piece."""
        yield from super().response_stream(messages=messages, **rest)
        self.refold_adapter.store(messages, rest)

    async def aresponse_stream(self, messages: list[Message], **rest: Any) -> AsyncIterator[Any]:
        """The same as ``aresponse``, piece by piece."""
        async for piece in super().aresponse_stream(messages=messages, **rest):
            yield piece
        await asyncio.to_thread(self.refold_adapter.store, messages, rest)


def wrap_model(model: Any, session: str | None = None, **options: Any) -> Any:
    """Return a copy of a model that prepares its requests; it is used exactly as before.

    ``model.refold`` is the session that was named: undo, recall, status, tools.
    """
    return AgnoAdapter(session, **options).fit_methods(model, StoringModel)


def make_tool(tool: Any) -> Function:
    """Return a context tool as a tool of Agno."""
    known = {"name": tool.name, "description": tool.description, "parameters": dict(tool.schema)}
    return Function(**known, entrypoint=tool.run_now, skip_entrypoint_processing=True)
