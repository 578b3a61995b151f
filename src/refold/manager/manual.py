"""A compression that a person asks for: with instructions, or only to see what would go (S2.4, S2.10)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from refold.budget import Trigger
from refold.conversation import because
from refold.conversation.reason import NO_REASON, Reason
from refold.ladder.report import StageReport
from refold.manager.batch import make_full_view, plan_batch, run_batch
from refold.manager.flow import Flow
from refold.manager.keeper import Keeper
from refold.manager.preparing import Remember, finish
from refold.manager.rounds import Rounds
from refold.manager.session import OpenSession
from refold.manager.wish import Made, Wish


@dataclass(frozen=True, slots=True)
class CompactResult:
    """What a compression that was asked for did. ``messages`` is what the model sees now."""

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
    keeper: Keeper, session_id: str, instructions: str, remember: Remember, *, dry_run: bool
) -> Flow[CompactResult]:
    """Compress a session by hand."""
    keeper.need_row(session_id)
    slot = yield from keeper.hold(session_id)
    try:
        rounds = Rounds(keeper, session_id)
        while True:
            rounds.begin()
            session = keeper.open_stored(slot, session_id)
            wish = _make_wish(keeper, session, slot.fixed_tokens, instructions)
            tokens = session.item_tokens + slot.fixed_tokens
            if not session.items:
                return _unchanged(session, tokens, because.EMPTY())
            if dry_run:
                return (yield from _try_out(keeper, session, wish))
            made = yield from run_batch(keeper, session, wish, rounds)
            if made.ending == "stale":
                slot.session = None
                continue
            yield from finish(keeper, session, made, remember)
            return _tell(session, made, tokens, slot.fixed_tokens)
    finally:
        keeper.let_go(slot)


def _make_wish(keeper: Keeper, session: OpenSession, fixed: int, instructions: str) -> Wish:
    model = session.row.model
    budget = keeper.find_budget(model, session.counter)
    return Wish(Trigger("soft", because.MANUAL(), True), model, budget, fixed, instructions, is_manual=True)


def _try_out(keeper: Keeper, session: OpenSession, wish: Wish) -> Flow[CompactResult]:
    view = make_full_view(keeper, session, wish)
    outcome = yield from plan_batch(keeper, session, wish, view)
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


def _tell(session: OpenSession, made: Made, tokens_before: int, fixed: int) -> CompactResult:
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
