"""``refold show``: a session as the model sees it, its originals, or its edits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from refold.cli.app import app, format_examples
from refold.cli.input import AsJson, SessionOption, Workspace, choose_session, open_workspace, show_empty
from refold.cli.output import clean_line, format_time, make_console, make_table, write_json, write_line
from refold.cli.words import count_things, find_language, say_reason, tr
from refold.errors import ConfigError

if TYPE_CHECKING:
    from refold.conversation.view import Item
    from refold.ledger.records import StoredEdit, StoredMessage
    from refold.manager import ContextCompressionManager


@app.command(epilog=format_examples("refold show", "refold show --session SESSION --edits"))
def show(
    session: SessionOption = None,
    view: Annotated[bool, typer.Option("--view", help="What the model sees (the default).")] = False,
    originals: Annotated[bool, typer.Option("--originals", help="Every message as it was received.")] = False,
    edits: Annotated[
        bool, typer.Option("--edits", help="Every edit: in force, covered by a later fold, or undone.")
    ] = False,
    workspace: Workspace = "",
    as_json: AsJson = False,
) -> None:
    """Show a session as the model sees it, its originals, or its edits."""
    if view + originals + edits > 1:
        raise ConfigError(tr("pass only one of --view, --originals and --edits"))
    with open_workspace(workspace) as manager:
        name = choose_session(manager.ledger, session)
        if name is None:
            show_empty(workspace, as_json=as_json)
        elif originals:
            _show_originals(manager, name, as_json=as_json)
        elif edits:
            _show_edits(manager, name, as_json=as_json)
        else:
            _show_view(manager, name, as_json=as_json)


def _show_view(manager: ContextCompressionManager, session: str, *, as_json: bool) -> None:
    from rich.text import Text

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
            _name_handle(item),
            Text(_read_words(item), style="dim" if item.edits else ""),
        )
    make_console(err=False).print(table)
    write_line(
        tr(
            "{messages:,} messages, {messages_in_view:,} in view; {tokens:,} of {hard:,} tokens ({share:.0f} %), "
            "counted by {counter}",
            messages=status.messages,
            messages_in_view=status.messages_in_view,
            tokens=status.tokens,
            hard=status.hard,
            share=status.share * 100,
            counter=status.counter,
        )
    )
    if status.compression_count or status.folded_away:
        done = count_things(status.compression_count, "compression")
        write_line(tr("{tokens:,} tokens folded away in {done}", tokens=status.folded_away, done=done))
    write_line(say_reason(status.stopped) if status.stopped else status.ahead.tell(find_language()))


def _name_handle(item: Item) -> str:
    from refold.conversation.message import mark, message_handle

    if item.is_fold:
        fold = item.edits[0].fold
        return mark(fold.handle) if fold else "·"
    return mark(message_handle(item.message))


def _read_words(item: Item) -> str:
    texts = (f"{part.name}({part.text[:200]})" if part.kind == "call" else part.text[:400] for part in item.parts)
    return clean_line(" ".join(texts), 200)


def _show_originals(manager: ContextCompressionManager, session: str, *, as_json: bool) -> None:
    from rich.text import Text

    from refold.ledger.codec import load_json

    stored = manager.ledger.read_messages(session)
    if as_json:
        write_json([_describe_original(one) for one in stored])
        return
    table = make_table("#", "role", "tokens", "handle", "came", "says", numbers=("#", "tokens"), wide=("says",))
    for number, one in enumerate(stored):
        words = tr("forgotten") if one.is_forgotten else clean_line(_find_words(load_json(one.raw)), 200)
        table.add_row(
            str(number),
            one.role,
            f"{one.tokens:,}",
            f"⟨m:{one.digest[:8]}⟩",
            format_time(one.created_at)[5:],
            Text(words),
            style="dim" if one.is_compressed else "",
        )
    make_console(err=False).print(table)
    folded = sum(one.is_compressed for one in stored)
    write_line(tr("{stored:,} messages; {folded:,} are folded (dim)", stored=len(stored), folded=folded))


def _find_words(raw: object) -> str:
    """Return the text of a stored message; its JSON if it has no text, such as a tool call."""
    content = raw.get("content") if isinstance(raw, dict) else None
    if isinstance(content, str) and content.strip():
        return content[:400]
    if isinstance(content, list):
        texts = [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
        if any(text.strip() for text in texts):
            return " ".join(texts)[:400]
    return json.dumps(raw, ensure_ascii=False)[:400]


def _describe_original(one: StoredMessage) -> dict[str, object]:
    from refold.ledger.codec import load_json

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
    from rich.text import Text

    from refold.conversation.reason import describe

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
        write_line(tr("no edits: the model sees every original"))
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
            _describe_state(one, shown),
            Text(clean_line(say_reason(edit.reason), 100)),
            style="" if one.is_active and edit.id in shown else "dim",
        )
    make_console(err=False).print(table)


def _describe_state(one: StoredEdit, shown: set[str]) -> str:
    """Return whether an edit is visible to the model, covered by a later fold, or undone."""
    if not one.is_active:
        return tr("undone")
    return tr("in force") if one.edit.id in shown else tr("covered")
