"""Files that several processes share: atomic writes, and a lock on a folder.

A write goes to a temporary file in the same folder, then fsync, rename, fsync of the folder. A reader sees the old
content or the new one, even after a crash. A rename replaces a link, not its target. The lock belongs to its process,
so a crash leaves nothing locked.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from refold.errors import LedgerError

if sys.platform != "win32":
    import fcntl

_TEMPORARY = re.compile(r"\..+\.\d+-[0-9a-f]{8}\.tmp", re.ASCII | re.DOTALL)
FILE_MODE = 0o600
FOLDER_MODE = 0o700
LOCK_WAIT_S = 10.0
_LOCK_STEP_S = 0.01


def write_whole(path: Path, content: bytes, *, mode: int = FILE_MODE) -> None:
    """Replace the content of a file; if that fails, raise OSError and leave the file as it was."""
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
    """Remove the temporary files of killed processes. The caller must be the only writer in the folder."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        if _TEMPORARY.fullmatch(entry.name):
            with suppress(OSError):
                entry.unlink()


def sync_folder(folder: Path) -> None:
    """Make a rename or removal in a folder durable, where the system supports it."""
    with suppress(OSError):  # Some systems cannot sync a folder; the rename has happened anyway.
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_folder(folder: Path, *, mode: int = FOLDER_MODE) -> None:
    """Create a folder and its parents; an existing folder stays as it is."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=mode, exist_ok=True)
        sync_folder(folder.parent)


@contextmanager
def lock_folder(folder: Path, *, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
    """Hold the folder's lock; raise LedgerError if another process does not release it in time."""
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), FILE_MODE)
    try:
        _wait_for(handle, folder, wait_s)
        yield
    finally:
        os.close(handle)


def _wait_for(handle: int, folder: Path, wait_s: float) -> None:
    if sys.platform == "win32":
        return  # Without this lock, only one process per workspace is supported.
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise LedgerError(f"{folder} is locked by another process for more than {wait_s:g} s") from None
            time.sleep(_LOCK_STEP_S)
        else:
            return
