"""One compression of a session, from the lease to the commit: whole or not at all.

Only who holds the lease compresses; who comes second loads what the first one made. Files are written before the
commit that names them and taken back if it fails. What people read (pages, summaries) follows the commit; if that
fails, the compression stands and a warning says so.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from refold.conversation import because
from refold.conversation.reason import Reason
from refold.conversation.view import View
from refold.errors import ChangeRefused, LedgerError, RefoldError, SessionBusy
from refold.ladder.plan import Outcome, Plan, count_unsent, detect_view_language, order_stages, prepare
from refold.ledger.ledger import Batch
from refold.llm.redact import find_secrets, redact_text
from refold.llm.summariser import NO_MODEL, Summariser, ask_as
from refold.manager.archived import Archived, describe_archived
from refold.manager.deciding import decide_plain
from refold.manager.events import make_event
from refold.manager.files import named_files
from refold.manager.flow import Await, Flow, Question
from refold.manager.injecting import give_up_recalled, leave_out_recalled, put_back_recalled
from refold.manager.keeper import Keeper
from refold.manager.lease import give_lease, take_lease
from refold.manager.notices import Notice
from refold.manager.restoring import restore_results
from refold.manager.rounds import Rounds, explain_refusal, read_versions
from refold.manager.session import OpenSession
from refold.manager.session_settings import BRAKE, FORCED, Brake, read_pinned
from refold.manager.undoing import REDO
from refold.manager.wish import Made, Wish, describe_made
from refold.stages.fold import Fold
from refold.stages.offload import files_of
from refold.stages.prompts.demands import FACTS_MARK
from refold.stages.stage import Ask, Reply

SOFT_WAIT_S = 5.0
HARD_WAIT_S = 150.0


def run_batch(keeper: Keeper, session: OpenSession, wish: Wish, rounds: Rounds) -> Flow[Made]:
    """Compress a session under its lease; if it ends ``stale``, the caller reads the session anew and tries again."""
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
            # The context fits as it is: whoever asks for it gets it, with the reason, and the brake counts.
            return miss(keeper, session, wish, made.reason)
        return Made("stale", reason=made.reason)
    return made


def _run_leased(keeper: Keeper, session: OpenSession, wish: Wish) -> Flow[Made]:
    owner = yield from take_lease(keeper, session.id, HARD_WAIT_S if wish.must else SOFT_WAIT_S)
    if not owner and wish.must:
        raise SessionBusy(f"another process has been compressing {session.id!r} for {HARD_WAIT_S:g} s; try again")
    if not owner:
        return Made("held", reason=because.LEASED())
    try:
        row = keeper.ledger.read_session(session.id)
        if row is None or not session.is_current(row):
            return Made("stale")
        session.row = row
        return (yield from _compress(keeper, session, wish, owner))
    finally:
        give_lease(keeper, session.id, owner)


def _compress(keeper: Keeper, session: OpenSession, wish: Wish, owner: str) -> Flow[Made]:
    started = keeper.clock()
    notes = [str(wish.note)] if wish.note else []
    vetoed = is_vetoed(keeper, session, wish)
    if vetoed and not wish.must:
        return Made("vetoed", reason=because.VETOED(because=wish.trigger.reason))
    if vetoed and wish.trigger.strength == "hard":
        notes.append(str(because.VETO_OVERRIDDEN(because=wish.trigger.reason)))
    view = make_full_view(keeper, session, wish)
    try:
        outcome = yield from plan_batch(keeper, session, wish, view, owner)
        made = commit_outcome(keeper, session, wish, view, outcome, owner)
    except RefoldError as error:
        tell_failed(keeper, session, wish, error, started)
        raise
    return replace(made, notes=(*made.notes, *notes))


def is_vetoed(keeper: Keeper, session: OpenSession, wish: Wish) -> bool:
    """Ask whoever listens whether a compression may be made."""
    tokens = session.item_tokens + wish.fixed_tokens
    asked = Notice("before_compress", session.id, wish.trigger.reason, tokens, time=keeper.clock())
    vetoed, problems = keeper.listeners.is_vetoed(asked)
    keeper.complain(session.id, problems)
    return vetoed


def commit_outcome(keeper: Keeper, session: OpenSession, wish: Wish, view: View, outcome: Outcome, owner: str) -> Made:
    """Store what a run of the ladder made; a run that failed counts as one that did not help (L9)."""
    if outcome.edits and not _shows_the_same(view, outcome.view):
        return _commit(keeper, session, wish, view, outcome, owner)
    failure = redact_text("; ".join(report.note for report in outcome.stages if report.is_failed))
    if failure:
        why = because.STAGE_FAILED(detail=failure)
        keeper.tell(Notice("failed", session.id, why, view.tokens, view.tokens, keeper.clock()))
        return replace(miss(keeper, session, wish, why), is_failed=True)
    # Having nothing to compress is not an attempt: the next message is looked at afresh.
    if FORCED in session.row.settings and not wish.is_manual:
        keeper.update_settings(session, {FORCED: None})
    return Made("idle", reason=because.EXHAUSTED(), tokens_before=view.tokens)


def tell_failed(
    keeper: Keeper, session: OpenSession, wish: Wish, error: RefoldError, started: float | None = None
) -> None:
    """Log and tell that a compression could not be made; the session is as it was."""
    tokens, now = session.item_tokens + wish.fixed_tokens, keeper.clock()
    begun = now if started is None else started
    _tell_failure(keeper, Notice("failed", session.id, _describe_failure(error), tokens, tokens, begun, now - begun))


def _shows_the_same(before: View, after: View) -> bool:
    return [item.raw for item in before.items] == [item.raw for item in after.items]


def make_full_view(keeper: Keeper, session: OpenSession, wish: Wish) -> View:
    """Return the view with its originals; what was undone is left alone until it must go."""
    pinned = read_pinned(session.row.settings)
    if not wish.must:
        pinned |= session.undone
    return session.make_view(keeper.ledger, fixed_tokens=wish.fixed_tokens, pinned=pinned)


def plan_batch(keeper: Keeper, session: OpenSession, wish: Wish, view: View, owner: str = "") -> Flow[Outcome]:
    """Run the ladder over what was said in a view; the lease is prolonged whenever a model has answered."""
    said = leave_out_recalled(view)
    summariser = keeper.find_summariser(session.row, is_manual=wish.is_manual)
    stages = order_stages(keeper.batch_stages(session.id, summariser.settle()))
    asks_model = any(isinstance(one, Fold) and one.summariser == "llm" for one in stages)
    stages = tuple(_choose_writer(one, wish) if isinstance(one, Fold) else one for one in stages)
    plan = Plan(
        budget=wish.budget,
        stages=stages,
        find_secrets=find_secrets if keeper.config.redact else None,
        restored=restore_results(said.messages, keeper.find_folder(session.id)),
        thresholds=keeper.config.thresholds(),
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
                reply = yield Question(ask, summariser)
            if owner and not keeper.prolong(session.id, owner):
                raise LedgerError(f"the lease on {session.id!r} ran out while a model was asked; nothing was changed")
            ask = asking.send(reply)
    except StopIteration as done:
        outcome: Outcome = done.value
        return replace(outcome, view=put_back_recalled(view, outcome.view, wish.budget.hard))


def _choose_writer(fold: Fold, wish: Wish) -> Fold:
    """Return the fold with who writes its summary: rules where no model may be waited for, else whoever is set."""
    if wish.asks_no_model:
        return replace(fold, summariser="extract")
    return replace(fold, summariser="llm") if fold.by_compressor else fold


def _have_compressed(keeper: Keeper, ask: Ask, summariser: Summariser | None) -> Flow[Reply]:
    """Have the manager's compressor write a summary: it takes messages and how many of them stay."""
    compressor = keeper.find_compressor()
    messages, kept = [*ask.archived, *ask.kept], len(ask.kept)
    result = yield Await(lambda: ask_as(summariser, lambda: compressor.compress(messages, kept)))
    if isinstance(result, Exception):
        return Reply(error=f"the compressor failed: {type(result).__name__}: {result}"[:300])
    if getattr(result, "by", "llm") == "extract":
        return Reply(declined=True) if summariser is None else Reply(error=getattr(result, "error", "") or NO_MODEL)
    summary, facts = getattr(result, "summary", ""), getattr(result, "key_facts", ())
    if not isinstance(summary, str) or not summary.strip():
        return Reply(error="the compressor wrote no summary")
    listed = "".join(f"- {fact}\n" for fact in facts if isinstance(fact, str)) if isinstance(facts, list) else ""
    return Reply(f"{summary.strip()}\n\n{FACTS_MARK['en']}\n{listed}" if listed else summary.strip())


def _commit(keeper: Keeper, session: OpenSession, wish: Wish, view: View, outcome: Outcome, owner: str) -> Made:
    if not keeper.prolong(session.id, owner):
        return Made("stale")
    if give_up_recalled(keeper, session, outcome.view):
        version, session.row = session.row.edits_version, keeper.need_row(session.id)
        kept = {edit.id for edit in outcome.view.edits}
        session.edits = [edit for edit in session.edits if edit.id in kept]
        if session.row.edits_version != version + 1:
            return Made("stale")
    now = keeper.clock()
    folder = keeper.find_folder(session.id)
    after = named_files(outcome.view)
    shown = {edit.id for item in outcome.view.items for edit in item.edits}
    fresh = [edit for edit in outcome.edits if edit.id in shown]
    language = keeper.config.fixed_language or detect_view_language(view)
    archived = describe_archived(outcome, view, language, now)
    new_files = folder.write(files_of(fresh, view.messages))
    batch = _make_batch(session, wish, view, outcome, archived, now)
    notices = describe_made(session.id, wish, view, outcome, archived, new_files, now)
    try:
        is_stored = keeper.ledger.commit(
            session.id, batch, now=now, events=[make_event(notice) for notice in notices], owner=owner
        )
    except BaseException:
        if not _may_be_stored(keeper, session.id, batch.id):
            folder.remove(new_files)
        raise
    if not is_stored:
        folder.remove(new_files)
        return _judge_refusal(keeper, session, batch, owner)
    _take_over(keeper, session, outcome)
    deleted, warnings = folder.remove(path for path in folder.list_files() if path not in after)
    keeper.complain(session.id, warnings)
    _move_brake(keeper, session, wish, outcome)
    for notice in notices:
        keeper.complain(session.id, keeper.listeners.tell(notice))
    return Made("done", outcome, view.tokens, wish.trigger.reason, archived, tuple(deleted), tuple(warnings))


def _judge_refusal(keeper: Keeper, session: OpenSession, batch: Batch, owner: str) -> Made:
    """Say whether a commit was refused because somebody was faster, or although the session is as it was."""
    row = keeper.ledger.read_session(session.id)
    is_race = read_versions(row) != read_versions(session.row) or not keeper.prolong(session.id, owner)
    return Made("stale") if is_race else Made("refused", reason=explain_refusal(keeper.ledger, session.id, batch))


def _may_be_stored(keeper: Keeper, session_id: str, batch_id: str) -> bool:
    """Tell whether a commit that failed could have been made: a file too many is better than one too few."""
    try:
        return any(batch.id == batch_id for batch in keeper.ledger.read_batches(session_id))
    except LedgerError:
        return True


def _make_batch(
    session: OpenSession, wish: Wish, view: View, outcome: Outcome, archived: Archived, now: float
) -> Batch:
    covered = {message_id for edit in outcome.edits for message_id in edit.covers}
    return Batch(
        id=uuid.uuid4().hex,
        edits=outcome.edits,
        reason=wish.trigger.reason,
        facts=archived.facts,
        expects=tuple(edit.id for edit in session.edits if not covered.isdisjoint(edit.covers)),
        tokens_before=view.tokens,
        tokens_after=outcome.view.tokens,
        created_at=now,
        forgotten=tuple(covered & session.forgotten),
    )


def _take_over(keeper: Keeper, session: OpenSession, outcome: Outcome) -> None:
    session.show(outcome.view)
    session.batch_edits |= {edit.id for edit in outcome.edits}
    row = keeper.ledger.read_session(session.id)
    if row is None or row.path_version != session.path_version or row.edits_version != session.row.edits_version + 1:
        session.path_version = -1  # Somebody else changed it as well: the next one loads it.
        return
    session.row = row


def _move_brake(keeper: Keeper, session: OpenSession, wish: Wish, outcome: Outcome) -> None:
    """Release the brake, unless a compression by tokens left its own trigger standing.

    One that a count asked for did what it was asked for: it archived something, however much is left.
    """
    changes: dict[str, object] = {}
    tokens = outcome.view.tokens
    if wish.is_manual or wish.trigger.by_count or not _still_fires(keeper, session, wish, outcome):
        changes[BRAKE] = None
    else:
        why = because.STILL_LARGE(tokens=tokens, messages=len(outcome.view.items))
        brake = Brake.read(session.row.settings).missed(wish.model, why, len(session.ids), tokens)
        changes[BRAKE] = brake.to_settings()
    changes |= {FORCED: None, REDO: None}
    known = session.row.settings
    if any(known.get(key) != value for key, value in changes.items()):
        keeper.update_settings(session, changes)


def _still_fires(keeper: Keeper, session: OpenSession, wish: Wish, outcome: Outcome) -> bool:
    # What had to be sent whole first (L11) is no failure of the compression.
    waiting = count_unsent(outcome.view.items, wish.unsent)
    return decide_plain(session, keeper.config, wish.budget, outcome.view.tokens - waiting).acts


def miss(keeper: Keeper, session: OpenSession, wish: Wish, why: Reason) -> Made:
    """Return a compression that failed; the brake counts it unless a person asked.

    Attempts are counted from the last new turn on, not for the life of the session.
    """
    if not wish.is_manual:
        before = Brake.read(session.row.settings)
        if session.has_turn_since(before.messages):
            before = Brake()
        brake = before.missed(wish.model, why, len(session.ids))
        keeper.update_settings(session, {BRAKE: brake.to_settings(), FORCED: None})
    return Made("missed", reason=why, tokens_before=session.item_tokens + wish.fixed_tokens)


def _describe_failure(error: RefoldError) -> Reason:
    return because.ERROR(error=type(error).__name__, detail=str(error)[:500])


def _tell_failure(keeper: Keeper, notice: Notice) -> None:
    try:
        keeper.tell(notice)
    except LedgerError:
        keeper.listeners.tell(notice)  # The ledger is what failed: whoever listens still hears of it.
