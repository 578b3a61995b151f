"""``refold export``, ``import`` and ``verify``: a session as one JSON value, and checks of the ledger.

Import also reads the files of other programs, one or folders of them: every conversation becomes a session.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from refold.cli.app import app, format_examples
from refold.cli.input import (
    STDIN,
    Document,
    choose_session,
    make_workspace,
    need_session,
    open_workspace,
    read_document,
)
from refold.cli.options import AsJson, ResultFile, SessionFilter, SessionOption, Workspace
from refold.cli.output import note, note_broken, say, show_progress, write_json, write_line, write_result
from refold.cli.words import count_things, describe_error, tr
from refold.errors import ConfigError, FormatError, LedgerError

if TYPE_CHECKING:
    from refold.manager import ContextCompressionManager
    from refold.manager.status import SessionStatus
    from refold.readers.session import Session

    # Stores a conversation under a name, and returns the name.
    Store = Callable[[Session, str], str]


SESSIONS_SHOWN = 20
_MODEL_CHARS_MAX = 200
_NAME_CHARS_MAX = 256
_OTHERS_SHOWN = 5


@app.command(
    epilog=format_examples(
        "refold export --session SESSION --out session.json", "refold import session.json --workspace elsewhere"
    )
)
def export(
    session: SessionOption = None,
    out: ResultFile = None,
    workspace: Workspace = "",
) -> None:
    """Write a session with everything that belongs to it as JSON."""
    from refold.ledger.codec import dump_json
    from refold.offload import FILE_MODE

    with open_workspace(workspace) as manager:
        name = need_session(manager.ledger, session, workspace)
        content = dump_json(manager.export_session(name)) + b"\n"
    write_result(content, out, new_mode=FILE_MODE)  # As private as the ledger that it comes from.
    if out is not None and out != "-":
        note("wrote {out}", out=out)


@app.command("import")
def run_import(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="Exports, conversations, or folders of them; '-': standard input."),
    ],
    name: Annotated[
        str | None, typer.Option("--as", metavar="ID", help="Session id; default: its own id, or the file's name.")
    ] = None,
    workspace: Workspace = "",
    as_json: AsJson = False,
    replay: Annotated[
        bool, typer.Option("--replay", help="Play each request by request, with folds, timeline and bill.")
    ] = False,
) -> None:
    """Import conversations into this workspace, one session each.

    Reads what 'refold export' wrote, messages and request logs of OpenAI and Anthropic, histories of six agents,
    ShareGPT, and exports of LangSmith and Langfuse. A folder means every .json and .jsonl file below it.
    """
    from refold.readers.file import list_files

    paths = list_files(files)
    is_one = len(paths) == 1 and not Path(files[0]).is_dir()
    if name is not None and not is_one:
        raise ConfigError("--as names one session; remove it to import several")
    # Unreadable input is refused before a workspace is created.
    document = read_document(paths[0]) if is_one else None
    exported = _find_export(document) if document else None
    sessions = _read_sessions(document, name) if document and exported is None else ()
    make_workspace(workspace)
    with open_workspace(workspace) as manager:
        broken: list[str] = []
        others = 0
        store = partial(_play if replay else _store_new, manager)
        if exported is not None:
            found = [manager.import_session(exported, name)]
        elif len(sessions) == 1:
            found = [store(sessions[0], name or _name_session(sessions[0], paths[0]))]
        elif sessions:
            found, broken = _store_several(store, sessions, paths[0])
        else:
            found, broken, others = _store_files(manager, store, paths)
        statuses = {session: manager.status(session) for session in found}
    if as_json:
        rows = [{"session": session, **status.to_dict()} for session, status in statuses.items()]
        write_json(rows[0] if len(rows) == 1 else rows)
    else:
        _show_imported(statuses, len(paths) - others)
        if found and exported is None and not replay:
            note("stored as they are; --replay plays them request by request, with folds and a bill, as the page does")
    note_broken(broken, "not imported")
    if not found:
        raise FormatError("nothing was imported from {paths}", paths=count_things(len(paths), "file"))


def _show_imported(statuses: Mapping[str, SessionStatus], files: int) -> None:
    for session, status in list(statuses.items())[:SESSIONS_SHOWN]:
        count = count_things(status.messages, "message")
        say(
            "imported {session!r}: {count}, {shown:,} in view",
            session=session,
            count=count,
            shown=status.messages_in_view,
        )
    if len(statuses) > 1:
        messages = sum(status.messages for status in statuses.values())
        say(
            "{statuses} from {files}, {messages}; 'refold sessions' lists them",
            statuses=count_things(len(statuses), "session"),
            files=count_things(files, "file"),
            messages=count_things(messages, "message"),
        )


def _find_export(document: Document) -> object | None:
    """Return the content that ``refold export`` wrote; None if the document is something else."""
    from refold.ledger.export import MARK

    value = document.value[0] if document.is_rows and isinstance(document.value, list) else document.value
    return value if isinstance(value, dict) and MARK in value else None


def _read_sessions(document: Document, name: str | None) -> tuple[Session, ...]:
    """Return the conversations of one file; report the lines that could not be read."""
    from refold.readers.file import read_value

    reading = read_value(document.value, document.place)
    note_broken([*document.broken, *(f"{document.place}, row {one.line}: {one.why}" for one in reading.broken)])
    if len(reading.sessions) > 1 and name is not None:
        raise ConfigError(
            "--as names one session, and {place} holds {sessions}", place=document.place, sessions=len(reading.sessions)
        )
    return reading.sessions


def _play(manager: ContextCompressionManager, session: Session, name: str) -> str:
    from refold.manager.recorded import play_recorded

    play_recorded(manager, name, session)
    return name


def _store_new(manager: ContextCompressionManager, session: Session, name: str) -> str:
    """Store a conversation; if it is stored already, only what was added since."""
    from refold.manager.append import Request

    row = manager.ledger.read_session(name)
    if row is None or row.messages == 0:
        return _store_session(manager, session, name)
    if row.wire == session.format and _has_grown(manager, session, name):
        manager.store(Request(name, list(session.messages), format=session.format))
        return name
    raise FormatError(
        "session {name!r} already exists; give another name with --as, or delete it first", name=name[:80]
    )


def _has_grown(manager: ContextCompressionManager, session: Session, name: str) -> bool:
    """Return whether a conversation is the stored one, maybe with more at its end, as a session file that grows."""
    from refold.formats import digest_message
    from refold.ledger.codec import load_json

    stored = list(manager.ledger.read_path(name).digests)
    messages: list[Any] = list(session.messages)
    digests = [digest_message(message) for message in messages]
    if digests[: len(stored)] == stored:
        return True
    last = len(stored) - 1
    if digests[:last] != stored[:last] or len(digests) <= last:
        return False
    # Agents write one message in several lines: the last one may have had fewer blocks.
    before, now = load_json(manager.ledger.read_messages(name)[last].raw), messages[last]
    blocks = before.get("content")
    is_same_role = now.get("role") == before.get("role")
    return is_same_role and isinstance(blocks, list) and (now.get("content") or [])[: len(blocks)] == blocks


def _store_files(
    manager: ContextCompressionManager, store: Store, paths: Sequence[str]
) -> tuple[list[str], list[str], int]:
    """Store the sessions of many files; return their names, why some were not stored, and how many files hold none."""
    from refold.readers.file import NoConversation, read_file

    stored: list[str] = []
    broken: list[str] = []
    others: list[str] = []
    with show_progress(tr("importing")) as advance:
        for done, path in enumerate(paths):
            advance(done, len(paths))
            try:
                # An export is one JSON value, never rows.
                exported = None if ".jsonl" in Path(path).name else _find_export(read_document(path))
                if exported is not None:
                    stored.append(manager.import_session(exported, None))
                    continue
                reading = read_file(path)
            except NoConversation:
                others.append(path)
                continue
            except FormatError as error:
                broken.append(describe_error(error) if "path" in error.values else f"{path}: {describe_error(error)}")
                continue
            note_broken([f"{path}, line {one.line}: {one.why}" for one in reading.broken])
            added, faults = _store_several(store, reading.sessions, path, partial(advance, done, len(paths)))
            stored += added
            broken += faults
        advance(len(paths), len(paths))
    if others:
        names = ", ".join(Path(path).name for path in others[:_OTHERS_SHOWN]) + ("…" if others[_OTHERS_SHOWN:] else "")
        note("no conversation in {files}: {names}", files=count_things(len(others), "file"), names=names)
    return stored, broken, len(others)


def _store_several(
    store: Store, sessions: Sequence[Session], path: str, tell: Callable[[], None] = lambda: None
) -> tuple[list[str], list[str]]:
    """Store the sessions of one file; return the stored names, and why others were not stored."""
    stored: list[str] = []
    broken: list[str] = []
    for session in sessions:
        tell()
        try:
            stored.append(store(session, _name_session(session, path)))
        except FormatError as error:
            broken.append(f"{path}: {describe_error(error)}")
    return stored, broken


def _store_session(manager: ContextCompressionManager, session: Session, name: str) -> str:
    """Store a conversation with its title, model, system prompt and tools."""
    from refold.manager.status import describe_origin

    if not session.messages:
        raise FormatError(
            "{source} has no messages; give a conversation, or what 'refold export' wrote",
            source=session.source or name,
        )
    if session.model:  # Before the messages: they are counted by its tokenizer as they arrive.
        manager.ledger.open_session(name, time.time())
        manager.ledger.update_session(name, {"model": session.model[:_MODEL_CHARS_MAX]}, time.time())
    manager.append(name, list(session.messages), format=session.format)
    manager.ledger.update_session(name, {"settings": describe_origin(session)}, time.time())
    return name


def _name_session(session: Session, path: str) -> str:
    """Return the session's own id, or the name of its file if it has none."""
    place = "standard input" if path == STDIN else Path(path).name
    if not session.id.startswith(place):
        # A lone surrogate cannot be stored as a name.
        return session.id[:_NAME_CHARS_MAX].encode("utf-8", "replace").decode()
    if path == STDIN:
        raise ConfigError("a conversation from standard input has no name; give one with --as")
    rest = session.id.removeprefix(place).removeprefix(":")
    stem = Path(path).name.split(".")[0] or path
    return (stem if rest in ("", "1") else f"{stem}-{rest}")[:_NAME_CHARS_MAX]


@app.command()
def verify(
    session: SessionFilter = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Rebuild derived data; copy what a damaged file still holds to a new one.")
    ] = False,
    workspace: Workspace = "",
    as_json: AsJson = False,
) -> None:
    """Check every hash, flag, count and file of the ledger.

    Everything is recomputed. Differences are listed, and the exit code is 1 if any remains.
    """
    with open_workspace(workspace) as manager:
        if session is not None:
            choose_session(manager.ledger, session)  # Raises if there is no such session.
        try:
            findings = manager.verify(session, repair=repair)
        except LedgerError as error:
            from refold.ledger.sqlite_file import is_damaged  # Loads the database library, which help does not need.

            if not repair or not is_damaged(error):
                raise
            _salvage(manager, describe_error(error), as_json=as_json)
        if repair and any(one.what.startswith("database:") and not one.is_derived for one in findings):
            _salvage(manager, tr("the database is damaged"), as_json=as_json)
        left = manager.verify(session) if repair and findings else findings
        count = len(manager.ledger.list_sessions(limit=1_000_000)) if session is None else 1
    if as_json:
        write_json({"findings": [asdict(one) for one in findings], "left": [asdict(one) for one in left]})
    else:
        for finding in findings:
            kind = tr("derived") if finding.is_derived else tr("ORIGINAL")
            write_line(f"{finding.session_id or tr('ledger')}: {finding.what} [{kind}]")
        if not findings:
            say("{count} verified: no differences", count=count_things(count, "session"))
        elif repair:
            say(
                "{findings} repaired, {left:,} left",
                findings=count_things(len(findings) - len(left), "finding"),
                left=len(left),
            )
        else:
            say("{findings}; --repair rebuilds derived data", findings=count_things(len(findings), "finding"))
    if left:
        raise typer.Exit(1)


def _salvage(manager: ContextCompressionManager, why: str, *, as_json: bool) -> NoReturn:
    """Copy what can be read of a damaged ledger to a new file, say what is lost, and exit with 1."""
    made = manager.salvage()
    if as_json:
        lost = [asdict(one) for one in made.lost]
        write_json({"salvaged": str(made.path), "sessions": made.sessions, "messages": made.messages, "lost": lost})
        raise typer.Exit(1)
    write_line(why)
    for finding in made.lost:
        write_line(f"{finding.session_id or tr('ledger')}: {finding.what} [{tr('LOST')}]")
    if not made.lost:
        say("nothing is lost")
    sessions, messages = count_things(made.sessions, "session"), count_things(made.messages, "message")
    say("copied {sessions} with {messages} to {path}", sessions=sessions, messages=messages, path=made.path)
    say("the damaged file was not changed: stop refold, keep it elsewhere, and move the new file to its place")
    raise typer.Exit(1)
