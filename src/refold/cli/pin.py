"""``refold pin``: protect a message from compression, release it, or list the pinned messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from refold.cli.app import app, format_examples
from refold.cli.input import AsJson, SessionOption, Workspace, need_session, open_workspace
from refold.cli.output import clean_line, write_json, write_line
from refold.cli.words import count_things, tr
from refold.errors import ConfigError

if TYPE_CHECKING:
    from refold.ledger.records import StoredMessage

_TEXT_CHARS = 80


@app.command(epilog=format_examples("refold pin m:4f2a91c3", "refold pin m:4f2a91c3 --off", "refold pin"))
def pin(
    handle: Annotated[
        str | None,
        typer.Argument(
            metavar="HANDLE", help="Handle of a message, such as m:4f2a91c3; default: list pinned messages."
        ),
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="Unpin the message.")] = False,
    session: SessionOption = None,
    workspace: Workspace = "",
    as_json: AsJson = False,
) -> None:
    """Pin a message so that it is never compressed, or list pins."""
    from refold.conversation.message import mark

    if off and handle is None:
        raise ConfigError(tr("--off needs the handle to unpin; 'refold pin' lists the pinned messages"))
    with open_workspace(workspace) as manager:
        name = need_session(manager.ledger, session, workspace)
        if handle is not None:
            (manager.unpin if off else manager.pin)(name, handle)
        pinned = frozenset(manager.pinned(name))
        kept = [stored for stored in manager.ledger.read_messages(name) if stored.id in pinned]
    if as_json:
        write_json({"session": name, "pinned": [_name_handle(stored) for stored in kept]})
        return
    write_line(tr("pinned: {kept}", kept=count_things(len(kept), "message")) if kept else tr("nothing is pinned"))
    for stored in kept:
        write_line(f"{mark(_name_handle(stored))} {stored.role}  {_read_text(stored)}")


def _name_handle(stored: StoredMessage) -> str:
    return f"m:{stored.digest[:8]}"


def _read_text(stored: StoredMessage) -> str:
    from refold.ledger.codec import load_json

    if stored.is_forgotten:
        return "forgotten"
    raw = load_json(stored.raw)
    content = raw.get("content") if isinstance(raw, dict) else None
    text = content if isinstance(content, str) and content.strip() else json.dumps(raw, ensure_ascii=False)
    return clean_line(text, _TEXT_CHARS)
