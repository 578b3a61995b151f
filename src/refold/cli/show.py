"""``refold show``: a session as the model sees it, as it came, or as a list of edits. Shows, never changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.text import Text

from refold.cli.reading import write_json
from refold.cli.render import clean_line, make_console, make_table
from refold.cli.workspace import choose_session, open_workspace, tell_empty, tell_time, write_line
from refold.conversation.handle import mark, message_handle
from refold.conversation.reason import describe
from refold.errors import ConfigError
from refold.ledger.codec import load_json

if TYPE_CHECKING:
    from refold.conversation.view import Item
    from refold.ledger.records import StoredEdit, StoredMessage
    from refold.manager import ContextCompressionManager


def run(workspace: str, session: str | None, *, view: bool, originals: bool, edits: bool, as_json: bool) -> None:
    """Print what was asked for; the view if nothing was."""
    if view + originals + edits > 1:
        raise ConfigError("give one of --view, --originals and --edits")
    with open_workspace(workspace) as manager:
        name = choose_session(manager.ledger, session)
        if name is None:
            tell_empty(workspace, as_json=as_json)
        elif originals:
            _show_originals(manager, name, as_json=as_json)
        elif edits:
            _show_edits(manager, name, as_json=as_json)
        else:
            _show_view(manager, name, as_json=as_json)


def _show_view(manager: ContextCompressionManager, session: str, *, as_json: bool) -> None:
    items = manager.read_view(session)
    if as_json:
        write_json([item.raw for item in items])
        return
    status = manager.status(session)
    table = make_table("#", "role", "tokens", "handle", "says", numbers=("#", "tokens"), wide=("says",))
    for number, item in enumerate(items):
        table.add_row(
            str(number),
            item.role,
            f"{item.tokens:,}",
            name_item(item),
            Text(_first_words(item), style="dim" if item.edits else ""),
        )
    make_console(err=False).print(table)
    write_line(
        f"{status.messages:,} messages, {status.messages_in_view:,} in view; {status.tokens:,} of {status.hard:,} "
        f"tokens ({status.share * 100:.0f} %), counted by {status.counter}"
        f"; {status.stopped or status.ahead.tell()}"
    )


def name_item(item: Item) -> str:
    """Return the handle of what an item shows."""
    if item.is_fold:
        fold = item.edits[0].fold
        return mark(fold.handle) if fold else "·"
    return mark(message_handle(item.message))


def _first_words(item: Item) -> str:
    texts = (f"{part.name}({part.text[:200]})" if part.kind == "call" else part.text[:400] for part in item.parts)
    return clean_line(" ".join(texts), 200)


def _show_originals(manager: ContextCompressionManager, session: str, *, as_json: bool) -> None:
    stored = manager.ledger.read_messages(session)
    if as_json:
        write_json([_tell_original(one) for one in stored])
        return
    table = make_table("#", "role", "tokens", "handle", "came", "says", numbers=("#", "tokens"), wide=("says",))
    for number, one in enumerate(stored):
        words = "forgotten" if one.is_forgotten else clean_line(_find_words(load_json(one.raw)), 200)
        table.add_row(
            str(number),
            one.role,
            f"{one.tokens:,}",
            f"⟨m:{one.digest[:8]}⟩",
            tell_time(one.created_at)[5:],
            Text(words),
            style="dim" if one.is_compressed else "",
        )
    make_console(err=False).print(table)
    folded = sum(one.is_compressed for one in stored)
    write_line(f"{len(stored):,} messages; {folded:,} stand behind a fold (dim)")


def _find_words(raw: object) -> str:
    """Return what a stored message says; the message itself where it has no plain text, such as a call."""
    content = raw.get("content") if isinstance(raw, dict) else None
    if isinstance(content, str) and content.strip():
        return content[:400]
    if isinstance(content, list):
        texts = [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
        if any(text.strip() for text in texts):
            return " ".join(texts)[:400]
    return json.dumps(raw, ensure_ascii=False)[:400]


def _tell_original(one: StoredMessage) -> dict[str, object]:
    return {
        "id": one.id,
        "role": one.role,
        "handle": f"m:{one.digest[:8]}",
        "tokens": one.tokens,
        "created_at": one.created_at,
        "compressed": one.is_compressed,
        "message": None if one.is_forgotten else load_json(one.raw),
    }


def _show_edits(manager: ContextCompressionManager, session: str, *, as_json: bool) -> None:
    stored = manager.ledger.read_edits(session, active_only=False)
    if as_json:
        write_json(
            [
                {**describe(one.edit), "batch": one.batch_id, "is_active": one.is_active, "created_at": one.created_at}
                for one in stored
            ]
        )
        return
    if not stored:
        write_line("no edits: the model sees every message as it came")
        return
    table = make_table("edit", "stage", "kind", "over", "tokens", "state", "why", numbers=("over",), wide=("why",))
    shown = {edit.id for item in manager.read_view(session) for edit in item.edits}
    for one in stored:
        edit = one.edit
        table.add_row(
            edit.id,
            edit.stage,
            edit.kind,
            f"{len(edit.covers):,}",
            f"{edit.tokens_original:,} → {edit.tokens_after:,}",
            _tell_state(one, shown),
            Text(clean_line(str(edit.reason), 100)),
            style="" if one.is_active and edit.id in shown else "dim",
        )
    make_console(err=False).print(table)


def _tell_state(one: StoredEdit, shown: set[str]) -> str:
    """Return whether the model sees an edit, or a later fold over it, or none because it was taken back."""
    if not one.is_active:
        return "undone"
    return "in force" if one.edit.id in shown else "covered"
