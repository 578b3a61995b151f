"""Tuning: stored sessions are replayed with other settings, and settings that would have served them better proposed.

``propose`` only looks; ``apply`` changes the settings, within the bounds of the knobs, and logs it.
"""

from refold.tuning.change import apply, watch
from refold.tuning.proposal import KNOBS, Figures, Knob, Tuning, propose, read_stored

__all__ = ["KNOBS", "Figures", "Knob", "Tuning", "apply", "propose", "read_stored", "watch"]
