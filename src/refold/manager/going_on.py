"""Going on with a session that is open: one more request, with what the one before cost, in one short transaction.

The common case of an agent behind the gateway: a few new messages, nothing to compress. It never waits, asks no model
and reads no file but the ledger's, so that it may run on an event loop. Whatever is not that plain is left to
``prepare_context``, which comes to the same result; what was stored here by then stays stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from refold.conversation.edit import Edit
from refold.conversation.message import Message
from refold.conversation.view import Item
from refold.ledger.encode import dump_json
from refold.ledger.ledger import QuickLedger, SessionRow, StoredMessage, Usage
from refold.manager.controls import describe_usage
from refold.manager.deciding import above_fixed, advance_carry
from refold.manager.injecting import may_recall
from refold.manager.intake import find_wire
from refold.manager.keeper import Keeper, Sent, Slot
from refold.manager.preparing import Request, count_fixed, decide_held
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
    """What became of it. Unless ``is_ready``, something asks for more than this can do; the messages are stored."""

    is_ready: bool
    row: SessionRow
    tokens: int = 0
    messages: int = 0
    items: Sequence[Item] = field(default=(), repr=False)
    edits: Sequence[Edit] = field(default=(), repr=False)


def go_on(keeper: Keeper, request: Request, billed: Sequence[Billed] = ()) -> WentOn | None:
    """Store what is new in a request, ``messages`` being that only; None, and nothing stored, if it is not plain."""
    extend = getattr(keeper.ledger, "extend", None)
    slot = keeper.hold_now(request.session_id) if extend is not None else None
    if slot is None:
        return None
    try:
        session = slot.session
        if session is None or not _is_alike(session, request):
            return None
        if not _store(keeper, slot, session, request, billed, keeper.ledger):  # type: ignore[arg-type]
            return None
        return _judge(keeper, slot, session, request)
    finally:
        keeper.let_go(slot)


def _is_alike(session: OpenSession, request: Request) -> bool:
    """Tell whether format and model are those of the session as it is open."""
    row = session.row
    if row.path_version != session.path_version or request.format != row.wire or (request.model or "") != row.model:
        return False
    if not request.messages:
        return True
    return find_wire(request.messages, row.wire, model="", system=None, tools=None, name=None) is None


def _store(
    keeper: Keeper,
    slot: Slot,
    session: OpenSession,
    request: Request,
    billed: Sequence[Billed],
    ledger: QuickLedger,
) -> bool:
    now = keeper.clock()
    messages: list[Message] = []
    stored: list[StoredMessage] = []
    parent, stages = session.ids[-1] if session.ids else "", keeper.arrival_stages()
    for at, raw in enumerate(request.messages or ()):
        message = session.lens.format.parse(raw, parent, f"messages[{at}]")
        if stages and render_arrival(stages, message):
            return False
        tokens = session.counter.count_parts(message.role, message.parts, message.name)
        messages.append(message)
        body = dump_json(message.raw)
        stored.append(StoredMessage(message.id, parent, message.digest, message.role, body, tokens, now))
        parent = message.id
    usages: list[Usage] = []
    settings: dict[str, object] = {}
    for one in billed:
        usage, changes = describe_usage(
            keeper, slot, session, one.usage, one.finish_reason, is_overflow=one.is_overflow
        )
        usages.append(usage)
        settings |= changes
    row = ledger.extend(session.row, stored, now=now, usages=usages, settings=settings)
    if row is None:
        return False
    session.row, session.path_version = row, row.path_version
    session.counter = keeper.find_counter(row, row.model)
    session.extend(messages, ())
    return True


def _judge(keeper: Keeper, slot: Slot, session: OpenSession, request: Request) -> WentOn:
    """Return the session as it goes upstream, if it may go as it is."""
    fixed = count_fixed(slot, session, request)
    row, tokens = session.row, session.item_tokens + fixed
    decision, budget = decide_held(keeper, slot, session, request, fixed)
    if decision.acts or decision.is_held or slot.told or tokens > budget.hard or may_recall(keeper, session):
        return WentOn(False, row)
    if keeper.config.economic:
        slot.carry = advance_carry(slot.carry, tokens, above_fixed(session, budget, tokens))
    slot.prepared_at = keeper.clock()
    slot.sent = Sent(row.model, tokens, session.marker, len(session.ids))
    # The lists go on growing: whoever looks at them does so before the next request.
    return WentOn(True, row, tokens, len(session.ids), session.items, session.edits)
