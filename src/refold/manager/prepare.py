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
from refold.conversation.message import frozen, read_as_result
from refold.conversation.reason import NO_REASON, Reason
from refold.conversation.view import Item, View
from refold.formats import place_messages
from refold.ladder.plan import Outcome, check_fit, count_head, measure_foldable, order_stages
from refold.ladder.report import Report
from refold.ladder.rereads import expect_rereads
from refold.ledger.records import Extension
from refold.manager.append import Request, check_messages, extend_open, store_extensions, take_in
from refold.manager.background import Background
from refold.manager.batch import BatchRequest, BatchResult
from refold.manager.compress import finish, run_batch
from refold.manager.flow import Flow, Rounds
from refold.manager.memory_notes import add_memory, is_memory_due
from refold.manager.notices import Notice, make_event
from refold.manager.recall_injection import add_recalled, find_quiet_note, make_room
from refold.manager.session import OpenSession, Sent
from refold.manager.store import Keeper
from refold.prepared import Originals, PreparedContext, find_summary, note_model
from refold.recall.originals import expand_handle
from refold.recall.upkeep import READ_MAX, READ_SHARE
from refold.tokens import model_info
from refold.tokens.counter import REPLY_TOKENS


@frozen
class Weighed:
    """The inputs of a decision: counts of the view, the budget lifted above what cannot shrink, and the policy."""

    counts: Counts
    budget: Budget
    policy: DecisionPolicy


@frozen
class PreparedView:
    """A prepared context by its items, for writing them into a client's bytes; ``messages`` counts the originals.

    There are no items if messages were forgotten, which must not come back from a client that still has them.
    """

    tokens: int
    tokens_before: int
    messages: int
    edits: int
    items: Sequence[Item] = field(default=(), repr=False)
    reason: Reason = NO_REASON

    @classmethod
    def of(cls, prepared: PreparedContext) -> PreparedView:
        """Return the figures of a prepared context, with the reason of a compression that was just made."""
        report = prepared.report
        assert report is not None, "a manager reports what it did"
        reason = report.reason if report.stages else NO_REASON
        sizes = prepared.total_tokens, prepared.original_tokens, report.messages_before, len(prepared.edits)
        # The session's own list, which grows with the next request.
        return cls(*sizes, prepared.items[: report.messages_after], reason)


@frozen
class PreparedNow:
    """A request prepared in memory; once ``extension`` is stored, one without a view needs ``prepare_flow``."""

    extension: Extension
    view: PreparedView | None


def prepare_flow(keeper: Keeper, request: Request, background: Background) -> Flow[PreparedContext | None]:
    """Append what is new, decide, compress if needed, hand back; None if the messages do not follow the session's."""
    waited_in_vain = False
    rounds = Rounds(keeper, request.session_id)
    while True:
        rounds.begin()
        session = yield from keeper.hold(request.session_id)
        try:
            taken = yield from _append(keeper, session, request)
            if taken is None:
                return None
            held = HeldRequest(keeper, session, taken)
            prepared = yield from held.prepare(background, asks_no_model=waited_in_vain)
            if prepared is not None:
                return prepared
            request = taken if request.follows is not None else request
            seconds = 0.0 if session.state.is_refused else keeper.config.compact_timeout_s
        finally:
            keeper.let_go(session)
        # Another process changed the path; or it does not fit, and a fold in the background needs the session to
        # commit: wait for that one, within limits.
        is_done = yield from background.wait(request.session_id, seconds)
        waited_in_vain = waited_in_vain or not is_done


def _append(keeper: Keeper, session: OpenSession, request: Request) -> Flow[Request | None]:
    """Store what is new, in memory first if the session is there; None if the messages do not follow its last one."""
    if request.messages and request.digests is None:
        request = replace(request, digests=session.prints.digest_all(check_messages(request.messages)))
    if session.is_shared and (row := keeper.ledger.read_session(session.id)) is not None:
        session.is_shared = not session.is_as_stored(row)
        keeper.open(session, row)
    extension = extend_open(keeper, session, request)
    if extension is not None:
        session.is_loaded = False  # Nothing is shown before it is stored.
        rows = store_extensions(keeper, (extension,), may_wait=True)
        if rows and rows[0] is not None:
            session.is_loaded, session.row, session.ahead = True, rows[0], 0
            return request if request.follows is None else replace(request, messages=None, follows=None, digests=None)
        session.may_be_reused = session.is_shared = True
    if request.follows is not None:
        return None
    taken = yield from take_in(keeper, session, request)
    return taken.add_kept(session.state.kept)


def prepare_now(keeper: Keeper, request: Request) -> PreparedNow | None:
    """Prepare a request in memory without ever waiting; None, with nothing changed, if that is not possible."""
    session = keeper.hold_now(request.session_id)
    if session is None:
        return None
    try:
        extension = extend_open(keeper, session, request)
        if extension is None:
            return None
        held = HeldRequest(keeper, session, request)
        if held.find_quiet_note(held.decide()) is None:
            return PreparedNow(extension, None)
        sizes = held.note_sent(), session.row.tokens + session.fixed_tokens, len(session.ids), len(session.edits)
        # The list of items keeps growing: read it before the next request.
        return PreparedNow(extension, PreparedView(*sizes, () if session.state.stubs else session.items))
    finally:
        keeper.let_go(session)


def store_prepared(keeper: Keeper, extensions: Sequence[Extension], *, may_wait: bool = False) -> list[bool] | None:
    """Store what ``prepare_now`` appended in memory; return whether each was stored, None if another writer is busy."""
    rows = store_extensions(keeper, extensions, may_wait=may_wait)
    if rows is None:
        return None
    for row in rows:
        session = keeper.hold_now(row.id) if row is not None else None
        if row is None or session is None:
            continue
        # Another process may have changed settings of the session, so take the stored row.
        if session.path_version == row.path_version:
            session.row, session.ahead = row, 0
        keeper.let_go(session)
    return [row is not None for row in rows]


class HeldRequest:
    """One request with its locked session: decides, compresses if needed, and builds the result."""

    def __init__(self, keeper: Keeper, session: OpenSession, request: Request) -> None:
        self._keeper, self._session, self._request = keeper, session, request

    def decide(self) -> Decision:
        """Decide whether the session is compressed before this request, by the budget that is found for it."""
        keeper, session, request = self._keeper, self._session, self._request
        count_fixed(session, request)
        self._budget = keeper.find_budget(session.row, session.counter, request.window, request.reserve)
        weighed = weigh(keeper, session, self._budget)
        return decide_batch(weighed.counts, weighed.budget, weighed.policy)

    def find_quiet_note(self, decision: Decision) -> Reason | None:
        """Return the report's note if there is nothing to do for this request; None if there is."""
        keeper, session = self._keeper, self._session
        if keeper.config.memory.inject and is_memory_due(session):
            return None
        fits = session.item_tokens + session.fixed_tokens <= self._budget.hard
        # The beginning and the end of a wait (until a change pays) are logged.
        is_logged = self._session.reported == name_wait(decision.trigger.reason)
        if decision.acts or decision.is_held or not fits or not is_logged:
            return None
        has_hidden = len(session.messages) < len(session.ids)
        return find_quiet_note(keeper, session) if has_hidden else NO_REASON

    def prepare(self, background: Background, *, asks_no_model: bool) -> Flow[PreparedContext | None]:
        """Prepare the context; None if the request has to be taken in again, after a fold in the background if any."""
        keeper, session = self._keeper, self._session
        made: BatchResult | None = None
        rounds = Rounds(keeper, session.id)
        while True:
            rounds.begin()
            decision = self.decide()
            if made is None and (quiet := self.find_quiet_note(decision)) is not None:
                return self.hand_back(decision, None, quiet)
            fixed, hard = session.fixed_tokens, self._budget.hard
            if keeper.config.memory.inject and is_memory_due(session):
                add_memory(keeper, session, self._budget.soft - session.item_tokens - fixed)
                continue
            if make_room(keeper, session, fixed, hard):
                if not self._reload():
                    return None
                continue
            is_idle = decision.trigger.strength != "hard" and session.idle == name_view(keeper, session)
            if not decision.acts or is_idle:
                break
            wish = BatchRequest(
                decision.trigger,
                session.row.model,
                self._budget,
                fixed,
                note=decision.note,
                asks_no_model=asks_no_model or session.state.is_refused,
                unsent=frozenset(session.unsent),
                system=self._request.system,
                tools=self._request.tools,
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
                made, session.is_loaded = None, False
                if not self._reload():
                    return None
            elif not wish.offloads_only or _has_freed(keeper, made):
                break
        if made is not None and made.ending == "idle":
            session.idle = name_view(keeper, session)
        yield from finish(keeper, session, made, background.remember)
        self._tell_skipped(decision, made)
        is_compressed = made is not None and made.ending == "done"
        note = add_recalled(keeper, session, hard - session.item_tokens - fixed, is_compressed=is_compressed)
        return self.hand_back(decision, made, note)

    def _reload(self) -> bool:
        """Read the session again; False if another process changed its path, which no longer fits this request."""
        ids = self._session.ids
        self._keeper.open(self._session)
        return self._request.messages is None or self._session.ids == ids

    def _may_wait(self, decision: Decision) -> bool:
        """Return whether a compression may run later: there is room, no count requires it, and a model writes it."""
        is_soft = decision.trigger.strength == "soft" and not decision.trigger.by_count
        return is_soft and self._keeper.config.background and self._keeper.asks_model(self._session.row)

    def _tell_skipped(self, decision: Decision, made: BatchResult | None) -> None:
        """Report why a trigger led to nothing: log it once, notify listeners every time."""
        keeper, session = self._keeper, self._session
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
        keeper.tell(notice, is_logged=session.reported != key)
        session.reported = key

    def _log_wait(self, reason: Reason) -> None:
        """Log that a change was postponed because it does not pay yet: once, until something else happens."""
        waits, name, tokens = name_wait(reason), self._session.id, self._session.item_tokens
        if waits and self._session.reported != waits:
            notice = Notice("waited", name, reason, tokens, tokens, self._keeper.clock())
            self._keeper.ledger.add_event(name, make_event(notice))
        self._session.reported = waits

    def note_sent(self, outcome: Outcome | None = None) -> int:
        """Record the size of the next request for later reports and decisions; return its tokens."""
        session = self._session
        tokens = session.item_tokens + session.fixed_tokens
        # Where processes take turns, the one that folds reads what it needs.
        if tokens > self._budget.soft * READ_SHARE and self._keeper.folds and not session.is_shared:
            self._read_ahead()
        if outcome is not None:
            session.carry = session.carry.restart(outcome.carry.floor_tokens, outcome.carry.kept_tokens)
        else:
            session.carry = session.carry.advance(tokens)
        session.prepared_at = self._keeper.clock()
        session.sent = Sent(session.row.model, tokens, session.marker, len(session.ids))
        session.unsent.clear()
        return tokens

    def _read_ahead(self) -> None:
        """Queue messages that the next fold will need for reading ahead, a few with each request."""
        session = self._session
        if session.read_to > len(session.items):
            session.read_to = 0
        if len(session.items) == session.read_to:
            return
        start, stop = session.read_to, min(len(session.items), session.read_to + READ_MAX)
        # A result is read with its call.
        while start and session.items[start].role == "tool":
            start -= 1
        items = [item for item in session.items[start:stop] if not item.edits]
        messages = [message for item in items if (message := session.messages.get(item.message.id)) is not None]
        observed = session.lens.is_observation
        said = [read_as_result(one) if one.role == "user" and observed(one) else one for one in messages]
        if self._keeper.read_ahead.ask(session.id, said):
            session.read_to = stop

    def hand_back(self, decision: Decision, made: BatchResult | None, note: Reason) -> PreparedContext:
        """Return the context; raise BudgetTooSmall if it does not fit."""
        session, request, fixed = self._session, self._request, self._session.fixed_tokens
        if session.item_tokens + fixed > self._budget.hard:
            check_fit(View(tuple(session.items), (), (), session.lens, fixed), self._budget)
        tokens = self.note_sent(made.outcome if made is not None else None)
        raws = session.raws(request.messages)
        return PreparedContext(
            messages=place_messages(session.row.wire, raws) if session.edits else raws,
            summary=find_summary(session.items) if session.batch_edits else None,
            total_tokens=tokens,
            original_tokens=session.row.tokens + fixed,
            system=request.system,
            tools=request.tools,
            edits=tuple(session.edits),
            report=self._write_report(decision, made, tokens, note),
            originals=StoredOriginals(self._keeper, session.id),
            trace=session.trace(request.messages, request.origins),
            items=() if session.state.stubs else session.items,
        )

    def _write_report(self, decision: Decision, made: BatchResult | None, tokens: int, note: Reason) -> Report:
        session, budget = self._session, self._budget
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


def weigh(keeper: Keeper, session: OpenSession, budget: Budget) -> Weighed:
    """Return what decides whether a session is compressed before its next request, and what forecasts it."""
    config, row, state, fixed = keeper.config, session.row, session.state, session.fixed_tokens
    reported = state.reported
    tokens = session.item_tokens + fixed
    brake = session.find_brake(config.max_compaction_attempts, tokens, budget.hard)
    policy = DecisionPolicy(
        keeper.thresholds,
        make_economics(keeper, session),
        count_head(session.items, fixed),
        keeper.is_auto and state.auto,
        state.forced,
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
    pinned = session.state.pinned | session.state.remembered | session.undone
    return View(tuple(session.items), (), (), session.lens, fixed, pinned)


def name_view(keeper: Keeper, session: OpenSession) -> tuple[object, ...]:
    """Return everything that a run of the ladder depends on: the same view gives the same result."""
    row = session.row
    return session.path_version, row.edits_version, row.model, session.state.pinned, id(keeper.config)


def _offloads_first(keeper: Keeper) -> bool:
    """Return whether old results are offloaded to files before anything is folded."""
    ladder = keeper.config.ladder
    return keeper.config.write_files and "offload" in ladder and "fold" in ladder[ladder.index("offload") :]


def _has_freed(keeper: Keeper, made: BatchResult) -> bool:
    """Return whether offloading freed enough that nothing needs to be folded."""
    enough = keeper.config.fold.offload_freed_min
    freed = sum(stage.tokens_freed for stage in made.outcome.stages) if made.outcome is not None else 0
    return enough is not None and freed >= enough


def count_fixed(session: OpenSession, request: Request) -> int:
    """Return the tokens of system prompt and tools, counted only when they change."""
    counter, form = session.counter, session.lens.format
    key = (counter.name, form.name, _freeze(request.system), _freeze(request.tools))
    if session.fixed != key:
        session.system_tokens = counter.count_text(form.read_system(request.system or None))
        session.fixed_tokens = REPLY_TOKENS + session.system_tokens + counter.count_tools(request.tools)
        session.fixed = key
    return session.fixed_tokens


def _freeze(value: object) -> object:
    if value is None or isinstance(value, str):
        return value
    try:
        return orjson.dumps(value)
    except TypeError:
        return repr(value)


def make_economics(keeper: Keeper, session: OpenSession) -> Economics | None:
    """Return the inputs of the economic trigger; None if it is off, or the model's prices or cache are unknown."""
    config, info = keeper.config, model_info(session.row.model or None)
    if not (config.economic and info.is_known and info.prices and info.cache.is_active):
        return None
    idle_s = max(0.0, keeper.clock() - session.prepared_at) if session.prepared_at else 0.0
    economics = config.economics(Tariff.of_model(info), replace(session.carry, idle_s=idle_s))
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
