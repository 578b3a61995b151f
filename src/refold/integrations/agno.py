"""Agno: a model that keeps every request inside its window.

    agent = Agent(model=wrap_model(OpenAIChat(id="gpt-4o"), "s1", workspace="work"), tools=tools)

Without ``session`` each session of the agent is one of refold's.
"""

from __future__ import annotations

import asyncio
import base64
import copy
from collections.abc import AsyncIterator, Iterator
from typing import Any

from refold.errors import ConfigError
from refold.formats import MessageSource
from refold.integrations import open_session
from refold.integrations.parts import Block, find_origin, read_text
from refold.manager.flow import run_blocking
from refold.manager.managed import ManagedSession

try:
    from agno.models.base import Model
    from agno.models.message import Message
    from agno.tools.function import Function
except ImportError as error:
    raise ConfigError(f"wrap_model needs agno 3.0 or newer ({error})") from error


class AgnoCodec:
    """Converts Agno's messages to chat messages and back; ids, metrics and references are kept."""

    def to_raw(self, message: Message) -> list[Block]:
        """Return a message as a chat message."""
        text = message.content if isinstance(message.content, str) else message.get_content_string()
        if message.role == "tool":
            return [{"role": "tool", "tool_call_id": message.tool_call_id or "", "content": text}]
        blocks: list[Block] = [{"type": "text", "text": text}] if text else []
        signature = (message.provider_data or {}).get("signature")
        if signature and message.reasoning_content:
            blocks.insert(0, {"type": "thinking", "thinking": message.reasoning_content, "signature": signature})
        blocks += [{"type": "image_url", "image_url": {"url": _read_image(image)}} for image in message.images or ()]
        content: Any = text if len(blocks) == 1 and text else blocks or None
        calls = {"tool_calls": message.tool_calls} if message.tool_calls else {}
        return [{"role": message.role, "content": content, **calls}] if content or calls else []

    def from_raw(self, raw: Block, source: MessageSource) -> Message:
        """Return the message for a raw one: a changed copy of its source, or a new message for a fold."""
        content = raw.get("content")
        kinds = {block["type"] for block in content} if isinstance(content, list) else set()
        changes: dict[str, Any] = {"content": read_text(content) or None, "tool_calls": raw.get("tool_calls")}
        origin: Message | None = find_origin(source)
        if origin is None:
            return Message(role=raw["role"], tool_call_id=raw.get("tool_call_id"), **changes)
        if "image_url" not in kinds:
            changes["images"] = None
        # The provider's own blocks would be sent in the place of the new content; a signature belongs to thinking.
        known = origin.provider_data or {}
        kept = {"signature": known["signature"]} if "thinking" in kinds else None
        changes |= {"provider_data": kept, "reasoning_content": origin.reasoning_content if kept else None}
        return origin.model_copy(update=changes)


class RefoldModel(Model):
    """Methods of a model that prepare every request of a run and store every answer. ``wrap_model`` adds them.

    Agno also asks an agent's model for titles, summaries and memories, outside any run: these calls pass unchanged.
    """

    refold_base: ManagedSession
    refold_name: str | None

    @property
    def refold(self) -> ManagedSession:
        """The session: undo, recall, status, tools. It needs a name."""
        if not self.refold_name:
            raise ConfigError("name the session: wrap_model(model, …)")
        return self.refold_base.named(self.refold_name)

    def _find_session(self, rest: dict[str, Any]) -> ManagedSession | None:
        run = rest.get("run_response")
        return None if run is None else self.refold_base.named(self.refold_name or run.session_id)

    def _read_request(self, messages: list[Message], rest: dict[str, Any]) -> dict[str, Any]:
        return {"messages": list(messages), "tools": rest.get("tools"), "model": self.id}

    def invoke(self, messages: list[Message], **rest: Any) -> Any:
        """Return the model's answer."""
        session, send = self._find_session(rest), super().invoke
        if session is None:
            return send(messages=messages, **rest)
        answer = session.call(lambda p: send(messages=p.messages, **rest), **self._read_request(messages, rest))
        session.commit([], _read_usage(answer))
        return answer

    async def ainvoke(self, messages: list[Message], **rest: Any) -> Any:
        """The same as ``invoke``, for callers with an event loop."""
        session, send = self._find_session(rest), super().ainvoke
        if session is None:
            return await send(messages=messages, **rest)
        request = self._read_request(messages, rest)
        answer = await session.call_async(lambda p: send(messages=p.messages, **rest), **request)
        await session.commit_async([], _read_usage(answer))
        return answer

    def invoke_stream(self, messages: list[Message], **rest: Any) -> Iterator[Any]:
        """Yield the pieces of the model's answer."""
        session, send, usage = self._find_session(rest), super().invoke_stream, None
        if session is None:
            yield from send(messages=messages, **rest)
            return
        request = self._read_request(messages, rest)
        for piece in session.stream(lambda p: send(messages=p.messages, **rest), **request):
            usage = _read_usage(piece) or usage
            yield piece
        session.commit([], usage)

    async def ainvoke_stream(self, messages: list[Message], **rest: Any) -> AsyncIterator[Any]:
        """The same as ``invoke_stream``, for callers with an event loop."""
        session, send, usage = self._find_session(rest), super().ainvoke_stream, None
        if session is None:
            async for piece in send(messages=messages, **rest):
                yield piece
            return
        request = self._read_request(messages, rest)
        async for piece in session.stream_async(lambda p: send(messages=p.messages, **rest), **request):
            usage = _read_usage(piece) or usage
            yield piece
        await session.commit_async([], usage)

    def response(self, messages: list[Message], **rest: Any) -> Any:
        """Run the loop of calls and store its last answer: the others come back with the next request."""
        answer = super().response(messages=messages, **rest)
        self._store(messages, rest)
        return answer

    async def aresponse(self, messages: list[Message], **rest: Any) -> Any:
        """The same as ``response``, for callers with an event loop."""
        answer = await super().aresponse(messages=messages, **rest)
        await asyncio.to_thread(self._store, messages, rest)
        return answer

    def response_stream(self, messages: list[Message], **rest: Any) -> Iterator[Any]:
        """The same as ``response``, piece by piece."""
        yield from super().response_stream(messages=messages, **rest)
        self._store(messages, rest)

    async def aresponse_stream(self, messages: list[Message], **rest: Any) -> AsyncIterator[Any]:
        """The same as ``aresponse``, piece by piece."""
        async for piece in super().aresponse_stream(messages=messages, **rest):
            yield piece
        await asyncio.to_thread(self._store, messages, rest)

    def _store(self, messages: list[Message], rest: dict[str, Any]) -> None:
        session = self._find_session(rest)
        if session is not None and messages and messages[-1].role == "assistant":
            session.commit(messages[-1:])


def wrap_model(model: Any, session: str | None = None, **options: Any) -> Any:
    """Return a copy of a model that prepares its requests; it is used exactly as before."""
    base = open_session("unnamed", codec=AgnoCodec(), format="openai-chat", **options)
    kind, wrapped = type(model), copy.copy(model)
    # On the class and not on the object: Agno copies models field by field.
    fields = {"__module__": kind.__module__, "refold_base": base, "refold_name": session}
    wrapped.__class__ = type(kind.__name__, (RefoldModel, kind), fields)
    return wrapped


def make_tool(tool: Any) -> Function:
    """Return a context tool as a tool of Agno."""
    return Function(
        name=tool.name,
        description=tool.description,
        parameters=dict(tool.schema),
        entrypoint=lambda **arguments: run_blocking(lambda: tool.run(**arguments)),
        skip_entrypoint_processing=True,
    )


def _read_usage(answer: Any) -> dict[str, Any] | None:
    usage = getattr(answer, "response_usage", None)
    if usage is None or not usage.input_tokens:
        return None
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
    }


def _read_image(image: Any) -> str:
    if image.content:
        return f"data:{image.mime_type or 'image/png'};base64,{base64.b64encode(image.content).decode()}"
    return str(image.url or image.filepath or image.id or "")
