"""File search as a separate process: a JSON request on standard input, matching lines on standard output.

A model's regular expression may run for ever and blocks its whole process, so it gets one that can be killed. Only
the standard library and the workspace are imported, for a quick start.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatch

from refold.agent.builtin.workspace import Workspace
from refold.errors import ConfigError

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
    """Search for what the standard input says."""
    wish = json.loads(sys.stdin.buffer.read())
    for line in search(Workspace(wish["root"]), wish["path"], wish["pattern"], wish["files"]):
        sys.stdout.buffer.write(line.encode("utf-8", "replace") + b"\n")


if __name__ == "__main__":
    main()
