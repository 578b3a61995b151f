"""Events of an agent run, including those made from a manager's notices.

There is one frozen class per kind; ``kind`` is its name in callbacks and in JSON. Events carry no credentials, and a
listener cannot change the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

from refold.conversation.reason import Reason, describe
from refold.manager import ContextCompressionManager
from refold.manager.notices import Notice

KINDS: dict[str, type[AgentEvent]] = {}


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """Base class of all events."""

    kind: ClassVar[str] = "event"

    def __init_subclass__(cls, kind: str = "") -> None:
        # ``slots`` makes every class twice, the second time without the keyword.
        cls.kind = kind or cls.kind
        KINDS[cls.kind] = cls

    def to_dict(self) -> dict[str, object]:
        return {"kind": self.kind, **describe(self)}


@dataclass(frozen=True, slots=True)
class StepStarted(AgentEvent, kind="step_started"):
    """A request is about to be sent: its size by our count, and the limits of the window."""

    step: int
    tokens: int
    hard: int
    soft: int
    window: int


@dataclass(frozen=True, slots=True)
class TextDelta(AgentEvent, kind="text"):
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta(AgentEvent, kind="thinking"):
    """A piece of the model's reasoning, if the provider shows it."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolStarted(AgentEvent, kind="tool_started"):
    """A tool call starts. ``arguments`` is the JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolFinished(AgentEvent, kind="tool_finished"):
    """A tool call has ended; ``chars_total`` is the length of the output before it was cut."""

    id: str
    name: str
    text: str
    is_error: bool
    seconds: float
    chars_total: int


@dataclass(frozen=True, slots=True)
class Compressing(AgentEvent, kind="compressing"):
    """A compression has started."""

    reason: Reason
    tokens: int


@dataclass(frozen=True, slots=True)
class Compressed(AgentEvent, kind="compacted"):
    """The context was compressed; ``undo`` identifies the compression."""

    reason: Reason
    tokens_before: int
    tokens_after: int
    seconds: float
    undo: str = ""
    stages: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Offloaded(AgentEvent, kind="offloaded"):
    """Tool results were moved to files."""

    files: tuple[str, ...]
    tokens_freed: int


@dataclass(frozen=True, slots=True)
class CompressionSkipped(AgentEvent, kind="skipped"):
    """A requested compression was skipped or failed; ``reason`` says why."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class WindowLowered(AgentEvent, kind="window_lowered"):
    """The provider rejected a request that should have fitted; the smaller window applies from now on."""

    model: str
    window_before: int
    window_after: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Retrying(AgentEvent, kind="retrying"):
    """The request is sent again; discard the deltas received since the step started."""

    reason: str
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class UsageReported(AgentEvent, kind="usage"):
    """Tokens the provider billed for a request. ``cached`` is the part of ``input`` read from its cache."""

    input: int
    output: int
    cached: int = 0
    model: str = ""


@dataclass(frozen=True, slots=True)
class Warned(AgentEvent, kind="warned"):
    """A problem that does not stop the run."""

    text: str


@dataclass(frozen=True, slots=True)
class Finished(AgentEvent, kind="finished"):
    """The run has ended. ``reason``: stop, length, refusal, steps, stuck, or the provider's own."""

    text: str
    reason: str
    steps: int


_KINDS = ("before_compress", "compressed", "offloaded", "skipped", "failed", "warned")


@contextmanager
def listening(
    manager: ContextCompressionManager, session_id: str, listen: Callable[[AgentEvent], None]
) -> Iterator[None]:
    """Call ``listen`` with a session's compressions as events inside the block, from any thread."""
    started = 0.0

    def hear(notice: Notice) -> None:
        nonlocal started
        if notice.session_id == session_id:
            started = notice.time if notice.kind == "before_compress" else started
            listen(_make_event(notice, manager, started or notice.time))

    stops = [manager.on(kind, hear) for kind in _KINDS]
    try:
        yield
    finally:
        for stop in stops:
            stop()


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
