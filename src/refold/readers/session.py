"""A recorded session, and what every reader shares: numbered rows, broken ones, times as seconds.

Only values. ``probes`` are facts that a later step of the recording used; ``times`` are seconds, one per message,
where the recording has them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from refold.conversation.turn import find_turns
from refold.errors import RefoldError
from refold.formats import parse_messages
from refold.formats.detect import make_format

TITLE_CHARS = 80
_MILLISECONDS_FROM = 1e11
# Beyond any date that a file could mean, in milliseconds too.
_NEVER = 1e18
# Agents also write messages in the user's name: reminders, the environment, standing instructions.
_INJECTED = ("<", "# AGENTS.md instructions", "Caveat: ", "This is the Qwen Code. We are setting up")


@dataclass(frozen=True, slots=True)
class Probe:
    """A value that the message at ``step`` took from an earlier one, ``distance`` messages back."""

    step: int
    value: str
    sort: str = ""
    distance: int = 0
    is_hard: bool = False


@dataclass(frozen=True, slots=True)
class Compaction:
    """A summary that the client itself put in the place of the messages before ``at``."""

    at: int
    summary: str

    def moved(self, at: int) -> Compaction:
        return replace(self, at=at)


@dataclass(frozen=True, slots=True)
class RecordedUsage:
    """The usage that the provider reported for the answer at ``at``: uncached, cached and written input, output."""

    at: int
    input: int
    cached: int = 0
    written: int = 0
    output: int = 0

    @property
    def prompt(self) -> int:
        """The whole input."""
        return self.input + self.cached + self.written

    def moved(self, at: int) -> RecordedUsage:
        return replace(self, at=at)


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """One recorded session. ``format`` names the wire format, ``client`` the agent whose file it is.

    ``system`` and ``tools`` are those outside the messages.
    """

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
    client: str = ""
    compactions: tuple[Compaction, ...] = ()
    reported: tuple[RecordedUsage, ...] = ()

    def idle_before(self, at: int, since: int) -> float:
        """Return the seconds between two messages; 0 if the recording has no times."""
        if not self.times or not 0 <= since < at < len(self.times):
            return 0.0
        return max(0.0, self.times[at] - self.times[since])


def find_title(session: Session) -> str:
    """Return the first words that a person wrote, as a title; empty if there are none."""
    try:
        messages = parse_messages(make_format(session.format), session.messages)
    except RefoldError:
        return ""
    texts = [part.text for at in find_turns(messages) for part in messages[at].parts if part.kind == "text"]
    spoken = [text for text in texts if text.strip() and not text.lstrip().startswith(_INJECTED)]
    words = " ".join((spoken or texts or [""])[0][:2_000].encode("utf-8", "replace").decode().split())
    return words if len(words) <= TITLE_CHARS else f"{words[: TITLE_CHARS - 1].rstrip()}…"


@dataclass(frozen=True, slots=True)
class FileRow:
    """One JSON object of a file, with the number of its line."""

    line: int
    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Broken:
    """A line that could not be read, and why; line 0 means the whole file, which ``why`` then names."""

    line: int
    why: str


def read_type(row: dict[str, Any], default: str = "") -> str:
    """Return the type that a row or item names; empty if what it has there is not text."""
    kind = row.get("type", default)
    return kind if isinstance(kind, str) else ""


def read_time(value: object) -> float | None:
    """Return a timestamp in seconds, from ISO text, seconds or milliseconds; None for any other value."""
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value).timestamp()
        except (ValueError, OverflowError):
            return None
    # An integer of hundreds of digits cannot be a float.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _NEVER:
        return None
    return value / 1000.0 if value > _MILLISECONDS_FROM else float(value)


def settle_times(times: list[float | None]) -> tuple[float, ...]:
    """Return times for all messages, a missing one as late as the one before it; empty if none is known."""
    known = [time for time in times if time is not None]
    if not known:
        return ()
    settled: list[float] = []
    last = known[0]
    for time in times:
        last = max(last, time) if time is not None else last
        settled.append(last)
    return tuple(settled)
