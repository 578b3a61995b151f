"""The folder ``.compression``: ``config.json`` and ``summaries.json``, for people and other programs.

Both are written after each compression and read back: a person's change of ``config.json`` takes effect from then on.
The ledger is authoritative, so a missing or broken file loses nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refold.errors import LedgerError
from refold.offload.disk import lock_folder, make_folder, remove_leftovers, write_whole

SUMMARIES_MAX = 1_000
BYTES_MAX = 32 * 1024 * 1024
# The names in the file, and ours.
SETTINGS = {
    "maxTurns": "max_turns",
    "keepRecent": "keep_recent",
    "maxToolOutput": "max_tool_output",
    "summaryMaxChars": "summary_max_chars",
    "autoCompress": "auto_compress",
    "importanceThreshold": "importance_threshold",
}
# Beside the settings: which of them were changed, and what we wrote last, so that we notice a change by hand.
_CHANGED = "changed"
_WRITTEN = "written"


@dataclass(frozen=True, slots=True)
class ContextSummary:
    """A summary with the turns it covers. ``timestamp`` is in milliseconds since 1970."""

    timestamp: int
    turn_range: tuple[int, int]
    content: str
    key_points: tuple[str, ...] = ()
    id: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return the summary as it is in the file."""
        return {
            "timestamp": self.timestamp,
            "turnRange": list(self.turn_range),
            "content": self.content,
            "keyPoints": list(self.key_points),
            "id": self.id,
        }


class CompressionFolder:
    """Reads and writes the two files of a workspace. Nothing is created before the first write."""

    def __init__(self, workspace_path: str | Path) -> None:
        self.folder = Path(workspace_path) / ".compression"

    def read_config(self) -> dict[str, object]:
        """Return the settings that a person changed in ``config.json``, under our names."""
        stored = self._load("config.json")
        if not isinstance(stored, dict):
            return {}
        written, changed = stored.get(_WRITTEN), stored.get(_CHANGED)
        written = written if isinstance(written, dict) else {}
        changed = changed if isinstance(changed, list) else []
        return {
            ours: stored[name]
            for name, ours in SETTINGS.items()
            if name in stored and (name in changed or stored[name] != written.get(name))
        }

    def write_config(self, values: Mapping[str, object], *, changes: Mapping[str, object] | None = None) -> None:
        """Write the current settings under the names of the file; keep ``changes`` and a person's own changes."""
        with self._locked():
            kept = {**self.read_config(), **(changes or {})}
            plain = {name: values.get(ours) for name, ours in SETTINGS.items()}
            shown = {name: kept.get(ours, plain[name]) for name, ours in SETTINGS.items()}
            changed = [name for name, ours in SETTINGS.items() if ours in kept]
            self._store("config.json", {**shown, _CHANGED: changed, _WRITTEN: plain})

    def release_config(self, names: Iterable[str]) -> None:
        """Drop a person's changes of these settings (our names), so that the other settings files decide again."""
        released = {name for name, ours in SETTINGS.items() if ours in set(names)}
        if not released or not (self.folder / "config.json").is_file():
            return
        with self._locked():
            stored = self._load("config.json")
            if isinstance(stored, dict):
                changed, written = stored.get(_CHANGED), stored.get(_WRITTEN)
                stored[_CHANGED] = (
                    [name for name in changed if name not in released] if isinstance(changed, list) else []
                )
                plain = written if isinstance(written, dict) else {}
                self._store("config.json", stored | {name: plain.get(name) for name in released} | {_WRITTEN: plain})

    def read_summaries(self, session_id: str | None = None) -> list[dict[str, Any]]:
        """Return the summaries of a session, or all, oldest first."""
        stored = self._load("summaries.json")
        rows = [row for row in stored if isinstance(row, dict)] if isinstance(stored, list) else []
        return [row for row in rows if session_id is None or row.get("sessionId") == session_id]

    def write_summaries(self, session_id: str, summaries: Iterable[ContextSummary]) -> None:
        """Replace the summaries of a session."""
        with self._locked():
            remove_leftovers(self.folder)
            rows = self.read_summaries()
            others = [row for row in rows if row.get("sessionId") != session_id]
            own = [{**summary.to_dict(), "sessionId": session_id} for summary in summaries]
            changed = sorted([*others, *own], key=_timestamp_of)[-SUMMARIES_MAX:]
            if changed != rows:
                self._store("summaries.json", changed)

    def _load(self, name: str) -> object:
        path = self.folder / name
        try:
            if path.exists() and not path.is_file():
                raise OSError(f"{path} is not a file")  # Opening a pipe would wait for ever.
            with path.open("rb") as file:
                return json.loads(file.read(BYTES_MAX).decode("utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError):
            # The ledger has all of it; an unreadable file is moved aside, not overwritten.
            with suppress(OSError):
                path.replace(path.with_name(f"{name}.unreadable"))
            return None

    def _store(self, name: str, value: object) -> None:
        text = json.dumps(value, ensure_ascii=False, indent=2)
        write_whole(self.folder / name, text.encode("utf-8", "backslashreplace") + b"\n")

    def _locked(self) -> Any:
        try:
            make_folder(self.folder)
        except OSError as error:
            raise LedgerError(f"{self.folder} cannot be made: {error.strerror or error}") from error
        return lock_folder(self.folder)


def _timestamp_of(row: dict[str, Any]) -> float:
    stamp = row.get("timestamp")
    return float(stamp) if isinstance(stamp, int | float) else 0.0
