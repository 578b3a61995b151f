"""Going on with a session that is open: one more request of it, judged in memory and stored a moment later.

The common case of an agent behind the gateway: a few new messages, nothing to compress. ``go_on`` never waits, asks no
model and touches no file, so that it may run on an event loop; ``store`` writes what several sessions brought in one
short transaction. Whatever is not that plain is left to ``prepare_context``, which comes to the same result. If a
session turns out to be another than we held, nothing of it is stored, and it is dropped from memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from refold.conversation.edit import Edit
from refold.conversation.message import Message
from refold.conversation.view import Item
from refold.ledger.encode import dump_json
from refold.ledger.ledger import Extension, QuickLedger, SessionRow, StoredMessage, Usage
from refold.ledger.session_row import extend_row
from refold.manager.controls import describe_usage
from refold.manager.deciding import above_fixed, advance_carry
from refold.manager.injecting import may_recall
from refold.manager.keeper import Keeper, Sent, Slot
from refold.manager.preparing import count_fixed, decide_held, name_wait
from refold.manager.request import Request
from refold.manager.session import OpenSession
from refold.stages.arrival import render_arrival


@dataclass(frozen=True, slots=True)
class Billed:
    """What a provider said of the request before: its usage object, and how the answer ended."""

    usage: object
    finish_reason: str | None = None
    is_overflow: bool = False


@dataclass(frozen=True, slots=True)
class WentOn:
    """What became of it. ``extension`` is still to be stored. Unless ``is_ready``, something asks for more."""

    extension: Extension
    is_ready: bool
    row: SessionRow
    tokens: int = 0
    messages: int = 0
    items: Sequence[Item] = field(default=(), repr=False)
    edits: Sequence[Edit] = field(default=(), repr=False)


def go_on(keeper: Keeper, request: Request, billed: Sequence[Billed] = ()) -> WentOn | None:
    """Take in what is new in a request, ``messages`` being that only; None, and nothing changed, if it is not plain."""
    slot = keeper.hold_now(request.session_id) if hasattr(keeper.ledger, "extend") else None
    if slot is None:
        return None
    try:
        session = slot.session
        if session is None or not _is_alike(session, request):
            return None
        messages = _parse(keeper, session, request.messages or ())
        if messages is None:
            return None
        extension = _describe(keeper, slot, session, messages, billed)
        session.row = extend_row(session.row, extension)
        session.path_version = session.row.path_version
        session.counter = keeper.find_counter(session.row)
        session.extend(messages, ())
        return _judge(keeper, slot, session, request, extension)
    finally:
        keeper.let_go(slot)


def store(keeper: Keeper, extensions: Sequence[Extension], *, may_wait: bool = False) -> list[bool] | None:
    """Store what sessions went on with; say of each whether it was. None if another writer is at work."""
    rows = cast("QuickLedger", keeper.ledger).extend(extensions, may_wait=may_wait)
    if rows is None:
        return None
    for row, extension in zip(rows, extensions, strict=True):
        if row is None:
            keeper.drop(extension.seen.id)
        else:
            _settle(keeper, row)
    return [row is not None for row in rows]


def _settle(keeper: Keeper, row: SessionRow) -> None:
    """Take over the row as it was stored: another process may have changed settings of the session."""
    slot = keeper.hold_now(row.id)
    if slot is None:
        return
    session = slot.session
    if session is not None and session.path_version == row.path_version:
        session.row = row
    keeper.let_go(slot)


def _is_alike(session: OpenSession, request: Request) -> bool:
    """Tell whether format and model are those of the session as it is open."""
    row = session.row
    is_settled = row.path_version == session.path_version
    if request.follows is not None and request.follows != (len(session.ids), session.digests[-1]):
        return False  # Another process went on with it: what is new here does not follow its last message.
    return is_settled and request.format == row.wire and (request.model or "") == row.model


def _parse(keeper: Keeper, session: OpenSession, raws: Sequence[object]) -> list[Message] | None:
    """Return new messages; None if something is made of one on arrival."""
    parent, stages = session.ids[-1] if session.ids else "", keeper.arrival_stages()
    messages: list[Message] = []
    for at, raw in enumerate(raws):
        message = session.lens.format.parse(raw, parent, f"messages[{at}]")
        if stages and render_arrival(stages, message):
            return None
        messages.append(message)
        parent = message.id
    return messages


def _describe(
    keeper: Keeper, slot: Slot, session: OpenSession, messages: Sequence[Message], billed: Sequence[Billed]
) -> Extension:
    now = keeper.clock()
    stored: list[StoredMessage] = []
    parent = session.ids[-1] if session.ids else ""
    for message in messages:
        body, tokens = dump_json(message.raw), session.lens.plain(message).tokens
        stored.append(StoredMessage(message.id, parent, message.digest, message.role, body, tokens, now))
        parent = message.id
    usages: list[Usage] = []
    settings: dict[str, object] = {}
    for one in billed:
        known = {**session.row.settings, **settings}
        usage, changes = describe_usage(
            keeper, slot, session, one.usage, one.finish_reason, is_overflow=one.is_overflow, settings=known
        )
        usages.append(usage)
        settings |= changes
    return Extension(session.row, stored, now, usages, settings)


def _judge(keeper: Keeper, slot: Slot, session: OpenSession, request: Request, extension: Extension) -> WentOn:
    """Return the session as it goes upstream, if it may go as it is."""
    fixed = count_fixed(slot, session, request)
    row, tokens = session.row, session.item_tokens + fixed
    decision, budget = decide_held(keeper, slot, session, request, fixed)
    is_plain = not (decision.acts or decision.is_held) and tokens <= budget.hard
    # What is logged when it begins or ends is logged by the whole way; while it lasts there is nothing to log.
    if not is_plain or slot.told != name_wait(decision.trigger.reason) or may_recall(keeper, session):
        return WentOn(extension, False, row)
    if keeper.config.economic:
        slot.carry = advance_carry(slot.carry, tokens, above_fixed(session, budget, tokens))
    slot.prepared_at = extension.now
    slot.sent = Sent(row.model, tokens, session.marker, len(session.ids))
    slot.unsent.clear()
    # The lists go on growing: whoever looks at them does so before the next request.
    return WentOn(extension, True, row, tokens, len(session.ids), session.items, session.edits)
