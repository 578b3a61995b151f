"""What people and clients say about a session: undo, redo, pin, and what the provider billed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from refold.conversation import because
from refold.conversation.edit import Edit
from refold.conversation.reason import NO_REASON, Reason
from refold.conversation.view import Item
from refold.errors import FormatError, HandleUnknown
from refold.ledger.ledger import Event, Usage
from refold.manager.archived import list_summaries
from refold.manager.files import remove_others, write_named
from refold.manager.keeper import Keeper, Slot
from refold.manager.lease import leased
from refold.manager.notices import Notice
from refold.manager.session import OpenSession
from refold.manager.session_settings import (
    CALIBRATION,
    FORCED,
    PINNED,
    REPORTED,
    Reported,
    read_calibration,
    read_pinned,
    write_calibration,
)
from refold.manager.undoing import REDO, REDO_MAX, Switched, choose_redo, choose_undo, read_redo
from refold.memory import ContextSummary
from refold.recall.expand import find_handle

# S4.6: a cut-off answer says that the window is full only if the request came near it.
NEAR_WINDOW = 0.9


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
            raise HandleUnknown(f"nothing of {session_id!r} can be redone: the last change was not an undo")
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


def list_session_summaries(
    keeper: Keeper, session_id: str, folds: Sequence[Edit] | None = None
) -> list[ContextSummary]:
    """Return the summaries in force of a session; none if there is no such session.

    Whoever has the folds hands them in: reading hundreds of old ones after every compression would take seconds.
    """
    if folds is None:
        return list_summaries([(one.edit, one.created_at) for one in keeper.ledger.read_edits(session_id)])
    batches = enumerate(keeper.ledger.read_batches(session_id), start=1)
    # In the order they were made, which is not that of their times where a clock was set back.
    made = {edit: (number, batch.created_at) for number, batch in batches for edit in batch.edits}
    listed = sorted((*made.get(edit.id, (0, 0.0)), at) for at, edit in enumerate(folds))
    return list_summaries([(folds[at], time) for _, time, at in listed])


def observe_usage(
    keeper: Keeper, session_id: str, reported: object, *, finish_reason: str | None, is_overflow: bool
) -> None:
    """Record what a provider billed; correct counting by it, and remember what it says about the view."""
    keeper.need_row(session_id)
    with keeper.held(session_id) as slot:
        session = keeper.open_stored(slot, session_id)
        usage, changes = describe_usage(keeper, slot, session, reported, finish_reason, is_overflow=is_overflow)
        keeper.ledger.add_usage(session_id, usage)
        if changes:
            keeper.update_settings(session, changes)


def describe_usage(
    keeper: Keeper,
    slot: Slot,
    session: OpenSession,
    reported: object,
    finish_reason: str | None,
    *,
    is_overflow: bool = False,
    settings: Mapping[str, object] | None = None,
) -> tuple[Usage, dict[str, object]]:
    """Return what is recorded of a provider's bill, and the settings that follow from it.

    ``settings`` are the session's, where a bill before this one changed them and they are not stored yet.
    """
    sent = slot.sent
    model = sent.model if sent else session.row.model
    usage = Usage(
        created_at=keeper.clock(),
        model=model,
        counted_tokens=sent.tokens if sent else 0,
        path_length=sent.messages if sent else len(session.ids),
        edits_version=session.row.edits_version,
        **read_usage(reported),
    )
    changes: dict[str, object] = {}
    if sent is not None and usage.input_tokens > 0:
        known = session.row.settings if settings is None else settings
        calibration = read_calibration(known).observe(model, sent.tokens, usage.input_tokens)
        changes[CALIBRATION] = write_calibration(calibration)
        changes[REPORTED] = Reported(model, usage.input_tokens, sent.tokens, sent.marker).to_settings()
    forced = _find_force(keeper, session, usage, finish_reason, is_overflow=is_overflow)
    if forced:
        changes[FORCED] = forced.to_json()
    return usage, changes


def _find_force(
    keeper: Keeper, session: OpenSession, usage: Usage, finish_reason: str | None, *, is_overflow: bool
) -> Reason:
    if is_overflow:
        return because.OVERFLOW()
    if finish_reason not in ("length", "max_tokens"):
        return NO_REASON
    window = keeper.find_budget(usage.model, session.counter).window
    used = usage.input_tokens + usage.output_tokens
    # S4.6: in this preset always; else it was the cap on the answer unless the window was nearly full.
    if keeper.config.preset_name == "turns" or used >= NEAR_WINDOW * window:
        return because.CUT_OFF()
    return NO_REASON


def read_usage(reported: object) -> dict[str, int]:
    """Return a provider's usage in our names: a number of input tokens, or a usage object of any provider."""
    if isinstance(reported, bool):
        raise FormatError("usage is a number of input tokens or the provider's usage object, not a switch")
    if isinstance(reported, int | float):
        return {"input_tokens": _whole(reported)}
    fields = reported if isinstance(reported, Mapping) else getattr(reported, "__dict__", None)
    if not isinstance(fields, Mapping):
        raise FormatError(
            f"usage is a number of input tokens or the provider's usage object, not {type(reported).__name__}"
        )
    read, write = _whole(fields.get("cache_read_input_tokens")), _whole(fields.get("cache_creation_input_tokens"))
    if "prompt_tokens" in fields:
        given, answered = _whole(fields["prompt_tokens"]), _whole(fields.get("completion_tokens"))
    else:
        # Anthropic counts cached tokens apart from the input; OpenAI counts them in.
        given, answered = _whole(fields.get("input_tokens")) + read + write, _whole(fields.get("output_tokens"))
    details = fields.get("prompt_tokens_details") or fields.get("input_tokens_details")
    details = details if isinstance(details, Mapping) else getattr(details, "__dict__", {})
    return {
        "input_tokens": given,
        "output_tokens": answered,
        "cache_read_tokens": read or _whole(details.get("cached_tokens")),
        "cache_write_tokens": write,
    }


def _whole(figure: object) -> int:
    if isinstance(figure, bool) or not isinstance(figure, int | float) or figure != figure:
        return 0
    return int(min(max(figure, 0), 1_000_000_000))
