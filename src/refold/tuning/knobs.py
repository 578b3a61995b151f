"""What may be tuned, and how far. A setting outside of these bounds is a person's to make, never ours.

A knob is turned only where the settings in force use it: a preset that goes by counts is tuned by its counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from refold.config import CompressionConfig


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting, its bounds, and the values that are tried; factors multiply what is in force.

    ``switch`` names the setting without which this one does nothing.
    """

    name: str
    least: float
    most: float
    values: tuple[float, ...] = ()
    factors: tuple[float, ...] = ()
    switch: str = ""

    def find_values(self, config: CompressionConfig) -> list[float]:
        """Return the values to try beside the one in force; none where these settings do not use the knob."""
        held = getattr(config, self.name)
        if held is None or (self.switch and not getattr(config, self.switch)):
            return []
        tried = [*self.values, *(round(held * factor) for factor in self.factors)]
        within = {min(self.most, max(self.least, value)) for value in tried}
        return sorted(type(held)(value) for value in within if value != held)


KNOBS = (
    Knob("trigger_ratio", 0.5, 0.98, values=(0.6, 0.75, 0.9, 0.98)),
    Knob("target_ratio", 0.1, 0.5, values=(0.1, 0.15, 0.25, 0.4)),
    Knob("economic_ratio", 0.1, 0.8, values=(0.2, 0.4, 0.6), switch="economic"),
    Knob("threshold_rounds", 20, 400, factors=(0.5, 1.5, 2.0)),
    Knob("threshold_tokens", 2_000, 400_000, factors=(0.5, 1.5, 2.0)),
    Knob("retention_count", 4, 200, factors=(0.5, 1.5)),
    Knob("max_turns", 10, 200, factors=(0.5, 1.5, 2.0)),
    Knob("keep_recent", 3, 50, factors=(0.5, 1.5)),
    Knob("keep_last_turns", 2, 50, factors=(0.5, 1.5)),
)
