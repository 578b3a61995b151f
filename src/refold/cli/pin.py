"""``refold pin``: keep a message of a stored session from being compressed, let it go again, or list those kept."""

from __future__ import annotations

import json

from refold.cli.reading import write_json
from refold.cli.render import clean_line, count_things
from refold.cli.workspace import need_session, open_workspace, write_line
from refold.conversation.handle import mark
from refold.errors import ConfigError
from refold.ledger.codec import load_json
from refold.ledger.records import StoredMessage

_WORDS_CHARS = 80


def run(handle: str | None, session: str | None, workspace: str, *, off: bool, as_json: bool) -> None:
    """Pin or unpin what a handle names, if one is given, and say what is pinned now."""
    if off and handle is None:
        raise ConfigError("--off needs the handle to let go; 'refold pin' lists what is pinned")
    with open_workspace(workspace) as manager:
        name = need_session(manager.ledger, session, workspace)
        if handle is not None:
            (manager.unpin if off else manager.pin)(name, handle)
        pinned = frozenset(manager.pinned(name))
        kept = [stored for stored in manager.ledger.read_messages(name) if stored.id in pinned]
    if as_json:
        write_json({"session": name, "pinned": [_name(stored) for stored in kept]})
        return
    write_line(f"pinned: {count_things(len(kept), 'message')}" if kept else "nothing is pinned")
    for stored in kept:
        write_line(f"{mark(_name(stored))} {stored.role}  {_tell_words(stored)}")


def _name(stored: StoredMessage) -> str:
    return f"m:{stored.digest[:8]}"


def _tell_words(stored: StoredMessage) -> str:
    if stored.is_forgotten:
        return "forgotten"
    raw = load_json(stored.raw)
    content = raw.get("content") if isinstance(raw, dict) else None
    text = content if isinstance(content, str) and content.strip() else json.dumps(raw, ensure_ascii=False)
    return clean_line(text, _WORDS_CHARS)
