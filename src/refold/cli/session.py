"""Commands on one session: ``show``, ``state``, ``undo`` and ``redo``, ``pin``, ``forget`` and ``delete``.

Only ``forget`` and ``delete`` erase anything, and both ask for confirmation.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from refold.cli.app import app, format_examples
from refold.cli.input import choose_session, need_session, open_workspace, read_document, show_empty
from refold.cli.options import AsJson, Format, SessionOption, SessionRequired, Workspace, Yes
from refold.cli.output import make_console, make_table, note, note_broken, say, write_json, write_line
from refold.cli.words import clean_line, count_things, find_language, format_time, say_reason, strip_controls, tr
from refold.errors import ConfigError

if TYPE_CHECKING:
    from refold.ledger.records import SessionRow, StoredMessage
    from refold.manager import ContextCompressionManager
    from refold.manager.undo import Switched
    from refold.reading.state import State

_PINNED_CHARS = 80


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
        raise ConfigError("pass only one of --view, --originals and --edits")
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


@app.command(epilog=format_examples("refold state", "refold state SESSION", "refold state session.jsonl --json"))
def state(
    named: Annotated[
        str | None, typer.Argument(metavar="SESSION|FILE", help="Session id, or a file; default: the newest session.")
    ] = None,
    session: SessionOption = None,
    format: Format = None,  # noqa: A002 - the word users know
    workspace: Workspace = "",
    as_json: AsJson = False,
) -> None:
    """Show where the work stands: task, files, checks, what is open."""
    from rich.text import Text

    from refold.reading.state_page import describe_state, write_state

    with open_workspace(workspace) as manager:
        if named is not None and session is None and manager.ledger.read_session(named) is None:
            found = _read_file_state(named, format, manager.config.observations)
        else:
            name = choose_session(manager.ledger, named or session)
            if name is None:
                show_empty(workspace, as_json=as_json)
                return
            found = manager.state(name)
    if as_json:
        write_json(describe_state(found))
        return
    console = make_console(err=False)
    for line in strip_controls(write_state(found, find_language())).split("\n"):
        is_entry = line.startswith((" ", "- "))
        console.print(Text(line, style="" if is_entry else "bold"), soft_wrap=True)


def _read_file_state(file: str, form: str | None, observations: str | None) -> State:
    from refold.cli.compact import take_one
    from refold.conversation.message import choose_observations
    from refold.formats import parse_messages
    from refold.readers.file import find_conversations
    from refold.reading.advance import advance, make_reader
    from refold.reading.state import State

    document = read_document(file)
    note_broken(document.broken)
    conversation = take_one(find_conversations(document.value, document.place, form), document.place)
    messages = parse_messages(conversation.format, conversation.messages)
    return advance(State(), messages, make_reader(choose_observations(observations)))


def _show_view(manager: ContextCompressionManager, session: str, *, as_json: bool) -> None:
    from rich.text import Text

    from refold.conversation.message import join_words, mark, message_handle

    items = manager.read_view(session)
    if as_json:
        write_json([item.raw for item in items])
        return
    status = manager.status(session)
    table = make_table("#", "role", "tokens", "handle", "says", numbers=("#", "tokens"), wide=("says",))
    for number, item in enumerate(items):
        fold = item.edits[0].fold if item.is_fold else None
        handle = mark(fold.handle if fold else message_handle(item.message))
        words = clean_line(join_words(item.parts), 200) or f"({', '.join(part.kind for part in item.parts)})"
        says = Text(words, style="dim" if item.edits else "")
        table.add_row(str(number), item.role, f"{item.tokens:,}", handle, says)
    make_console(err=False).print(table)
    say(
        "{messages}, {status.messages_in_view:,} in view; {status.tokens:,} of {status.hard:,} tokens "
        "({status.share:.0%}), counted by {status.counter}",
        messages=count_things(status.messages, "message"),
        status=status,
    )
    if status.folded_away and not status.compression_count:
        say("{tokens:,} tokens folded away by shortening outputs on arrival", tokens=status.folded_away)
    elif status.compression_count:
        done = count_things(status.compression_count, "compression")
        say("{tokens:,} tokens folded away in {done}", tokens=status.folded_away, done=done)
    write_line(say_reason(status.stopped) if status.stopped else status.ahead.tell(find_language()))


def _show_originals(manager: ContextCompressionManager, session: str, *, as_json: bool) -> None:
    from refold.conversation.message import mark

    row, stored = manager.ledger.read_session(session), manager.ledger.read_messages(session)
    if as_json:
        write_json([_describe_original(one) for one in stored])
        return
    table = make_table("#", "role", "tokens", "handle", "received", "says", numbers=("#", "tokens"), wide=("says",))
    for number, one in enumerate(stored):
        table.add_row(
            str(number),
            one.role,
            f"{one.tokens:,}",
            mark(_name_handle(one)),
            format_time(one.created_at)[5:],
            _read_words(one, row, 200),
            style="dim" if one.is_compressed else "",
        )
    make_console(err=False).print(table)
    folded = sum(one.is_compressed for one in stored)
    say("{stored:,} messages; {folded:,} are folded (dim)", stored=len(stored), folded=folded)


def _read_words(one: StoredMessage, row: SessionRow | None, chars_max: int) -> str:
    from refold.conversation.message import join_words
    from refold.manager.session import parse_stored

    assert row is not None, "its messages were just read"
    return tr("forgotten") if one.is_forgotten else clean_line(join_words(parse_stored(one, row).parts), chars_max)


def _describe_original(one: StoredMessage) -> dict[str, object]:
    from refold.ledger.codec import load_json

    return {
        "id": one.id,
        "role": one.role,
        "handle": _name_handle(one),
        "tokens": one.tokens,
        "created_at": one.created_at,
        "compressed": one.is_compressed,
        "message": None if one.is_forgotten else load_json(one.raw),
    }


def _show_edits(manager: ContextCompressionManager, session: str, *, as_json: bool) -> None:
    from refold.conversation.reason import describe

    stored = manager.ledger.read_edits(session, active_only=False)
    if as_json:
        listed = []
        for one in stored:
            beside = {"batch": one.batch_id, "is_active": one.is_active, "created_at": one.created_at}
            listed.append({**describe(one.edit), "tokens_before": one.edit.tokens_original, **beside})
        write_json(listed)
        return
    if not stored:
        say("no edits: the model sees every original")
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
            tr("undone") if not one.is_active else tr("in force") if edit.id in shown else tr("covered"),
            clean_line(say_reason(edit.reason), 100),
            style="" if one.is_active and edit.id in shown else "dim",
        )
    make_console(err=False).print(table)


@app.command()
def undo(
    edit: Annotated[
        str | None, typer.Argument(metavar="EDIT", help="Id or handle of an edit; default: the last compression.")
    ] = None,
    session: SessionOption = None,
    workspace: Workspace = "",
    as_json: AsJson = False,
) -> None:
    """Undo the last compression, or one edit.

    Edits that depend on it are undone too; 'refold redo' applies them again.
    """
    with open_workspace(workspace) as manager:
        done = manager.undo(need_session(manager.ledger, session, workspace), edit)
    _report_switched(done, "undone", as_json=as_json)


@app.command()
def redo(session: SessionOption = None, workspace: Workspace = "", as_json: AsJson = False) -> None:
    """Redo what was undone last."""
    with open_workspace(workspace) as manager:
        _report_switched(manager.redo(need_session(manager.ledger, session, workspace)), "redone", as_json=as_json)


@app.command(name="off")
def switch_off(session: SessionOption = None, workspace: Workspace = "", as_json: AsJson = False) -> None:
    """Switch automatic compression of a session off.

    It takes effect with the next request, also behind a running gateway. What was compressed stays so ('refold undo'
    brings it back), and a request that would not fit is compressed in any case.
    """
    _switch(session, workspace, on=False, as_json=as_json)


@app.command(name="on")
def switch_on(session: SessionOption = None, workspace: Workspace = "", as_json: AsJson = False) -> None:
    """Switch automatic compression of a session on again."""
    _switch(session, workspace, on=True, as_json=as_json)


def _switch(session: str | None, workspace: str, *, on: bool, as_json: bool) -> None:
    with open_workspace(workspace) as manager:
        name = need_session(manager.ledger, session, workspace)
        manager.switch(name, on=on)
    if as_json:
        write_json({"session": name, "auto_compress": on})
    elif on:
        note("automatic compression of {session} is on", session=name)
    else:
        note("automatic compression of {session} is off; switch it on with: refold on", session=name)


def _report_switched(switched: Switched, what: str, *, as_json: bool) -> None:
    if as_json:
        before, after = switched.tokens_before, switched.tokens_after
        write_json({what: list(switched.edits), "tokens_before": before, "tokens_after": after})
    else:
        write_line(describe_switched(switched, what))


def describe_switched(switched: Switched, what: str) -> str:
    """Return what an undo or redo did; ``what`` is ``undone`` or ``redone``."""
    return tr(
        "{what} {edits}: {before:,} → {after:,} tokens",
        what=tr(what),
        edits=count_things(len(switched.edits), "edit"),
        before=switched.tokens_before,
        after=switched.tokens_after,
    )


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
        raise ConfigError("--off needs the handle to unpin; 'refold pin' lists the pinned messages")
    with open_workspace(workspace) as manager:
        name = need_session(manager.ledger, session, workspace)
        if handle is not None:
            (manager.unpin if off else manager.pin)(name, handle)
        pinned = frozenset(manager.pinned(name))
        kept = [stored for stored in manager.ledger.read_messages(name) if stored.id in pinned]
        row = manager.ledger.read_session(name)
    if as_json:
        write_json({"session": name, "pinned": [_name_handle(stored) for stored in kept]})
        return
    write_line(tr("pinned: {kept}", kept=count_things(len(kept), "message")) if kept else tr("nothing is pinned"))
    for stored in kept:
        write_line(f"{mark(_name_handle(stored))} {stored.role}  {_read_words(stored, row, _PINNED_CHARS)}")


def _name_handle(stored: StoredMessage) -> str:
    return f"m:{stored.digest[:8]}"


@app.command()
def delete(session: SessionRequired, yes: Yes = False, workspace: Workspace = "", as_json: AsJson = False) -> None:
    """Delete a session permanently.

    Its offloaded files are deleted too; daily pages stay. This cannot be undone.
    """
    with open_workspace(workspace) as manager:
        choose_session(manager.ledger, session)  # Raises if there is no such session.
        status = manager.status(session)
        count = count_things(status.messages, "message")
        _confirm(
            tr("Delete session {session!r} with {count}? This cannot be undone.", session=session, count=count), yes=yes
        )
        manager.delete_session(session)
    if as_json:
        write_json({"deleted": session, "messages": status.messages})
    else:
        say("deleted {session!r} with {count}", session=session, count=count)


@app.command()
def forget(
    handle: Annotated[str, typer.Argument(metavar="HANDLE", help="Handle such as m:4f2a91c3 or f:09c1b2aa.")],
    session: SessionRequired,
    yes: Yes = False,
    workspace: Workspace = "",
    as_json: AsJson = False,
) -> None:
    """Erase an original permanently, such as a leaked key.

    It is erased from the ledger, from offloaded files and from daily pages. This cannot be undone.
    """
    with open_workspace(workspace) as manager:
        choose_session(manager.ledger, session)  # Raises if there is no such session.
        text = manager.expand(session, handle, 0, 200)
        _confirm(tr("Erase {text!r} permanently? This cannot be undone.", text=clean_line(text, 60)), yes=yes)
        forgotten = manager.forget(session, handle)
    if as_json:
        write_json(asdict(forgotten))
        return
    sections = count_things(forgotten.sections, "section")
    pages = tr(" and {sections} of daily pages", sections=sections) if forgotten.sections else ""
    say("forgot {messages}{pages}", messages=count_things(forgotten.messages, "message"), pages=pages)
    for warning in forgotten.warnings:
        say("warning: {warning}", warning=warning)


def _confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigError("not a terminal: pass --yes to confirm")
    typer.confirm(clean_line(question, 300), abort=True, err=True)
