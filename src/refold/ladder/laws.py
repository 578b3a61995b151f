"""The laws that a view must obey, each a small object: a name and a check that says what is wrong.

``find_broken`` checks each stage, ``plan.check_fit`` checks the whole ladder against L1. A broken law is our bug: it
raises in strict mode; otherwise the ladder refuses the edits and reports it. L5 to L7, L9 and L10 live where their
state is: handles, alignment, undo, limits and triggers have their own tests. ``plan`` says which messages are held for
L11.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from refold.conversation.turn import count_common
from refold.conversation.view import Item, View


@dataclass(frozen=True, slots=True)
class Law:
    """One law: ``check(before, after, stage)`` returns what is wrong, or an empty string."""

    name: str
    check: Callable[[View, View, str], str]


def _check_valid(before: View, after: View, stage: str) -> str:
    """L2: the provider would accept it, or the stage at least added no fault to the input."""
    known = Counter(before.lens.format.find_faults(before.items))
    new = Counter(after.lens.format.find_faults(after.items)) - known
    return f"{stage} made the view invalid: {next(iter(new))}" if new else ""


def _check_verbatim(_before: View, after: View, stage: str) -> str:
    """L3: an item without edits is the identical input object, and every change is an edit."""
    for item in after.items:
        if not item.edits and item.raw is not item.message.raw:
            return f"{stage} changed a message without an edit"
    return ""


def _check_smaller(before: View, after: View, stage: str) -> str:
    """L4: edits that were accepted made the view smaller."""
    if after.tokens > before.tokens:
        return f"{stage} grew the view from {before.tokens} to {after.tokens} tokens"
    return ""


def _check_protected(before: View, after: View, stage: str) -> str:
    """L8: system, pinned, newest user message and newest step come out untouched."""
    seen = {id(item.raw) for item in after.items}
    lost = next((at for at in sorted(before.protected) if id(before.items[at].raw) not in seen), None)
    return "" if lost is None else f"{stage} edited protected item {lost} ({before.items[lost].role})"


def _check_first_sight(before: View, after: View, stage: str) -> str:
    """L11: a held message, which no request contained yet or which is recent, comes out unchanged."""
    if not before.held:
        return ""
    seen = {id(item.raw) for item in after.items}
    for at, item in enumerate(before.items):
        if not item.is_fold and item.message.id in before.held and id(item.raw) not in seen:
            return f"{stage} edited item {at} ({item.role}), which must be sent whole first"
    return ""


LAWS = (
    Law("L2 valid", _check_valid),
    Law("L3 verbatim", _check_verbatim),
    Law("L4 smaller", _check_smaller),
    Law("L11 first sight", _check_first_sight),
    Law("L8 pinned", _check_protected),
)


def find_broken(
    before: View, after: View, stage: str, *, is_forced: bool = False, is_last: bool = False
) -> tuple[str, str] | None:
    """Return the first law that a stage broke and how, or None."""
    # A forced compression may fail to shrink; the last resort may cut what is protected.
    excused = {"L4 smaller": is_forced, "L8 pinned": is_last}
    judged = ((law.name, law.check(before, after, stage)) for law in LAWS if not excused.get(law.name))
    return next(((name, wrong) for name, wrong in judged if wrong), None)


def common_prefix(old: tuple[Item, ...], new: tuple[Item, ...]) -> int:
    """Return how many leading items two views share as the provider's cache would see it (L6)."""
    return count_common([item.raw for item in old], [item.raw for item in new])
