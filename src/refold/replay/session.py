"""A recorded session as replay sees it: messages in one provider's format, and what is known beside them.

Only values. ``probes`` are facts that a later step of the recording used; ``times`` are seconds, one per message,
where the recording has them. Reading files is in ``reading``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Probe:
    """A value that the message at ``step`` took from an earlier one, ``distance`` messages back."""

    step: int
    value: str
    sort: str = ""
    distance: int = 0
    is_hard: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """One recorded session. ``format`` names the wire format; ``system`` and ``tools`` stand beside the messages."""

    id: str
    messages: tuple[object, ...]
    format: str = "openai-chat"
    system: object = None
    tools: object = None
    probes: tuple[Probe, ...] = ()
    times: tuple[float, ...] = ()
    model: str = ""
    source: str = ""
    bytes: int = 0

    def idle_before(self, at: int, since: int) -> float:
        """Return the seconds between two messages; 0 where the recording does not tell."""
        if not self.times or not 0 <= since < at < len(self.times):
            return 0.0
        return max(0.0, self.times[at] - self.times[since])
