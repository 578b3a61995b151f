"""Finds the histories that agents keep on this machine.

Only folders that the clients themselves use are searched, never a whole disk. Links are not followed out of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from refold.errors import RefoldError
from refold.readers import aider, claude_code, codex, opencode, pi, qwen
from refold.readers.file import read_file
from refold.readers.session import Session

FILES_MAX = 100_000
# aider writes its history into the project; projects are looked for this deep below the home folder.
AIDER_DEPTH, AIDER_FOLDERS_MAX = 4, 20_000
_SKIPPED = frozenset(("node_modules", "Library", "AppData", "snap", "venv", "site-packages"))


@dataclass(frozen=True, slots=True)
class History:
    """A file with sessions, or one session of a database. ``stamp`` changes whenever its content does."""

    client: str
    path: Path
    changed: float
    size: int
    session: str = ""

    @property
    def stamp(self) -> str:
        return f"{self.changed:.3f}/{self.size}"

    @property
    def key(self) -> str:
        return f"{self.path}#{self.session}" if self.session else str(self.path)

    def read(self) -> list[Session]:
        """Read its sessions; a file that holds none gives none."""
        try:
            if self.session:
                return [opencode.read_session(self.path, self.session)]
            return list(read_file(str(self.path)).sessions)
        except (RefoldError, OSError):
            return []


def find_histories(environ: Mapping[str, str], since: float = 0.0) -> list[History]:
    """Return the histories that changed after ``since``, the newest first."""
    home = Path(environ.get("HOME") or environ.get("USERPROFILE") or Path.home())
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    roots = (
        (claude_code.KIND, _find_folder(environ, "CLAUDE_CONFIG_DIR", home / ".claude") / "projects", "*/**/*.jsonl"),
        (codex.KIND, _find_folder(environ, "CODEX_HOME", home / ".codex") / "sessions", "**/*.jsonl"),
        (qwen.KIND, home / ".qwen" / "projects", "*/chats/*.jsonl"),
        (pi.KIND, home / ".pi" / "agent" / "sessions", "*/*.jsonl"),
    )
    found = [
        history
        for client, folder, pattern in roots
        for path in islice(_list_inside(folder, pattern), FILES_MAX)
        if (history := _look_at(client, path)) is not None
    ]
    found += _find_opencode(data / "opencode" / "opencode.db")
    found += [history for path in _walk_projects(home) if (history := _look_at(aider.KIND, path)) is not None]
    return sorted((history for history in found if history.changed >= since), key=lambda history: -history.changed)


def _find_folder(environ: Mapping[str, str], variable: str, default: Path) -> Path:
    return Path(environ[variable]) if environ.get(variable) else default


def _list_inside(folder: Path, pattern: str) -> Iterator[Path]:
    try:
        yield from folder.glob(pattern)
    except OSError:
        return


def _look_at(client: str, path: Path) -> History | None:
    try:
        seen = path.lstat()
    except OSError:
        return None
    return History(client, path, seen.st_mtime, seen.st_size) if path.is_file() and not path.is_symlink() else None


def _find_opencode(path: Path) -> list[History]:
    try:
        size = path.stat().st_size
        listed = opencode.list_sessions(path)
    except (OSError, RefoldError):
        return []
    # The whole file grows with every session: a session is stamped by its own time, and has its share of the size.
    share = size // max(1, len(listed))
    return [History(opencode.KIND, path, changed, share, name) for name, changed in listed]


def _walk_projects(home: Path) -> Iterator[Path]:
    folders, seen = [(home, 0)], 0
    while folders and seen < AIDER_FOLDERS_MAX:
        folder, depth = folders.pop()
        seen += 1
        try:
            if (folder / aider.NAME).is_file():
                yield folder / aider.NAME
            inside = [one for one in folder.iterdir() if one.is_dir() and not one.is_symlink()]
        except OSError:
            continue
        if depth < AIDER_DEPTH:
            folders += [(one, depth + 1) for one in inside if not one.name.startswith(".") and one.name not in _SKIPPED]
