"""Reading recorded sessions from files, whatever wrote them: request logs, exports, Claude Code, Codex.

A file that cannot be read at all raises FormatError; a line that cannot be is counted and named, and the rest is read.
Unknown fields are left alone, missing ones have defaults. Nothing is written, and no file is followed elsewhere.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from refold.errors import FormatError, RefoldError
from refold.replay import claude_code, codex, request_log
from refold.replay.probes import find_probes
from refold.replay.rows import Broken, Row
from refold.replay.session import Session

BYTES_MAX = 1_000_000_000
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class FileReading:
    """What one file holds: its sessions, and the lines that could not be read, by number and reason."""

    path: str
    sessions: tuple[Session, ...] = ()
    broken: tuple[Broken, ...] = ()
    kind: str = ""
    bytes: int = field(default=0, compare=False)


def read_file(path: str, *, with_probes: bool = True) -> FileReading:
    """Read every session of a file; raise FormatError if there is none in it."""
    content = _read_bytes(path)
    rows, broken = _read_rows(content)
    kind, sessions, faults = _read_sessions(rows, Path(path).name)
    broken += faults
    if not sessions:
        first = f"; line {broken[0].line}: {broken[0].why}" if broken else ""
        raise FormatError(f"{path} holds no session: {len(rows)} rows were read, {len(broken)} are broken{first}")
    ready = [replace(one, probes=find_probes(one)) if with_probes and not one.probes else one for one in sessions]
    # Replay speed is told in bytes: a session gets its share of the file.
    share = len(content) // len(ready)
    placed = tuple(replace(one, source=path, bytes=share) for one in ready)
    return FileReading(path, placed, tuple(broken), kind, len(content))


def _read_bytes(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(BYTES_MAX + 1)
        if content.startswith(_GZIP):
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
                content = packed.read(BYTES_MAX + 1)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise FormatError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > BYTES_MAX:
        raise FormatError(f"{path} is larger than {BYTES_MAX:,} bytes; split it")
    return content


def _read_rows(content: bytes) -> tuple[list[Row], list[Broken]]:
    """Read JSONL, or one JSON document as one row."""
    text = content.decode("utf-8", "replace").removeprefix("\ufeff")
    whole = _parse_whole(text)
    if whole is not None:
        return [Row(1, value) for value in whole], []
    rows: list[Row] = []
    broken: list[Broken] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            broken.append(Broken(number, f"no JSON: {error}"[:200]))
            continue
        if isinstance(value, dict):
            rows.append(Row(number, value))
        else:
            broken.append(Broken(number, f"a row must be an object, not {type(value).__name__}"))
    return rows, broken


def _parse_whole(text: str) -> list[dict[str, object]] | None:
    """Return the rows of a file that is one JSON document; None if it is JSONL."""
    if "\n" in text.strip() and _is_json(text.strip().partition("\n")[0]):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        return [value]
    if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        # A bare list of messages is one conversation; a list of bodies is a log.
        is_log = any("messages" in one or "request" in one or "body" in one for one in value)
        return value if is_log else [{"messages": value}]
    return None


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _read_sessions(rows: Sequence[Row], name: str) -> tuple[str, list[Session], list[Broken]]:
    """Let the first reader that knows these rows read them."""
    for reader in (claude_code, codex, request_log):
        if any(reader.knows(row.value) for row in rows):
            sessions, broken = reader.read_rows(rows, name)
            return reader.KIND, sessions, broken
    return "unknown", [], [Broken(row.line, "neither a message, a request nor a known session file") for row in rows]


def read_files(paths: Iterable[str], *, with_probes: bool = True) -> Iterator[FileReading]:
    """Read files one after the other; one that cannot be read comes back without sessions and with the reason."""
    for path in paths:
        try:
            yield read_file(path, with_probes=with_probes)
        except RefoldError as error:
            yield FileReading(path, (), (Broken(0, str(error)),), "unreadable")
