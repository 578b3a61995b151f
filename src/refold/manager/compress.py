"""One compression of a session, under its lease: run the ladder, then commit. Whole or not at all.

A process that does not get the lease reloads the winner's result. Memory pages and summaries are written after the
commit; if that fails, the compression stays and a warning reports it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from refold.budget import Trigger
from refold.conversation import because
from refold.conversation.reason import NO_REASON, Reason
from refold.errors import ChangeRefused, RefoldError
from refold.ladder.report import StageReport
from refold.manager.batch import Archived, BatchRequest, BatchResult, Compression
from refold.manager.flow import WAIT_S, Await, Flow, Rounds
from refold.manager.session import OpenSession
from refold.manager.store import Keeper

if TYPE_CHECKING:
    from refold.manager.background import Background

SOFT_WAIT_S = 5.0
Remember = Callable[[str, Archived], Awaitable[object]]


def run_batch(keeper: Keeper, session: OpenSession, wish: BatchRequest, rounds: Rounds) -> Flow[BatchResult]:
    """Compress a session under its lease; if it ends ``stale``, the caller reloads the session and retries."""
    made = yield from run_leased(keeper, session, wish)
    if made.ending == "stale":
        yield rounds.lose()
    elif made.ending == "refused":
        try:
            yield rounds.refuse(session.row, made.reason)
        except ChangeRefused as error:
            compression = Compression(keeper, session, wish)
            compression.tell_failed(error)
            if wish.must:
                raise
            # The context fits as it is: return it with the reason, and count the miss.
            return compression.miss(made.reason)
        return BatchResult("stale", reason=made.reason)
    return made


def run_leased(keeper: Keeper, session: OpenSession, wish: BatchRequest) -> Flow[BatchResult]:
    """Run the ladder once this process has the lease, if the session is as it was loaded; a snapshot is loaded now."""
    wait_s = WAIT_S if wish.must else 0.0 if wish.is_background else SOFT_WAIT_S
    owner = yield from keeper.leases.take(session.id, wait_s, must=wish.must)
    if not owner:
        return BatchResult("held", reason=because.LEASED())
    try:
        row = keeper.ledger.read_session(session.id)
        if wish.is_background and row is not None and row.messages:
            keeper.open(session, row)
        if row is None or not session.is_loaded or not session.is_as_stored(row):
            return BatchResult("stale")
        session.row = row
        return (yield from run_ladder(keeper, session, wish, owner))
    finally:
        keeper.leases.give(session.id, owner)


def run_ladder(keeper: Keeper, session: OpenSession, wish: BatchRequest, owner: str) -> Flow[BatchResult]:
    """Run the ladder unless a listener vetoes it, and commit the result; ``owner`` has the lease.

    In the background, ``session`` is a snapshot: the session itself is held for the commit alone.
    """
    compression, started = Compression(keeper, session, wish, owner), keeper.clock()
    notes = [wish.note] if wish.note else []
    vetoed = compression.is_vetoed()
    if vetoed and not wish.must:
        return BatchResult("vetoed", reason=because.VETOED(because=wish.trigger.reason))
    if vetoed and wish.trigger.strength == "hard":
        notes.append(because.VETO_OVERRIDDEN(because=wish.trigger.reason))
    view = compression.make_view()
    try:
        outcome = yield from compression.plan(view)
        if wish.is_background:
            held = yield from keeper.sessions.hold(session.id)
            try:
                made = compression.commit_grown(view, outcome)
                held.drop()  # It has grown: the next use reloads it.
            finally:
                keeper.sessions.let_go(held)
        else:
            made = compression.commit(view, outcome)
    except RefoldError as error:
        compression.tell_failed(error, started)
        raise
    return replace(made, notes=(*made.notes, *notes))


def finish(keeper: Keeper, session: OpenSession, made: BatchResult | None, remember: Remember) -> Flow[None]:
    """Write the memory page and the summaries of a compression; a failure is only a warning."""
    if made is None or made.ending != "done" or made.archived is None or not made.archived.count:
        return
    archived = made.archived
    failure = yield Await(lambda: remember(session.id, archived))
    if isinstance(failure, Exception):
        problem = f"memory page or summaries not written: {type(failure).__name__}: {failure}"
        keeper.complain(session.id, [problem[:300]])


@dataclass(frozen=True, slots=True)
class CompactResult:
    """The result of a requested compression. ``messages`` is what the model sees now."""

    messages: list[object]
    previous_tokens: int
    current_tokens: int
    freed_tokens: int
    preserved_count: int
    deleted_files: tuple[str, ...] = ()
    success: bool = True
    reason: Reason = NO_REASON
    stages: tuple[StageReport, ...] = ()
    is_dry_run: bool = False


def compress_flow(
    keeper: Keeper, background: Background, session_id: str, instructions: str, dry_run: bool, *, by_tool: bool = False
) -> Flow[CompactResult]:
    """Compress a session at the request of a person, or of a model through a tool."""
    yield from background.cancel_flow(session_id)  # A manual compression does not wait for an automatic one.
    keeper.need_row(session_id)
    trigger = Trigger("soft", because.BY_TOOL() if by_tool else because.MANUAL(), True)
    session = yield from keeper.sessions.hold(session_id)
    try:
        rounds = Rounds(keeper, session_id)
        while True:
            rounds.begin()
            keeper.open(session)
            budget, fixed = keeper.counting.find_budget(session.row, session.counter), session.fixed_tokens
            wish = BatchRequest(
                trigger, session.row.model, budget, fixed, instructions, is_manual=True, by_tool=by_tool
            )
            tokens = session.item_tokens + fixed
            if not session.items:
                return _describe(session, tokens, tokens, 0, because.EMPTY())
            if dry_run:
                return (yield from _try_out(keeper, session, wish))
            made = yield from run_batch(keeper, session, wish, rounds)
            if made.ending == "stale":
                session.drop()
                continue
            yield from finish(keeper, session, made, background.remember)
            if made.ending != "done" or made.outcome is None:
                unchanged = _describe(session, tokens, tokens, len(session.items), made.reason or because.EMPTY())
                return replace(unchanged, success=not made.is_failed)
            new, after = {edit.id for edit in made.outcome.edits}, session.item_tokens + fixed
            kept = sum(not any(edit.id in new for edit in item.edits) for item in session.items)
            described = _describe(session, tokens, after, kept, made.reason)
            return replace(described, deleted_files=made.deleted_files, stages=made.outcome.stages)
    finally:
        keeper.sessions.let_go(session)


def _try_out(keeper: Keeper, session: OpenSession, wish: BatchRequest) -> Flow[CompactResult]:
    compression = Compression(keeper, session, wish)
    view = compression.make_view()
    outcome = yield from compression.plan(view)
    session.lens.forget_all(session.items)
    covered = {message_id for edit in outcome.edits for message_id in edit.covers}
    kept = sum(covered.isdisjoint(item.ids) for item in outcome.view.items)
    reason = wish.trigger.reason if outcome.edits else because.EMPTY()
    described = _describe(session, view.tokens, outcome.view.tokens, kept, reason)
    return replace(described, stages=outcome.stages, is_dry_run=True)


def _describe(session: OpenSession, before: int, after: int, kept: int, reason: Reason) -> CompactResult:
    return CompactResult(session.raws(), before, after, before - after, kept, reason=reason)
