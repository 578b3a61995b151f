"""Chooses the model that writes the summaries: the configured one, else the conversation's own.

Values are passed in as arguments; only ``config.load`` reads the environment and files. Nothing here uses the network
or imports an SDK.

A conversation is never sent to a provider other than its own. The caller names its model during a call
(``converse_with``), and the session stores the place without the key. Otherwise only a model named by the caller or the
settings counts, at the provider that serves it. A key in the environment alone proves nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from refold.conversation import because
from refold.conversation.reason import NO_REASON, Reason, join_reasons
from refold.errors import ConfigError
from refold.llm import anthropic, openai
from refold.llm.anthropic import AnthropicModel
from refold.llm.errors import show_url
from refold.llm.openai import OpenAIModel
from refold.llm.port import TIMEOUT_S, Completes, Model
from refold.tokens.models import model_info, normalize_name

if TYPE_CHECKING:
    from refold.ledger.sql.ledger import Ledger


Provider = Literal["openai", "anthropic"]
# Small and cheap with a large window: used when a key is set but no model is named.
DEFAULT_MODELS: dict[Provider, str] = {"openai": "gpt-6-luna", "anthropic": "claude-haiku-5-5"}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a model. ``provider`` selects the API."""

    model: str
    provider: Provider
    url: str = field(default="", repr=False)
    key: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"{self.model} @ {show_url(self.url)}" if self.url else self.model

    @property
    def tokens_max(self) -> int | None:
        """The window; None if it is unknown."""
        known = model_info(self.model)
        return known.window if known.is_known else None

    def fits(self, tokens: int) -> bool:
        """Check whether a request of this size, its answer included, fits the window."""
        return self.tokens_max is None or tokens <= self.tokens_max

    def make_model(self, timeout_s: float = TIMEOUT_S) -> Model:
        """Return the model at this address; always the same object, so that it remembers rejected parameters."""
        return _make_model(self, timeout_s)


@lru_cache(maxsize=32)
def _make_model(endpoint: Endpoint, timeout_s: float) -> Model:
    return make_client(endpoint, timeout_s=timeout_s, window=endpoint.tokens_max)


def make_client(
    endpoint: Endpoint, *, timeout_s: float = TIMEOUT_S, window: int | None = None
) -> AnthropicModel | OpenAIModel:
    """Return a new client of the model at an endpoint."""
    kind = AnthropicModel if endpoint.provider == "anthropic" else OpenAIModel
    return kind(endpoint.model, endpoint.key, _full_url(endpoint.provider, endpoint.url), timeout_s, window)


@dataclass(frozen=True, slots=True)
class Choice:
    """The model for a summary, or None; ``note`` says why another one was passed over."""

    model: Model | Completes | None
    name: str = ""
    note: Reason = NO_REASON


def need_model(llm: object) -> object:
    """Return what somebody hands over as a model; refuse at once what could never be asked."""
    if llm is not None and not hasattr(llm, "complete"):
        raise ConfigError("llm must have complete(prompt); a {kind} has none", kind=type(llm).__name__)
    return llm


def choose_model(
    own: Endpoint | None,
    conversation: Endpoint | Model | Completes | None,
    *,
    tokens_needed: int = 0,
    timeout_s: float = TIMEOUT_S,
) -> Choice:
    """Return the model that writes a summary; ``tokens_needed`` includes the answer.

    ``conversation`` is the conversation's own model: an endpoint or an object. A model whose window is known to be too
    small is passed over with a note.
    """
    notes: list[Reason] = []
    for endpoint in (own, conversation):
        if endpoint is None:
            continue
        if not isinstance(endpoint, Endpoint):
            name = str(getattr(endpoint, "name", "") or type(endpoint).__name__)
            return Choice(endpoint, name, join_reasons(notes))
        if endpoint.fits(tokens_needed):
            return Choice(endpoint.make_model(timeout_s), endpoint.model, join_reasons(notes))
        notes.append(because.MODEL_TOO_SMALL(model=endpoint.model, window=endpoint.tokens_max, needed=tokens_needed))
    return Choice(None, "", join_reasons(notes) or because.NO_MODEL())


def read_endpoint(
    values: Mapping[str, str], model: str | None = None, *, url: str = "", key: str = ""
) -> Endpoint | None:
    """Return a model's endpoint from settings and the providers' variables; None if it is unknown.

    ``values`` holds OPENAI_API_KEY, OPENAI_BASE_URL, ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL. ``url`` and ``key`` are
    the model's own; no provider's key is ever sent to such a URL.
    """
    found = {name: value.strip() for name, value in values.items() if value.strip()}
    openai_key, openai_url = found.get("OPENAI_API_KEY", ""), found.get("OPENAI_BASE_URL", "")
    anthropic_key, anthropic_url = found.get("ANTHROPIC_API_KEY", ""), found.get("ANTHROPIC_BASE_URL", "")
    is_claude = bool(model) and normalize_name(model or "").startswith("claude")
    if url:
        _check_url(url)
        if not model:
            raise ConfigError(
                "a model's address is set ({url}) but no model; name the model as well", url=show_url(url)
            )
        speaks: Provider = "anthropic" if is_claude and show_url(url).startswith(anthropic.URL) else "openai"
        return Endpoint(model, speaks, url, key)
    if (anthropic_key or (key and is_claude)) and (is_claude or not (model or openai_key or openai_url)):
        if anthropic_url:
            _check_url(anthropic_url)
        name = model or DEFAULT_MODELS["anthropic"]
        return Endpoint(name, "anthropic", anthropic_url, key or anthropic_key)
    if openai_url:
        _check_url(openai_url)
        if not model:
            return Endpoint(DEFAULT_MODELS["openai"], "openai", openai_url, key or openai_key) if openai_key else None
        return Endpoint(model, "openai", openai_url, key or openai_key)
    if (key or openai_key) and not is_claude:
        return Endpoint(model or DEFAULT_MODELS["openai"], "openai", "", key or openai_key)
    return None


def read_own(
    values: Mapping[str, str], conversation: Endpoint | None, *, model: str = "", url: str = "", key: str = ""
) -> Endpoint | None:
    """Return the endpoint of the model set for summaries; unset parts come from the conversation. None if not set."""
    if not (model or url):
        return replace(conversation, key=key) if key and conversation else None
    if url or conversation is None:
        return read_endpoint(values, model or (conversation.model if conversation else None), url=url, key=key)
    own = read_endpoint(values, model, key=key)
    is_claude = normalize_name(model).startswith("claude")
    if conversation.provider == "anthropic" and not is_claude:
        return own
    if own is not None and own.provider != conversation.provider:
        return own
    return Endpoint(model, conversation.provider, conversation.url, key or conversation.key)


def _check_url(url: str) -> None:
    if not url.startswith(("http://", "https://")) or show_url(url).startswith("("):
        raise ConfigError(
            "{url} is not the address of a model; write http://HOST:PORT/v1 or https://…", url=show_url(url)
        )


PLACE = "place"
GATEWAY = "gateway"
_OPENAI_NAMES = ("gpt-", "chatgpt-", "o1", "o3", "o4")


_current: ContextVar[Endpoint | None] = ContextVar("conversation_model")


@contextmanager
def converse_with(endpoint: Endpoint | None) -> Iterator[None]:
    """Set the conversation's model inside the block; None means that no model may be used."""
    token = _current.set(endpoint)
    try:
        yield
    finally:
        _current.reset(token)


def name_conversation(endpoint: Endpoint | None) -> None:
    """Set the conversation's model for the rest of the current task."""
    _current.set(endpoint)


def read_conversation_model() -> Endpoint | None:
    """Return the model that was named for the running task; None if none was, or none may be asked."""
    return _current.get(None)


@dataclass(frozen=True, slots=True)
class Place:
    """The provider and URL of a session's model. Stored with the session, without the key."""

    provider: Provider
    url: str = field(repr=False)

    @classmethod
    def of(cls, endpoint: Endpoint) -> Place:
        return cls(endpoint.provider, _full_url(endpoint.provider, endpoint.url))

    @classmethod
    def read(cls, settings: Mapping[str, object]) -> Place | None:
        """Return the place stored in a session's settings; None if there is no valid one."""
        stored = settings.get(PLACE)
        if not isinstance(stored, Mapping):
            return None
        provider, url = stored.get("provider"), stored.get("url")
        if provider not in ("openai", "anthropic") or not isinstance(url, str):
            return None
        if not url.startswith(("http://", "https://")) or "@" in url:
            return None
        return cls(provider, url)

    def to_settings(self) -> dict[str, object]:
        """Return the stored form. A URL that may contain a secret is left out, and the place becomes unknown."""
        is_bare = "@" not in self.url and "?" not in self.url
        return {"provider": self.provider, "url": self.url if is_bare else ""}

    def find_model(self, values: Mapping[str, str], model: str) -> Endpoint | None:
        """Return a model at this place, with the environment's key if that key belongs to this URL."""
        if not model:
            return None
        prefix = self.provider.upper()
        theirs = _full_url(self.provider, values.get(f"{prefix}_BASE_URL", "").strip())
        key = values.get(f"{prefix}_API_KEY", "").strip() if theirs == self.url else ""
        is_public = self.url in (openai.URL, anthropic.URL)
        return Endpoint(model, self.provider, self.url, key) if key or not is_public else None


def find_conversation(
    values: Mapping[str, str],
    *,
    called: str = "",
    stored: str = "",
    setting: str = "",
    wire: str = "",
    settings: Mapping[str, object] | None = None,
) -> Endpoint | None:
    """Return the conversation's model; None if it is unknown.

    ``called`` is the model named by the caller, ``stored`` the session's, ``setting`` the configured one; ``settings``
    are the session's own.
    """
    with suppress(LookupError):
        return _current.get()
    known = settings or {}
    if (place := Place.read(known)) is not None:
        return place.find_model(values, called or stored)
    if GATEWAY in known or PLACE in known:
        return None
    if called and called != setting:
        return find_named(values, called, wire)
    if not setting or (stored and stored != setting):
        return None
    return find_named(values, setting, "", is_set=True)


def find_named(values: Mapping[str, str], model: str, wire: str, *, is_set: bool = False) -> Endpoint | None:
    """Return a model at the provider that serves it, if a key is known; ``is_set``: the settings name the model."""
    found = {name: value.strip() for name, value in values.items() if value.strip()}
    name = model.lower()
    if name.startswith("claude"):
        is_there = "ANTHROPIC_API_KEY" in found and wire in ("", "anthropic")
        url = found.get("ANTHROPIC_BASE_URL", "")
        return Endpoint(model, "anthropic", url, found["ANTHROPIC_API_KEY"]) if is_there else None
    if wire == "anthropic":
        return None
    key, url = found.get("OPENAI_API_KEY", ""), found.get("OPENAI_BASE_URL", "")
    if name.startswith(_OPENAI_NAMES):
        return Endpoint(model, "openai", url, key) if key or (url and is_set) else None
    return Endpoint(model, "openai", url, key) if url and is_set else None


def _full_url(provider: Provider, url: str) -> str:
    return (url or (openai.URL if provider == "openai" else anthropic.URL)).rstrip("/")


def store_place(ledger: Ledger, session_id: str, endpoint: Endpoint | None) -> None:
    """Store the place of a session's model when it changes; None means that no model may be used."""
    row = ledger.read_session(session_id)
    place = Place.of(endpoint).to_settings() if endpoint is not None else {"provider": "", "url": ""}
    if row is not None and row.settings.get(PLACE) != place:
        ledger.update_session(session_id, {"settings": {PLACE: place}}, time.time())
