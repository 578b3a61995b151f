"""LangChain, LangGraph and deepagents: a chat model that keeps every request inside its window.

    agent = create_deep_agent(wrap_model(model, "s1", workspace="work"), tools)

A middleware serves one agent; the model serves all that use it, as the sub-agents of deepagents do. Without ``session``
each thread is a session, and each sub-agent a child of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from refold.formats import ModelReply
from refold.integrations import MethodAdapter, needs
from refold.integrations.langchain import LangChainCodec, ThreadNames, make_tool, name_model, read_answer

with needs("wrap_model", "langchain 1.0"):
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import message_chunk_to_message

__all__ = ["ChatModelAdapter", "make_tool", "wrap_model"]


class ChatModelAdapter(ThreadNames, MethodAdapter):
    """Fits the requests of a chat model; ``_agenerate`` and ``_astream`` are left out where LangChain derives them."""

    codec, base = LangChainCodec(), BaseChatModel
    methods: ClassVar = {
        "_generate": "call", "_agenerate": "call_async", "_stream": "stream", "_astream": "stream_async"
    }  # fmt: skip

    def read_request(self, owner: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        return {"tools": options.get("tools"), "model": name_model(owner)}

    def watch(self, owner: Any, options: Mapping[str, Any]) -> Callable[[Any], ModelReply]:  # noqa: ARG002
        """Return a reader of answers, which joins the pieces of a streamed one."""
        joined: list[Any] = []

        def read(piece: Any) -> ModelReply:
            if hasattr(piece, "generations"):
                return read_answer(piece.generations[0].message)
            joined[:] = [joined[0] + piece.message if joined else piece.message]
            return read_answer(message_chunk_to_message(joined[0]))

        return read


wrap_model = ChatModelAdapter.wrap
