"""Tuning (S1.10): stored sessions are replayed with other settings, and what would have served them better is proposed.

``propose`` only looks; ``apply`` changes what holds from now on, within the bounds of ``knobs``, and logs it.
"""

from refold.tuning.applying import apply, watch
from refold.tuning.knobs import KNOBS, Knob
from refold.tuning.proposing import Figures, Tuning, propose
from refold.tuning.stored import read_stored

__all__ = ["KNOBS", "Figures", "Knob", "Tuning", "apply", "propose", "read_stored", "watch"]
