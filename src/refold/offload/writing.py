"""Writing a file whole or not at all: a reader sees the old content or the new one, also after a crash.

A temporary file in the same folder, fsync, rename, fsync of the folder. Nothing here follows a link in the last part
of a path: a rename replaces the link, not what it points at.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

_TEMPORARY = re.compile(r"\..+\.\d+-[0-9a-f]{8}\.tmp", re.ASCII | re.DOTALL)
FILE_MODE = 0o600
FOLDER_MODE = 0o700


def write_whole(path: Path, content: bytes, *, mode: int = FILE_MODE) -> None:
    """Put ``content`` into a file; raise OSError and leave what was there if that fails."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def remove_leftovers(folder: Path) -> None:
    """Remove what a process that was killed left half written. For who has the folder to itself."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        if _TEMPORARY.fullmatch(entry.name):
            with suppress(OSError):
                entry.unlink()


def sync_folder(folder: Path) -> None:
    """Make a rename or removal in a folder durable, where the system can."""
    with suppress(OSError):  # Some file systems and systems cannot sync a folder; the rename stands all the same.
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_folder(folder: Path, *, mode: int = FOLDER_MODE) -> None:
    """Make a folder and those above it; one that is there is left as it is."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=mode, exist_ok=True)
        sync_folder(folder.parent)
