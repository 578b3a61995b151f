"""Preparing a context: append what is new, compress if a trigger fires, return what fits (L1).

One flow serves sync and async callers. If nothing triggers a compression it costs O(new messages), and a request that
only appends to a session in memory is decided in memory and stored in one short transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from functools import partial

import orjson

from refold.budget import Budget, Counts, Economics, Tariff
from refold.budget.decision import Decision, DecisionPolicy, decide_batch
from refold.conversation import because
from refold.conversation.message import frozen, is_notice, read_as_result
from refold.conversation.reason import NO_REASON, Reason, read_reason
from refold.conversation.view import Item, View
from refold.formats import place_messages
from refold.ladder.plan import Outcome, check_fit, count_head, measure_foldable, order_stages
from refold.ladder.report import Report
from refold.ladder.rereads import expect_rereads
from refold.ledger.records import SWITCH, Extension
from refold.manager.append import Request, extend_open, store_extensions, take_in
from refold.manager.background import Background
from refold.manager.batch import BatchRequest, BatchResult
from refold.manager.compress import finish, run_batch
from refold.manager.flow import Flow, Rounds, find_brake
from refold.manager.memory_notes import add_memory, is_memory_due, read_remembered
from refold.manager.notices import Notice, make_event
from refold.manager.recall_injection import add_recalled, find_quiet_note, make_room
from refold.manager.session import FORCED, FORGOTTEN, PINNED, OpenSession, Reported, is_refused, read_pinned
from refold.manager.store import Keeper, Sent, Slot
from refold.prepared import Originals, PreparedContext, find_summary, note_model
from refold.recall.originals import expand_handle
from refold.recall.upkeep import READ_MAX, READ_MIN, READ_SHARE
from refold.tokens import model_info
from refold.tokens.counter import REPLY_TOKENS


@frozen
class Judged:
    """The decision for a session before a request. ``fixed`` are the tokens of the system prompt and the tools."""

    decision: Decision
    budget: Budget
    fixed: int


@frozen
class Weighed:
    """The inputs of a decision: counts of the view, the budget lifted above what cannot shrink, and the policy."""

    counts: Counts
    budget: Budget
    policy: DecisionPolicy


@frozen
class PreparedView:
    """A prepared context by its items, for writing them into a client's bytes; ``messages`` counts the originals."""

    tokens: int
    tokens_before: int
    messages: int
    edits: int
    items: Sequence[Item] = field(default=(), repr=False)
    reason: Reason = NO_REASON
    has_forgotten: bool = False


@frozen
class PreparedNow:
    """A request prepared in memory; once ``extension`` is stored, one without a view needs ``prepare_flow``."""

    extension: Extension
    view: PreparedView | None


def prepare_flow(keeper: Keeper, request: Request, background: Background) -> Flow[PreparedContext]:
    waited_in_vain = False
    rounds = Rounds(keeper, request.session_id)
    while True:
        rounds.begin()
        slot = yield from keeper.hold(request.session_id)
        try:
            prepared = _prepare_in_memory(keeper, slot, request)
            if prepared is None:
                session, taken = yield from take_in(keeper, slot, request)
                held = HeldRequest(keeper, slot, session, taken.add_kept(session.row.settings))
                prepared = yield from held.prepare(background, asks_no_model=waited_in_vain)
            if prepared is not None:
                return prepared
        finally:
            keeper.let_go(slot)
        # Another process changed the path; or it does not fit, and a fold in the background needs the session to
        # commit: wait for that one, within limits.
        seconds = 0.0 if is_refused(session.row.settings) else keeper.config.compact_timeout_s
        is_done = yield from background.wait(request.session_id, seconds)
        waited_in_vain = waited_in_vain or not is_done


def _prepare_in_memory(keeper: Keeper, slot: Slot, request: Request) -> PreparedContext | None:
    """Prepare a request that only appends to a session in memory, and store it; None if it needs anything else."""
    extension = extend_open(keeper, slot, request)
    session = slot.session
    if extension is None or session is None:
        return None
    slot.session = None  # Nothing is shown before it is stored: the session returns to the slot afterwards.
    rows = store_extensions(keeper, (extension,), may_wait=True)
    if not rows or rows[0] is None:
        slot.stale = session
        return None
    slot.session, session.row, session.is_ahead = session, rows[0], False
    held = HeldRequest(keeper, slot, session, request)
    judged = held.judge()
    note = held.find_quiet_note(judged)
    return None if note is None else held.hand_back(judged, None, note)


def prepare_now(keeper: Keeper, request: Request) -> PreparedNow | None:
    """Prepare a request in memory without ever waiting; None, with nothing changed, if that is not possible."""
    slot = keeper.hold_now(request.session_id)
    if slot is None:
        return None
    try:
        extension = extend_open(keeper, slot, request)
        session = slot.session
        if extension is None or session is None:
            return None
        held = HeldRequest(keeper, slot, session, request)
        judged = held.judge()
        if held.find_quiet_note(judged) is None:
            return PreparedNow(extension, None)
        sizes = held.note_sent(judged), session.row.tokens + judged.fixed, len(session.ids), len(session.edits)
        # The list of items keeps growing: read it before the next request.
        is_forgotten = FORGOTTEN in session.row.settings
        return PreparedNow(extension, PreparedView(*sizes, session.items, has_forgotten=is_forgotten))
    finally:
        keeper.let_go(slot)


def store_prepared(keeper: Keeper, extensions: Sequence[Extension], *, may_wait: bool = False) -> list[bool] | None:
    """Store what ``prepare_now`` appended in memory; return whether each was stored, None if another writer is busy."""
    rows = store_extensions(keeper, extensions, may_wait=may_wait)
    if rows is None:
        return None
    for row in rows:
        slot = keeper.hold_now(row.id) if row is not None else None
        if row is None or slot is None:
            continue
        # Another process may have changed settings of the session, so take the stored row.
        if slot.session is not None and slot.session.path_version == row.path_version:
            slot.session.row, slot.session.is_ahead = row, False
        keeper.let_go(slot)
    return [row is not None for row in rows]


class HeldRequest:
    """One request with its locked session: decides, compresses if needed, and builds the result."""

    def __init__(self, keeper: Keeper, slot: Slot, session: OpenSession, request: Request) -> None:
        self._keeper = keeper
        self._slot = slot
        self._session = session
        self._request = request

    def judge(self) -> Judged:
        """Decide whether the session is compressed before this request, and by which budget."""
        keeper, session, request = self._keeper, self._session, self._request
        fixed = count_fixed(self._slot, session, request)
        budget = keeper.find_budget(session.row, session.counter, request.window, request.reserve)
        weighed = weigh(keeper, self._slot, session, budget)
        return Judged(decide_batch(weighed.counts, weighed.budget, weighed.policy), budget, fixed)

    def find_quiet_note(self, judged: Judged) -> Reason | None:
        """Return the report's note if there is nothing to do for this request; None if there is."""
        keeper, session, decision = self._keeper, self._session, judged.decision
        if keeper.config.memory.inject and is_memory_due(session):
            return None
        fits = session.item_tokens + judged.fixed <= judged.budget.hard
        # The beginning and the end of a wait (until a change pays) are logged.
        is_logged = self._slot.reported == name_wait(decision.trigger.reason)
        if decision.acts or decision.is_held or not fits or not is_logged:
            return None
        return find_quiet_note(keeper, session)

    def prepare(self, background: Background, *, asks_no_model: bool) -> Flow[PreparedContext | None]:
        """Prepare the context; None if the request has to be taken in again, after a fold in the background if any."""
        keeper, slot = self._keeper, self._slot
        made: BatchResult | None = None
        rounds = Rounds(keeper, self._session.id)
        while True:
            rounds.begin()
            session = self._session
            judged = self.judge()
            decision, fixed, hard = judged.decision, judged.fixed, judged.budget.hard
            if keeper.config.memory.inject and is_memory_due(session):
                self._session = add_memory(keeper, slot, session, judged.budget.soft - session.item_tokens - fixed)
                continue
            if make_room(keeper, session, fixed, hard):
                if not self._reload():
                    return None
                continue
            if not decision.acts or (decision.trigger.strength != "hard" and slot.idle == name_view(keeper, session)):
                break
            wish = BatchRequest(
                decision.trigger,
                session.row.model,
                judged.budget,
                fixed,
                note=decision.note,
                asks_no_model=asks_no_model or is_refused(session.row.settings),
                unsent=frozenset(session.unsent),
            )
            may_wait = self._may_wait(decision)
            if may_wait and made is None and _offloads_first(keeper) and not background.is_busy(session.id):
                # Offload for this request at once; only the summary may come later.
                wish = replace(wish, offloads_only=True)
            elif may_wait and background.begin(session.id, replace(wish, is_background=True)):
                made = BatchResult("begun", reason=because.IN_BACKGROUND(because=decision.trigger.reason))
                break
            elif background.is_busy(session.id):
                return None
            made = yield from run_batch(keeper, session, wish, rounds)
            if made.ending == "stale":
                made, slot.session, slot.stale = None, None, session
                if not self._reload():
                    return None
            elif not wish.offloads_only or _has_freed(keeper, made):
                break
        if made is not None and made.ending == "idle":
            slot.idle = name_view(keeper, self._session)
        yield from finish(keeper, session, made, background.remember)
        self._tell_skipped(decision, made)
        is_compressed = made is not None and made.ending == "done"
        note = add_recalled(keeper, session, hard - session.item_tokens - fixed, is_compressed=is_compressed)
        return self.hand_back(judged, made, note)

    def _reload(self) -> bool:
        """Read the session again; False if another process changed its path, which no longer fits this request."""
        ids = self._session.ids
        self._session = self._keeper.open_stored(self._slot, self._session.id)
        return self._request.messages is None or self._session.ids == ids

    def _may_wait(self, decision: Decision) -> bool:
        """Return whether a compression may run later: there is room, no count requires it, and a model writes it."""
        is_soft = decision.trigger.strength == "soft" and not decision.trigger.by_count
        return is_soft and self._keeper.config.background and self._keeper.asks_model(self._session.row)

    def _tell_skipped(self, decision: Decision, made: BatchResult | None) -> None:
        """Report why a trigger led to nothing: log it once, notify listeners every time."""
        keeper, slot, session = self._keeper, self._slot, self._session
        if made is not None and made.ending in ("held", "vetoed", "missed"):
            why = made.reason
        elif decision.is_held:
            why = decision.note
        else:
            self._log_wait(NO_REASON if decision.acts else decision.trigger.reason)
            return
        tokens = session.item_tokens
        notice = Notice("skipped", session.id, why, tokens, tokens, keeper.clock())
        # Log the same reason only once; otherwise every call would write.
        key = f"{decision.trigger.strength} {why.code}"
        keeper.tell(notice, is_logged=slot.reported != key)
        slot.reported = key

    def _log_wait(self, reason: Reason) -> None:
        """Log that a change was postponed because it does not pay yet: once, until something else happens."""
        waits, name, tokens = name_wait(reason), self._session.id, self._session.item_tokens
        if waits and self._slot.reported != waits:
            notice = Notice("waited", name, reason, tokens, tokens, self._keeper.clock())
            self._keeper.ledger.add_event(name, make_event(notice))
        self._slot.reported = waits

    def note_sent(self, judged: Judged, outcome: Outcome | None = None) -> int:
        """Record the size of the next request for later reports and decisions; return its tokens."""
        slot, session = self._slot, self._session
        tokens = session.item_tokens + judged.fixed
        if tokens > judged.budget.soft * READ_SHARE and self._keeper.folds:
            self._read_ahead()
        if outcome is not None:
            slot.carry = slot.carry.restart(outcome.carry.floor_tokens, outcome.carry.kept_tokens)
        else:
            slot.carry = slot.carry.advance(tokens)
        slot.prepared_at = self._keeper.clock()
        slot.sent = Sent(session.row.model, tokens, session.marker, len(session.ids))
        slot.unsent.clear()
        return tokens

    def _read_ahead(self) -> None:
        """Queue messages that the next fold will need for reading ahead, a few with each request."""
        slot, session = self._slot, self._session
        if slot.read_to > len(session.items):
            slot.read_to = 0
        if len(session.items) - slot.read_to < READ_MIN:
            return
        start, stop = slot.read_to, min(len(session.items), slot.read_to + READ_MAX)
        # A result is read with its call.
        while start and session.items[start].role == "tool":
            start -= 1
        items = [item for item in session.items[start:stop] if not item.edits]
        messages = [message for item in items if (message := session.messages.get(item.message.id)) is not None]
        observed = session.lens.is_observation
        said = [
            read_as_result(one) if is_notice(one.role, one.parts) or (one.role == "user" and observed(one)) else one
            for one in messages
        ]
        if self._keeper.read_ahead.ask(session.id, said):
            slot.read_to = stop

    def hand_back(self, judged: Judged, made: BatchResult | None, note: Reason) -> PreparedContext:
        """Return the context; raise BudgetTooSmall if it does not fit."""
        session, request, budget, fixed = self._session, self._request, judged.budget, judged.fixed
        if session.item_tokens + fixed > budget.hard:
            check_fit(View(tuple(session.items), (), (), session.lens, fixed), budget)
        tokens = self.note_sent(judged, made.outcome if made is not None else None)
        raws = session.raws(request.messages)
        return PreparedContext(
            messages=place_messages(session.row.wire, raws) if session.edits else raws,
            summary=find_summary(session.items) if session.batch_edits else None,
            total_tokens=tokens,
            original_tokens=session.row.tokens + fixed,
            system=request.system,
            tools=request.tools,
            edits=tuple(session.edits),
            report=self._write_report(judged, made, tokens, note),
            originals=StoredOriginals(self._keeper, session.id),
            trace=session.trace(request.messages, request.origins),
        )

    def _write_report(self, judged: Judged, made: BatchResult | None, tokens: int, note: Reason) -> Report:
        session, decision, budget = self._session, judged.decision, judged.budget
        notes = [decision.note] if decision.note and not decision.acts else []
        if made is not None:
            notes += made.notes
            notes += [made.reason] if made.ending in ("held", "vetoed", "missed", "idle", "begun") else []
        is_given = self._request.window is not None or self._keeper.config.window is not None
        notes += note_model(session.row.model, budget.window, is_given=is_given)
        notes += [note] if note else []
        outcome = made.outcome if made is not None and made.ending == "done" else None
        return Report(
            reason=decision.trigger.reason if outcome else because.FITS(),
            counter=session.counter.name,
            margin=session.counter.margin,
            budget=budget,
            tokens_before=made.tokens_before if outcome and made else tokens,
            tokens_after=tokens,
            messages_before=len(session.ids),
            messages_after=len(session.items),
            stages=outcome.stages if outcome else (),
            notes=tuple(notes),
        )


def weigh(keeper: Keeper, slot: Slot, session: OpenSession, budget: Budget) -> Weighed:
    """Return what decides whether a session is compressed before its next request, and what forecasts it."""
    config, row, fixed = keeper.config, session.row, slot.fixed_tokens
    tokens = session.item_tokens + fixed
    reported = Reported.read(row.settings)
    brake = find_brake(session, config.max_compaction_attempts, tokens, budget.hard)
    policy = DecisionPolicy(
        keeper.thresholds,
        make_economics(keeper, slot, session),
        count_head(session.items, fixed),
        config.is_auto and row.settings.get(SWITCH) is not False,
        read_reason(row.settings.get(FORCED)),
        NO_REASON if brake is None else because.BRAKED(misses=brake.misses, because=brake.why),
    )
    counts = session.count(tokens, reported.count_now(row.model, session.marker, tokens) if reported else None)
    lifted = session.lift(budget, tokens, config.fold)
    if config.fold.keeps_by_count:
        stages = order_stages(keeper.batch_stages(session.id, config))
        foldable = measure_foldable(lambda: _view_items(session, fixed), stages, lifted)
        counts = replace(counts, find_foldable=foldable)
    return Weighed(counts, lifted, policy)


def _view_items(session: OpenSession, fixed: int) -> View:
    """Return the view without the originals behind it: enough to see what a fold would take."""
    pinned = read_pinned(session.row.settings) | read_remembered(session.row.settings) | session.undone
    return View(tuple(session.items), (), (), session.lens, fixed, pinned)


def name_view(keeper: Keeper, session: OpenSession) -> tuple[object, ...]:
    """Return everything that a run of the ladder depends on: the same view gives the same result."""
    row, pinned = session.row, session.row.settings.get(PINNED)
    return session.path_version, row.edits_version, row.model, pinned, id(keeper.config)


def _offloads_first(keeper: Keeper) -> bool:
    """Return whether old results are offloaded to files before anything is folded."""
    ladder = keeper.config.ladder
    return keeper.config.write_files and "offload" in ladder and "fold" in ladder[ladder.index("offload") :]


def _has_freed(keeper: Keeper, made: BatchResult) -> bool:
    """Return whether offloading freed enough that nothing needs to be folded."""
    enough = keeper.config.fold.offload_freed_min
    freed = sum(stage.tokens_freed for stage in made.outcome.stages) if made.outcome is not None else 0
    return enough is not None and freed >= enough


def count_fixed(slot: Slot, session: OpenSession, request: Request) -> int:
    """Return the tokens of system prompt and tools, counted only when they change."""
    counter, form = session.counter, session.lens.format
    key = (counter.name, form.name, _freeze(request.system), _freeze(request.tools))
    if slot.fixed != key:
        slot.system_tokens = counter.count_text(form.read_system(request.system or None))
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


def make_economics(keeper: Keeper, slot: Slot, session: OpenSession) -> Economics | None:
    """Return the inputs of the economic trigger; None if it is off, or the model's prices or cache are unknown."""
    config, info = keeper.config, model_info(session.row.model or None)
    if not (config.economic and info.is_known and info.prices and info.cache.is_active):
        return None
    idle_s = max(0.0, keeper.clock() - slot.prepared_at) if slot.prepared_at else 0.0
    economics = config.economics(Tariff.of_model(info), replace(slot.carry, idle_s=idle_s))
    return replace(economics, expect_rereads=partial(expect_rereads, session.items, known=session.kinds))


def name_wait(reason: Reason) -> str:
    """Return the code to remember while a change is postponed until it pays; empty for any other reason."""
    return reason.code if reason.is_a(because.WAIT) else ""


class StoredOriginals(Originals):
    """Originals of one session, by handle."""

    def __init__(self, keeper: Keeper, session_id: str) -> None:
        super().__init__(())
        self._keeper = keeper
        self._session_id = session_id

    def read(self, handle: str) -> str:
        return expand_handle(self._keeper.ledger, self._keeper.need_row(self._session_id), str(handle)).text
