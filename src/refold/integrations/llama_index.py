"""LlamaIndex: an LLM whose chats fit their window, for agents, chat engines and your own loops.

    llm = wrap_llm(OpenAI(model="gpt-4o"), session="s1", workspace="work")
    agent = FunctionAgent(tools=tools, llm=llm)

A ``Memory`` would be the wrong place: it does not see the turn that is running.
"""

from __future__ import annotations

import json
import types
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from refold.errors import ConfigError
from refold.formats.intake import to_plain
from refold.integrations import open_session
from refold.integrations.parts import Block, PartsCodec, read_text
from refold.manager.flow import run_blocking

try:
    from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock, ThinkingBlock, ToolCallBlock
    from llama_index.core.llms import LLM
    from llama_index.core.tools import FunctionTool
except ImportError as error:
    raise ConfigError(f"wrap_llm needs llama-index-core 0.14.6 or newer ({error})") from error

_ROLES = {"chatbot": "assistant", "model": "assistant", "developer": "system", "function": "tool"}


class LlamaIndexCodec(PartsCodec):
    """Converts LlamaIndex's messages to chat messages and back; ``additional_kwargs`` are kept."""

    def open(self, message: ChatMessage) -> tuple[str, Sequence[Any]]:
        """Return a message's role and blocks; a tool's result is one part, the message itself."""
        role = _ROLES.get(message.role.value, message.role.value)
        if role == "tool":
            return role, [message]
        has_calls = any(isinstance(block, ToolCallBlock) for block in message.blocks)
        listed = () if has_calls else message.additional_kwargs.get("tool_calls") or ()
        return role, [*message.blocks, *map(_read_listed, listed)]

    def close(self, role: str, parts: list[Any], origin: ChatMessage | None) -> ChatMessage:
        """Return a message with these blocks."""
        if role == "tool":
            (made,) = parts
            return made  # type: ignore[no-any-return]
        if origin is None:
            return ChatMessage(role=role, blocks=parts)
        # Calls are among the blocks: another list of them would contradict a call that changed.
        rest = {key: value for key, value in origin.additional_kwargs.items() if key != "tool_calls"}
        return origin.model_copy(update={"blocks": parts, "additional_kwargs": rest})

    def read(self, part: Any) -> Block:
        """Return a block of LlamaIndex, or a tool's message, as a block of the codec."""
        if isinstance(part, ChatMessage):
            return {"type": "result", "id": part.additional_kwargs.get("tool_call_id"), "content": part.content or ""}
        if isinstance(part, TextBlock):
            return {"type": "text", "text": part.text}
        if isinstance(part, ToolCallBlock):
            given = part.tool_kwargs
            written = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
            return {"type": "call", "id": part.tool_call_id, "name": part.tool_name, "arguments": written}
        if isinstance(part, ThinkingBlock):
            signature = part.additional_information.get("signature") or ""
            return {"type": "thinking", "thinking": part.content or "", "signature": signature}
        if isinstance(part, ImageBlock):
            return {"type": "image_url", "image_url": {"url": str(part.url) if part.url else part.inline_url()}}
        return {"type": "llama_index_block", "block": part.model_dump(mode="json")}

    def make(self, block: Block, origin: Any) -> Any:
        """Return the block of LlamaIndex, or the tool's message, for a block."""
        kind = block["type"]
        if kind == "result":
            made = TextBlock(text=read_text(block["content"]))
            kept = origin or ChatMessage(role="tool", additional_kwargs={"tool_call_id": block["id"]})
            return kept.model_copy(update={"blocks": [made]})
        if kind == "call":
            given = json.loads(block["arguments"])
            return ToolCallBlock(tool_call_id=block["id"], tool_name=block["name"], tool_kwargs=given)
        if kind == "thinking":
            return ThinkingBlock(content=block["thinking"], additional_information={"signature": block["signature"]})
        if kind == "image_url":
            return ImageBlock(url=block["image_url"]["url"])
        return ChatMessage(blocks=[block["block"]]).blocks[0] if "block" in block else TextBlock(text=block["text"])


class RefoldChat:
    """The chat methods of an LLM, which send requests that fit and store every answer."""

    # No annotations here: Pydantic would take them for fields of the LLM.
    __slots__ = ()

    def chat(self: Any, messages: Sequence[ChatMessage], **options: Any) -> Any:
        """Return the model's answer."""
        send: Any = super().chat  # type: ignore[misc]
        response = self.refold.call(
            lambda prepared: send(prepared.messages, **options), **_read_request(self, messages, options)
        )
        self.refold.commit([response.message], _read_usage(response))
        return response

    async def achat(self: Any, messages: Sequence[ChatMessage], **options: Any) -> Any:
        """The same as ``chat``, for callers with an event loop."""
        send: Any = super().achat  # type: ignore[misc]
        response = await self.refold.call_async(
            lambda prepared: send(prepared.messages, **options), **_read_request(self, messages, options)
        )
        await self.refold.commit_async([response.message], _read_usage(response))
        return response

    def stream_chat(self: Any, messages: Sequence[ChatMessage], **options: Any) -> Iterator[Any]:
        """Yield the model's answer as it grows."""
        send: Any = super().stream_chat  # type: ignore[misc]

        def run() -> Iterator[Any]:
            response = None
            for response in self.refold.stream(
                lambda prepared: send(prepared.messages, **options), **_read_request(self, messages, options)
            ):
                yield response
            if response is not None:
                self.refold.commit([response.message], _read_usage(response))

        return run()

    async def astream_chat(self: Any, messages: Sequence[ChatMessage], **options: Any) -> AsyncIterator[Any]:
        """The same as ``stream_chat``, for callers with an event loop."""
        send: Any = super().astream_chat  # type: ignore[misc]

        async def pull(prepared: Any) -> AsyncIterator[Any]:
            async for piece in await send(prepared.messages, **options):
                yield piece

        async def run() -> AsyncIterator[Any]:
            response = None
            async for response in self.refold.stream_async(pull, **_read_request(self, messages, options)):
                yield response
            if response is not None:
                await self.refold.commit_async([response.message], _read_usage(response))

        return run()


def wrap_llm(llm: Any, session: str | Callable[[], str], **options: Any) -> Any:
    """Return a copy of an LLM whose chats fit their window; ``llm.refold`` is the session: undo, recall, tools."""
    if not isinstance(llm, LLM):
        raise ConfigError(f"wrap_llm takes an LLM of LlamaIndex, not {type(llm).__name__}")
    opened = open_session(session, codec=LlamaIndexCodec(), format="openai-chat", **options)
    kind, wrapped = type(llm), llm.model_copy()
    own = {"refold": property(lambda _: opened), "__module__": __name__}
    fitted = types.new_class(f"Refold{kind.__name__}", (RefoldChat, kind), exec_body=lambda body: body.update(own))
    object.__setattr__(wrapped, "__class__", fitted)
    return wrapped


def make_tool(tool: Any) -> FunctionTool:
    """Return a context tool as a tool of LlamaIndex."""
    return FunctionTool.from_defaults(
        fn=lambda **arguments: run_blocking(lambda: tool.run(**arguments)),
        async_fn=tool.run,
        name=tool.name,
        description=tool.description,
        fn_schema=tool.arguments,
    )


def _read_request(llm: Any, messages: Sequence[ChatMessage], options: dict[str, Any]) -> dict[str, Any]:
    return {"messages": messages, "tools": options.get("tools"), "model": llm.metadata.model_name}


def _read_usage(response: Any) -> Any:
    raw = response.raw
    return raw.get("usage") if isinstance(raw, dict) else getattr(raw, "usage", None)


def _read_listed(call: Any) -> ToolCallBlock:
    """Return a call that an LLM keeps outside of the blocks."""
    raw = call if isinstance(call, dict) else to_plain(call)
    function = raw["function"]
    return ToolCallBlock(tool_call_id=raw["id"], tool_name=function["name"], tool_kwargs=function["arguments"])
