"""How much room there is, and when to act. Pure numbers; no conversation, no clock."""

from refold.budget.budget import Budget, Tiers, flat_budget, window_budget
from refold.budget.trigger import Counts, Thresholds, Trigger, decide

__all__ = ["Budget", "Counts", "Thresholds", "Tiers", "Trigger", "decide", "flat_budget", "window_budget"]
