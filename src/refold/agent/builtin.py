"""The built-in tools (``--tools files,shell``): read, list, search, write files, run commands; in one workspace.

Reading needs no permission; writing and running ask first. Every output and every walk has a limit that it names.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path

from refold.agent.shell import make_run_command
from refold.agent.tools import Tool, make_tool
from refold.agent.workspace import OWN_FOLDERS, Workspace
from refold.errors import ConfigError

GROUPS = ("files", "shell")
READ_BYTES_MAX = 2_000_000
WRITE_CHARS_MAX = 2_000_000
LISTED_MAX = 500
FOUND_MAX = 200
WALKED_MAX = 20_000
SEARCH_BYTES_MAX = 1_000_000
_LINE_CHARS = 300
_PATTERN_CHARS_MAX = 500
_SKIPPED = OWN_FOLDERS | {".git", "node_modules", "__pycache__", ".venv"}


def make_builtin_tools(groups: list[str], folder: str | Path = ".") -> list[Tool]:
    """Return the tools of these groups; an unknown group is a ConfigError."""
    workspace = Workspace(folder)
    tools: list[Tool] = []
    for group in groups:
        if group == "files":
            tools += make_file_tools(workspace)
        elif group == "shell":
            tools.append(make_run_command(workspace))
        else:
            raise ConfigError(f"there is no group of tools {group[:40]!r}; there are {', '.join(GROUPS)}")
    return tools


def make_file_tools(workspace: Workspace) -> list[Tool]:
    """Return the tools for files."""

    def read_file(path: str, line: int = 1, lines: int = 2_000) -> str:
        """Read a text file of the workspace.

        Args:
            path: relative to the workspace
            line: the first line to show, from 1
            lines: how many lines
        """
        found = _need_file(workspace, path)
        with found.open("rb") as file:
            content = file.read(READ_BYTES_MAX + 1)
        if b"\x00" in content[:8_000]:
            return f"{path} is not text; it has {found.stat().st_size:,} bytes"
        rows = content[:READ_BYTES_MAX].decode("utf-8", "replace").splitlines(keepends=True)
        first = max(1, line)
        shown = "".join(rows[first - 1 : first - 1 + max(1, lines)])
        size = found.stat().st_size
        cut = (
            f"\n[{path} has {size:,} bytes; the first {READ_BYTES_MAX:,} can be read]" if size > READ_BYTES_MAX else ""
        )
        left = len(rows) - (first - 1 + max(1, lines))
        more = f"\n[{left:,} more lines; go on with line={first + lines}]" if left > 0 else ""
        return (shown or f"({path} has {len(rows):,} lines)") + more + cut

    def list_files(path: str = ".", pattern: str = "*") -> str:
        """List files of the workspace, folders included.

        Args:
            path: the folder to start in
            pattern: which names, such as *.py
        """
        start = workspace.find(path)
        if not start.is_dir():
            raise ConfigError(f"{path} is not a folder")
        names: list[str] = []
        for one in _walk(workspace, start):
            if fnmatch(one.name, pattern):
                names.append(workspace.show(one))
            if len(names) > LISTED_MAX:
                return "\n".join([*names[:LISTED_MAX], f"[more than {LISTED_MAX}; name a folder or a pattern]"])
        return "\n".join(names) or "(nothing)"

    def search_files(pattern: str, path: str = ".", files: str = "*") -> str:
        """Search the text of files for a regular expression; answers are path:line: text.

        Args:
            pattern: a regular expression, or plain words
            path: the folder or file to search
            files: which file names, such as *.py
        """
        matches = _compile(pattern)
        start = workspace.find(path)
        found: list[str] = []
        for one in [start] if start.is_file() else _walk(workspace, start):
            if not fnmatch(one.name, files):
                continue
            for number, text in _search(one, matches):
                found.append(f"{workspace.show(one)}:{number}: {text}")
                if len(found) > FOUND_MAX:
                    return "\n".join([*found[:FOUND_MAX], f"[more than {FOUND_MAX} lines; be more exact]"])
        return "\n".join(found) or f"nothing matches {pattern[:100]!r}"

    def write_file(path: str, content: str) -> str:
        """Write a file of the workspace; the user is asked first.

        Args:
            path: relative to the workspace; its folder is made if need be
            content: the whole new content
        """
        if len(content) > WRITE_CHARS_MAX:
            raise ConfigError(f"{len(content):,} characters are too many; {WRITE_CHARS_MAX:,} are the limit")
        target = workspace.find(path)
        if target.is_dir():
            raise ConfigError(f"{path} is a folder")
        is_new = not target.exists()
        target.parent.mkdir(parents=True, exist_ok=True)
        written = content.encode("utf-8", "replace")
        target.write_bytes(written)
        return f"{'made' if is_new else 'replaced'} {path}: {len(written):,} bytes"

    reading: list[Callable[..., str]] = [read_file, list_files, search_files]
    return [*map(make_tool, reading), make_tool(write_file, asks=True)]


def _need_file(workspace: Workspace, name: str) -> Path:
    found = workspace.find(name)
    if found.is_dir():
        raise ConfigError(f"{name} is a folder; list_files shows what is in it")
    if not found.exists():
        raise ConfigError(f"there is no file {name}")
    # A pipe or a device would never end.
    if not stat.S_ISREG(found.stat().st_mode):
        raise ConfigError(f"{name} is not a regular file")
    return found


def _walk(workspace: Workspace, start: Path) -> Iterator[Path]:
    """Yield what is in a folder, in order, links that lead out and others' stores left out."""
    count = 0
    for folder, folders, files in os.walk(start, followlinks=False):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        for name in sorted(files):
            count += 1
            if count > WALKED_MAX:
                return
            path = Path(folder) / name
            if not path.is_symlink() or workspace.holds(path):
                yield path


def _compile(pattern: str) -> re.Pattern[str]:
    if len(pattern) > _PATTERN_CHARS_MAX:
        raise ConfigError(f"the pattern has more than {_PATTERN_CHARS_MAX} characters")
    try:
        return re.compile(pattern)
    except re.error:
        return re.compile(re.escape(pattern))


def _search(path: Path, matches: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return
        with path.open("rb") as file:
            content = file.read(SEARCH_BYTES_MAX)
    except OSError:
        return
    if b"\x00" in content[:8_000]:
        return
    for number, text in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        if matches.search(text[:10_000]):
            yield number, text[:_LINE_CHARS]
