"""A disk that fails on demand: the n-th write, flush, cut or delete raises, once or from then on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

NAME = "refold-faulty"


class Disk:
    """Counts what changes the disk, and fails when told to. ``fail_at`` 0 means never."""

    def __init__(self) -> None:
        self.calls = 0
        self.fail_at = 0
        self.is_dead_after = False
        self.error: type[apsw.Error] = apsw.IOError

    def plan(self, fail_at: int, *, is_dead_after: bool, error: type[apsw.Error] = apsw.IOError) -> None:
        self.calls, self.fail_at, self.is_dead_after, self.error = 0, fail_at, is_dead_after, error

    @property
    def was_reached(self) -> bool:
        return self.calls >= self.fail_at > 0

    def note(self) -> None:
        self.calls += 1
        if self.calls == self.fail_at or (self.is_dead_after and self.was_reached):
            raise self.error("the disk was told to fail")


class FaultyFile(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk = disk

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802  (SQLite's name)
        self._disk.note()
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.note()
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.note()
        super().xTruncate(newsize)


class FaultyVFS(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        super().__init__(NAME, "")
        self._disk = disk

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return FaultyFile(self._disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        self._disk.note()
        super().xDelete(filename, syncdir)


@contextmanager
def faulty_disk() -> Iterator[Disk]:
    """A disk behind the VFS with the name NAME."""
    disk = Disk()
    vfs = FaultyVFS(disk)
    try:
        yield disk
    finally:
        disk.plan(0, is_dead_after=False)
        vfs.unregister()
