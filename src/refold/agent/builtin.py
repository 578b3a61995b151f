"""File tools and the shell tool: read, list, search and write files of a workspace, and run commands in it.

Writing and running need approval. Every output, scan and walk has a limit and reports when it is reached. The search
runs in its own process (``workspace``): a model's regular expression may run forever and could not be stopped here.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import sys
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import BinaryIO

from refold.agent.tools import Tool, make_tool
from refold.agent.workspace import PATTERN_CHARS_MAX, Workspace
from refold.config.load import copy_environment
from refold.errors import ConfigError

GROUPS = ("files", "shell")
READ_BYTES_MAX = 1_000_000
SCAN_BYTES_MAX = 2_000_000_000
WRITE_CHARS_MAX = 2_000_000
LISTED_MAX = 500
SEARCH_S = 30.0
_CHUNK = 1 << 20
_HEAD_BYTES = 8_000


class FileTools:
    """The file tools of one workspace. Every method returns text for a model."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def list_tools(self) -> list[Tool]:
        reading = [make_tool(one) for one in (self.read_file, self.list_files)]
        searching = make_tool(self.search_files, timeout_s=SEARCH_S + 10)
        return [*reading, searching, make_tool(self.write_file, asks=True)]

    def read_file(self, path: str, line: int = 1, lines: int = 2_000) -> str:
        """Read a text file of the workspace.

        Args:
            path: relative to the workspace
            line: the first line to show, from 1
            lines: how many lines
        """
        with os.fdopen(self.workspace.open_file(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if b"\x00" in file.read(_HEAD_BYTES):
                return f"{path} is not text; it has {size:,} bytes"
            file.seek(0)
            return _read_lines(file, path, max(1, line), max(1, lines))

    def list_files(self, path: str = ".", pattern: str = "*") -> str:
        """List the files of the workspace, those in folders included.

        Args:
            path: the folder to start in
            pattern: which names or paths, such as *.py or src/*.py
        """
        start = self.workspace.find(path)
        if not start.is_dir():
            raise ConfigError(f"{path[:200]} is not a folder")
        names: list[str] = []
        for one in self.workspace.walk(start):
            shown = self.workspace.show(one)
            if fnmatch(shown if "/" in pattern else one.name, pattern):
                names.append(shown)
            if len(names) > LISTED_MAX:
                return "\n".join([*names[:LISTED_MAX], f"[more than {LISTED_MAX}; name a folder or a pattern]"])
        return "\n".join(names) or "(nothing)"

    async def search_files(self, pattern: str, path: str = ".", files: str = "*") -> str:
        """Search the text of files for a regular expression; answers are path:line: text.

        Args:
            pattern: a regular expression, or plain words
            path: the folder or file to search
            files: which file names, such as *.py
        """
        if len(pattern) > PATTERN_CHARS_MAX:
            raise ConfigError(f"the pattern has more than {PATTERN_CHARS_MAX} characters")
        self.workspace.find(path)
        request = {"root": str(self.workspace.root), "path": path, "pattern": pattern, "files": files}
        found = await _search_apart(json.dumps(request).encode(), SEARCH_S)
        if found is None:
            return f"the search took longer than {SEARCH_S:g} s and was stopped; give a simpler pattern or one folder"
        return found or f"nothing matches {pattern[:100]!r}"

    def write_file(self, path: str, content: str) -> str:
        """Write a file of the workspace; the user is asked first.

        Args:
            path: relative to the workspace; its folder is made if need be
            content: the whole new content
        """
        if len(content) > WRITE_CHARS_MAX:
            raise ConfigError(f"{len(content):,} characters are too many; {WRITE_CHARS_MAX:,} are the limit")
        is_new = not self.workspace.find(path).exists()
        written = content.encode("utf-8", "replace")
        with os.fdopen(self.workspace.open_file(path, os.O_WRONLY | os.O_CREAT, makes_folders=True), "wb") as file:
            file.truncate(0)
            file.write(written)
        return f"{'made' if is_new else 'replaced'} {path}: {len(written):,} bytes"


def _read_lines(file: BinaryIO, path: str, first: int, lines: int) -> str:
    """Return lines of a file of any size, up to READ_BYTES_MAX, and how many follow."""
    if not _skip_lines(file, first - 1):
        return f"({path} has fewer than {first:,} lines)"
    shown: list[bytes] = []
    room = READ_BYTES_MAX
    while len(shown) < lines and room > 0 and (row := file.readline(room)):
        shown.append(row)
        room -= len(row)
    text = b"".join(shown).decode("utf-8", "replace")
    if shown and room <= 0 and not shown[-1].endswith(b"\n"):
        # The line continues; its rest cannot be addressed by a line number.
        at = first + len(shown) - 1
        return f"{text}\n[line {at:,} is cut: {READ_BYTES_MAX:,} bytes are shown at a time]"
    left = _count_lines(file)
    if left:
        return f"{text}\n[{left} more lines; continue with line={first + len(shown)}]"
    return text or f"({path} is empty)"


def _skip_lines(file: BinaryIO, count: int) -> bool:
    """Skip lines; return False if there are fewer or the scan limit is reached."""
    start = scanned = 0
    while count > 0:
        chunk = file.read(_CHUNK)
        scanned += len(chunk)
        if not chunk or scanned > SCAN_BYTES_MAX:
            return False
        here = chunk.count(b"\n")
        if here < count:
            count -= here
            start += len(chunk)
            continue
        at = -1
        for _ in range(count):
            at = chunk.index(b"\n", at + 1)
        file.seek(start + at + 1)
        return bool(file.peek(1)) if hasattr(file, "peek") else True
    return True


def _count_lines(file: BinaryIO) -> str:
    """Return how many lines follow as text; empty if none do."""
    count = scanned = 0
    last = b""
    while chunk := file.read(_CHUNK):
        count += chunk.count(b"\n")
        scanned += len(chunk)
        last = chunk[-1:]
        if scanned > SCAN_BYTES_MAX:
            return f"more than {count:,}"
    count += last not in (b"", b"\n")
    return f"{count:,}" if count else ""


async def _search_apart(request: bytes, seconds: float) -> str | None:
    """Run a search in its own process; return None if it timed out."""
    # -P: a workspace folder named like one of our modules must not be imported.
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "refold.agent.workspace",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate(request)
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        raise ConfigError(f"the search ended with status {process.returncode}; try a simpler pattern")
    return output.decode("utf-8", "replace").rstrip("\n")


HEAD_BYTES = 20_000
TAIL_BYTES = 60_000
TIMEOUT_S = 120.0
TIMEOUT_S_MAX = 900.0
_ROUNDS_MAX = 100
_DRAIN_S = 2.0
ALLOWED = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "VIRTUAL_ENV"),
        *("LANG", "LANGUAGE", "TZ", "LC_ALL"),
        # Not everything that begins with LC_: SSH passes such names on, so people hide tokens behind them.
        *("LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME"),
        *("SYSTEMROOT", "COMSPEC", "PATHEXT", "TEMP", "TMP"),
    )
)


class Kept:
    """The first and the last bytes of a stream, and how many there were."""

    def __init__(self, head_max: int = HEAD_BYTES, tail_max: int = TAIL_BYTES) -> None:
        self.head = bytearray()
        self.tail = bytearray()
        self.total = 0
        self._head_max, self._tail_max = head_max, tail_max

    def add(self, piece: bytes) -> None:
        """Add output; the middle is dropped once it is too long."""
        self.total += len(piece)
        room = self._head_max - len(self.head)
        self.head += piece[:room]
        self.tail += piece[room:] if room < len(piece) else b""
        if len(self.tail) > 2 * self._tail_max:
            del self.tail[: -self._tail_max]

    def read(self) -> str:
        """Return head and tail with a line that states the number of missing bytes."""
        tail = bytes(self.tail[-self._tail_max :])
        missing = self.total - len(self.head) - len(tail)
        head = bytes(self.head).decode("utf-8", "replace")
        if not missing:
            return (bytes(self.head) + tail).decode("utf-8", "replace")
        return f"{head}\n... [truncated {missing} bytes] ...\n{tail.decode('utf-8', 'replace')}"


def make_run_command(workspace: Workspace) -> Tool:

    async def run_command(command: str, timeout_s: float = TIMEOUT_S) -> str:
        """Run a shell command in the workspace; the user is asked first. The answer ends with the exit status.

        Args:
            command: what to run
            timeout_s: seconds after which it is stopped
        """
        limit = max(0.1, min(TIMEOUT_S_MAX, timeout_s))
        kept = Kept()
        process, output = await _start(command, str(workspace.root))
        reading = asyncio.ensure_future(output.drain(kept))
        ending = ""
        try:
            async with asyncio.timeout(limit):
                await process.wait()
            ending = f"[exit status {process.returncode}]"
        except TimeoutError:
            ending = f"[stopped after {limit:g} s]"
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            # A child that left the group may hold the pipe open; its further output is ignored.
            await asyncio.wait({reading}, timeout=_DRAIN_S)
            reading.cancel()
            await output.close()
            with contextlib.suppress(asyncio.CancelledError):
                await process.wait()
        said = kept.read().rstrip("\n")
        return f"{said}\n{ending}" if said else ending

    return make_tool(run_command, asks=True, timeout_s=TIMEOUT_S_MAX + 10 * _DRAIN_S)


@dataclass(frozen=True, slots=True)
class _Output:
    """The read end of a command's output pipe."""

    reader: asyncio.StreamReader
    transport: asyncio.ReadTransport
    file: io.FileIO

    async def drain(self, kept: Kept) -> None:
        while piece := await self.reader.read(65_536):
            kept.add(piece)

    async def close(self) -> None:
        """Close the pipe at once: the transport alone would close it in a later loop iteration, if any."""
        self.transport.close()
        for _ in range(_ROUNDS_MAX):
            if self.file.closed:
                return
            await asyncio.sleep(0)


async def _start(command: str, folder: str) -> tuple[asyncio.subprocess.Process, _Output]:
    """Start a command that prints to our own pipe.

    With asyncio's pipe, waiting for the command would also wait for every child that holds the pipe.
    """
    ours, theirs = os.pipe()
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    file = io.FileIO(ours, "rb")
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    own = copy_environment().items()
    try:
        process = await asyncio.create_subprocess_shell(
            command,
            cwd=folder,
            env={name: text for name, text in own if name in ALLOWED},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=theirs,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except BaseException:
        transport.close()
        raise
    finally:
        os.close(theirs)
    return process, _Output(reader, transport, file)


def make_builtin_tools(groups: list[str], folder: str | Path = ".") -> list[Tool]:
    """Return the tools of these groups; raise ConfigError for an unknown group."""
    workspace = Workspace(folder)
    tools: list[Tool] = []
    for group in dict.fromkeys(groups):
        if group == "files":
            tools += FileTools(workspace).list_tools()
        elif group == "shell":
            tools.append(make_run_command(workspace))
        else:
            raise ConfigError(f"unknown group of tools {group[:40]!r}; choose from {', '.join(GROUPS)}")
    return tools
