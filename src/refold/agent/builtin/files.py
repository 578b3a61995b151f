"""File tools: read, list, search and write in one workspace. Only writing needs approval.

Every output, scan and walk has a limit and reports when it is reached. The search runs in its own process
(``search``), because a model's regular expression may run for ever and could not be stopped in this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from fnmatch import fnmatch
from typing import BinaryIO

from refold.agent.builtin.search import PATTERN_CHARS_MAX
from refold.agent.builtin.workspace import Workspace
from refold.agent.tools import Tool, make_tool
from refold.errors import ConfigError

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
        """Return the tools for an agent."""
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
        wish = {"root": str(self.workspace.root), "path": path, "pattern": pattern, "files": files}
        found = await _search_apart(json.dumps(wish).encode(), SEARCH_S)
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
        return f"{text}\n[{left} more lines; go on with line={first + len(shown)}]"
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


async def _search_apart(wish: bytes, seconds: float) -> str | None:
    """Run a search in its own process; return None if it timed out."""
    # -P: a workspace folder named like one of our modules must not be imported.
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "refold.agent.builtin.search",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate(wish)
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
