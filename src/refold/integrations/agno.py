"""Agno: a model that keeps every request inside its window.

    agent = Agent(model=wrap_model(OpenAIChat(id="gpt-4o"), "s1", workspace="work"), tools=tools)

Without ``session`` each session of the agent is one of refold's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from refold.formats import ModelReply
from refold.integrations import MethodAdapter, needs
from refold.integrations.parts import At, PartKind, PartsCodec, write_url
from refold.manager.managed import ManagedSession

with needs("wrap_model", "agno 3.0"):
    from agno.media import Image
    from agno.models.message import Message
    from agno.tools.function import Function


_MODEL = {"role": "assistant"}


def _read_image(image: Image) -> str:
    return write_url(image.mime_type, image.content) or str(image.url or image.filepath or image.id)


class AgnoCodec(PartsCodec):
    """Converts Agno's messages to chat messages and back; ids, metrics and references are kept."""

    message, field = Message, ("content", "images", "tool_calls")
    kinds = (
        PartKind("text", str),
        PartKind("image_url", Image, of="images", url=At("url", _read_image)),
        PartKind("call", dict, of="tool_calls", id="id", name="function.name", json="function.arguments"),
        PartKind("thinking", Message, _MODEL, signature="provider_data.signature", thinking="reasoning_content"),
        PartKind("result", Message, {"role": "tool"}, content="content", id="tool_call_id"),
    )


class AgnoAdapter(MethodAdapter):
    """Fits a model's requests, but not those for titles, summaries and memories, which Agno makes outside any run."""

    codec, model, session_at = AgnoCodec(), "id", "session_id"
    methods: ClassVar = {
        "invoke": "call", "ainvoke": "call_async", "invoke_stream": "stream", "ainvoke_stream": "stream_async"
    }  # fmt: skip

    def find_session(self, options: Mapping[str, Any]) -> ManagedSession | None:
        run = options.get("run_response")
        return None if run is None else self.session_for(run)

    def watch(self, owner: Any, options: Mapping[str, Any]) -> Callable[[Any], ModelReply]:  # noqa: ARG002
        """Return a reader of answers. One with calls is not read: it comes back with the next request."""
        whole = Message(role="assistant", content="", reasoning_content="", provider_data={}, tool_calls=[])

        def read(piece: Any) -> ModelReply:
            whole.content += piece.content or ""
            whole.reasoning_content += piece.reasoning_content or ""
            whole.provider_data |= piece.provider_data or {}
            whole.tool_calls += piece.tool_calls or []
            return ModelReply([] if whole.tool_calls else [whole], piece.response_usage)

        return read


wrap_model = AgnoAdapter.wrap


def make_tool(tool: Any) -> Function:
    """Return a context tool as a tool of Agno."""
    known = {"name": tool.name, "description": tool.description, "parameters": dict(tool.schema)}
    return Function(**known, entrypoint=tool.run_now, skip_entrypoint_processing=True)
