"""Preparing a context: append what is new, compress if a trigger fires, return what fits (L1).

One flow serves sync and async callers. If nothing triggers a compression it costs O(new messages): no view is built,
and nothing is written except the new messages. A request that only appends to a session in memory is decided in
memory and stored in one short transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import orjson

from refold.budget import Budget
from refold.conversation import because
from refold.conversation.edit import Edit
from refold.conversation.handle import read_handle
from refold.conversation.message import Message
from refold.conversation.reason import NO_REASON, Reason
from refold.conversation.view import Item, View
from refold.ladder.plan import check_fit
from refold.ladder.report import Report
from refold.ledger.codec import dump_json
from refold.ledger.port import QuickLedger
from refold.ledger.records import Extension, SessionRow, StoredMessage, StoredUsage, extend_row
from refold.manager.append import Request, take_in
from refold.manager.commit import Made, Wish
from refold.manager.compress import Remember, finish, run_batch
from refold.manager.deciding import Decision, above_fixed, advance_carry, decide_now, make_economics
from refold.manager.flow import Flow, Rounds
from refold.manager.notices import Notice, make_event
from refold.manager.recall_injection import add_recalled, make_room, may_recall
from refold.manager.session import PINNED, OpenSession, Reported, is_refused, parse_stored
from refold.manager.store import Keeper, Sent, Slot
from refold.manager.usage import describe_usage
from refold.prepared import Originals, PreparedContext
from refold.recall.expand import find_handle
from refold.stages.arrival import render_arrival
from refold.tokens import model_info
from refold.tokens.counter import REPLY_TOKENS


def prepare_flow(keeper: Keeper, request: Request, remember: Remember) -> Flow[PreparedContext]:
    """Prepare a context for a request."""
    waited_in_vain = False
    rounds = Rounds(keeper, request.session_id)
    while True:
        rounds.begin()
        slot = yield from keeper.hold(request.session_id)
        try:
            session = yield from take_in(keeper, slot, request)
            prepared = yield from _prepare_held(keeper, slot, session, request, remember, waited_in_vain)
            if prepared is not None:
                return prepared
        finally:
            keeper.let_go(slot)
        # It does not fit, and a fold is under way that needs the session to be swapped in: wait for it, within limits.
        assert keeper.background is not None
        seconds = 0.0 if is_refused(session.row.settings) else keeper.config.compact_timeout_s
        is_done = yield from keeper.background.wait(request.session_id, seconds)
        waited_in_vain = waited_in_vain or not is_done


def _prepare_held(
    keeper: Keeper,
    slot: Slot,
    session: OpenSession,
    request: Request,
    remember: Remember,
    waited_in_vain: bool,
) -> Flow[PreparedContext | None]:
    """Prepare a session that is held; None if a fold in the background has to be waited for first."""
    model = session.row.model
    request = request.add_kept(session.row.settings)
    fixed = count_fixed(slot, session, request)
    made: Made | None = None
    rounds = Rounds(keeper, session.id)
    while True:
        rounds.begin()
        decision, budget = decide_held(keeper, slot, session, request, fixed)
        if make_room(keeper, session, fixed, budget.hard):
            session = keeper.open_stored(slot, session.id)
            continue
        if not decision.acts or (decision.trigger.strength != "hard" and slot.idle == _name_view(keeper, session)):
            break
        asks_no_model = waited_in_vain or is_refused(session.row.settings)
        wish = Wish(
            decision.trigger,
            model,
            budget,
            fixed,
            note=decision.note,
            asks_no_model=asks_no_model,
            unsent=frozenset(session.unsent),
        )
        if _may_wait(keeper, session, decision) and keeper.background is not None:
            begun = keeper.background.begin(session.id, replace(wish, is_background=True))
            if begun:
                made = Made("begun", reason=because.IN_BACKGROUND(because=decision.trigger.reason))
                break
        if keeper.background is not None and keeper.background.is_busy(session.id):
            return None
        made = yield from run_batch(keeper, session, wish, rounds)
        if made.ending != "stale":
            break
        slot.session = None
        session = keeper.open_stored(slot, session.id)
    if made is not None and made.ending == "idle":
        slot.idle = _name_view(keeper, session)
    yield from finish(keeper, session, made, remember)
    _tell_skipped(keeper, slot, session, decision, made)
    is_compressed = made is not None and made.ending == "done"
    recalled = add_recalled(keeper, session, budget.hard - session.item_tokens - fixed, is_compressed=is_compressed)
    return _hand_back(keeper, slot, session, request, decision, made, budget, fixed, recalled)


def _name_view(keeper: Keeper, session: OpenSession) -> tuple[object, ...]:
    """Return what a run of the ladder depends on: the same view gives the same result."""
    row = session.row
    return session.path_version, row.edits_version, row.model, row.settings.get(PINNED), id(keeper.config)


def _may_wait(keeper: Keeper, session: OpenSession, decision: Decision) -> bool:
    """Tell whether a compression may come later: there is room, nobody counts on it now, and a model writes it."""
    is_soft = decision.trigger.strength == "soft" and not decision.trigger.by_count
    return is_soft and keeper.config.background and keeper.asks_model(session.row)


def count_fixed(slot: Slot, session: OpenSession, request: Request) -> int:
    """Return the tokens of system prompt and tools; counted once as long as they stay the same."""
    counter, form = session.counter, session.lens.format
    key = (counter.name, form.name, _freeze(request.system), _freeze(request.tools))
    if slot.fixed != key:
        system = form.read_system(request.system or None)
        slot.system_tokens = counter.count_text(system)
        slot.fixed_tokens = REPLY_TOKENS + slot.system_tokens + counter.count_tools(request.tools)
        slot.fixed = key
    return slot.fixed_tokens


def _freeze(value: object) -> object:
    if value is None or isinstance(value, str):
        return value
    try:
        return orjson.dumps(value)
    except TypeError:
        return repr(value)


def decide_held(
    keeper: Keeper, slot: Slot, session: OpenSession, request: Request, fixed: int
) -> tuple[Decision, Budget]:
    """Say whether a session that is held is compressed before this request, and by which budget."""
    model, tokens = session.row.model, session.item_tokens + fixed
    budget = keeper.find_budget(model, session.counter, request.window, request.reserve)
    tiers = above_fixed(session, budget, tokens)
    reported = Reported.read(session.row.settings)
    now = keeper.clock()
    idle = replace(slot.carry, idle_s=max(0.0, now - slot.prepared_at) if slot.prepared_at else 0.0)
    decision = decide_now(
        session,
        keeper.config,
        tiers,
        tokens=tokens,
        model=model,
        reported_tokens=reported.count_now(model, session.marker, tokens) if reported else None,
        economics=make_economics(keeper.config, model_info(model or None), idle),
        head_tokens=_count_head(session, fixed),
    )
    return decision, budget


def _count_head(session: OpenSession, fixed: int) -> int:
    head = fixed
    for item in session.items:
        if item.is_fold:
            return head
        head += item.tokens
        if item.role != "system":
            return head if item.message.starts_turn else head - item.tokens
    return head


def _tell_skipped(keeper: Keeper, slot: Slot, session: OpenSession, decision: Decision, made: Made | None) -> None:
    """Say why nothing was done although something asked for it: logged once, told every time."""
    if made is not None and made.ending in ("held", "vetoed", "missed"):
        why = made.reason
    elif decision.is_held:
        why = decision.note
    else:
        _log_wait(keeper, slot, session, NO_REASON if decision.acts else decision.trigger.reason)
        return
    tokens = session.item_tokens
    notice = Notice("skipped", session.id, why, tokens, tokens, keeper.clock())
    # The same reason is logged once, or every call would write.
    key = f"{decision.trigger.strength} {why.code}"
    keeper.tell(notice, is_logged=slot.told != key)
    slot.told = key


def name_wait(reason: Reason) -> str:
    """Return what is noted as reported while a change waits until it pays; empty for any other reason."""
    return reason.code if reason.is_a(because.WAIT) else ""


def _log_wait(keeper: Keeper, slot: Slot, session: OpenSession, reason: Reason) -> None:
    """Log that a change was put off because it does not pay yet: once, until something else happens."""
    waits = name_wait(reason)
    if waits and slot.told != waits:
        tokens = session.item_tokens
        keeper.ledger.add_event(
            session.id, make_event(Notice("waited", session.id, reason, tokens, tokens, keeper.clock()))
        )
    slot.told = waits


def _hand_back(
    keeper: Keeper,
    slot: Slot,
    session: OpenSession,
    request: Request,
    decision: Decision,
    made: Made | None,
    budget: Budget,
    fixed: int,
    recalled: str,
) -> PreparedContext:
    tokens = session.item_tokens + fixed
    if tokens > budget.hard:
        check_fit(View(tuple(session.items), (), (), session.lens, fixed), budget)
    if made is not None and made.outcome is not None:
        slot.carry = made.outcome.carry
    elif keeper.config.economic:
        slot.carry = advance_carry(slot.carry, tokens, above_fixed(session, budget, tokens))
    slot.prepared_at = keeper.clock()
    model = session.row.model
    slot.sent = Sent(model, tokens, session.marker, len(session.ids))
    slot.unsent.clear()
    return PreparedContext(
        messages=session.raws(request.messages),
        summary=find_summary(session),
        total_tokens=tokens,
        system=request.system,
        tools=request.tools,
        edits=tuple(session.edits),
        report=_write_report(session, decision, made, budget, tokens, recalled),
        originals=StoredOriginals(keeper, session.id),
    )


def find_summary(session: OpenSession) -> str | None:
    """Return the summaries in view, or None."""
    folds = [item.edits[0] for item in session.items if item.is_fold] if session.batch_edits else []
    return "\n\n".join(edit.fold.summary if edit.fold else edit.text for edit in folds) or None


def _write_report(
    session: OpenSession, decision: Decision, made: Made | None, budget: Budget, tokens: int, recalled: str
) -> Report:
    counter, model = session.counter, session.row.model
    notes = [str(decision.note)] if decision.note and not decision.acts else []
    if made is not None:
        notes += made.notes
        notes += [str(made.reason)] if made.ending in ("held", "vetoed", "missed", "idle", "begun") else []
    if model and not model_info(model).is_known:
        notes.append(f"the model {model!r} is not known: a window of {budget.window:,} tokens is assumed")
    notes += [recalled] if recalled else []
    outcome = made.outcome if made is not None and made.ending == "done" else None
    return Report(
        reason=decision.trigger.reason if outcome else because.FITS(),
        counter=counter.name,
        margin=counter.margin,
        budget=budget,
        tokens_before=made.tokens_before if outcome and made else tokens,
        tokens_after=tokens,
        messages_before=len(session.ids),
        messages_after=len(session.items),
        stages=outcome.stages if outcome else (),
        notes=tuple(notes),
    )


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
    usages: list[StoredUsage] = []
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


class StoredOriginals(Originals):
    """Originals of one session, by handle."""

    def __init__(self, keeper: Keeper, session_id: str) -> None:
        super().__init__(())
        self._keeper = keeper
        self._session_id = session_id

    def find(self, handle: str) -> list[Message]:
        """Return the messages behind a handle: each content once, or all that a fold stands for."""
        row = self._keeper.need_row(self._session_id)
        lens = self._keeper.make_lens(row)
        found = find_handle(self._keeper.ledger, row, handle)
        if not (read_handle(handle) or "").startswith("f:"):
            found = list({stored.digest: stored for stored in found}.values())
        return [parse_stored(stored, row, lens) for stored in found]
