"""Budgets, triggers and prices: the room, when to act, and what it costs. Pure numbers; no conversation, no clock."""

from refold.budget.budget import Budget, Tiers, flat_budget, read_tokens, window_budget
from refold.budget.economics import Carry, Charge, Economics, Tariff
from refold.budget.trigger import Counts, Thresholds, Trigger, decide

__all__ = [
    "Budget",
    "Carry",
    "Charge",
    "Counts",
    "Economics",
    "Tariff",
    "Thresholds",
    "Tiers",
    "Trigger",
    "decide",
    "flat_budget",
    "read_tokens",
    "window_budget",
]
