"""Files on disk: atomic writes and a lock between processes, and a session's folder of offloaded tool results.

A write goes to a temporary file, then fsync, rename, fsync of the folder: a reader sees the old content or the new one,
even after a crash. The lock belongs to its process. An offloaded file is written before an edit names it, and removed
when no edit does. A path is used only if it names a plain file directly in the session's folder; links are never
followed. A file that cannot be removed is reported, not an error: the ledger has the text anyway.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from refold.conversation.message import Message
from refold.errors import LedgerError
from refold.stages.offload import OffloadFile, read_path

if sys.platform != "win32":
    import fcntl

_TEMPORARY = re.compile(r"\..+\.\d+-[0-9a-f]{8}\.tmp", re.ASCII | re.DOTALL)
FILE_MODE = 0o600
FOLDER_MODE = 0o700
LOCK_WAIT_S = 10.0
_LOCK_STEP_S = 0.01


def write_whole(path: Path, content: bytes, *, mode: int = FILE_MODE) -> None:
    """Replace the content of a file; if that fails, raise OSError and leave the file as it was."""
    temporary = path.with_name(f".{path.name[:80]}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
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


def make_folder(folder: Path) -> None:
    """Create a folder and its parents; an existing folder stays as it is."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        sync_folder(folder.parent)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; raise LedgerError if another process does not release it in time."""
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), FILE_MODE)
    try:
        _wait_for(handle, folder)
        yield
    finally:
        os.close(handle)


def _wait_for(handle: int, folder: Path) -> None:
    if sys.platform == "win32":
        return  # Without this lock, only one process per workspace is supported.
    until = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise LedgerError(
                    "{folder} is locked by another process for more than {wait_s:g} s",
                    folder=folder,
                    wait_s=LOCK_WAIT_S,
                ) from None
            time.sleep(_LOCK_STEP_S)
        else:
            return


BYTES_MAX = 256 * 1024 * 1024
RESTORED_MAX = 500
UNAVAILABLE = "[Content unavailable: {path}]"
_PLAIN = re.compile(r"[a-z0-9_][a-z0-9_-]{0,59}", re.ASCII)
_DIGESTED = re.compile(r".*-[0-9a-f]{32}", re.ASCII)
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)", re.ASCII)
_UNSAFE = re.compile(r"[^a-z0-9_]+", re.ASCII)
_FILE = re.compile(r"[0-9a-f]{16}(?:-\d{1,5})?\.txt", re.ASCII)


def name_folder(session_id: str) -> str:
    """Return a folder name for a session id that is valid on every system and unique to the session."""
    if _PLAIN.fullmatch(session_id) and not _DIGESTED.fullmatch(session_id) and not _RESERVED.fullmatch(session_id):
        return session_id
    # The digest distinguishes ids that differ only in case or in removed characters.
    digest = hashlib.blake2b(session_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    readable = _UNSAFE.sub("_", session_id[:200].lower()).strip("_")[:40]
    return f"{readable or '_'}-{digest}"


class OffloadFolder:
    """The files of one session: ``root`` (relative to the workspace) / name of the session / FILE."""

    def __init__(self, workspace: Path, session_id: str, root: str = "offloaded") -> None:
        self.relative = self.name(session_id, root)
        self._workspace = workspace
        self._folder = workspace / self.relative

    @staticmethod
    def name(session_id: str, root: str = "offloaded") -> str:
        """Return a session's folder, relative to the workspace."""
        return f"{root}/{name_folder(session_id)}"

    def write(self, files: Iterable[OffloadFile]) -> list[str]:
        """Write the files that do not exist yet, all or none; return the new paths."""
        new: list[str] = []
        try:
            for file in files:
                new += [file.path] if self._write_one(file) else []
        except OSError as error:
            self.remove(new)
            raise LedgerError(
                "offloaded text cannot be written to {relative}: {why}; nothing was changed",
                relative=self.relative,
                why=error.strerror or error,
            ) from error
        return new

    def read(self, path: str) -> str | None:
        """Return the text of a file of this session; None if it does not exist or the path is not one of ours."""
        place = self._place(path)
        if place is None or not self._is_safe():
            return None
        try:
            handle = os.open(place, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        except OSError:
            return None
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            return file.read(BYTES_MAX).decode("utf-8", "surrogatepass")

    def restore(self, messages: Iterable[Message]) -> dict[str, str]:
        """Return the content of offloaded results in messages that came back, by their placeholder text."""
        restored: dict[str, str] = {}
        for part in (part for message in messages for part in message.parts if part.kind == "result"):
            path = read_path(part.text)
            if not path.startswith(f"{self.relative}/") or part.text in restored:
                continue
            if len(restored) >= RESTORED_MAX:
                break
            content = self.read(path)
            restored[part.text] = UNAVAILABLE.format(path=path) if content is None else content
        return restored

    def remove(self, paths: Iterable[str]) -> tuple[list[str], list[str]]:
        """Remove files of this session; return the removed paths, and a warning for each that remains."""
        gone: list[str] = []
        warnings: list[str] = []
        for path in paths:
            place = self._place(path)
            if place is None or not self._is_safe():
                warnings.append(f"{path!r} is not a file of this session; it was left alone")
                continue
            try:
                place.unlink(missing_ok=True)
                gone.append(path)
            except OSError as error:
                warnings.append(f"{path} cannot be removed: {error.strerror or error}")
        if gone:
            sync_folder(self._folder)
        return gone, warnings

    def remove_all(self) -> list[str]:
        """Remove the session's folder with every file we wrote into it; return warnings."""
        if not self._is_safe() or not self._folder.is_dir():
            return []
        _, warnings = self.remove(self.list_files())
        self.remove_leftovers()
        with suppress(OSError):  # The folder stays if someone else's file is in it.
            self._folder.rmdir()
        return warnings

    def remove_leftovers(self) -> None:
        """Remove the temporary files of killed processes. The caller must be the only writer."""
        if self._is_safe():
            remove_leftovers(self._folder)

    def list_files(self) -> list[str]:
        """Return the paths of the session's files, relative to the workspace."""
        if not self._is_safe() or not self._folder.is_dir():
            return []
        names = sorted(entry.name for entry in self._folder.iterdir() if _FILE.fullmatch(entry.name))
        return [f"{self.relative}/{name}" for name in names]

    def _write_one(self, file: OffloadFile) -> bool:
        place = self._place(file.path)
        if place is None:
            raise LedgerError(
                "{path!r} is not in the session's folder {relative}; nothing was written",
                path=file.path,
                relative=self.relative,
            )
        make_folder(self._folder)
        if not self._is_safe():
            raise LedgerError(
                "{relative} is a link; offloaded text is only written to real folders", relative=self.relative
            )
        # The path is a hash of the content, so an existing complete file is right.
        if self.read(file.path) == file.text:
            return False
        write_whole(place, file.text.encode("utf-8", "surrogatepass"))
        return True

    def _place(self, path: str) -> Path | None:
        folder, _, name = path.rpartition("/")
        return self._folder / name if folder == self.relative and _FILE.fullmatch(name) else None

    def _is_safe(self) -> bool:
        """Return whether no part of the path from the workspace to the folder is a link."""
        place = self._workspace
        for name in self.relative.split("/"):
            place = place / name
            if place.is_symlink():
                return False
        return True
