"""The conversation's own model: it writes the summaries unless another one is configured.

A conversation is never sent to a provider other than its own. The caller names its model during a call
(``converse_with``), and the session stores the place without the key. Otherwise only a model named by the caller or
the settings counts, at the provider that serves it. A key in the environment alone proves nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from refold.llm import anthropic, openai
from refold.llm.choose import Endpoint, Provider

if TYPE_CHECKING:
    from refold.ledger.port import Ledger

PLACE = "place"
GATEWAY = "gateway"
_OPENAI_NAMES = ("gpt-", "chatgpt-", "o1", "o3", "o4")


class _Unsaid(Enum):
    UNSAID = "nobody said"


_current: ContextVar[Endpoint | _Unsaid | None] = ContextVar("conversation_model", default=_Unsaid.UNSAID)


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
    current = _current.get()
    return None if isinstance(current, _Unsaid) else current


@dataclass(frozen=True, slots=True)
class Place:
    """The provider and URL of a session's model. Stored with the session, without the key."""

    provider: Provider
    url: str = field(repr=False)

    @classmethod
    def of(cls, endpoint: Endpoint) -> Place:
        """Return the place of an endpoint."""
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
    current = _current.get()
    if not isinstance(current, _Unsaid):
        return current
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
    """Return a model at the provider that serves it, if the environment has a key for that provider.

    A name of neither provider is used at OPENAI_BASE_URL only if the settings name it (``is_set``).
    """
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
