"""Undo and redo: edits are switched off and on, never changed (L7).

Undoing an edit also undoes those made from it. What was undone can be redone in turn until the next compression; it
is not folded again by itself before the view would not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from refold.errors import HandleUnknown
from refold.ledger.ledger import Ledger, StoredEdit

REDO = "redo"
REDO_MAX = 50


@dataclass(frozen=True, slots=True)
class Switched:
    """What an undo or redo did: the edits by id, and the view's tokens before and after."""

    edits: tuple[str, ...]
    tokens_before: int = 0
    tokens_after: int = 0


def choose_undo(ledger: Ledger, session_id: str, edit_id: str | None) -> tuple[str, ...]:
    """Return the edits to switch off: those of the last compression, or one edit (or batch) by its id, with all made
    from them."""
    stored = ledger.read_edits(session_id)
    chosen = _find_last(ledger, session_id) if edit_id is None else _find_named(ledger, session_id, stored, edit_id)
    return with_descendants(stored, chosen)


def with_descendants(stored: Sequence[StoredEdit], chosen: Sequence[str]) -> tuple[str, ...]:
    """Return these edits and all that were made from them, in the order they were made."""
    gone = set(chosen)
    while more := {one.edit.id for one in stored if one.edit.id not in gone and gone.intersection(one.edit.made_from)}:
        gone |= more
    return tuple(one.edit.id for one in stored if one.edit.id in gone)


def _find_last(ledger: Ledger, session_id: str) -> Sequence[str]:
    active = [batch for batch in ledger.read_batches(session_id) if batch.is_active]
    if not active:
        raise HandleUnknown(f"there is no compression of {session_id!r} to undo")
    return active[-1].edits


def _find_named(ledger: Ledger, session_id: str, stored: Sequence[StoredEdit], name: str) -> Sequence[str]:
    wanted = name.strip().lower()
    found = [one.edit.id for one in stored if wanted and one.edit.id.startswith(wanted)]
    folds = [one.edit.id for one in stored if one.edit.fold and one.edit.fold.handle == wanted.strip("⟨⟩")]
    batches = [batch for batch in ledger.read_batches(session_id) if wanted and batch.id.startswith(wanted)]
    choices: list[Sequence[str]] = [[one] for one in found + folds] + [
        batch.edits for batch in batches if batch.is_active
    ]
    if not choices:
        raise HandleUnknown(
            f"no edit in force of {session_id!r} is called {name[:40]!r}; 'refold show --edits' lists them"
        )
    if len(choices) > 1:
        raise HandleUnknown(f"{name[:40]!r} could be {len(choices)} edits; give more of its id")
    return choices[0]


def choose_redo(stored: Sequence[StoredEdit], groups: Sequence[Sequence[str]], edit_id: str | None) -> list[int]:
    """Return which groups of undone edits to switch on: the last, or that of one edit with all it was made from."""
    if edit_id is None:
        return [len(groups) - 1]
    wanted = edit_id.strip().lower()
    chosen = {at for at, group in enumerate(groups) if wanted and any(one.startswith(wanted) for one in group)}
    if not chosen:
        raise HandleUnknown(f"no edit that was undone is called {edit_id[:40]!r}, or a compression came after")
    made_from = {one.edit.id: one.edit.made_from for one in stored}
    while True:
        needed = {source for at in chosen for one in groups[at] for source in made_from.get(one, ())}
        more = {at for at, group in enumerate(groups) if not needed.isdisjoint(group)} - chosen
        if not more:
            return sorted(chosen)
        chosen |= more


def read_redo(settings: object) -> list[list[str]]:
    """Return what can be redone, the last undone last."""
    stored = settings if isinstance(settings, list) else []
    return [[one for one in group if isinstance(one, str)] for group in stored if isinstance(group, list)]
