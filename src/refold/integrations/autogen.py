"""AutoGen: a model client, or a model context, that keeps every request inside its window.

    agent = AssistantAgent("guide", model_client=RefoldClient(client, "s1", workspace="work"))
    agent = AssistantAgent("guide", model_client=client, model_context=RefoldContext("s1", workspace="work"))

The client sees all of a request: system messages, tools, usage and refusals. The context sees the messages alone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from refold.errors import ConfigError
from refold.integrations import open_session
from refold.integrations.parts import Block, PartsCodec, read_text

try:
    from autogen_core import CancellationToken, FunctionCall, Image
    from autogen_core import models as m
    from autogen_core.model_context import ChatCompletionContext
    from autogen_core.tools import BaseTool
except ImportError as error:
    raise ConfigError(f"RefoldClient and RefoldContext need autogen-core 0.6.2 or newer ({error})") from error

_ROLES = {m.SystemMessage: "system", m.UserMessage: "user", m.AssistantMessage: "assistant"}


class AutoGenCodec(PartsCodec):
    """Converts AutoGen's messages to chat messages and back; sources and thoughts are kept."""

    def open(self, message: Any) -> tuple[str, list[Any]]:
        """Return a message's role and parts: texts, images, calls or results."""
        parts = message.content if isinstance(message.content, list) else [message.content]
        # Beside calls, the thought is the text that the provider gets; beside text, nobody gets it.
        thought = getattr(message, "thought", None) if isinstance(message.content, list) else None
        return _ROLES.get(type(message), "tool"), [*([thought] if thought else []), *parts]

    def close(self, role: str, parts: list[Any], origin: Any) -> Any:
        """Return a message with these parts."""
        texts = [part for part in parts if isinstance(part, str)]
        others = [part for part in parts if not isinstance(part, str)]
        text = "\n".join(texts)
        if others and isinstance(others[0], m.FunctionExecutionResult):
            return m.FunctionExecutionResultMessage(content=others)
        if role == "assistant":
            changes: dict[str, Any] = {"content": others, "thought": text or None} if others else {"content": text}
        else:
            changes = {"content": parts if others else text}
        if origin is not None:
            return origin.model_copy(update=changes)
        if role == "system":
            return m.SystemMessage(content=text)
        return (m.AssistantMessage if role == "assistant" else m.UserMessage)(source=role, **changes)

    def read(self, part: Any) -> Block:
        """Return a part as a block."""
        if isinstance(part, FunctionCall):
            return {"type": "call", "id": part.id, "name": part.name, "arguments": part.arguments}
        if isinstance(part, m.FunctionExecutionResult):
            return {"type": "result", "id": part.call_id, "name": part.name, "content": part.content}
        if isinstance(part, Image):
            return {"type": "image_url", "image_url": {"url": part.data_uri}}
        return {"type": "text", "text": part}

    def make(self, block: Block, origin: Any) -> Any:
        """Return the part for a block."""
        if block["type"] == "call":
            return FunctionCall(id=block["id"], name=block["name"], arguments=block["arguments"])
        if block["type"] == "result":
            text = read_text(block["content"])
            if origin is not None:
                return origin.model_copy(update={"content": text})
            return m.FunctionExecutionResult(content=text, name=block.get("name") or "tool", call_id=block["id"])
        return Image.from_uri(block["image_url"]["url"]) if block["type"] == "image_url" else read_text([block])


class RefoldClient(m.ChatCompletionClient):
    """A model client that sends requests of another one inside the window and stores the answers.

    ``refold`` is the session: undo, recall, status. Each agent needs a client with a session of its own.
    """

    def __init__(self, client: m.ChatCompletionClient, session: str, **options: Any) -> None:
        self._client, self._codec = client, AutoGenCodec()
        self.refold = open_session(session, codec=self._codec, format="openai-chat", **options)

    async def create(self, messages: Sequence[Any], *, tools: Sequence[Any] = (), **rest: Any) -> m.CreateResult:
        """Return the model's answer."""
        answer = await self.refold.call_async(
            lambda prepared: self._client.create(self._codec.gather(prepared), tools=tools, **rest),
            **self._read_request(messages, tools),
        )
        await self._commit(answer)
        return answer

    async def create_stream(
        self, messages: Sequence[Any], *, tools: Sequence[Any] = (), **rest: Any
    ) -> AsyncGenerator[Any, None]:
        """Yield the pieces of the model's answer, then the whole."""
        pieces = self.refold.stream_async(
            lambda prepared: self._client.create_stream(self._codec.gather(prepared), tools=tools, **rest),
            **self._read_request(messages, tools),
        )
        async for piece in pieces:
            if isinstance(piece, m.CreateResult):
                await self._commit(piece)
            yield piece

    async def _commit(self, answer: m.CreateResult) -> None:
        said = m.AssistantMessage(content=answer.content, thought=answer.thought, source="assistant")
        usage = {"prompt_tokens": answer.usage.prompt_tokens, "completion_tokens": answer.usage.completion_tokens}
        await self.refold.commit_async([said], usage if answer.usage.prompt_tokens else None)

    def _read_request(self, messages: Sequence[Any], tools: Sequence[Any]) -> dict[str, Any]:
        named = getattr(self._client, "_create_args", None) or {}
        return {"messages": list(messages), "tools": _write_tools(tools), "model": named.get("model")}

    async def close(self) -> None:
        """Close the other client."""
        await self._client.close()

    def actual_usage(self) -> m.RequestUsage:
        """Return what the other client has used, without answers from a cache."""
        return self._client.actual_usage()

    def total_usage(self) -> m.RequestUsage:
        """Return what the other client has used."""
        return self._client.total_usage()

    def count_tokens(self, messages: Sequence[Any], **rest: Any) -> int:
        """Return the tokens of messages, as the other client counts."""
        return int(self._client.count_tokens(messages, **rest))

    def remaining_tokens(self, messages: Sequence[Any], **rest: Any) -> int:
        """Return the room that messages leave, as the other client counts."""
        return int(self._client.remaining_tokens(messages, **rest))

    @property
    def capabilities(self) -> Any:
        """What the other client's model can do."""
        return self._client.capabilities

    @property
    def model_info(self) -> Any:
        """What is known about the other client's model."""
        return self._client.model_info


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
        self._codec, self._beside = AutoGenCodec(), {"system": system, "tools": _write_tools(tools)}
        self.refold = open_session(session, codec=self._codec, format="openai-chat", **options)

    async def get_messages(self) -> list[Any]:
        """Return the messages of a request."""
        return self._codec.gather(await self.refold.prepare_async(list(self._messages), **self._beside))

    async def add_message(self, message: Any) -> None:
        """Add a message; an answer of the model is stored at once."""
        await super().add_message(message)
        if isinstance(message, m.AssistantMessage):
            await self.refold.commit_async([message])


class AutoGenTool(BaseTool):
    """A context tool as a tool of AutoGen."""

    def __init__(self, tool: Any) -> None:
        super().__init__(tool.arguments, str, tool.name, tool.description)
        self._tool = tool

    async def run(self, args: Any, cancellation_token: CancellationToken) -> str:  # noqa: ARG002 - AutoGen's names
        """Run the tool."""
        return str(await self._tool.run(**{name: getattr(args, name) for name in type(args).model_fields}))


def make_tool(tool: Any) -> BaseTool:
    """Return a context tool as a tool of AutoGen."""
    return AutoGenTool(tool)


def _write_tools(tools: Sequence[Any]) -> list[dict[str, Any]] | None:
    schemas = [tool if isinstance(tool, Mapping) else tool.schema for tool in tools]
    return [{"type": "function", "function": dict(schema)} for schema in schemas] or None
