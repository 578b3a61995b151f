"""Files of recorded sessions: find them, split them into rows, and choose the reader that knows their format.

A file that cannot be read at all raises FormatError. A line that cannot be read is counted and named, and the rest is
read. Unknown fields are left alone, missing ones have defaults. Nothing is written, and no file refers to another.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from refold.errors import FormatError, RefoldError
from refold.formats import Conversation, read_conversation
from refold.formats.detect import make_format
from refold.readers import aider, claude_code, codex, opencode, pi, qwen, request_log, sharegpt, traces
from refold.readers.session import Broken, FileRow, Session

BYTES_MAX = 1_000_000_000
FILES_MAX = 100_000
_GZIP = b"\x1f\x8b"
_SQLITE = b"SQLite format 3\0"
_NAMES = re.compile(r"\.jsonl?(\.gz)?$")
# Rows of Qwen Code have the types of Claude Code's.
_READERS = (qwen, claude_code, codex, pi, sharegpt, traces, request_log)
KNOWN = (
    "messages or request bodies of OpenAI and Anthropic, histories of Claude Code, Codex, opencode, Qwen Code, pi and "
    "aider, ShareGPT, and exports of LangSmith and Langfuse"
)


class NoConversation(FormatError):
    """The file is valid JSON, but contains no message, request or known session."""


@dataclass(frozen=True, slots=True)
class FileReading:
    """The content of one file: its sessions, and the lines that could not be read, by number and reason."""

    path: str
    sessions: tuple[Session, ...] = ()
    broken: tuple[Broken, ...] = ()
    kind: str = ""


def list_files(paths: Sequence[str]) -> list[str]:
    """Return the files to read: a folder means every .json and .jsonl file in it and below, sorted by name."""
    files: list[str] = []
    for path in paths:
        if not Path(path).is_dir():
            files.append(path)
            continue
        inside = islice((one for one in Path(path).rglob("*") if _NAMES.search(one.name)), FILES_MAX)
        found = sorted(str(one) for one in inside if one.is_file())
        if not found:
            raise FormatError(
                "{path} is a folder without any .json or .jsonl file; name another one, or a file", path=path
            )
        files += found
    return files


def read_file(path: str) -> FileReading:
    """Read every session of a file; raise FormatError if it holds none."""
    content = read_bytes(path)
    if content.startswith(_SQLITE):
        names = [name for name, _ in opencode.list_sessions(Path(path))]
        return _place(path, [opencode.read_session(Path(path), name) for name in names], len(content), opencode.KIND)
    if Path(path).name == aider.NAME:
        return _place(path, aider.read_text(content.decode("utf-8", "replace"), path), len(content), aider.KIND)
    rows, broken = _read_rows(content)
    reading = _read_sessions(rows, Path(path).name)
    broken += reading.broken
    if rows and reading.kind == "unknown" and len(broken) == len(rows):
        raise NoConversation("{path} holds no conversation; refold reads {known}", path=path, known=KNOWN)
    if not reading.sessions:
        first = f"; line {broken[0].line}: {broken[0].why}" if broken else ""
        raise FormatError("{path} holds no session{first}", path=path, first=first)
    return replace(_place(path, reading.sessions, len(content), reading.kind), broken=tuple(broken))


def _place(path: str, found: Sequence[Session], size: int, kind: str) -> FileReading:
    sessions = [session for session in found if session.messages]
    if not sessions:
        raise FormatError("{path} holds no session{first}", path=path, first="")
    # Replay speed is given in bytes: a session gets its share of the file.
    share = size // len(sessions)
    return FileReading(path, tuple(replace(session, source=path, bytes=share) for session in sessions), (), kind)


def read_files(paths: Iterable[str]) -> Iterator[FileReading]:
    """Read files one after the other; one that cannot be read comes back without sessions and with the reason."""
    for path in paths:
        try:
            yield read_file(path)
        except RefoldError as error:
            why = str(error) if "path" in error.values else f"{path}: {error}"
            yield FileReading(path, (), (Broken(0, why),), "unreadable")


def is_session_file(rows: Sequence[object]) -> bool:
    """Return whether rows come from the session file of an agent, which may end in the middle of a line."""
    agents = (qwen, claude_code, codex, pi)
    return any(reader.knows(row) for row in rows if isinstance(row, dict) for reader in agents)


def read_value(value: object, place: str) -> FileReading:
    """Read the sessions of parsed JSON; raise FormatError if no reader knows it. ``place`` is named in errors."""
    rows = _split_value(value)
    reading = _read_sessions([FileRow(at, row) for at, row in enumerate(rows, 1)], Path(place).name)
    if not reading.sessions:
        raise FormatError(
            "{place} holds no conversation: {fault}; refold reads {known}",
            place=place,
            fault=_find_fault(value, reading),
            known=KNOWN,
        )
    return replace(reading, path=place)


def _find_fault(value: object, reading: FileReading) -> str:
    """Return why a value holds no session, as precisely as possible."""
    if reading.kind not in ("unknown", request_log.KIND):
        return reading.broken[0].why if reading.broken else "it has no messages"
    try:
        request_log.check_known(read_conversation(value))
    except RefoldError as error:
        return str(error)
    return "it has no messages"


def find_conversations(value: object, place: str, form: str | None = None) -> list[tuple[str, Conversation]]:
    """Return the conversations of parsed JSON by name; raise FormatError if no reader knows it.

    A list of messages or a request body keeps its wrapping. If ``form`` names a format, the value is read as that.
    """
    if form is not None or not isinstance(value, list | dict) or not value:
        return [(place, read_conversation(value, form))]
    rows = _split_value(value)
    known = [reader for reader in _READERS[:-1] if any(reader.knows(row) for row in rows)]
    if not known and len(rows) == 1 and request_log.is_plain(rows[0]):
        conversation = read_conversation(value)
        request_log.check_known(conversation)
        return [(place, conversation)]
    return [(session.id, _wrap_session(session)) for session in read_value(value, place).sessions]


def _wrap_session(session: Session) -> Conversation:
    """Return a session as a conversation: a bare list, or a request body if a system prompt or tools belong to it."""
    form = make_format(session.format)
    conversation = Conversation(form, list(session.messages), session.system, session.tools, session.model)
    if session.system is None and session.tools is None:
        return conversation
    is_responses = form.name == "openai-responses"
    beside = {"instructions" if is_responses else "system": session.system, "tools": session.tools}
    body = {key: value for key, value in beside.items() if value is not None}
    return replace(conversation, body={**body, "input" if is_responses else "messages": conversation.messages})


def read_bytes(path: str) -> bytes:
    """Return the content of a file, unpacked if it is gzip; raise FormatError if it cannot be read."""
    shown = path if len(path) <= 200 else f"{path[:199]}…"
    try:
        with Path(path).open("rb") as file:
            return unpack(file.read(BYTES_MAX + 1), shown)
    except IsADirectoryError:
        raise FormatError("{path} is a folder; name a file in it", path=shown) from None
    except FileNotFoundError:
        raise FormatError("{path} does not exist; check the name", path=shown) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise FormatError("{path} cannot be read: {why}", path=shown, why=why) from None


def unpack(content: bytes, path: str) -> bytes:
    """Return content, unpacked if it is gzip; raise FormatError if it is damaged or too large."""
    if content.startswith(_GZIP):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
                content = file.read(BYTES_MAX + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise FormatError("{path} is a damaged gzip file: {error}", path=path, error=error) from None
    if len(content) > BYTES_MAX:
        raise FormatError("{path} is larger than {most:,} bytes; split it", path=path, most=BYTES_MAX)
    return content


def parse_lines(text: str) -> tuple[list[tuple[int, object]], list[tuple[int, Exception]]]:
    """Return the values of JSONL and the errors of lines that are not JSON, each with its line number."""
    values: list[tuple[int, object]] = []
    faults: list[tuple[int, Exception]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                values.append((number, json.loads(line)))
            except (ValueError, RecursionError) as error:
                faults.append((number, error))
    return values, faults


def _read_rows(content: bytes) -> tuple[list[FileRow], list[Broken]]:
    """Read one JSON document as its rows, or JSONL."""
    text = content.decode("utf-8", "replace").removeprefix("\ufeff")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        values, faults = parse_lines(text)
    else:
        if rows := _split_value(value):
            return [FileRow(1, row) for row in rows], []
        values, faults = [(1, value)], []
    broken = [Broken(line, f"not JSON: {error}"[:200]) for line, error in faults]
    for line, value in values:
        if not isinstance(value, dict):
            broken.append(Broken(line, f"a row must be an object, not {type(value).__name__}"))
    broken.sort(key=lambda one: one.line)
    return [FileRow(line, value) for line, value in values if isinstance(value, dict)], broken


def _split_value(value: object) -> list[dict[str, object]]:
    """Return the rows of one JSON value: an object is a row, a list of messages one conversation, else a row each."""
    if isinstance(value, dict):
        # APIs return a page of rows under one of these keys.
        inside = next((value[key] for key in ("data", "runs") if isinstance(value.get(key), list)), None)
        return [value] if inside is None or request_log.knows(value) else _split_value(inside)
    if not isinstance(value, list) or not value or not all(isinstance(one, dict) for one in value):
        return []
    is_conversation = all("role" in one or request_log.is_item(one) for one in value)
    return [{"messages": value}] if is_conversation else list(value)


def _read_sessions(rows: Sequence[FileRow], name: str) -> FileReading:
    """Let the first reader that knows these rows read them."""
    for reader in _READERS:
        if any(reader.knows(row.value) for row in rows):
            sessions, broken = reader.read_rows(rows, name)
            return FileReading(name, tuple(sessions), tuple(broken), reader.KIND)
    broken = [Broken(row.line, "neither a message, a request nor a known session file") for row in rows]
    return FileReading(name, (), tuple(broken), "unknown")
