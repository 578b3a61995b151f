"""Events of an agent run. One frozen class per kind; ``kind`` is its name in callbacks and in JSON.

Events carry no credentials, and a listener cannot change the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from refold.conversation.reason import Reason, describe


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
