"""Forwards a manager's notices to the agents that run its sessions, across threads.

A manager never drops a listener, so it gets a single one for all agents.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from refold.agent.events import AgentEvent, Compressed, Compressing, CompressionSkipped, Offloaded, Warned
from refold.manager import ContextCompressionManager
from refold.manager.notices import Notice

Hear = Callable[[AgentEvent], None]
_HEARD = ("before_compress", "compressed", "offloaded", "skipped", "failed", "warned")
_hubs: WeakKeyDictionary[ContextCompressionManager, Hub] = WeakKeyDictionary()
_guard = threading.Lock()


class Hub:
    """The listeners of each session."""

    def __init__(self) -> None:
        self._hearers: dict[str, list[Hear]] = {}
        self._started: dict[str, float] = {}
        self._lock = threading.Lock()

    def listen_to(self, manager: ContextCompressionManager) -> None:
        """Subscribe to a manager's notices."""

        def hear(notice: Notice) -> None:
            self.pass_on(notice, manager)

        for kind in _HEARD:
            manager.on(kind, hear)

    @contextmanager
    def hearing(self, session_id: str, hear: Hear) -> Iterator[None]:
        """Call ``hear`` with a session's events inside the block, from any thread."""
        with self._lock:
            self._hearers.setdefault(session_id, []).append(hear)
        try:
            yield
        finally:
            with self._lock:
                left = [one for one in self._hearers.get(session_id, ()) if one is not hear]
                if left:
                    self._hearers[session_id] = left
                else:
                    self._hearers.pop(session_id, None)
                    self._started.pop(session_id, None)

    def pass_on(self, notice: Notice, manager: ContextCompressionManager) -> None:
        """Convert a notice to an event and pass it to the session's listeners."""
        with self._lock:
            hearers = list(self._hearers.get(notice.session_id, ()))
            if not hearers:
                return
            if notice.kind == "before_compress":
                self._started[notice.session_id] = notice.time
            started = self._started.get(notice.session_id, notice.time)
        event = _make_event(notice, manager, started)
        for hear in hearers:
            hear(event)


def find_hub(manager: ContextCompressionManager) -> Hub:
    """Return a manager's hub, created on first use."""
    with _guard:
        hub = _hubs.get(manager)
        if hub is None:
            hub = _hubs[manager] = Hub()
            hub.listen_to(manager)
        return hub


def _make_event(notice: Notice, manager: ContextCompressionManager, started: float) -> AgentEvent:
    if notice.kind == "before_compress":
        return Compressing(notice.reason, notice.tokens_before)
    if notice.kind == "compressed":
        stages = notice.fields.get("stages")
        return Compressed(
            notice.reason,
            notice.tokens_before,
            notice.tokens_after,
            max(0.0, notice.time - started),
            find_undo(manager, notice.session_id),
            dict(stages) if isinstance(stages, dict) else {},
        )
    if notice.kind == "offloaded":
        files = notice.fields.get("files")
        return Offloaded(
            tuple(map(str, files)) if isinstance(files, list) else (), notice.tokens_before - notice.tokens_after
        )
    if notice.kind == "warned":
        return Warned(str(notice.reason))
    return CompressionSkipped(notice.reason)


def find_undo(manager: ContextCompressionManager, session_id: str) -> str:
    """Return the id of a session's last compression, for undo; empty if there is none."""
    batches = [batch for batch in manager.ledger.read_batches(session_id) if batch.is_active]
    return batches[-1].id[:8] if batches else ""
