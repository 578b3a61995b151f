"""The workspace that built-in tools are confined to: no path, link or ``..`` leads out of it. Also the file search.

Paths are resolved with all links and rejected if they are outside. Files are opened by walking from the root without
following links, so a link created in the meantime cannot escape either. refold's own folders are off limits: a session
must not rewrite its own ledger.

Run as a program, this module searches files: it reads a JSON request from standard input and writes matching lines. A
model's regular expression may run forever and blocks its whole process, so it gets one that can be killed. For a quick
start only the standard library and ``refold.errors`` are imported.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from refold.errors import ConfigError

OWN_FOLDERS = frozenset({".refold", ".compression"})
SKIPPED = OWN_FOLDERS | {".git", "node_modules", "__pycache__", ".venv"}
WALKED_MAX = 20_000
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # Opening a pipe would block until somebody writes to it.
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINK
_WALKS = os.open in os.supports_dir_fd and os.mkdir in os.supports_dir_fd


class OutsideWorkspace(ConfigError):
    """A path leads out of the workspace."""


class Workspace:
    """A folder and the safe access to files in it."""

    def __init__(self, folder: str | Path) -> None:
        self.root = Path(folder).resolve()

    def find(self, name: str) -> Path:
        """Return the resolved path; raise OutsideWorkspace if it is not inside."""
        if "\x00" in name:
            raise OutsideWorkspace("a path cannot contain a zero character")
        try:
            path = (self.root / name).resolve()
        except (OSError, RuntimeError) as error:  # A link that leads to itself.
            raise OutsideWorkspace(f"{name[:200]!r} cannot be followed: {error}") from None
        if not path.is_relative_to(self.root):
            raise OutsideWorkspace(f"{name[:200]!r} is outside the workspace; only files in {self.root} can be used")
        inside = path.relative_to(self.root).parts
        if inside and inside[0].casefold() in OWN_FOLDERS:
            raise OutsideWorkspace(f"{name[:200]!r} belongs to refold itself and cannot be used by a tool")
        return path

    def show(self, path: Path) -> str:
        """Return a path relative to the workspace."""
        return path.relative_to(self.root).as_posix() or "."

    def open_file(self, name: str, flags: int = os.O_RDONLY, *, makes_folders: bool = False) -> int:
        """Open a regular file and return its descriptor; raise ConfigError or OutsideWorkspace on failure."""
        path = self.find(name)
        if path.is_dir():
            raise ConfigError(f"{name[:200]} is a folder; list_files shows what is in it")
        try:
            file = self._open_inside(path, flags | _NO_LINK | _NO_WAIT, makes_folders=makes_folders)
        except FileNotFoundError:
            raise ConfigError(f"there is no file {name[:200]}") from None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
                raise OutsideWorkspace(f"{name[:200]!r} was changed while it was being opened; try again") from None
            raise ConfigError(f"{name[:200]} cannot be opened: {error.strerror or error}") from None
        # A pipe or a device would never end.
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise ConfigError(f"{name[:200]} is not a regular file")
        return file

    def _open_inside(self, path: Path, flags: int, *, makes_folders: bool) -> int:
        if not _WALKS:
            if makes_folders:
                path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, flags, 0o666)
        *folders, last = path.relative_to(self.root).parts
        here = os.open(self.root, _FOLDER)
        try:
            for folder in folders:
                if makes_folders:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(folder, dir_fd=here)
                deeper = os.open(folder, _FOLDER, dir_fd=here)
                os.close(here)
                here = deeper
            return os.open(last, flags, 0o666, dir_fd=here)
        finally:
            os.close(here)

    def walk(self, start: Path) -> Iterator[Path]:
        """Yield the files in a folder in order, without links that lead outside and without tool folders."""
        count = 0
        for folder, folders, files in os.walk(start, followlinks=False):
            folders[:] = sorted(name for name in folders if name.casefold() not in SKIPPED)
            for name in sorted(files):
                count += 1
                if count > WALKED_MAX:
                    return
                path = Path(folder) / name
                if not path.is_symlink() or self._holds(path):
                    yield path

    def _holds(self, path: Path) -> bool:
        """Check that a path found by walking is inside the workspace with its links resolved."""
        try:
            self.find(str(path))
        except OutsideWorkspace:
            return False
        return True


FOUND_MAX = 200
SEARCH_BYTES_MAX = 5_000_000
PATTERN_CHARS_MAX = 500
_LINE_CHARS_MAX = 10_000
_SHOWN_CHARS = 300
_HEAD_BYTES = 8_000


def search(workspace: Workspace, path: str, pattern: str, files: str) -> Iterator[str]:
    """Yield matching lines with path and number; the last line says if there are more."""
    matches = compile_pattern(pattern)
    start = workspace.find(path)
    count = 0
    for one in [start] if start.is_file() else workspace.walk(start):
        if not fnmatch(workspace.show(one) if "/" in files else one.name, files):
            continue
        for number, text in _search_file(workspace, str(one), matches):
            count += 1
            if count > FOUND_MAX:
                yield f"[more than {FOUND_MAX} lines; be more exact]"
                return
            yield f"{workspace.show(one)}:{number}: {text}"


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern; an invalid regular expression is searched for literally."""
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return re.compile(re.escape(pattern))


def _search_file(workspace: Workspace, name: str, matches: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    try:
        with os.fdopen(workspace.open_file(name), "rb") as file:
            content = file.read(SEARCH_BYTES_MAX)
    except (OSError, ConfigError):
        return
    if b"\x00" in content[:_HEAD_BYTES]:
        return
    for number, text in enumerate(content.decode("utf-8", "replace").split("\n"), 1):
        if matches.search(text[:_LINE_CHARS_MAX]):
            yield number, text[:_SHOWN_CHARS].rstrip("\r")


def main() -> None:
    """Answer the search request on standard input."""
    request = json.loads(sys.stdin.buffer.read())
    for line in search(Workspace(request["root"]), request["path"], request["pattern"], request["files"]):
        sys.stdout.buffer.write(line.encode("utf-8", "replace") + b"\n")


if __name__ == "__main__":
    main()
