"""Storing a compression: request and result types, the batch, its files, and the events it emits.

Files are written before the commit that names them and removed if it fails. Memory pages and summaries follow the
commit; if writing them fails, the compression stays and a warning says so. Events are kept for ever (see ``forget``),
so they contain nothing that was said, and notes are masked.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from refold.budget import Budget, Trigger, decide
from refold.conversation import because
from refold.conversation.reason import NO_REASON, Language, Reason, change_words, join_reasons, text_reason
from refold.conversation.view import Edit, Fact, View
from refold.errors import LedgerError, RefoldError
from refold.ladder.plan import Outcome, count_unsent, detect_view_language
from refold.ladder.report import StageReport
from refold.ledger.records import Batch
from refold.llm.redact import redact_text
from refold.manager.flow import Brake, explain_refusal, read_versions
from refold.manager.notices import Notice, make_event
from refold.manager.recall_injection import give_up_recalled
from refold.manager.session import BRAKE, COUNTED, FORCED, REDO, OpenSession
from refold.manager.store import Keeper
from refold.memory import ContextSummary
from refold.stages.offload import OffloadFile, files_of, offloaded_path
from refold.stages.stage import FOLD

_NOTE_CHARS_MAX = 2_000


Ending = Literal["done", "stale", "refused", "held", "vetoed", "missed", "idle", "begun"]


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """The goal of a compression, and who asked for it. ``offloads_only``: run only the stages before the fold."""

    trigger: Trigger
    model: str
    budget: Budget
    fixed_tokens: int
    instructions: str = ""
    is_manual: bool = False
    by_tool: bool = False
    note: Reason = NO_REASON
    is_background: bool = False
    asks_no_model: bool = False
    offloads_only: bool = False
    unsent: frozenset[str] = frozenset()

    @property
    def must(self) -> bool:
        """True if it may not be postponed: the view does not fit, or a person asked."""
        return self.is_manual or self.trigger.strength == "hard"


@dataclass(frozen=True, slots=True)
class BatchResult:
    """How a compression ended.

    ``stale``: another process changed the session, so look again. ``refused``: the ledger refused it although nothing
    had changed. ``idle``: there was nothing to compress. ``begun``: it continues in the background. ``is_failed``: a
    summary was wanted and could not be written.
    """

    ending: Ending
    outcome: Outcome | None = None
    tokens_before: int = 0
    reason: Reason = NO_REASON
    archived: Archived | None = None
    deleted_files: tuple[str, ...] = ()
    notes: tuple[Reason, ...] = ()
    is_failed: bool = False


def describe_made(
    session_id: str,
    wish: BatchRequest,
    view: View,
    *,
    outcome: Outcome,
    archived: Archived,
    files: Sequence[str],
    now: float,
) -> list[Notice]:
    """Return the notices of a compression, which are also its events; the files it wrote come first."""
    stages = {report.stage: report.tokens_freed for report in outcome.stages if report.edits}
    fields: dict[str, object] = {
        "model": wish.model,
        "is_manual": wish.is_manual and not wish.by_tool,
        **({"by": "tool"} if wish.by_tool else {}),
        "strength": wish.trigger.strength,
        "stages": stages,
        "edits": len(outcome.edits),
        "archived": archived.count,
        "messages_before": len(view.items),
        "messages_after": len(outcome.view.items),
        "memory": {"date": archived.date, "time": archived.time} if archived.count else None,
    }
    if wish.is_background:
        fields["is_background"] = True
    if summaries := describe_summaries(outcome):
        fields["summaries"] = summaries
    if note := _join_notes(one for one in outcome.stages if one.stage != FOLD):
        fields["notes"] = note.to_json()
    made = Notice("compressed", session_id, wish.trigger.reason, view.tokens, outcome.view.tokens, now, fields=fields)
    if not files:
        return [made]
    freed = stages.get("offload", 0)
    moved = Notice(
        "offloaded",
        session_id,
        wish.trigger.reason,
        view.tokens,
        view.tokens - freed,
        now,
        fields={"files": list(files)},
    )
    return [moved, made]


def describe_summaries(outcome: Outcome) -> dict[str, object]:
    """Return who wrote the summaries of a compression, and what was dropped, added or wrong about them."""
    by = [edit.fold.by for edit in outcome.edits if edit.fold is not None]
    note = _join_notes(report for report in outcome.stages if report.stage == FOLD)
    return {"by": by, "note": note.to_json()} if by and note else {}


def _join_notes(reports: Iterable[StageReport]) -> Reason:
    """Return the notes of stages as one reason, without secrets."""
    note = join_reasons(report.note for report in reports)
    return change_words(note, lambda text: redact_text(text)[:_NOTE_CHARS_MAX])


@dataclass(frozen=True, slots=True)
class Archived:
    """What a compression archived: ``count`` messages that were in view until now. ``folds`` are all in force now."""

    summary: str
    facts: tuple[Fact, ...]
    count: int
    language: Language
    date: str
    time: str
    folds: tuple[Edit, ...] = ()


def describe_archived(outcome: Outcome, view: View, language: Language, now: float) -> Archived:
    """Return what this compression archived; a fold that includes earlier ones counts only what is new."""
    folds = [edit for edit in outcome.edits if edit.fold is not None]
    known = {message_id for edit in view.edits if edit.kind == "fold" for message_id in edit.covers}
    known_facts = {fact.text for edit in view.edits if edit.fold for fact in edit.fold.facts}
    covered = {message_id for edit in folds for message_id in edit.covers} - known
    facts: dict[str, Fact] = {}
    for edit in folds:
        for fact in edit.fold.facts if edit.fold else ():
            if fact.text not in known_facts:
                facts.setdefault(fact.text, fact)
    local = datetime.fromtimestamp(now)
    return Archived(
        summary="\n\n".join(edit.fold.summary for edit in folds if edit.fold),
        facts=tuple(facts.values()),
        count=len(covered),
        language=language,
        date=local.strftime("%Y-%m-%d"),
        time=local.isoformat(timespec="seconds"),
        folds=tuple(edit for edit in outcome.view.edits if edit.fold is not None),
    )


def list_summaries(edits: list[tuple[Edit, float]]) -> list[ContextSummary]:
    """Return the summaries in force, oldest first; one that a newer fold includes is not listed."""
    replaced = {origin for edit, _ in edits for origin in edit.made_from}
    return [
        ContextSummary(
            timestamp=int(made_at * 1000),
            turn_range=edit.fold.turn_range,
            content=edit.fold.summary,
            key_points=edit.fold.key_points,
            id=edit.id,
        )
        for edit, made_at in edits
        if edit.fold is not None and edit.id not in replaced
    ]


def named_files(view: View) -> set[str]:
    """Return the offloaded files that a view names."""
    return {path for item in view.items for edit in item.edits if (path := offloaded_path(edit))}


def find_files(view: View) -> list[OffloadFile]:
    """Return the files that a view names, with the content they must have."""
    shown = [edit for item in view.items for edit in item.edits if offloaded_path(edit)]
    return files_of(shown, view.messages)


def write_named(keeper: Keeper, session: OpenSession, edits: Sequence[Edit]) -> set[str]:
    """Write the files that the session's view would name under these edits; return their paths."""
    if not any(offloaded_path(edit) for edit in edits):
        return set()
    files = find_files(session.make_view(keeper.ledger, edits=edits))
    keeper.find_folder(session.id).write(files)
    return {file.path for file in files}


def remove_others(keeper: Keeper, session_id: str, named: Collection[str]) -> list[str]:
    """Remove the session's files that nothing names; return a warning for each that remains."""
    folder = keeper.find_folder(session_id)
    return folder.remove(path for path in folder.list_files() if path not in named)[1]


def commit_outcome(
    keeper: Keeper, session: OpenSession, wish: BatchRequest, view: View, outcome: Outcome, owner: str
) -> BatchResult:
    """Store the result of a ladder run; a failed run counts as one that did not help (L9)."""
    if outcome.edits and not _shows_the_same(view, outcome.view):
        return _commit(keeper, session, wish, view=view, outcome=outcome, owner=owner)
    failure = _join_notes(report for report in outcome.stages if report.is_failed)
    if failure:
        why = because.STAGE_FAILED(detail=failure)
        keeper.tell(Notice("failed", session.id, why, view.tokens, view.tokens, keeper.clock()))
        return replace(miss(keeper, session, wish, why), is_failed=True)
    # Having nothing to compress is not an attempt: the next message is judged afresh.
    if FORCED in session.row.settings and not wish.is_manual:
        keeper.update_settings(session, {FORCED: None})
    return BatchResult("idle", reason=because.EXHAUSTED(), tokens_before=view.tokens)


def tell_failed(
    keeper: Keeper, session: OpenSession, wish: BatchRequest, error: RefoldError, started: float | None = None
) -> None:
    """Log and report that a compression failed; the session is unchanged."""
    tokens, now = session.item_tokens + wish.fixed_tokens, keeper.clock()
    begun = now if started is None else started
    _tell_failure(keeper, Notice("failed", session.id, _describe_failure(error), tokens, tokens, begun, now - begun))


def _shows_the_same(before: View, after: View) -> bool:
    return [item.raw for item in before.items] == [item.raw for item in after.items]


def _commit(
    keeper: Keeper, session: OpenSession, wish: BatchRequest, *, view: View, outcome: Outcome, owner: str
) -> BatchResult:
    if not keeper.prolong(session.id, owner):
        return BatchResult("stale")
    if give_up_recalled(keeper, session, outcome.view):
        version, session.row = session.row.edits_version, keeper.need_row(session.id)
        kept = {edit.id for edit in outcome.view.edits}
        session.edits = [edit for edit in session.edits if edit.id in kept]
        if session.row.edits_version != version + 1:
            return BatchResult("stale")
    now = keeper.clock()
    folder = keeper.find_folder(session.id)
    after = named_files(outcome.view)
    shown = {edit.id for item in outcome.view.items for edit in item.edits}
    fresh = [edit for edit in outcome.edits if edit.id in shown]
    language = keeper.config.fixed_language or detect_view_language(view)
    archived = describe_archived(outcome, view, language, now)
    new_files = folder.write(files_of(fresh, view.messages))
    batch = _make_batch(session, wish, view, outcome=outcome, archived=archived, now=now)
    notices = describe_made(session.id, wish, view, outcome=outcome, archived=archived, files=new_files, now=now)
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
    return BatchResult(
        "done", outcome, view.tokens, wish.trigger.reason, archived, tuple(deleted), tuple(map(text_reason, warnings))
    )


def _judge_refusal(keeper: Keeper, session: OpenSession, batch: Batch, owner: str) -> BatchResult:
    """Return whether a commit was refused because another process was faster, or although nothing had changed."""
    row = keeper.ledger.read_session(session.id)
    is_race = read_versions(row) != read_versions(session.row) or not keeper.prolong(session.id, owner)
    return (
        BatchResult("stale")
        if is_race
        else BatchResult("refused", reason=explain_refusal(keeper.ledger, session.id, batch))
    )


def _may_be_stored(keeper: Keeper, session_id: str, batch_id: str) -> bool:
    """Tell whether a failed commit may have succeeded after all: an extra file is better than a missing one."""
    try:
        return any(batch.id == batch_id for batch in keeper.ledger.read_batches(session_id))
    except LedgerError:
        return True


def _make_batch(
    session: OpenSession, wish: BatchRequest, view: View, *, outcome: Outcome, archived: Archived, now: float
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
        session.path_version = -1  # Another process changed it as well: the next use reloads it.
        return
    session.row = row


def _move_brake(keeper: Keeper, session: OpenSession, wish: BatchRequest, outcome: Outcome) -> None:
    """Release the brake, unless a compression by tokens left its own trigger in force.

    A compression by count has done its job once it archived something, however much is left.
    """
    changes: dict[str, object] = {}
    tokens = outcome.view.tokens
    if wish.trigger.by_count:
        changes[COUNTED] = len(session.ids)
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


def _still_fires(keeper: Keeper, session: OpenSession, wish: BatchRequest, outcome: Outcome) -> bool:
    # Messages that must be sent whole first (L11) are not a failure of the compression.
    waiting = count_unsent(outcome.view.items, wish.unsent)
    tokens = outcome.view.tokens - waiting
    counts = replace(session.count(tokens), unsent_tokens=0)
    return decide(counts, session.lift(wish.budget, tokens, keeper.config.fold), keeper.find_thresholds()).acts


def miss(keeper: Keeper, session: OpenSession, wish: BatchRequest, why: Reason) -> BatchResult:
    """Return a compression that failed; the brake counts it unless a person asked.

    Attempts are counted from the last new turn on, not for the life of the session.
    """
    if not wish.is_manual:
        before = Brake.read(session.row.settings)
        if session.has_turn_since(before.messages):
            before = Brake()
        brake = before.missed(wish.model, why, len(session.ids))
        keeper.update_settings(session, {BRAKE: brake.to_settings(), FORCED: None})
    return BatchResult("missed", reason=why, tokens_before=session.item_tokens + wish.fixed_tokens)


def _describe_failure(error: RefoldError) -> Reason:
    return because.ERROR(error=type(error).__name__, detail=str(error)[:500])


def _tell_failure(keeper: Keeper, notice: Notice) -> None:
    try:
        keeper.tell(notice)
    except LedgerError:
        keeper.listeners.tell(notice)  # The ledger is what failed: listeners are still notified.
