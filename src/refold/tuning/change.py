"""Applies a proposal to the settings, on request or automatically, and logs it.

``watch`` serves ``tune: auto``: after a number of compressions it looks for better settings in its own thread and
applies them within the bounds of the knobs. A failure is noted and has no other effect.
"""

from __future__ import annotations

import threading
from dataclasses import asdict
from pathlib import Path

from refold.config import CompressionConfig
from refold.config.save import save_settings
from refold.conversation import because
from refold.ledger.port import Ledger
from refold.ledger.records import Event
from refold.manager import ContextCompressionManager
from refold.manager.notices import Notice
from refold.tuning.proposal import Tuning, propose, read_stored

# Compressions between two looks: a change needs time to show.
COMPRESSIONS_BETWEEN = 20
SESSIONS_WATCHED = 4


def apply(workspace: str | Path, ledger: Ledger, tuning: Tuning, now: float, by: str = "tune") -> CompressionConfig:
    """Write the changes into the project's file and the event log; return the settings that hold now."""
    config = save_settings(workspace, dict(tuning.changes))
    rows = ledger.list_sessions(limit=1)
    fields = {"by": by, "changes": dict(tuning.changes), "now": asdict(tuning.now), "then": asdict(tuning.then)}
    if rows:
        listed = ", ".join(f"{name} = {value:g}" for name, value in tuning.changes.items())
        ledger.add_event(rows[0].id, Event("tuned", now, {"reason": because.TUNED(changes=listed).to_json(), **fields}))
    return config


def watch(manager: ContextCompressionManager, workspace: str | Path, every: int = COMPRESSIONS_BETWEEN) -> Watch:
    """Tune a manager's settings automatically from now on."""
    watching = Watch(manager, workspace, every)
    manager.on("compressed", watching.see)
    return watching


class Watch:
    """Counts compressions and looks for better settings now and then, one look at a time."""

    def __init__(self, manager: ContextCompressionManager, workspace: str | Path, every: int) -> None:
        self._manager = manager
        self._workspace = workspace
        self._every = every
        self._count = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.last: Tuning | None = None
        self.problem = ""

    def see(self, notice: Notice) -> None:
        """Count a compression; look again after enough of them."""
        with self._lock:
            self._count += 1
            is_due = self._count >= self._every and not (self._thread and self._thread.is_alive())
            if not is_due:
                return
            self._count = 0
            self._thread = threading.Thread(target=self._look, args=(notice.time,), name="refold-tune", daemon=True)
        self._thread.start()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the look under way is over."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _look(self, now: float) -> None:
        manager = self._manager
        try:
            tuning = propose(read_stored(manager.ledger, SESSIONS_WATCHED), manager.config)
            self.last = tuning
            if tuning.changes:
                apply(self._workspace, manager.ledger, tuning, now, by="tune: auto")
                # On top of the current settings: a caller's own are in no file.
                manager.adopt(manager.config.replace(**tuning.changes))
        except Exception as error:  # noqa: BLE001 - a look for better settings must never end a conversation
            self.problem = f"{type(error).__name__}: {error}"
