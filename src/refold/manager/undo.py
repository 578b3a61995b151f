"""Undo, redo and pin. Edits are switched off and on, never changed (L7).

Undoing an edit also undoes the edits made from it. An undone compression can be redone until the next one, and its span
is not folded again automatically while the view fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from refold.conversation.view import Item
from refold.errors import HandleUnknown, Sentence
from refold.ledger.port import Ledger
from refold.ledger.records import Event, StoredEdit
from refold.manager.commit import remove_others, write_named
from refold.manager.lease import leased
from refold.manager.notices import Notice
from refold.manager.session import PINNED, REDO, OpenSession, read_pinned
from refold.manager.store import Keeper, Slot
from refold.recall.expand import find_handle

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
        raise HandleUnknown(Sentence("there is no compression of {session!r} to undo", session=session_id))
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
            Sentence(
                "no edit in force of {session!r} is called {name!r}; 'refold show --edits' lists them",
                session=session_id,
                name=name[:40],
            )
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


def undo(keeper: Keeper, session_id: str, edit_id: str | None) -> Switched:
    """Switch edits off, with all made from them."""
    keeper.need_row(session_id)
    with keeper.held(session_id) as slot, leased(keeper, session_id):
        session = keeper.open_stored(slot, session_id)
        ids = choose_undo(keeper.ledger, session_id, edit_id)
        groups = [*read_redo(session.row.settings.get(REDO)), list(ids)][-REDO_MAX:]
        return _switch(keeper, slot, session, ids, groups, on=False)


def redo(keeper: Keeper, session_id: str, edit_id: str | None = None) -> Switched:
    """Switch on what was undone last, or one undone edit by its id."""
    keeper.need_row(session_id)
    with keeper.held(session_id) as slot, leased(keeper, session_id):
        session = keeper.open_stored(slot, session_id)
        groups = read_redo(session.row.settings.get(REDO))
        if not groups:
            raise HandleUnknown(
                Sentence("nothing of {session!r} can be redone: the last change was not an undo", session=session_id)
            )
        chosen = choose_redo(keeper.ledger.read_edits(session_id, active_only=False), groups, edit_id)
        ids = tuple(dict.fromkeys(one for at in chosen for one in groups[at]))
        left = [group for at, group in enumerate(groups) if at not in chosen]
        return _switch(keeper, slot, session, ids, left, on=True)


def _switch(
    keeper: Keeper, slot: Slot, session: OpenSession, ids: tuple[str, ...], groups: list[list[str]], *, on: bool
) -> Switched:
    now, before = keeper.clock(), session.item_tokens + slot.fixed_tokens
    kind = "redone" if on else "undone"
    event = Event(kind, now, {"edits": list(ids), "tokens_before": before})
    stored = keeper.ledger.read_edits(session.id, active_only=False)
    named = write_named(keeper, session, [one.edit for one in stored if (on if one.edit.id in ids else one.is_active)])
    keeper.ledger.switch_edits(session.id, ids, on=on, now=now, event=event)
    keeper.ledger.update_session(session.id, {"settings": {REDO: groups or None}}, now)
    slot.session = None
    session = keeper.open_stored(slot, session.id)
    keeper.complain(session.id, remove_others(keeper, session.id, named))
    after = session.item_tokens + slot.fixed_tokens
    notice = Notice(kind, session.id, tokens_before=before, tokens_after=after, time=now, fields={"edits": list(ids)})
    keeper.tell(notice, is_logged=False)
    return Switched(ids, before, after)


def pin(keeper: Keeper, session_id: str, handle: str, *, on: bool) -> tuple[str, ...]:
    """Pin or unpin the messages on the path that a handle names."""
    row = keeper.need_row(session_id)
    with keeper.held(session_id) as slot:
        session = keeper.open_stored(slot, session_id)
        digests = {stored.digest for stored in find_handle(keeper.ledger, row, handle)}
        named = {one for one, digest in zip(session.ids, session.digests, strict=True) if digest in digests}
        if not named:
            raise HandleUnknown(f"what {handle[:40]!r} names is no longer part of {session_id!r}")
        pinned = read_pinned(session.row.settings)
        pinned = pinned | named if on else pinned - named
        kept = [one for one in session.ids if one in pinned]
        keeper.update_settings(session, {PINNED: kept or None})
        return tuple(kept)


def read_view(keeper: Keeper, session_id: str) -> list[Item]:
    """Return the items of a session's view, without their originals."""
    keeper.need_row(session_id)
    with keeper.held(session_id) as slot:
        return list(keeper.open_stored(slot, session_id).items)
