"""Talks through OpenAI's chat completions, and with everything that speaks them: Ollama, vLLM, llama.cpp, DeepSeek …

The official client is imported with the first request. A parameter that a server turns out not to take is left out from
then on; a server that answers a request for a stream with one JSON body is read all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from refold.agent.client import ChatClient, Collected
from refold.agent.wire import ChatReply, ChatRequest, Delta, ToolCall, name_calls
from refold.agent.writing import OpenAIWriting
from refold.errors import Unavailable
from refold.llm.client import NO_KEY
from refold.llm.model import name_reason
from refold.llm.openai import URL, find_refused, leave_refused

_OPTIONAL = ("stream_options", "max_completion_tokens", "max_tokens", "tools")


@dataclass
class OpenAIChat(OpenAIWriting, ChatClient):
    """A model behind an OpenAI-compatible address. ``streams=False`` asks for whole answers."""

    url: str = field(default=URL, repr=False)
    wire: str = field(default="openai-chat", init=False)
    _refused: set[str] = field(default_factory=set, init=False, repr=False)

    library: ClassVar[str] = "openai"

    def _make_client(self, library: Any, **shared: Any) -> Any:
        return library.AsyncOpenAI(api_key=self.key or NO_KEY, base_url=self.url, max_retries=0, **shared)

    def _collect(self, chars_max: int) -> Collected:
        return ChatCollected(chars_max)

    async def _send(self, library: Any, request: ChatRequest) -> Any:
        body = self._write_body(request)
        sent = leave_refused(body, self._refused)
        for _ in _OPTIONAL:
            try:
                return await self._client.chat.completions.create(**sent)
            except library.BadRequestError as error:
                refused = find_refused(error, sent, _OPTIONAL)
                if not refused:
                    raise
                self._refused.update(refused)
                sent = leave_refused(body, self._refused)
        return await self._client.chat.completions.create(**sent)

    def _write_body(self, request: ChatRequest) -> dict[str, Any]:
        system = [{"role": "system", "content": request.system}] if request.system else []
        body: dict[str, Any] = {"model": self.name, "messages": [*system, *request.messages], "stream": self.streams}
        if self.streams:
            body["stream_options"] = {"include_usage": True}
        if request.tools:
            body["tools"] = list(request.tools)
        if request.output_tokens is not None:
            limit = "max_completion_tokens" if self.url.startswith(URL) else "max_tokens"
            body[limit] = request.output_tokens
        return body

    @property
    def refuses_tools(self) -> bool:
        """True once the server has said that it takes no tools."""
        return "tools" in self._refused


@dataclass
class ChatCollected(Collected):
    """A completion while it comes in."""

    text: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    calls: dict[int, list[str]] = field(default_factory=dict)

    def take(self, event: Any) -> list[Delta]:
        """Take one chunk of the stream; return what a reader may see of it."""
        if getattr(event, "usage", None) is not None:
            self.usage = event.usage.model_dump()
        shown: list[Delta] = []
        for choice in (event.choices or [])[:1]:
            delta = choice.delta
            if delta is not None:
                shown = self._take_delta(delta)
            self.reason = choice.finish_reason or self.reason
        return shown

    def _take_delta(self, delta: Any) -> list[Delta]:
        shown: list[Delta] = []
        thought = getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None)
        if isinstance(thought, str):
            self.thinking.append(thought)
            shown.append(Delta("thinking", thought))
        if delta.content:
            self.text.append(delta.content)
            shown.append(Delta("text", delta.content))
        if getattr(delta, "refusal", None):
            self.refusal.append(delta.refusal)
            shown.append(Delta("text", delta.refusal))
        for call in delta.tool_calls or ():
            self._take_call(call)
        self.chars += sum(len(piece.text) for piece in shown)
        return shown

    def _take_call(self, call: Any) -> None:
        # Some servers leave the index out, and send each call whole.
        index = call.index if call.index is not None else len(self.calls)
        made = self.calls.setdefault(index, ["", "", ""])
        function = call.function
        made[0] = made[0] or call.id or ""
        if function is not None:
            made[1] += function.name or ""
            made[2] += function.arguments or ""
            self.chars += len(function.arguments or "")

    def read_whole(self, payload: Any) -> ChatReply:
        """Return a whole answer, already parsed."""
        try:
            choice = payload["choices"][0]
            message = choice["message"]
            self.text = [message.get("content") or ""]
            self.refusal = [message.get("refusal") or ""]
            for at, call in enumerate(message.get("tool_calls") or ()):
                function = call.get("function") or {}
                self.calls[at] = [call.get("id") or "", function.get("name") or "", function.get("arguments") or ""]
        except (KeyError, IndexError, TypeError, AttributeError):
            raise Unavailable("the provider answered 200 with something that is no completion; try again") from None
        self.reason = str(choice.get("finish_reason") or "stop")
        usage = payload.get("usage")
        self.usage = dict(usage) if isinstance(usage, Mapping) else {}
        return self.finish()

    def finish(self) -> ChatReply:
        """Return the reply; raise Unavailable if the stream ended before the model did."""
        if self.is_full:
            self.reason = "length"
        if not self.reason:
            raise Unavailable("the answer broke off before its end; try again")
        calls = name_calls([ToolCall(*self.calls[at]) for at in sorted(self.calls)])
        text, refusal = "".join(self.text), "".join(self.refusal)
        message: dict[str, Any] = {"role": "assistant", "content": text or refusal or (None if calls else "")}
        if calls:
            # Servers whose models think between calls want the thought back with them.
            if self.thinking:
                message["reasoning_content"] = "".join(self.thinking)
            message["tool_calls"] = [
                {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments or "{}"}}
                for one in calls
            ]
        reason = "refusal" if refusal and not text else name_reason(self.reason)
        return ChatReply(message, text or refusal, calls, reason, self.usage)
