"""``refold export`` and ``refold import``: a session as one JSON value, from one workspace to another."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from refold.cli.reading import OutputError, read_document, write_json
from refold.cli.render import count_things
from refold.cli.workspace import need_session, open_workspace, write_line
from refold.ledger.encode import dump_json
from refold.manager.transfer import export_session, import_session
from refold.offload.writing import write_whole


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


def run_import(workspace: str, file: str, name: str | None, *, as_json: bool) -> None:
    """Put an exported session into the ledger of a workspace, and write the files that its view names."""
    document = read_document(file)
    value = document.value[0] if document.is_rows and isinstance(document.value, list) else document.value
    with open_workspace(workspace) as manager:
        root = manager.config.offload.folder
        session = import_session(manager.ledger, value, now=time.time(), session_id=name, root=root)
        manager.verify(session, repair=True)
        status = manager.status(session)
    if as_json:
        write_json({"session": session, **status.to_dict()})
    else:
        write_line(
            f"imported {session!r}: {count_things(status.messages, 'message')}, {status.messages_in_view:,} in view"
        )
