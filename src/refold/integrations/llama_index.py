"""LlamaIndex: an LLM whose chats fit their window, for agents, chat engines and your own loops.

    llm = wrap_llm(OpenAI(model="gpt-4o"), session="s1", workspace="work")
    agent = FunctionAgent(tools=tools, llm=llm)

A ``Memory`` would be the wrong place: it does not see the turn that is running.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import TypeAdapter

from refold.formats import ModelReply
from refold.formats.intake import to_plain
from refold.integrations import MethodAdapter, needs
from refold.integrations.parts import At, PartKind, PartsCodec

with needs("wrap_llm", "llama-index-core 0.14.6"):
    from llama_index.core.base.llms.types import (
        ChatMessage,
        ContentBlock,
        ImageBlock,
        TextBlock,
        ThinkingBlock,
        ToolCallBlock,
    )
    from llama_index.core.llms import LLM
    from llama_index.core.tools import FunctionTool

_SAID = At("blocks", lambda message: message.content or "", lambda text: [TextBlock(text=text)])


class LlamaIndexCodec(PartsCodec):
    """Converts LlamaIndex's messages to chat messages and back; ``additional_kwargs`` are kept."""

    message, field, parts = ChatMessage, "blocks", TypeAdapter(ContentBlock)
    kinds = (
        PartKind("text", TextBlock, text="text"),
        PartKind("call", ToolCallBlock, id="tool_call_id", name="tool_name", arguments="tool_kwargs"),
        PartKind("thinking", ThinkingBlock, thinking="content", signature="additional_information.signature"),
        PartKind("image_url", ImageBlock, url=At("url", lambda part: part.url or part.inline_url())),
        PartKind("result", ChatMessage, {"role": "tool"}, content=_SAID, id="additional_kwargs.tool_call_id"),
    )

    def open(self, message: ChatMessage) -> tuple[str, Sequence[Any]]:
        """Return a message's role and blocks; an LLM may keep its calls outside of them."""
        role, parts = super().open(message)
        has_calls = any(isinstance(part, ToolCallBlock) for part in parts)
        listed = () if has_calls else to_plain(message.additional_kwargs.get("tool_calls")) or ()
        return role, [*parts, *(ToolCallBlock(tool_call_id=call["id"], **_read_call(call)) for call in listed)]

    def close(self, role: str, parts: list[Any], origin: ChatMessage | None) -> Any:
        """Return a message with these blocks; another list of calls would contradict one that changed."""
        made = super().close(role, parts, origin)
        rest = {key: value for key, value in made.additional_kwargs.items() if key != "tool_calls"}
        return made.model_copy(update={"additional_kwargs": rest})


class LlamaIndexAdapter(MethodAdapter):
    """Fits the chat methods of an LLM."""

    codec, model, base = LlamaIndexCodec(), "metadata.model_name", LLM
    methods: ClassVar = {
        "chat": "call", "achat": "call_async", "stream_chat": "stream", "astream_chat": "open_stream"
    }  # fmt: skip

    def watch(self, owner: Any, options: Mapping[str, Any]) -> Callable[[Any], ModelReply]:  # noqa: ARG002
        """Return a reader of answers; each piece of a streamed one has all that came before."""
        return lambda answer: ModelReply([answer.message], At("usage").take(answer.raw))


wrap_llm = LlamaIndexAdapter.wrap


def make_tool(tool: Any) -> FunctionTool:
    """Return a context tool as a tool of LlamaIndex."""
    known = {"name": tool.name, "description": tool.description, "fn_schema": tool.arguments}
    return FunctionTool.from_defaults(fn=tool.run_now, async_fn=tool.run, **known)


def _read_call(call: dict[str, Any]) -> dict[str, Any]:
    return {"tool_name": call["function"]["name"], "tool_kwargs": call["function"]["arguments"]}
