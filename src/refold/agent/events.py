"""Events of an agent run, and the hub that turns a manager's notices into events, across threads.

There is one frozen class per kind; ``kind`` is its name in callbacks and in JSON. Events carry no credentials, and a
listener cannot change the run. A manager never drops a listener, so it gets a single one, the hub, for all agents.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar
from weakref import WeakKeyDictionary

from refold.conversation.reason import Reason, describe
from refold.manager import ContextCompressionManager
from refold.manager.notices import Notice


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """Base class of all events."""

    kind: ClassVar[str] = "event"

    def to_dict(self) -> dict[str, object]:
        """Return the event as plain values, for JSON."""
        return {"kind": self.kind, **describe(self)}


@dataclass(frozen=True, slots=True)
class StepStarted(AgentEvent):
    """A request is about to be sent: its size by our count, and the limits of the window."""

    kind: ClassVar[str] = "step_started"
    step: int
    tokens: int
    hard: int
    soft: int
    window: int


@dataclass(frozen=True, slots=True)
class TextDelta(AgentEvent):
    """A piece of the answer."""

    kind: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta(AgentEvent):
    """A piece of the model's reasoning, if the provider shows it."""

    kind: ClassVar[str] = "thinking"
    text: str


@dataclass(frozen=True, slots=True)
class ToolStarted(AgentEvent):
    """A tool call starts. ``arguments`` is the JSON text as the model wrote it."""

    kind: ClassVar[str] = "tool_started"
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolFinished(AgentEvent):
    """A tool call has ended; ``chars_total`` is the length of the output before it was cut."""

    kind: ClassVar[str] = "tool_finished"
    id: str
    name: str
    text: str
    is_error: bool
    seconds: float
    chars_total: int


@dataclass(frozen=True, slots=True)
class Compressing(AgentEvent):
    """A compression has started."""

    kind: ClassVar[str] = "compressing"
    reason: Reason
    tokens: int


@dataclass(frozen=True, slots=True)
class Compressed(AgentEvent):
    """The context was compressed; ``undo`` identifies the compression."""

    kind: ClassVar[str] = "compacted"
    reason: Reason
    tokens_before: int
    tokens_after: int
    seconds: float
    undo: str = ""
    stages: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Offloaded(AgentEvent):
    """Tool results were moved to files."""

    kind: ClassVar[str] = "offloaded"
    files: tuple[str, ...]
    tokens_freed: int


@dataclass(frozen=True, slots=True)
class CompressionSkipped(AgentEvent):
    """A requested compression was skipped or failed; ``reason`` says why."""

    kind: ClassVar[str] = "skipped"
    reason: Reason


@dataclass(frozen=True, slots=True)
class WindowLowered(AgentEvent):
    """The provider rejected a request that should have fitted; the smaller window applies from now on."""

    kind: ClassVar[str] = "window_lowered"
    model: str
    window_before: int
    window_after: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Retrying(AgentEvent):
    """The request is sent again; discard the deltas received since the step started."""

    kind: ClassVar[str] = "retrying"
    reason: str
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class UsageReported(AgentEvent):
    """Tokens the provider billed for a request. ``cached`` is the part of ``input`` read from its cache."""

    kind: ClassVar[str] = "usage"
    input: int
    output: int
    cached: int = 0
    model: str = ""


@dataclass(frozen=True, slots=True)
class Warned(AgentEvent):
    """A problem that does not stop the run."""

    kind: ClassVar[str] = "warned"
    text: str


@dataclass(frozen=True, slots=True)
class Finished(AgentEvent):
    """The run has ended. ``reason``: stop, length, refusal, steps, stuck, or the provider's own."""

    kind: ClassVar[str] = "finished"
    text: str
    reason: str
    steps: int


KINDS: dict[str, type[AgentEvent]] = {
    one.kind: one
    for one in (
        StepStarted,
        TextDelta,
        ThinkingDelta,
        ToolStarted,
        ToolFinished,
        Compressing,
        Compressed,
        Offloaded,
        CompressionSkipped,
        WindowLowered,
        Retrying,
        UsageReported,
        Warned,
        Finished,
    )
}


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
