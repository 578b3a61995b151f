"""One compression of a session, under its lease: run the ladder, then commit. Whole or not at all.

Compression requires the lease; the loser reloads the winner's result. A person may ask for a compression as well, with
instructions, or as a dry run.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from itertools import takewhile

from refold.budget import Trigger
from refold.conversation import because
from refold.conversation.message import Message
from refold.conversation.reason import NO_REASON, Reason
from refold.conversation.view import View
from refold.errors import ChangeRefused, LedgerError, RefoldError, SessionBusy
from refold.ladder.plan import Outcome, Plan, order_stages, prepare
from refold.ladder.report import StageReport
from refold.llm.redact import find_secrets
from refold.llm.summariser import Summariser, ask_as
from refold.manager.commit import Archived, BatchRequest, BatchResult, commit_outcome, miss, tell_failed
from refold.manager.flow import Await, Flow, ModelQuestion, Rounds, give_lease, take_lease
from refold.manager.memory_notes import read_remembered
from refold.manager.notices import Notice
from refold.manager.recall_injection import leave_out_recalled, put_back_recalled
from refold.manager.session import OpenSession, read_pinned
from refold.manager.store import Keeper
from refold.offload import OffloadFolder
from refold.stages.fold import Fold
from refold.stages.offload import read_path
from refold.stages.prompts import FACTS_MARK
from refold.stages.stage import Ask, OutOfTime, Reply

UNAVAILABLE = "[Content unavailable: {path}]"
FILES_MAX = 500


def restore_results(messages: Iterable[Message], folder: OffloadFolder) -> dict[str, str]:
    """Return the content of offloaded results by their placeholder text."""
    restored: dict[str, str] = {}
    for message in messages:
        for part in message.parts:
            path = read_path(part.text) if part.kind == "result" else ""
            if not path.startswith(f"{folder.relative}/") or part.text in restored:
                continue
            if len(restored) >= FILES_MAX:
                return restored
            content = folder.read(path)
            restored[part.text] = UNAVAILABLE.format(path=path) if content is None else content
    return restored


SOFT_WAIT_S = 5.0
HARD_WAIT_S = 150.0
# Processor time for the ladder of one compression; after that it goes on with its cheapest stages.
CPU_S_MAX = 10.0


class WorkLimit:
    """Limits the processor time of work that runs in one thread after the other, with waits in between."""

    def __init__(self, seconds: float | None = None) -> None:
        self._left_s = CPU_S_MAX if seconds is None else seconds
        self.resume()

    def resume(self) -> None:
        """Start to count in this thread."""
        self._since = time.thread_time()

    def check(self) -> None:
        """Raise OutOfTime if the work has taken too long."""
        now = time.thread_time()
        self._left_s, self._since = self._left_s - (now - self._since), now
        if self._left_s < 0:
            raise OutOfTime


def run_batch(keeper: Keeper, session: OpenSession, wish: BatchRequest, rounds: Rounds) -> Flow[BatchResult]:
    """Compress a session under its lease; if it ends ``stale``, the caller reloads the session and retries."""
    made = yield from _run_leased(keeper, session, wish)
    if made.ending == "stale":
        yield rounds.lose()
    elif made.ending == "refused":
        try:
            yield rounds.refuse(session.row, made.reason)
        except ChangeRefused as error:
            tell_failed(keeper, session, wish, error)
            if wish.must:
                raise
            # The context fits as it is: return it with the reason, and count the miss.
            return miss(keeper, session, wish, made.reason)
        return BatchResult("stale", reason=made.reason)
    return made


def _run_leased(keeper: Keeper, session: OpenSession, wish: BatchRequest) -> Flow[BatchResult]:
    owner = yield from take_lease(keeper, session.id, HARD_WAIT_S if wish.must else SOFT_WAIT_S)
    if not owner and wish.must:
        raise SessionBusy(
            "another process has been compressing {id!r} for {hard_wait_s:g} s; try again",
            id=session.id,
            hard_wait_s=HARD_WAIT_S,
        )
    if not owner:
        return BatchResult("held", reason=because.LEASED())
    try:
        row = keeper.ledger.read_session(session.id)
        if row is None or not session.is_current(row):
            return BatchResult("stale")
        session.row = row
        return (yield from _compress(keeper, session, wish, owner))
    finally:
        give_lease(keeper, session.id, owner)


def _compress(keeper: Keeper, session: OpenSession, wish: BatchRequest, owner: str) -> Flow[BatchResult]:
    started = keeper.clock()
    notes = [wish.note] if wish.note else []
    vetoed = is_vetoed(keeper, session, wish)
    if vetoed and not wish.must:
        return BatchResult("vetoed", reason=because.VETOED(because=wish.trigger.reason))
    if vetoed and wish.trigger.strength == "hard":
        notes.append(because.VETO_OVERRIDDEN(because=wish.trigger.reason))
    view = make_full_view(keeper, session, wish)
    try:
        outcome = yield from plan_batch(keeper, session, wish, view, owner)
        made = commit_outcome(keeper, session, wish, view, outcome, owner)
    except RefoldError as error:
        tell_failed(keeper, session, wish, error, started)
        raise
    return replace(made, notes=(*made.notes, *notes))


def is_vetoed(keeper: Keeper, session: OpenSession, wish: BatchRequest) -> bool:
    """Ask the listeners whether a compression may run."""
    tokens = session.item_tokens + wish.fixed_tokens
    asked = Notice("before_compress", session.id, wish.trigger.reason, tokens, time=keeper.clock())
    vetoed, problems = keeper.listeners.is_vetoed(asked)
    keeper.complain(session.id, problems)
    return vetoed


def make_full_view(keeper: Keeper, session: OpenSession, wish: BatchRequest) -> View:
    """Return the view with its originals; messages of undone edits are protected until the view must shrink."""
    pinned = read_pinned(session.row.settings) | read_remembered(session.row.settings)
    if not wish.must:
        pinned |= session.undone
    return session.make_view(keeper.ledger, fixed_tokens=wish.fixed_tokens, pinned=pinned)


def plan_batch(keeper: Keeper, session: OpenSession, wish: BatchRequest, view: View, owner: str = "") -> Flow[Outcome]:
    """Run the ladder over a view without recalled text; prolong the lease after every answer of a model."""
    said = leave_out_recalled(view)
    summariser = keeper.find_summariser(session.row, is_manual=wish.is_manual)
    stages = order_stages(keeper.batch_stages(session.id, summariser.settle()))
    if wish.offloads_only:
        stages = tuple(takewhile(lambda one: not isinstance(one, Fold), stages))
    asks_model = any(isinstance(one, Fold) and one.summariser == "llm" for one in stages)
    stages = tuple(_choose_writer(one, wish) if isinstance(one, Fold) else one for one in stages)
    limit = WorkLimit()
    plan = Plan(
        budget=wish.budget,
        stages=stages,
        check=limit.check,
        find_secrets=find_secrets if keeper.config.redact else None,
        restored=restore_results(said.messages, keeper.find_folder(session.id)),
        thresholds=keeper.find_thresholds(),
        language=keeper.config.fixed_language,
        instructions=wish.instructions,
        trigger=wish.trigger,
        unsent=wish.unsent,
    )
    asking = prepare(said, plan)
    try:
        ask = next(asking)
        while True:
            if ask.archived:
                reply = yield from _have_compressed(keeper, ask, summariser if asks_model else None)
            else:
                reply = yield ModelQuestion(ask, summariser)
            if owner and not keeper.prolong(session.id, owner):
                raise LedgerError(
                    "the lease on {id!r} ran out while a model was asked; nothing was changed", id=session.id
                )
            limit.resume()
            ask = asking.send(reply)
    except StopIteration as done:
        outcome: Outcome = done.value
        return replace(outcome, view=put_back_recalled(view, outcome.view, wish.budget.hard))


def _choose_writer(fold: Fold, wish: BatchRequest) -> Fold:
    """Return the fold with the writer of its summary: rules if no model may be asked, else the configured one."""
    if wish.asks_no_model:
        return replace(fold, summariser="extract")
    return replace(fold, summariser="llm") if fold.by_compressor else fold


def _have_compressed(keeper: Keeper, ask: Ask, summariser: Summariser | None) -> Flow[Reply]:
    """Let the manager's compressor write a summary: it takes the messages and how many of them stay."""
    compressor = keeper.find_compressor()
    messages, kept = [*ask.archived, *ask.kept], len(ask.kept)
    result = yield Await(lambda: ask_as(summariser, lambda: compressor.compress(messages, kept)))
    if isinstance(result, Exception):
        return Reply(error=because.COMPRESSOR_FAILED(detail=f"{type(result).__name__}: {result}"[:300]))
    if getattr(result, "by", "llm") == "extract":
        return (
            Reply(declined=True)
            if summariser is None
            else Reply(error=getattr(result, "error", "") or because.NO_MODEL())
        )
    summary, facts = getattr(result, "summary", ""), getattr(result, "key_facts", ())
    if not isinstance(summary, str) or not summary.strip():
        return Reply(error=because.COMPRESSOR_SILENT())
    listed = "".join(f"- {fact}\n" for fact in facts if isinstance(fact, str)) if isinstance(facts, list) else ""
    return Reply(f"{summary.strip()}\n\n{FACTS_MARK['en']}\n{listed}" if listed else summary.strip())


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
    slot = yield from keeper.hold(session_id)
    try:
        rounds = Rounds(keeper, session_id)
        while True:
            rounds.begin()
            session = keeper.open_stored(slot, session_id)
            wish = _make_wish(keeper, session, slot.fixed_tokens, instructions, by_tool=by_tool)
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


def _make_wish(keeper: Keeper, session: OpenSession, fixed: int, instructions: str, *, by_tool: bool) -> BatchRequest:
    model = session.row.model
    budget = keeper.find_budget(session.row, session.counter)
    trigger = Trigger("soft", because.BY_TOOL() if by_tool else because.MANUAL(), True)
    return BatchRequest(trigger, model, budget, fixed, instructions, is_manual=True, by_tool=by_tool)


def _try_out(keeper: Keeper, session: OpenSession, wish: BatchRequest) -> Flow[CompactResult]:
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
