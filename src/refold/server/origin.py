"""Which program a request comes from, and which of that program's own conversations it belongs to.

Coding agents name their conversation with every request. So two conversations that begin with the same words are apart
from the first request, and a sub-agent, or a conversation that the client compacted by itself, is known to belong to
the one that it came from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from refold.server.request import Asked

ID_CHARS_MAX = 200
# Headers that name a conversation, in the order in which they are believed: Claude Code, Codex, opencode.
_HEADERS = ("x-claude-code-session-id", "session-id", "session_id", "x-session-id", "conversation-id")
_NAMES = {
    "claude-cli": "claude-code",
    "codex": "codex",
    "opencode": "opencode",
    "qwencode": "qwen-code",
    "aider": "aider",
    "litellm": "litellm",
}
_AGENT = re.compile(r"[A-Za-z][\w.-]{0,39}")
_OLD_CLAUDE = re.compile(r"_session_([0-9a-fA-F-]{8,64})$")


@dataclass(frozen=True, slots=True)
class Origin:
    """A program by name, and its own id of the conversation; empty where it says nothing."""

    client: str = ""
    conversation: str = ""


def find_origin(asked: Asked) -> Origin:
    """Return what the headers of a request say."""
    for name in _HEADERS:
        given = asked.header(name)
        if given:
            return Origin(_name_client(asked.header("user-agent")), given[:ID_CHARS_MAX])
    return Origin(_name_client(asked.header("user-agent")))


def read_conversation(body: Mapping[str, Any]) -> str:
    """Return the conversation that a body names, as Claude Code does in ``metadata``; empty if it names none."""
    metadata = body.get("metadata")
    given = metadata.get("user_id") if isinstance(metadata, dict) else None
    if not isinstance(given, str):
        return ""
    if given.startswith("{"):
        try:
            found = json.loads(given).get("session_id")
        except (ValueError, AttributeError, RecursionError):
            return ""
        return found[:ID_CHARS_MAX] if isinstance(found, str) else ""
    old = _OLD_CLAUDE.search(given)
    return old[1] if old else ""


def _name_client(agent: str) -> str:
    """Return a program's name from its User-Agent: the part before the version."""
    found = _AGENT.match(agent)
    if found is None:
        return ""
    name = found[0].lower()
    return next((short for start, short in _NAMES.items() if name.startswith(start)), name)
