"""The workspace that built-in tools are confined to: no path, link or ``..`` leads out of it.

A path is resolved with every link in it, then compared; what is not inside is refused before it is opened. refold's own
folders are never shown or changed: a session must not rewrite its own record.
"""

from __future__ import annotations

from pathlib import Path

from refold.errors import ConfigError

OWN_FOLDERS = frozenset({".refold", ".compression"})


class OutsideWorkspace(ConfigError):
    """A path leads out of the workspace."""


class Workspace:
    """A folder, and the way from a name to a path in it."""

    def __init__(self, folder: str | Path) -> None:
        self.root = Path(folder).resolve()

    def find(self, name: str) -> Path:
        """Return the real path behind a name; OutsideWorkspace if it is not in here."""
        if "\x00" in name:
            raise OutsideWorkspace("a path cannot contain a zero character")
        try:
            path = (self.root / name).resolve()
        except (OSError, RuntimeError) as error:  # A link that leads to itself.
            raise OutsideWorkspace(f"{name[:200]!r} cannot be followed: {error}") from None
        if not path.is_relative_to(self.root):
            raise OutsideWorkspace(f"{name[:200]!r} is outside the workspace; only files in {self.root} can be used")
        inside = path.relative_to(self.root).parts
        if inside and inside[0] in OWN_FOLDERS:
            raise OutsideWorkspace(f"{name[:200]!r} belongs to refold itself and cannot be used by a tool")
        return path

    def show(self, path: Path) -> str:
        """Return a path as a tool names it: relative to the workspace."""
        return path.relative_to(self.root).as_posix() or "."

    def holds(self, path: Path) -> bool:
        """Tell whether a path found by walking is really in here, its links followed."""
        try:
            self.find(str(path))
        except OutsideWorkspace:
            return False
        return True
