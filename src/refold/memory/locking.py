"""A lock between processes on one folder: whoever rewrites a file in it holds the lock while reading and writing.

The wait has an end (L9). The lock goes with the process that held it, so a crash leaves nothing locked.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from refold.errors import LedgerError
from refold.offload.writing import FILE_MODE

if sys.platform != "win32":
    import fcntl

WAIT_S = 10.0
_STEP_S = 0.01


@contextmanager
def lock_folder(folder: Path, *, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold the folder's lock; raise LedgerError if another process does not let go of it in time."""
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), FILE_MODE)
    try:
        _wait_for(handle, folder, wait_s)
        yield
    finally:
        os.close(handle)


def _wait_for(handle: int, folder: Path, wait_s: float) -> None:
    if sys.platform == "win32":
        return  # Without this lock, one process per workspace is what is promised.
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise LedgerError(f"{folder} is locked by another process for more than {wait_s:g} s") from None
            time.sleep(_STEP_S)
        else:
            return
