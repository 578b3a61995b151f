"""``refold export`` and ``refold import``: a session as one JSON value, from one workspace to another.

A conversation that refold has never seen, as clients send it, can be imported too: it becomes a session.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import typer

from refold.cli.reading import STDIN, Document, OutputError, read_document, write_json
from refold.cli.render import count_things
from refold.cli.workspace import need_session, open_workspace, write_line
from refold.errors import ConfigError, FormatError
from refold.formats import read_conversation
from refold.ledger.encode import dump_json
from refold.ledger.exporting import MARK
from refold.manager import ContextCompressionManager
from refold.manager.export import export_session, import_session
from refold.offload.writing import write_whole

_MODEL_CHARS_MAX = 200


def run_export(workspace: str, session: str | None, out: str | None) -> None:
    """Write a session to a file or to standard output."""
    with open_workspace(workspace) as manager:
        name = need_session(manager.ledger, session, workspace)
        content = dump_json(export_session(manager.ledger, name)) + b"\n"
    if out is None or out == "-":
        sys.stdout.buffer.write(content)
        return
    try:
        write_whole(Path(out), content)
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error.strerror or error}") from None
    typer.echo(f"wrote {out}", err=True)


def run_import(workspace: str, file: str, name: str | None, *, as_json: bool) -> None:
    """Put a session that was exported, or any conversation, into the ledger of a workspace."""
    document = read_document(file)
    with open_workspace(workspace) as manager:
        exported = _find_export(document)
        if exported is None:
            session = _store_conversation(manager, document, name or _name_after(file))
        else:
            root = manager.config.offload.folder
            session = import_session(manager.ledger, exported, now=time.time(), session_id=name, root=root)
            manager.verify(session, repair=True)  # Writes the files that the view names.
        status = manager.status(session)
    if as_json:
        write_json({"session": session, **status.to_dict()})
    else:
        write_line(
            f"imported {session!r}: {count_things(status.messages, 'message')}, {status.messages_in_view:,} in view"
        )


def _find_export(document: Document) -> object | None:
    """Return what export wrote; None if this is something else."""
    value = document.value[0] if document.is_rows and isinstance(document.value, list) else document.value
    return value if isinstance(value, dict) and MARK in value else None


def _store_conversation(manager: ContextCompressionManager, document: Document, name: str) -> str:
    """Store the messages of a conversation as a session of this name. System prompt and tools come with requests."""
    conversation = read_conversation(document.value)
    if not conversation.messages:
        raise FormatError(f"{document.place} has no messages; give what 'refold export' wrote, or a conversation")
    if manager.ledger.read_session(name) is not None:
        raise FormatError(f"there is a session {name[:80]!r} already; give another name with --as, or delete it first")
    manager.append(name, conversation.messages, format=conversation.format.name)
    if conversation.model:  # Else the session would be counted, and its window assumed, as for any model.
        manager.ledger.update_session(name, {"model": conversation.model[:_MODEL_CHARS_MAX]}, time.time())
    return name


def _name_after(file: str) -> str:
    if file == STDIN:
        raise ConfigError("a conversation from the standard input has no name; give one with --as")
    return Path(file).name.split(".")[0] or file
