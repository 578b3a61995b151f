"""Which model a chat talks to, and why: what was asked for, else what the environment offers, else what runs here.

The order: settings, OPENAI_…, ANTHROPIC_…, an Ollama on this machine, the small local model. Values come in as
arguments; the only thing asked over the network is loopback.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from refold.agent.anthropic_chat import AnthropicChat
from refold.agent.openai_chat import OpenAIChat
from refold.agent.wire import ChatModel
from refold.errors import ConfigError
from refold.llm import anthropic, openai
from refold.llm.choose import Endpoint, read_endpoint
from refold.llm.errors import show_url
from refold.tokens.models import normalize_name

OLLAMA_URL = "http://127.0.0.1:11434"
OLLAMA_TIMEOUT_S = 0.3
OLLAMA_BYTES_MAX = 1_000_000
VARIABLES = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
NO_MODEL = (
    "no model to talk to: set OPENAI_API_KEY or ANTHROPIC_API_KEY, name one with --model and --base-url, start Ollama, "
    "or run 'refold local install' for a small one on this machine"
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person or a file asked for; ``told`` says where that stands."""

    model: str = ""
    url: str = ""
    key: str = ""
    told: str = ""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A model, and in a few words why this one."""

    model: ChatModel
    why: str


def choose_chat_model(
    wanted: Wanted, values: Mapping[str, str], *, ollama_url: str = OLLAMA_URL, takes_local: bool = True
) -> Chosen:
    """Return the first model there is; ConfigError with one clear sentence if there is none."""
    if wanted.model or wanted.url:
        endpoint = read_endpoint(values, wanted.model or None, url=wanted.url, key=wanted.key)
        if endpoint is not None:
            return Chosen(make_from_endpoint(endpoint), wanted.told or "asked for")
        found = find_ollama(ollama_url) if wanted.model else []
        if wanted.model in found:
            return Chosen(OpenAIChat(wanted.model, "", f"{ollama_url}/v1"), "asked for; Ollama on this machine has it")
        raise ConfigError(
            f"nothing says where {wanted.model!r} is: set OPENAI_API_KEY or ANTHROPIC_API_KEY, or give --base-url"
        )
    endpoint = read_endpoint(values)
    if endpoint is not None:
        return Chosen(make_from_endpoint(endpoint), _tell_variable(endpoint, values))
    if found := find_ollama(ollama_url):
        return Chosen(OpenAIChat(found[0], "", f"{ollama_url}/v1"), "no key is set; Ollama answers on this machine")
    local = _find_local() if takes_local else None
    if local is not None:
        return local
    raise ConfigError(NO_MODEL)


def _tell_variable(endpoint: Endpoint, values: Mapping[str, str]) -> str:
    names = [name for name in VARIABLES if name.lower().startswith(endpoint.provider) and values.get(name, "").strip()]
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} set"


def _find_local() -> Chosen | None:
    from refold.agent.local import find_local_model

    model = find_local_model()
    return Chosen(model, "no key is set and no Ollama runs; the small local model is installed") if model else None


def make_chat_model(model: str, *, key: str = "", url: str = "", provider: str = "") -> ChatModel:
    """Return a model by its name; Claude speaks Anthropic's interface unless another address is given."""
    is_claude = normalize_name(model).startswith("claude")
    speaks = provider or ("anthropic" if is_claude and (not url or "anthropic" in show_url(url)) else "openai")
    if speaks not in ("openai", "anthropic"):
        raise ConfigError(f"provider is {speaks[:40]!r}; give openai or anthropic")
    if not key and not url:
        raise ConfigError(f"Agent(model={model!r}) needs key=, or base_url= of a server that wants none")
    return make_from_endpoint(Endpoint(model, "anthropic" if speaks == "anthropic" else "openai", url, key))


def find_endpoint(model: ChatModel) -> Endpoint | None:
    """Return where a chat's model is reached; None for the small local one and for your own."""
    from refold.agent.local import LocalChat

    inner = getattr(model, "model", model)  # Behind a translator.
    if not isinstance(inner, OpenAIChat | AnthropicChat) or isinstance(inner, LocalChat):
        return None
    return Endpoint(inner.name, "anthropic" if isinstance(inner, AnthropicChat) else "openai", inner.url, inner.key)


def make_from_endpoint(endpoint: Endpoint) -> ChatModel:
    """Return the model behind an endpoint."""
    if endpoint.provider == "anthropic":
        return AnthropicChat(endpoint.model, endpoint.key, endpoint.url or anthropic.URL)
    return OpenAIChat(endpoint.model, endpoint.key, endpoint.url or openai.URL)


def find_ollama(url: str = OLLAMA_URL) -> list[str]:
    """Return the models that an Ollama on this machine has; none if it does not answer at once."""
    # No proxy: a proxy's answer would be no proof that anything runs here.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/api/tags", timeout=OLLAMA_TIMEOUT_S) as answer:
            listed = json.loads(answer.read(OLLAMA_BYTES_MAX)).get("models", [])
        return [str(one["name"]) for one in listed if isinstance(one, dict) and one.get("name")]
    except (OSError, ValueError, AttributeError, TypeError):
        return []
