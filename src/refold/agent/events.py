"""What an agent tells while it works. One frozen class per kind; ``kind`` is its name in callbacks and in JSON.

Events describe; they never carry a credential, and nothing that a listener does with one changes the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from refold.conversation.reason import Reason, describe


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """What all events share."""

    kind: ClassVar[str] = "event"

    def to_dict(self) -> dict[str, object]:
        """Return the event as plain values, for JSON."""
        return {"kind": self.kind, **describe(self)}


@dataclass(frozen=True, slots=True)
class StepStarted(AgentEvent):
    """A request is about to be sent: so many tokens by our count, of a window with these tiers."""

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
    """A piece of what the model thinks before it answers, where the provider shows it."""

    kind: ClassVar[str] = "thinking"
    text: str


@dataclass(frozen=True, slots=True)
class ToolStarted(AgentEvent):
    """A tool is called. ``arguments`` is the JSON text as the model wrote it."""

    kind: ClassVar[str] = "tool_started"
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolFinished(AgentEvent):
    """A call has its result; ``chars_total`` is how long the output was before its limit."""

    kind: ClassVar[str] = "tool_finished"
    id: str
    name: str
    text: str
    is_error: bool
    seconds: float
    chars_total: int


@dataclass(frozen=True, slots=True)
class Compressing(AgentEvent):
    """The context is being compressed (S3.11)."""

    kind: ClassVar[str] = "compressing"
    reason: Reason
    tokens: int


@dataclass(frozen=True, slots=True)
class Compressed(AgentEvent):
    """The context was compressed; ``undo`` names the compression for undo."""

    kind: ClassVar[str] = "compacted"
    reason: Reason
    tokens_before: int
    tokens_after: int
    seconds: float
    undo: str = ""
    stages: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Offloaded(AgentEvent):
    """Tool results went to files (S2.13)."""

    kind: ClassVar[str] = "offloaded"
    files: tuple[str, ...]
    tokens_freed: int


@dataclass(frozen=True, slots=True)
class CompressionSkipped(AgentEvent):
    """Something asked for a compression and it was not done, or failed; ``reason`` says why."""

    kind: ClassVar[str] = "skipped"
    reason: Reason


@dataclass(frozen=True, slots=True)
class WindowLowered(AgentEvent):
    """The provider refused a request that should have fitted: from now on the window counts as this small."""

    kind: ClassVar[str] = "window_lowered"
    model: str
    window_before: int
    window_after: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Retrying(AgentEvent):
    """The model is asked again; pieces of the answer that came since the step started do not count."""

    kind: ClassVar[str] = "retrying"
    reason: str
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class UsageReported(AgentEvent):
    """What the provider billed for a request. ``cached`` is the part of ``input`` that it read from its cache."""

    kind: ClassVar[str] = "usage"
    input: int
    output: int
    cached: int = 0
    model: str = ""


@dataclass(frozen=True, slots=True)
class Warned(AgentEvent):
    """Something went wrong beside the main thing."""

    kind: ClassVar[str] = "warned"
    text: str


@dataclass(frozen=True, slots=True)
class Finished(AgentEvent):
    """The run is over. ``reason``: stop, length, refusal, steps, stuck, or the provider's own word."""

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
