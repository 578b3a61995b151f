"""Decides whether to compress before a request: the single decision behind every interface. Pure.

Triggers compare the numbers with their limits. If none fires, prices may still justify a compression. The switch
and the brake (L9) hold back everything but *hard*, because a context must fit (L1).
"""

from __future__ import annotations

from refold.budget.budget import Budget
from refold.budget.economics import Economics, check_economics
from refold.budget.trigger import Counts, Thresholds, Trigger, decide
from refold.conversation import because
from refold.conversation.message import frozen
from refold.conversation.reason import NO_REASON, Reason


@frozen
class DecisionPolicy:
    """Inputs of a decision besides the numbers. ``head_tokens`` come before anything that a change could touch.

    ``forced`` is why a compression is due whatever the numbers say: a provider refused the last request as too long.
    ``braked`` is why automatic ones have stopped.
    """

    thresholds: Thresholds = Thresholds()
    economics: Economics | None = None
    head_tokens: int = 0
    is_auto: bool = True
    forced: Reason = NO_REASON
    braked: Reason = NO_REASON


@frozen
class Decision:
    """The decision. ``note`` says why not to compress, or why despite a switch; ``is_held``: it was held back."""

    trigger: Trigger
    acts: bool
    note: Reason = NO_REASON
    is_held: bool = False


def decide_batch(counts: Counts, budget: Budget, policy: DecisionPolicy) -> Decision:
    """Return whether a trigger fires and whether anything holds it back. *hard* is never held back (L1)."""
    trigger = _find_trigger(counts, budget, policy)
    if not trigger.acts:
        return Decision(trigger, False, trigger.reason)
    if trigger.strength == "hard":
        return Decision(trigger, True, NO_REASON if policy.is_auto else because.HAD_TO(because=trigger.reason))
    if not policy.is_auto:
        return Decision(trigger, False, because.HELD_OFF(because=trigger.reason), True)
    if policy.braked:
        return Decision(trigger, False, policy.braked, True)
    return Decision(trigger, True)


def _find_trigger(counts: Counts, budget: Budget, policy: DecisionPolicy) -> Trigger:
    trigger = decide(counts, budget, policy.thresholds)
    if policy.forced and trigger.strength != "hard":
        return Trigger("soft", policy.forced, True)
    if trigger.acts or policy.economics is None:
        return trigger
    economic = check_economics(counts, policy.head_tokens, budget, policy.economics)
    return economic if economic.acts or trigger.strength == "none" else trigger
