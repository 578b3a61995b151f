"""Selects the model of a chat, and translates for a model whose format differs from the session's.

The order: settings, OPENAI_…, ANTHROPIC_…, an Ollama on this machine, the small local model. Values are passed in as
arguments; only loopback is contacted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from refold.errors import ConfigError, Sentence
from refold.formats.streamed import Delta
from refold.formats.translate import can_translate, translate_messages, translate_tools
from refold.llm.anthropic import AnthropicModel
from refold.llm.choose import Endpoint, make_client, read_endpoint
from refold.llm.client import WRITINGS
from refold.llm.errors import show_url
from refold.llm.http import request_json
from refold.llm.openai import LocalModel, OpenAIModel, find_local_model
from refold.llm.port import ChatModel, ChatReply, ChatRequest
from refold.tokens.models import normalize_name

OLLAMA_URL = "http://127.0.0.1:11434"
OLLAMA_TIMEOUT_S = 0.3
OLLAMA_BYTES_MAX = 1_000_000
VARIABLES = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
NO_MODEL = Sentence(
    "no model to talk to: set OPENAI_API_KEY or ANTHROPIC_API_KEY, name one with --model and --base-url, start Ollama, "
    "or run 'refold local install' for a small one on this machine"
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The requested model; ``origin`` says where the request comes from."""

    model: str = ""
    url: str = ""
    key: str = ""
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A model and why it was chosen."""

    model: ChatModel
    why: str


def choose_chat_model(
    wanted: Wanted,
    values: Mapping[str, str],
    *,
    ollama_url: str = OLLAMA_URL,
    find_local: Callable[[], LocalModel | None] = find_local_model,
) -> Chosen:
    """Return the wanted model, or else the first one available; raise ConfigError if no model can be used."""
    if wanted.model or wanted.url:
        endpoint = read_endpoint(values, wanted.model or None, url=wanted.url, key=wanted.key)
        if endpoint is not None:
            return Chosen(make_client(endpoint), wanted.origin or Sentence("asked for"))
        found = find_ollama(ollama_url) if wanted.model else []
        if wanted.model in found:
            why = Sentence("asked for; Ollama on this machine has it")
            return Chosen(OpenAIModel(wanted.model, "", f"{ollama_url}/v1"), why)
        raise ConfigError(
            "nothing says where {model!r} is: set OPENAI_API_KEY or ANTHROPIC_API_KEY, or give --base-url",
            model=wanted.model,
        )
    endpoint = read_endpoint(values)
    if endpoint is not None:
        return Chosen(make_client(endpoint), _tell_variable(endpoint, values))
    if found := find_ollama(ollama_url):
        why = Sentence("no key is set; Ollama answers on this machine")
        return Chosen(OpenAIModel(found[0], "", f"{ollama_url}/v1"), why)
    if (local := find_local()) is not None:
        return Chosen(local, Sentence("no key is set and no Ollama runs; the small local model is installed"))
    raise ConfigError(NO_MODEL)


def _tell_variable(endpoint: Endpoint, values: Mapping[str, str]) -> str:
    names = [name for name in VARIABLES if name.lower().startswith(endpoint.provider) and values.get(name, "").strip()]
    if len(names) == 1:
        return Sentence("{name} is set", name=names[0])
    return Sentence("{first} and {second} are set", first=names[0], second=names[1])


def make_chat_model(model: str, *, key: str = "", url: str = "") -> ChatModel:
    """Return a model by name; Claude uses Anthropic's API unless another URL is given."""
    if not key and not url:
        raise ConfigError("Agent(model={model!r}) needs key=, or base_url= of a server that wants none", model=model)
    is_claude = normalize_name(model).startswith("claude") and (not url or "anthropic" in show_url(url))
    return make_client(Endpoint(model, "anthropic" if is_claude else "openai", url, key))


def find_endpoint(model: ChatModel) -> Endpoint | None:
    """Return the endpoint of a chat's model; None for the local model and for custom ones."""
    inner = getattr(model, "model", model)  # Behind a translator.
    if not isinstance(inner, OpenAIModel | AnthropicModel) or isinstance(inner, LocalModel):
        return None
    return Endpoint(inner.name, "anthropic" if isinstance(inner, AnthropicModel) else "openai", inner.url, inner.key)


def find_ollama(url: str = OLLAMA_URL) -> list[str]:
    """Return the models of an Ollama on this machine; empty if it does not answer at once."""
    try:
        _, answer = request_json(
            f"{url}/api/tags", timeout_s=OLLAMA_TIMEOUT_S, bytes_max=OLLAMA_BYTES_MAX, is_local=True
        )
        listed = answer.get("models", [])
        return [str(model["name"]) for model in listed if isinstance(model, dict) and model.get("name")]
    except (OSError, ValueError, AttributeError, TypeError):
        return []


def speak(model: ChatModel, wire: str, session_id: str = "") -> ChatModel:
    """Return the model, behind a translator if the session has another format; raise ConfigError for unknown pairs."""
    inner = model.model if isinstance(model, Translated) else model
    if inner.wire == wire:
        return inner
    if wire not in WRITINGS or not can_translate(wire, inner.wire):
        raise ConfigError(
            "session {session_id!r} is in the format {wire}, the model {name!r} speaks {wire2}; "
            "take a model of the same kind, or a new session",
            session_id=session_id,
            wire=wire,
            name=inner.name,
            wire2=inner.wire,
        )
    return Translated(inner, wire)


class Translated:
    """A model behind a translator. ``wire`` is the session's format; answers are stored in it too."""

    def __init__(self, model: ChatModel, wire: str) -> None:
        self.model = model
        self.wire = wire
        self.name = model.name
        self.aclose = model.aclose
        writing = WRITINGS[wire]
        self.write_tools, self.write_user = writing.write_tools, writing.write_user
        self.write_answer, self.write_results = writing.write_answer, writing.write_results

    def __getattr__(self, name: str) -> Any:
        """Return an optional attribute of the model: where it is, and what its server needs or rejects."""
        if name not in ("source", "limits_output", "refuses_tools"):
            raise AttributeError(name)
        return getattr(self.model, name)

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta | ChatReply]:
        """Yield pieces, then the whole reply in the session's format."""
        theirs = replace(
            request,
            messages=translate_messages(request.messages, self.wire, self.model.wire),
            tools=translate_tools(request.tools, self.wire, self.model.wire),
        )
        async for item in self.model.stream(theirs):
            if isinstance(item, ChatReply):
                # A single assistant message stays a single one.
                message = translate_messages([item.message], self.model.wire, self.wire)[-1]
                item = replace(item, message=message)
            yield item
