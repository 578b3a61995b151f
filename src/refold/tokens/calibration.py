"""What reported usage teaches about an estimate.

A ``Calibration`` is a frozen value: ``observe`` returns a new one. It never changes a count that was made, so that a
counted message stays counted; it says how far counts were off (``factor_for``) and how far they may still be off
(``margin_for``). Memory is bounded, and a report that cannot be true changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

_MODELS_MAX = 64
_NAME_CHARS_MAX = 200
_RATIO_MIN, _RATIO_MAX = 0.2, 5.0  # Beyond these the two figures speak of different requests.
_FULL_WEIGHT_TOKENS = 2_000  # A short request says more about framing than about the text.
_WEIGHT_MAX = 20.0  # Older observations fade, so that a changed tokenizer is noticed.
_STEP_MAX = 0.25  # One strange report moves an established figure no further than this.
_MARGIN_MIN, _MARGIN_MAX = 0.02, 1.0


@dataclass(frozen=True, slots=True)
class Track:
    """What was seen of one model: reported / counted, its mean distance from that, and the weight behind it."""

    model: str
    ratio: float
    spread: float
    weight: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """How counts compare with reported usage, per model; the most recently observed last."""

    tracks: tuple[Track, ...] = ()

    def observe(self, model: str, counted: float, reported: float) -> Calibration:
        """Return what is known after a request that we counted as ``counted`` and the provider as ``reported``."""
        ratio = _read_ratio(counted, reported)
        if ratio is None:
            return self
        name = model[:_NAME_CHARS_MAX]
        known = self._find(name)
        weight = min(1.0, counted / _FULL_WEIGHT_TOKENS)
        track = Track(name, ratio, 0.0, weight) if known is None else _update(known, ratio, weight)
        others = [other for other in self.tracks if other.model != name]
        return Calibration((*others[-(_MODELS_MAX - 1) :], track))

    def factor_for(self, model: str) -> float:
        """Return what a count has to be multiplied with to meet the reports; 1.0 where there are none."""
        track = self._find(model[:_NAME_CHARS_MAX])
        return 1.0 if track is None else track.ratio

    def margin_for(self, model: str, stated: float) -> float:
        """Return by what share counts may be too low: the stated margin, less and less as reports come in."""
        track = self._find(model[:_NAME_CHARS_MAX])
        if track is None:
            return stated
        doubt = 1.0 / (1.0 + track.weight)
        seen = max(0.0, track.ratio + 2.0 * track.spread - 1.0)
        return min(_MARGIN_MAX, max(_MARGIN_MIN, doubt * stated + (1.0 - doubt) * seen))

    def _find(self, model: str) -> Track | None:
        return next((track for track in self.tracks if track.model == model), None)


def _read_ratio(counted: float, reported: float) -> float | None:
    try:
        ratio = reported / counted if counted > 0 and reported > 0 else 0.0
    except (TypeError, OverflowError):  # What a provider reports is not always a number, or not one of this world.
        return None
    # A comparison with what is not a number is never true.
    return ratio if _RATIO_MIN <= ratio <= _RATIO_MAX else None


def _update(known: Track, ratio: float, weight: float) -> Track:
    if known.weight >= 1.0:
        reach = max(_STEP_MAX, 4.0 * known.spread)
        ratio = min(known.ratio + reach, max(known.ratio - reach, ratio))
    total = min(_WEIGHT_MAX, known.weight + weight)
    gain = weight / (known.weight + weight)
    mean = known.ratio + gain * (ratio - known.ratio)
    spread = known.spread + gain * (abs(ratio - mean) - known.spread)
    return Track(known.model, mean, spread, total)
