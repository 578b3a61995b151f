"""What a session remembers of itself in its settings: the brake, the last report of usage, calibration, pins.

Pure. Another version of this program may have written them, or a file that was imported: whatever cannot be read counts
as not set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from refold.conversation import because
from refold.conversation.reason import NO_REASON, Reason, read_reason
from refold.tokens import Calibration
from refold.tokens.calibration import Track

BRAKE = "brake"
FORCED = "forced"
REPORTED = "reported"
CALIBRATION = "calibration"
PINNED = "pinned"


@dataclass(frozen=True, slots=True)
class Brake:
    """How many compressions in a row did not help, with which model, and what the last one said.

    ``messages`` is how many the session had then. ``tokens`` is what the last one left in view if it changed
    anything, 0 if it failed.
    """

    misses: int = 0
    model: str = ""
    why: Reason = NO_REASON
    messages: int = 0
    tokens: int = 0

    @classmethod
    def read(cls, settings: Mapping[str, object]) -> Brake:
        """Return the brake of a session; released if there is none, or none that can be read."""
        stored = settings.get(BRAKE)
        if not isinstance(stored, Mapping) or not isinstance(stored.get("misses"), int):
            return cls()
        figures = [stored.get(name) for name in ("messages", "tokens")]
        messages, tokens = (figure if isinstance(figure, int) else 0 for figure in figures)
        return cls(stored["misses"], str(stored.get("model", "")), read_reason(stored.get("why")), messages, tokens)

    def to_settings(self) -> dict[str, object] | None:
        """Return what is stored; None takes the setting away."""
        if not self.misses:
            return None
        counted = {"misses": self.misses, "messages": self.messages, "tokens": self.tokens}
        return {**counted, "model": self.model, "why": self.why.to_json()}

    def is_on(self, model: str, attempts_max: int) -> bool:
        """Tell whether automatic compressions are stopped for this model."""
        return self.misses >= attempts_max and self.model == model

    def missed(self, model: str, why: Reason, messages: int, tokens: int = 0) -> Brake:
        """Return the brake after one more compression that did not help."""
        return Brake(self.misses + 1 if self.model == model else 1, model, why, messages, tokens)


@dataclass(frozen=True, slots=True)
class Reported:
    """What a provider said of one request: its input tokens, what we had counted, and the edits it was made under."""

    model: str
    input_tokens: int
    counted_tokens: int
    marker: str

    @classmethod
    def read(cls, settings: Mapping[str, object]) -> Reported | None:
        """Return the last report of a session, if there is one that can be read."""
        stored = settings.get(REPORTED)
        if not isinstance(stored, Mapping):
            return None
        figures = stored.get("input_tokens"), stored.get("counted_tokens")
        if not all(isinstance(figure, int) for figure in figures):
            return None
        return cls(
            str(stored.get("model", "")),
            stored["input_tokens"],
            stored["counted_tokens"],
            str(stored.get("marker", "")),
        )

    def to_settings(self) -> dict[str, object]:
        """Return what is stored."""
        return {
            "model": self.model,
            "input_tokens": self.input_tokens,
            "counted_tokens": self.counted_tokens,
            "marker": self.marker,
        }

    def count_now(self, model: str, marker: str, tokens: int) -> int | None:
        """Return the provider's figure for the view (S3.4): that of the request, and our count of what came since.

        Only a request that was sent after the last compression says anything about the view as it is now.
        """
        if (self.model, self.marker) != (model, marker):
            return None
        return max(0, self.input_tokens + tokens - self.counted_tokens)


def is_refused(settings: Mapping[str, object]) -> bool:
    """Tell whether the provider refused the last request as too long, and nothing was compressed since."""
    return read_reason(settings.get(FORCED)).is_a(because.OVERFLOW)


def read_calibration(settings: Mapping[str, object]) -> Calibration:
    """Return what reports of usage taught in this session."""
    stored = settings.get(CALIBRATION)
    tracks = []
    for row in stored if isinstance(stored, list) else ():
        if isinstance(row, list) and len(row) == 4 and isinstance(row[0], str):
            ratio, spread, weight = (float(figure) for figure in row[1:])
            tracks.append(Track(row[0], ratio, spread, weight))
    return Calibration(tuple(tracks))


def write_calibration(calibration: Calibration) -> list[object]:
    """Return a calibration as a setting."""
    # Six digits are more than a count deserves; more make JSON that is slow to read.
    return [
        [track.model, *(round(figure, 6) for figure in (track.ratio, track.spread, track.weight))]
        for track in calibration.tracks
    ]


def read_pinned(settings: Mapping[str, object]) -> frozenset[str]:
    """Return the ids of a session's pinned messages."""
    stored = settings.get(PINNED)
    return frozenset(one for one in stored if isinstance(one, str)) if isinstance(stored, list) else frozenset()
