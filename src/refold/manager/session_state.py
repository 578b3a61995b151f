"""What a session stores about itself, as typed values.

The ledger keeps each value under its own key of a JSON object, so that two processes change different ones without
conflict. A value that cannot be read, which another version or an import may have written, counts as not set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from math import isnan
from typing import Any

from refold.budget import Carry
from refold.conversation import because
from refold.conversation.message import frozen
from refold.conversation.reason import NO_REASON, Reason, read_reason
from refold.ledger.records import SWITCH
from refold.tokens import Calibration
from refold.tokens.counter import Track

# Keys that other packages write.
RESPONSES = "responses"  # The newest responses that a client may continue by their ids.
HELD = "held"  # Why a session's requests pass through: the provider holds part of them.
TITLE, CLIENT = "title", "client"  # What a person or an import called it; the program that an import comes from.
_FIGURES = frozenset((int, float))  # Not bool, which is an int.
FIGURE_MAX = 1e12  # The largest stored figure that is read: above any count of tokens, and any time in seconds.
_COUNTED = ("misses", "messages", "tokens")
Room = tuple[int | None, int | None]


@frozen
class Reported:
    """A provider's report about one request: its input tokens, our count, and a marker of the edits in force."""

    model: str
    input_tokens: int
    counted_tokens: int
    marker: str

    def count_now(self, model: str, marker: str, tokens: int) -> int | None:
        """Return the provider's figure for the view: that of the request plus our count of what was added since."""
        if (self.model, self.marker) != (model, marker):
            return None  # It was sent before the last compression.
        return max(0, self.input_tokens + tokens - self.counted_tokens)


@frozen
class StoredCarry:
    """Inputs of a decision besides the view, stored with a usage report, so that other processes decide alike.

    They are the carry, the number of messages sent, the time, and the tokens of the system prompt and the tools (0 if
    an older version wrote it).
    """

    carry: Carry
    messages: int
    prepared_at: float
    system_tokens: int = 0
    fixed_tokens: int = 0

    def is_newer(self, prepared_at: float) -> bool:
        """Return whether this belongs to a later request than the one prepared then; stored times are rounded."""
        return self.prepared_at > prepared_at + 0.001

    def to_json(self) -> list[object]:
        one = self.carry
        sizes = [one.first_tokens, one.last_tokens, one.floor_tokens, one.kept_tokens]
        sent = [self.messages, round(self.prepared_at, 3), self.system_tokens, self.fixed_tokens]
        return [one.requests, one.session_requests, *sizes, *sent]


@frozen
class Brake:
    """Compressions in a row that did not help, with their model and the last one's reason.

    ``messages`` is how many the session had then, ``tokens`` what the last one left in view, 0 if it failed.
    """

    misses: int = 0
    model: str = ""
    why: Reason = NO_REASON
    messages: int = 0
    tokens: int = 0

    def to_json(self) -> dict[str, object] | None:
        """Return the stored form; None removes it."""
        counted = dict(zip(_COUNTED, (self.misses, self.messages, self.tokens), strict=True))
        return {**counted, "model": self.model, "why": self.why.to_json()} if self.misses else None

    def missed(self, model: str, why: Reason, messages: int, tokens: int = 0) -> Brake:
        return Brake(self.misses + 1 if self.model == model else 1, model, why, messages, tokens)


@frozen
class SessionState:
    """The stored values of a session under the names of their keys, except those of the gateway and the page.

    ``auto``: compress by itself. ``forced``: why the next request must be compressed. ``calibration``: what reports
    showed about our counts. ``windows``: window and reserve by model, where the session has its own; ``room``: those of
    the newest request. ``redo``: groups of edits that can be redone, in the order they were undone. ``counted``: the
    messages at the last compression by count. ``stubs``: what forgotten messages left. ``kept``: system prompt and
    tools of an imported session. ``memory``: the notes that were carried into it; None if that was not decided yet.
    """

    auto: bool = True
    brake: Brake = Brake()
    forced: Reason = NO_REASON
    reported: Reported | None = None
    calibration: Calibration = Calibration()
    carry: StoredCarry | None = None
    windows: Mapping[str, object] = field(default_factory=dict)
    room: Room = (None, None)
    pinned: frozenset[str] = frozenset()
    redo: Sequence[Sequence[str]] = ()
    counted: int | None = None
    stubs: Mapping[str, object] = field(default_factory=dict)
    kept: Mapping[str, Any] = field(default_factory=dict)
    named_wire: bool = False
    memory: Mapping[str, Any] | None = None
    title: str = ""

    @classmethod
    def read(cls, settings: Mapping[str, object]) -> SessionState:
        """Return the values that can be read."""
        maps = {name: one for name, one in settings.items() if isinstance(one, dict)}
        lists = {name: one for name, one in settings.items() if isinstance(one, list)}
        counted, title, redo = settings.get("counted"), settings.get(TITLE), lists.get("redo", ())
        return cls(
            settings.get(SWITCH) is not False,
            _read_brake(maps["brake"]) if "brake" in maps else Brake(),
            read_reason(settings["forced"]) if "forced" in settings else NO_REASON,
            _read_report(maps["reported"]) if "reported" in maps else None,
            _read_calibration(lists["calibration"]) if "calibration" in lists else Calibration(),
            _read_carry(lists["carry"]) if "carry" in lists else None,
            maps.get("windows", {}),
            _read_room(lists.get("room")),
            _read_names(lists.get("pinned")),
            [[one for one in group if isinstance(one, str)] for group in redo if isinstance(group, list)],
            counted if isinstance(counted, int) else None,
            maps.get("forgotten", {}),
            maps.get("kept", {}),
            bool(settings.get("named_wire")),
            maps.get("memory", {} if "memory" in settings else None),
            title if isinstance(title, str) else "",
        )

    @property
    def is_refused(self) -> bool:
        """True if the provider refused the last request as too long, and nothing was compressed since."""
        return self.forced.is_a(because.OVERFLOW)

    def find_window(self, model: str) -> Room:
        """Return the window and the reserve that the session has for a model; None if the settings decide."""
        return _read_room(self.windows.get(model))

    @property
    def note_sources(self) -> frozenset[str]:
        """Where the notes come from that were carried into this session."""
        return _read_names((self.memory or {}).get("sources"))

    @property
    def remembered(self) -> frozenset[str]:
        """The id of the message that stays in view because notes are below it."""
        return _read_names([(self.memory or {}).get("message")])


def _read_brake(stored: Mapping[str, Any]) -> Brake:
    misses, messages, tokens = (one if isinstance(one, int) else 0 for one in map(stored.get, _COUNTED))
    return Brake(misses, str(stored.get("model", "")), read_reason(stored.get("why")), messages, tokens)


def _read_report(stored: Mapping[str, Any]) -> Reported | None:
    figures: list[Any] = [stored.get("input_tokens"), stored.get("counted_tokens")]
    if not _are_figures(figures):
        return None
    return Reported(str(stored.get("model", "")), int(figures[0]), int(figures[1]), str(stored.get("marker", "")))


def _read_calibration(stored: list[Any]) -> Calibration:
    rows = [row for row in stored if isinstance(row, list) and len(row) == 4]
    named = [row for row in rows if isinstance(row[0], str) and _are_figures(row[1:])]
    tracks = [Track(row[0], *map(float, row[1:])) for row in named]
    return Calibration(tuple([track for track in tracks if track.is_plausible]))


def _read_carry(stored: list[Any]) -> StoredCarry | None:
    if len(stored) not in (8, 10) or not _are_figures(stored):
        return None
    carry, (messages, prepared_at, *fixed) = Carry(*map(int, stored[:6])), stored[6:]
    return StoredCarry(carry, int(messages), float(prepared_at), *map(int, fixed))


def _read_names(stored: object) -> frozenset[str]:
    return frozenset(one for one in stored if isinstance(one, str)) if isinstance(stored, list) else frozenset()


def _are_figures(stored: list[Any]) -> bool:
    """Return whether stored values are plain numbers. An imported file may contain anything, even NaN and infinity."""
    if not stored or not _FIGURES.issuperset(map(type, stored)):
        return not stored
    # The extremes miss NaN, the sum does not.
    return min(stored) >= 0 and max(stored) <= FIGURE_MAX and not isnan(sum(stored))


def _read_room(stored: object) -> Room:
    if not isinstance(stored, list) or len(stored) not in (1, 2):
        return None, None
    window, reserve = (one if isinstance(one, int) and _are_figures([one]) else None for one in [*stored, None][:2])
    if window and reserve and reserve >= window:
        return None, None
    return window or None, reserve


def write_calibration(calibration: Calibration) -> list[object]:
    # Six digits are precise enough for a count; more would make the JSON slow to read.
    return [[one.model, round(one.ratio, 6), round(one.spread, 6), round(one.weight, 6)] for one in calibration.tracks]
