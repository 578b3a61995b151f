"""Shared input of the commands: conversations from files and pipes, workspaces and sessions.

Files are opened for reading only: JSON or JSONL, plain or gzip, any UTF encoding. Heavy modules are imported where they
are used, because every command imports this one.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from refold.cli.output import write_json, write_line
from refold.cli.words import clean_line, count_things, tr, use_language
from refold.errors import ConfigError, FormatError, LedgerError

if TYPE_CHECKING:
    from refold.ledger.sql.ledger import Ledger
    from refold.manager import ContextCompressionManager
    from refold.readers.file import FileReading
    from refold.readers.session import Session

STDIN = "-"
_INDENT = re.compile(r"\s*[\[{]\r?\n([ \t]+)")


def make_workspace(workspace: str) -> None:
    """Create the workspace folder, for commands that may start a new one; raise ConfigError if that fails."""
    try:
        Path(workspace).mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ConfigError("{workspace!r} is not a folder; --workspace names a folder", workspace=workspace) from None
    except OSError as error:
        raise ConfigError(
            "{workspace!r} cannot be created: {why}", workspace=workspace, why=error.strerror or error
        ) from None


def open_workspace(folder: str) -> ContextCompressionManager:
    """Return the manager of a folder, with the settings in force there. Nothing is created."""
    from refold.config import load_config
    from refold.manager import ContextCompressionManager

    path = Path(folder)
    if not path.is_dir():
        raise ConfigError("{folder!r} is not a folder; --workspace names the folder that holds .refold", folder=folder)
    config = load_config(path)
    use_language(config.language)
    return ContextCompressionManager(config, path)


def choose_session(ledger: Ledger, session: str | None, *, everywhere: bool = False) -> str | None:
    """Return the named session, else the one that changed last, whose id is then printed on standard error.

    Returns None with ``everywhere``, or if there is no session at all. Raises LedgerError for an unknown name.
    """
    if session is not None:
        from refold.config.layers import suggest

        if ledger.read_session(session) is None:
            near = suggest(session, (row.id for row in ledger.list_sessions(limit=1_000)))
            raise LedgerError(
                "there is no session {session!r}{near}; 'refold sessions' lists them",
                session=session[:80],
                near=tr(near),
            )
        return session
    newest = None if everywhere else find_newest(ledger)
    if newest is not None:
        sys.stderr.write(tr("session {name}", name=clean_line(newest, 200)) + "\n")
    return newest


def find_newest(ledger: Ledger) -> str | None:
    """Return the session that changed last, or None in an empty workspace."""
    rows = ledger.list_sessions(limit=1)
    return rows[0].id if rows else None


def need_session(ledger: Ledger, session: str | None, folder: str) -> str:
    """Return the chosen session; raise LedgerError if the workspace has none."""
    found = choose_session(ledger, session)
    if found is None:
        raise LedgerError(_explain_empty(folder))
    return found


def show_empty(folder: str, *, as_json: bool) -> None:
    """Print that the workspace has no session yet, and how to create one."""
    if as_json:
        write_json([])
    else:
        write_line(_explain_empty(folder))


def _explain_empty(folder: str) -> str:
    where = "" if folder == "." else tr(" in {folder!r}", folder=folder[:200])
    return tr(
        "no sessions yet{where}: 'refold chat' and 'refold serve' create them, 'refold import FILE' imports them; "
        "--workspace FOLDER names another workspace",
        where=where,
    )


def unite_sessions(files: Sequence[FileReading]) -> list[Session]:
    """Return the sessions that were read from files, each with an id of its own; raise FormatError if there is none."""
    from refold.replay.run import unique_ids

    sessions = unique_ids([session for file in files for session in file.sessions])
    if not sessions:
        count = count_things(len(files), "file")
        raise FormatError("there is no session in {read}; see 'refold replay --help' for what is read", read=count)
    return sessions


@dataclass(frozen=True, slots=True)
class Document:
    """Content of a file and its layout: rows (JSONL) or one value, and the indentation. ``broken`` are unread lines."""

    value: object
    place: str
    is_rows: bool = False
    indent: str | None = None
    broken: tuple[str, ...] = ()


def read_document(source: str) -> Document:
    """Read a file, or standard input for ``-``; raise FormatError with the place of the first error."""
    from refold.readers.file import BYTES_MAX, read_bytes, unpack

    if source != STDIN:
        place, content = source if len(source) <= 200 else f"{source[:199]}…", read_bytes(source)
    elif sys.stdin is None or sys.stdin.isatty():
        raise FormatError("standard input is a terminal; name a file, or pipe a conversation in")
    else:
        place = "standard input"
        content = unpack(sys.stdin.buffer.read(BYTES_MAX + 1), place)
    if not content.strip():
        raise FormatError("{place} is empty; give a list of messages or a request body as JSON", place=place)
    return parse_document(_decode(content, place), place)


def _decode(content: bytes, place: str) -> str:
    try:
        # Lone surrogates that were encoded anyway are kept.
        text = content.decode(json.detect_encoding(content), "surrogatepass")
    except UnicodeDecodeError as error:
        raise FormatError(
            "{place} is not text (byte {start}); give JSON in UTF-8", place=place, start=error.start
        ) from None
    if "\0" in text[:4096]:
        raise FormatError("{place} is a binary file; give JSON in UTF-8", place=place)
    return text.removeprefix("\ufeff")


def parse_document(text: str, place: str) -> Document:
    """Parse one JSON value, or JSONL rows; the first error is reported with its line and column."""
    from refold.readers.file import is_session_file, parse_lines

    try:
        found = _INDENT.match(text)
        return Document(json.loads(text), place, indent=found[1] if found else None)
    except ValueError as error:
        # Text after a complete first line may be the next row.
        values, faults = parse_lines(text) if getattr(error, "msg", "") == "Extra data" else ([], [])
        if not values or (faults and faults[0][0] < values[0][0]):
            raise FormatError(_describe_fault(place, error)) from None
        rows = [value for _, value in values]
        broken = tuple(_describe_fault(place, fault, line) for line, fault in faults)
        # A killed agent leaves half a line in its session file; in any other file that is an error.
        if broken and not is_session_file(rows):
            raise FormatError(broken[0]) from None
        return Document(rows, place, is_rows=True, broken=broken)
    except RecursionError:
        raise FormatError("{place}: nested too deeply to be a conversation", place=place) from None


def _describe_fault(place: str, error: Exception, line: int = 0) -> str:
    """Return the place and the reason of invalid JSON; ``line`` is the number of the row that was parsed alone."""
    at, column = line or getattr(error, "lineno", 1), getattr(error, "colno", 1)
    said = str(getattr(error, "msg", error))[:200]
    why = said[:1].lower() + said[1:]
    return tr("{place}:{line}:{column}: not JSON: {why}", place=place, line=at, column=column, why=why)
