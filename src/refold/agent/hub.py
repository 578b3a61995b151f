"""Carries a manager's notices to whoever runs a session, from the manager's threads to their event loops.

A manager keeps its listeners for ever, so it gets one listener of ours, however many agents there are.
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
    """Who hears of which session."""

    def __init__(self) -> None:
        self._hearers: dict[str, list[Hear]] = {}
        self._started: dict[str, float] = {}
        self._lock = threading.Lock()

    def listen_to(self, manager: ContextCompressionManager) -> None:
        """Hear what a manager tells."""

        def hear(notice: Notice) -> None:
            self.pass_on(notice, manager)

        for kind in _HEARD:
            manager.on(kind, hear)

    @contextmanager
    def hearing(self, session_id: str, hear: Hear) -> Iterator[None]:
        """Call ``hear`` with the events of a session, from any thread."""
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
        """Turn a notice into an event for those who hear of its session."""
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
    """Return the hub of a manager."""
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
    """Return the name by which the last compression of a session can be undone; empty if there is none."""
    batches = [batch for batch in manager.ledger.read_batches(session_id) if batch.is_active]
    return batches[-1].id[:8] if batches else ""
