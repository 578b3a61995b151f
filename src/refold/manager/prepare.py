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
from refold.budget.decision import DecisionPolicy, decide_batch
from refold.conversation import because
from refold.conversation.message import frozen, read_as_result
from refold.conversation.reason import NO_REASON, Reason
from refold.conversation.view import Item, View
from refold.formats import place_messages
from refold.ladder.plan import check_fit, count_head, measure_foldable, order_stages
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


class _ChangedMeanwhile(Exception):
    """Another process changed the session, or a fold in the background needs it: the request is taken in again."""


def prepare_flow(keeper: Keeper, request: Request, background: Background) -> Flow[PreparedContext | None]:
    """Append what is new, decide, compress if needed, hand back; None if the messages do not follow the session's."""
    asks_no_model = False
    rounds = Rounds(keeper, request.session_id)
    while True:
        rounds.begin()
        session = yield from keeper.sessions.hold(request.session_id)
        try:
            taken = yield from _append(keeper, session, request)
            if taken is None:
                return None
            held = HeldRequest(keeper, session, taken)
            if not held.is_quiet():
                yield from held.compress(background, asks_no_model=asks_no_model)
            return held.hand_back()
        except _ChangedMeanwhile:
            request = request if request.follows is None else taken or request
            seconds = 0.0 if session.state.is_refused else keeper.config.compact_timeout_s
        finally:
            keeper.sessions.let_go(session)
        # If it does not fit, a fold in the background needs the session to commit: wait for that one, within limits.
        is_done = yield from background.wait(request.session_id, seconds)
        asks_no_model = asks_no_model or not is_done


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
    session = keeper.sessions.hold_now(request.session_id)
    if session is None:
        return None
    try:
        extension = extend_open(keeper, session, request)
        if extension is None:
            return None
        held = HeldRequest(keeper, session, request)
        if not held.is_quiet():
            return PreparedNow(extension, None)
        sizes = held.note_sent(), session.row.tokens + session.fixed_tokens, len(session.ids), len(session.edits)
        # The list of items keeps growing: read it before the next request.
        return PreparedNow(extension, PreparedView(*sizes, () if session.state.stubs else session.items))
    finally:
        keeper.sessions.let_go(session)


def store_prepared(keeper: Keeper, extensions: Sequence[Extension], *, may_wait: bool = False) -> list[bool] | None:
    """Store what ``prepare_now`` appended in memory; return whether each was stored, None if another writer is busy."""
    rows = store_extensions(keeper, extensions, may_wait=may_wait)
    if rows is None:
        return None
    for row in rows:
        session = keeper.sessions.hold_now(row.id) if row is not None else None
        if row is None or session is None:
            continue
        # Another process may have changed settings of the session, so take the stored row.
        if session.path_version == row.path_version:
            session.row, session.ahead = row, 0
        keeper.sessions.let_go(session)
    return [row is not None for row in rows]


class HeldRequest:
    """One request with its locked session: decides, compresses if needed, and builds the result."""

    def __init__(self, keeper: Keeper, session: OpenSession, request: Request) -> None:
        self._keeper, self._session, self._request = keeper, session, request
        self._made: BatchResult | None = None
        self._note = NO_REASON
        self._decide()

    def _decide(self) -> None:
        """Decide whether the session is compressed before this request, by the budget that is found for it."""
        keeper, session, request = self._keeper, self._session, self._request
        count_fixed(session, request)
        self._budget = keeper.counting.find_budget(session.row, session.counter, request.window, request.reserve)
        weighed = weigh(keeper, session, self._budget)
        self._decision = decide_batch(weighed.counts, weighed.budget, weighed.policy)

    def is_quiet(self) -> bool:
        """Return whether there is nothing to do for this request: nothing to compress, recall, carry over or log."""
        keeper, session, decision = self._keeper, self._session, self._decision
        fits = session.item_tokens + session.fixed_tokens <= self._budget.hard
        # The beginning and the end of a wait (until a change pays) are logged.
        is_logged = session.reported == name_wait(decision.trigger.reason)
        if decision.acts or decision.is_held or not fits or not is_logged or self._is_memory_due():
            return False
        has_hidden = len(session.messages) < len(session.ids)
        note = find_quiet_note(keeper, session) if has_hidden else NO_REASON
        self._note = note or NO_REASON
        return note is not None

    def _is_memory_due(self) -> bool:
        return bool(self._keeper.config.memory.inject) and is_memory_due(self._session)

    def compress(self, background: Background, *, asks_no_model: bool) -> Flow[None]:
        """Compress the session if that was decided, in the background if there is time; then add what is recalled."""
        keeper, session = self._keeper, self._session
        rounds = Rounds(keeper, session.id)
        made: BatchResult | None = None
        while True:
            rounds.begin()
            if self._has_made_room():
                continue
            is_idle = self._decision.trigger.strength != "hard" and session.idle == name_view(keeper, session)
            if not self._decision.acts or is_idle:
                break
            wish = self._make_wish(asks_no_model=asks_no_model or session.state.is_refused)
            may_wait = self._may_wait()
            if may_wait and made is None and _offloads_first(keeper) and not background.is_busy(session.id):
                # Offload for this request at once; only the summary may come later.
                wish = replace(wish, offloads_only=True)
            elif may_wait and background.begin(session.id, replace(wish, is_background=True)):
                made = BatchResult("begun", reason=because.IN_BACKGROUND(because=wish.trigger.reason))
                break
            elif background.is_busy(session.id):
                raise _ChangedMeanwhile
            made = yield from run_batch(keeper, session, wish, rounds)
            if made.ending == "stale":
                made, session.is_loaded = None, False
            elif not wish.offloads_only or _has_freed(keeper, made):
                break
            self._reload()
        self._made = made
        if made is not None and made.ending == "idle":
            session.idle = name_view(keeper, session)
        yield from finish(keeper, session, made, background.remember)
        self._tell_skipped()
        tokens_free = self._budget.hard - session.item_tokens - session.fixed_tokens
        is_compressed = made is not None and made.ending == "done"
        self._note = add_recalled(keeper, session, tokens_free, is_compressed=is_compressed)

    def _has_made_room(self) -> bool:
        """Carry notes into a new session, or withdraw recalled text that does not fit; return whether that was due."""
        keeper, session, fixed = self._keeper, self._session, self._session.fixed_tokens
        if self._is_memory_due():
            add_memory(keeper, session, self._budget.soft - session.item_tokens - fixed)
        elif not make_room(keeper, session, fixed, self._budget.hard):
            return False
        self._reload()
        return True

    def _make_wish(self, *, asks_no_model: bool) -> BatchRequest:
        session = self._session
        return BatchRequest(
            self._decision.trigger,
            session.row.model,
            self._budget,
            session.fixed_tokens,
            note=self._decision.note,
            asks_no_model=asks_no_model,
            unsent=frozenset(session.unsent),
            system=self._request.system,
            tools=self._request.tools,
        )

    def _reload(self) -> None:
        """Read the session again, whose path must still be that of this request, and decide again."""
        ids = self._session.ids
        self._keeper.open(self._session)
        if self._request.messages is not None and self._session.ids != ids:
            raise _ChangedMeanwhile
        self._decide()

    def _may_wait(self) -> bool:
        """Return whether a compression may run later: there is room, no count requires it, and a model writes it."""
        trigger = self._decision.trigger
        is_soft = trigger.strength == "soft" and not trigger.by_count
        return is_soft and self._keeper.config.background and self._keeper.asks_model(self._session.row)

    def _tell_skipped(self) -> None:
        """Report why a trigger led to nothing: log it once, notify listeners every time."""
        keeper, session, decision, made = self._keeper, self._session, self._decision, self._made
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

    def note_sent(self) -> int:
        """Record the size of the next request for later reports and decisions; return its tokens."""
        session, outcome = self._session, self._made.outcome if self._made is not None else None
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

    def hand_back(self) -> PreparedContext:
        """Return the context; raise BudgetTooSmall if it does not fit."""
        session, request, fixed = self._session, self._request, self._session.fixed_tokens
        if session.item_tokens + fixed > self._budget.hard:
            check_fit(View(tuple(session.items), (), (), session.lens, fixed), self._budget)
        tokens = self.note_sent()
        raws = session.raws(request.messages)
        return PreparedContext(
            messages=place_messages(session.row.wire, raws) if session.edits else raws,
            summary=find_summary(session.items) if session.batch_edits else None,
            total_tokens=tokens,
            original_tokens=session.row.tokens + fixed,
            system=request.system,
            tools=request.tools,
            edits=tuple(session.edits),
            report=self._write_report(tokens),
            originals=StoredOriginals(self._keeper, session.id),
            trace=session.trace(request.messages, request.origins),
            items=() if session.state.stubs else session.items,
        )

    def _write_report(self, tokens: int) -> Report:
        session, budget, decision, made = self._session, self._budget, self._decision, self._made
        notes = [decision.note] if decision.note and not decision.acts else []
        if made is not None:
            notes += made.notes
            notes += [made.reason] if made.ending in ("held", "vetoed", "missed", "idle", "begun") else []
        is_given = self._request.window is not None or self._keeper.config.window is not None
        notes += note_model(session.row.model, budget.window, is_given=is_given)
        notes += [self._note] if self._note else []
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
