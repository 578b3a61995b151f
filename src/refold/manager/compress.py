"""One compression of a session, under its lease: run the ladder, then commit. Whole or not at all.

Compression requires the lease; the loser reloads the winner's result. A person may ask for a compression as well, with
instructions, or as a dry run. Memory pages and summaries follow the commit; if writing them fails, the compression
stays and a warning says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from refold.budget import Trigger
from refold.conversation import because
from refold.conversation.reason import NO_REASON, Reason
from refold.errors import ChangeRefused, RefoldError
from refold.ladder.report import StageReport
from refold.manager.batch import Archived, BatchRequest, BatchResult, Compression
from refold.manager.flow import WAIT_S, Await, Flow, Rounds, give_lease, take_lease
from refold.manager.session import OpenSession
from refold.manager.store import Keeper

SOFT_WAIT_S = 5.0


def run_batch(keeper: Keeper, session: OpenSession, wish: BatchRequest, rounds: Rounds) -> Flow[BatchResult]:
    """Compress a session under its lease; if it ends ``stale``, the caller reloads the session and retries."""
    made = yield from _run_leased(keeper, session, wish)
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


def _run_leased(keeper: Keeper, session: OpenSession, wish: BatchRequest) -> Flow[BatchResult]:
    owner = yield from take_lease(keeper, session.id, WAIT_S if wish.must else SOFT_WAIT_S, must=wish.must)
    if not owner:
        return BatchResult("held", reason=because.LEASED())
    try:
        row = keeper.ledger.read_session(session.id)
        if row is None or not session.is_current(row):
            return BatchResult("stale")
        session.row = row
        return (yield from _compress(Compression(keeper, session, wish, owner), wish, keeper.clock()))
    finally:
        give_lease(keeper, session.id, owner)


def _compress(compression: Compression, wish: BatchRequest, started: float) -> Flow[BatchResult]:
    notes = [wish.note] if wish.note else []
    vetoed = compression.is_vetoed()
    if vetoed and not wish.must:
        return BatchResult("vetoed", reason=because.VETOED(because=wish.trigger.reason))
    if vetoed and wish.trigger.strength == "hard":
        notes.append(because.VETO_OVERRIDDEN(because=wish.trigger.reason))
    view = compression.make_view()
    try:
        outcome = yield from compression.plan(view)
        made = compression.commit(view, outcome)
    except RefoldError as error:
        compression.tell_failed(error, started)
        raise
    return replace(made, notes=(*made.notes, *notes))


Remember = Callable[[str, Archived], Awaitable[object]]


def finish(keeper: Keeper, session: OpenSession, made: BatchResult | None, remember: Remember) -> Flow[None]:
    """Write the memory page and the summaries of a compression; a failure is only a warning."""
    if made is None or made.ending != "done" or made.archived is None or not made.archived.count:
        return
    archived = made.archived
    failure = yield Await(lambda: remember(session.id, archived))
    if isinstance(failure, Exception):
        keeper.complain(
            session.id, [f"memory page or summaries not written: {type(failure).__name__}: {failure}"[:300]]
        )


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
    keeper: Keeper, session_id: str, instructions: str, remember: Remember, *, dry_run: bool, by_tool: bool = False
) -> Flow[CompactResult]:
    """Compress a session at the request of a person or a tool."""
    keeper.need_row(session_id)
    trigger = Trigger("soft", because.BY_TOOL() if by_tool else because.MANUAL(), True)
    slot = yield from keeper.hold(session_id)
    try:
        rounds = Rounds(keeper, session_id)
        while True:
            rounds.begin()
            session = keeper.open_stored(slot, session_id)
            budget, fixed = keeper.find_budget(session.row, session.counter), slot.fixed_tokens
            wish = BatchRequest(
                trigger, session.row.model, budget, fixed, instructions, is_manual=True, by_tool=by_tool
            )
            tokens = session.item_tokens + fixed
            if not session.items:
                return _unchanged(session, tokens, because.EMPTY())
            if dry_run:
                return (yield from _try_out(keeper, session, wish))
            made = yield from run_batch(keeper, session, wish, rounds)
            if made.ending == "stale":
                slot.session = None
                continue
            yield from finish(keeper, session, made, remember)
            return _tell(session, made, tokens, fixed)
    finally:
        keeper.let_go(slot)


def _try_out(keeper: Keeper, session: OpenSession, wish: BatchRequest) -> Flow[CompactResult]:
    compression = Compression(keeper, session, wish)
    view = compression.make_view()
    outcome = yield from compression.plan(view)
    session.lens.forget_all(session.items)
    covered = {message_id for edit in outcome.edits for message_id in edit.covers}
    return CompactResult(
        messages=session.raws(),
        previous_tokens=view.tokens,
        current_tokens=outcome.view.tokens,
        freed_tokens=view.tokens - outcome.view.tokens,
        preserved_count=sum(covered.isdisjoint(item.ids) for item in outcome.view.items),
        reason=wish.trigger.reason if outcome.edits else because.EMPTY(),
        stages=outcome.stages,
        is_dry_run=True,
    )


def _tell(session: OpenSession, made: BatchResult, tokens_before: int, fixed: int) -> CompactResult:
    if made.ending != "done" or made.outcome is None:
        unchanged = _unchanged(session, tokens_before, made.reason or because.EMPTY())
        return replace(unchanged, success=not made.is_failed)
    tokens = session.item_tokens + fixed
    new = {edit.id for edit in made.outcome.edits}
    return CompactResult(
        messages=session.raws(),
        previous_tokens=tokens_before,
        current_tokens=tokens,
        freed_tokens=tokens_before - tokens,
        preserved_count=sum(not any(edit.id in new for edit in item.edits) for item in session.items),
        deleted_files=made.deleted_files,
        reason=made.reason,
        stages=made.outcome.stages,
    )


def _unchanged(session: OpenSession, tokens: int, reason: Reason) -> CompactResult:
    return CompactResult(session.raws(), tokens, tokens, 0, len(session.items), reason=reason)
