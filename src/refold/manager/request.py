"""What a caller wants prepared, checked as it comes in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from refold.errors import ConfigError, FormatError


@dataclass(frozen=True, slots=True)
class Request:
    """What a caller wants prepared. ``messages`` is the whole history, or None for what the ledger has.

    ``window`` and ``reserve`` hold for this call only, in the place of the model's and of the settings'.
    """

    session_id: str
    messages: Sequence[object] | None = None
    system: object = ""
    tools: object = None
    model: str | None = None
    format: str | None = None
    window: int | None = None
    reserve: int | None = None
    follows: tuple[int, str] | None = None  # How many messages there were before, and the digest of the last.


def check_session(session_id: object) -> str:
    """Return the name of a session; FormatError if it is none."""
    if not isinstance(session_id, str) or not 1 <= len(session_id) <= 256:
        raise FormatError(f"a session id is a text of 1 to 256 characters, not {str(session_id)[:40]!r}")
    return session_id


def make_request(
    session_id: str,
    messages: Sequence[Any] | None,
    current_messages: Sequence[Any] | None,
    system: object,
    tools: object,
    model: str | None,
    wire: str | None,
    window: int | None,
    reserve: int | None,
) -> Request:
    """Return what was asked for; ConfigError if it was asked for twice, or with a window that is none."""
    if messages is not None and current_messages is not None:
        raise ConfigError("give either messages= or current_messages=; they are one argument with two names")
    given = messages if messages is not None else current_messages
    for name, value in (("window", window), ("reserve", reserve)):
        if value is not None and (type(value) is not int or value < 0):
            raise ConfigError(f"{name} is a whole number of tokens, not {str(value)[:40]!r}")
    return Request(check_session(session_id), given, system, tools, model, wire, window, reserve)
