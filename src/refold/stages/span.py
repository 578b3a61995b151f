"""Spans: which units a fold may take, and what it covers.

Units before the newest user message and units after it are separate runs: a summary must never describe later events
before the question they answer. System, pinned and sealed messages inside a run stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from refold.conversation.message import Message
from refold.conversation.turn import Unit
from refold.conversation.view import Edit, Item, View

# Marks folds that only say that messages are gone, without a record of their content.
BARE = "window"


def is_record(item: Item) -> bool:
    """Tell whether an item is a fold with a record of what happened, not only a note that messages are gone."""
    return item.is_fold and (fold := item.edits[0].fold) is not None and fold.by != BARE


def free_runs(view: View) -> list[list[Unit]]:
    """Return the units that may be folded, oldest first, split at the newest user message; empty runs left out."""
    newest = len(view.items) if view.newest_user is None else view.newest_user
    runs: tuple[list[Unit], list[Unit]] = ([], [])
    for unit in view.free_units():
        runs[unit.start > newest].append(unit)
    return [run for run in runs if run]


def items_of(view: View, units: Iterable[Unit]) -> list[Item]:
    """Return the items of these units, in order."""
    return [view.items[at] for unit in units for at in range(unit.start, unit.stop)]


def covered_messages(view: View, items: Iterable[Item]) -> tuple[Message, ...]:
    """Return every message behind these items, in the order of the conversation."""
    wanted = {message.id for item in items for message in item.messages}
    return tuple(message for message in view.messages if message.id in wanted)


def earlier_folds(items: Sequence[Item]) -> list[Edit]:
    """Return the folds among these items, oldest first."""
    return [item.edits[0] for item in items if item.is_fold]


def find_head(view: View, span: Sequence[Unit]) -> int:
    """Return where the run of a span begins, even if its first units stay."""
    first = span[0].start
    return next((run[0].start for run in free_runs(view) if any(unit.start == first for unit in run)), first)


def name_place(item: Item) -> str:
    """Return the id of the message before which a fold is placed that replaces this item."""
    return (item.edits[0].before if item.is_fold else "") or item.message.id
