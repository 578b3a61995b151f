"""One compression: its request and result, planning it, committing it, and the notices about it.

Files are written before the commit that names them and removed if it fails. Events are kept forever (see ``forget``),
so they quote no message, and their notes are masked.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import takewhile
from typing import Literal

from refold.budget import Budget, Trigger, decide
from refold.conversation import because
from refold.conversation.reason import NO_REASON, Language, Reason, change_words, join_reasons, text_reason
from refold.conversation.view import Fact, View
from refold.errors import LedgerError, RefoldError
from refold.ladder.plan import Outcome, Plan, count_unsent, detect_view_language, order_stages, prepare
from refold.ladder.report import StageReport
from refold.ledger.records import Batch
from refold.llm.redact import find_secrets, redact_text
from refold.llm.summariser import SentWith, Summariser, ask_as
from refold.manager.flow import Await, Flow, explain_refusal, read_versions
from refold.manager.notices import FoldSize, Notice, make_event
from refold.manager.recall_injection import give_up_recalled, leave_out_recalled, put_back_recalled
from refold.manager.session import OpenSession
from refold.manager.session_state import Brake, SessionState
from refold.manager.store import Keeper
from refold.manager.usage import read_usage
from refold.stages.fold import Fold
from refold.stages.offload import files_of, offloaded_path
from refold.stages.prompts import FACTS_MARK
from refold.stages.stage import FOLD, Ask, OutOfTime, Reply

# Processor time for the ladder of one compression; after that it continues with its cheapest stages.
CPU_S_MAX = 10.0
_NOTE_CHARS_MAX = 2_000

Ending = Literal["done", "stale", "refused", "held", "vetoed", "missed", "idle", "begun"]


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """The goal of a compression, and who requested it. ``offloads_only``: run only the stages before the fold."""

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
    system: object = ""
    tools: object = None

    @property
    def must(self) -> bool:
        """True if it cannot be postponed: the view does not fit, or a person requested it."""
        return self.is_manual or self.trigger.strength == "hard"


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of a compression.

    ``ending``: ``stale`` if another process changed the session and the caller must retry, ``refused`` if the ledger
    refused it although nothing had changed, ``idle`` if nothing could be compressed, ``begun`` if it continues in the
    background. ``is_failed``: a summary was wanted and could not be written.
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
        "archived_tokens": archived.tokens,
        "folds": [FoldSize.of(edit).to_json() for edit in outcome.edits if edit.fold is not None],
        "messages_before": len(view.items),
        "messages_after": len(outcome.view.items),
        "memory": {"date": archived.date, "time": archived.time} if archived.count else None,
    }
    if wish.is_background:
        fields["is_background"] = True
    writers = [edit.fold.by for edit in outcome.edits if edit.fold is not None]
    if writers and (note := join_notes(stage for stage in outcome.stages if stage.stage == FOLD)):
        fields["summaries"] = {"by": writers, "note": note.to_json()}
    if note := join_notes(stage for stage in outcome.stages if stage.stage != FOLD):
        fields["notes"] = note.to_json()
    made = Notice("compressed", session_id, wish.trigger.reason, view.tokens, outcome.view.tokens, now, fields=fields)
    if not files:
        return [made]
    left = view.tokens - stages.get("offload", 0)
    named = {"files": list(files)}
    return [Notice("offloaded", session_id, wish.trigger.reason, view.tokens, left, now, fields=named), made]


def join_notes(reports: Iterable[StageReport]) -> Reason:
    """Return the notes of stages as one reason, without secrets."""
    note = join_reasons(report.note for report in reports)
    return change_words(note, lambda text: redact_text(text)[:_NOTE_CHARS_MAX])


@dataclass(frozen=True, slots=True)
class Archived:
    """The archived part of a session: ``count`` messages of ``tokens``."""

    summary: str
    facts: tuple[Fact, ...]
    count: int
    tokens: int
    language: Language
    date: str
    time: str


def describe_archived(outcome: Outcome, view: View, language: Language, now: float) -> Archived:
    """Return what this compression archived; a fold that includes earlier ones counts only what is new."""
    folds = [edit for edit in outcome.edits if edit.fold is not None]
    known = {message_id for edit in view.edits if edit.kind == "fold" for message_id in edit.covers}
    taken_in = {edit_id for edit in folds for edit_id in edit.made_from}
    known_tokens = sum(edit.tokens_original for edit in view.edits if edit.id in taken_in and edit.fold is not None)
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
        tokens=max(0, sum(edit.tokens_original for edit in folds) - known_tokens),
        language=language,
        date=local.strftime("%Y-%m-%d"),
        time=local.isoformat(timespec="seconds"),
    )


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


class Compression:
    """One compression of a session. ``owner`` has the session's lease; a dry run has no owner and stores nothing."""

    def __init__(self, keeper: Keeper, session: OpenSession, wish: BatchRequest, owner: str = "") -> None:
        self._keeper, self._session, self._wish, self._owner = keeper, session, wish, owner

    def is_vetoed(self) -> bool:
        tokens = self._session.item_tokens + self._wish.fixed_tokens
        reason, now = self._wish.trigger.reason, self._keeper.clock()
        return self._keeper.tell(Notice("before_compress", self._session.id, reason, tokens, time=now), is_logged=False)

    def make_view(self) -> View:
        """Return the view with its originals; messages of undone edits are protected until the view must shrink."""
        session, wish = self._session, self._wish
        pinned = session.state.pinned | session.state.remembered
        if not wish.must:
            pinned |= session.undone
        return session.make_view(self._keeper.ledger, fixed_tokens=wish.fixed_tokens, pinned=pinned)

    def plan(self, view: View) -> Flow[Outcome]:
        """Run the ladder over a view without recalled text; prolong the lease after every answer of a model."""
        keeper, session, wish = self._keeper, self._session, self._wish
        said, limit = leave_out_recalled(view), WorkLimit()
        summariser = keeper.find_summariser(session.row, is_manual=wish.is_manual)
        is_cold = wish.trigger.reason.holds(because.COLD)
        cached = SentWith(session.row.model, session.row.wire, wish.system, wish.tools, is_cold, view.items)
        summariser.sent_with = replace(
            cached, unsent=wish.unsent, fixed_tokens=view.fixed_tokens, window=wish.budget.window
        )
        stages = order_stages(keeper.batch_stages(session.id, summariser.settle()))
        if wish.offloads_only:
            stages = tuple(takewhile(lambda one: not isinstance(one, Fold), stages))
        asks_model = any(isinstance(stage, Fold) and stage.summariser == "llm" for stage in stages)
        plan = Plan(
            budget=wish.budget,
            stages=tuple(_choose_writer(stage, wish) if isinstance(stage, Fold) else stage for stage in stages),
            check=limit.check,
            find_secrets=find_secrets if keeper.config.redact else None,
            restored=keeper.find_folder(session.id).restore(said.messages),
            thresholds=keeper.thresholds,
            language=keeper.config.language,
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
                    reply = yield Await(partial(summariser.answer, ask))
                    if isinstance(reply, Exception):
                        raise reply
                    reply = replace(reply, usage=read_usage(reply.usage)) if reply.usage else reply
                if self._owner and not keeper.leases.prolong(session.id, self._owner):
                    raise LedgerError(
                        "the lease on {id!r} ran out while a model was asked; nothing was changed", id=session.id
                    )
                limit.resume()
                ask = asking.send(reply)
        except StopIteration as done:
            outcome: Outcome = done.value
            return replace(outcome, view=put_back_recalled(view, outcome.view, wish.budget.hard))

    def commit(self, view: View, outcome: Outcome) -> BatchResult:
        """Store the result of a ladder run; a failed run counts as one that did not help (L9)."""
        keeper, session = self._keeper, self._session
        if outcome.edits and [item.raw for item in view.items] != [item.raw for item in outcome.view.items]:
            return self._store(view, outcome)
        failure = join_notes(report for report in outcome.stages if report.is_failed)
        if failure:
            why = because.STAGE_FAILED(detail=failure)
            keeper.tell(Notice("failed", session.id, why, view.tokens, view.tokens, keeper.clock()))
            return replace(self.miss(why), is_failed=True)
        # Having nothing to compress does not count as an attempt: the next message is decided independently.
        if session.state.forced and not self._wish.is_manual:
            keeper.update_settings(session, forced=None)
        why = join_notes(report for report in outcome.stages if report.stage == FOLD) or because.EXHAUSTED()
        return BatchResult("idle", reason=why, tokens_before=view.tokens)

    def commit_grown(self, view: View, outcome: Outcome) -> BatchResult:
        """Store a result that was computed from a snapshot: since then, the session may only have grown."""
        session, row = self._session, self._keeper.ledger.read_session(self._session.id)
        if row is None:
            return BatchResult("stale")
        covered = {message_id for edit in outcome.edits for message_id in edit.covers}
        if not covered.isdisjoint(SessionState.read(row.settings).pinned):
            return BatchResult("stale", reason=because.PINNED_MEANWHILE())
        seen, session.row = session.row, row
        made = self.commit(view, outcome)
        if made.ending != "refused":
            return made
        if seen.edits_version != row.edits_version:
            return BatchResult("stale", reason=because.EDITED_MEANWHILE())
        # The snapshot is recent, and only messages were added since: the next attempt would be refused as well.
        return self.miss(made.reason)

    def _store(self, view: View, outcome: Outcome) -> BatchResult:
        keeper, session, wish = self._keeper, self._session, self._wish
        if not keeper.leases.prolong(session.id, self._owner):
            return BatchResult("stale")
        if give_up_recalled(keeper, session, outcome.view):
            version, session.row = session.row.edits_version, keeper.need_row(session.id)
            kept = {edit.id for edit in outcome.view.edits}
            session.edits = [edit for edit in session.edits if edit.id in kept]
            if session.row.edits_version != version + 1:
                return BatchResult("stale")
        now, folder = keeper.clock(), keeper.find_folder(session.id)
        shown = {edit.id: edit for item in outcome.view.items for edit in item.edits}
        language = keeper.config.language or detect_view_language(view)
        archived = describe_archived(outcome, view, language, now)
        new_files = folder.write(files_of((edit for edit in outcome.edits if edit.id in shown), view.messages))
        batch = self._make_batch(view, outcome, archived, now)
        notices = describe_made(session.id, wish, view, outcome=outcome, archived=archived, files=new_files, now=now)
        events = [make_event(notice) for notice in notices]
        try:
            is_stored = keeper.ledger.commit(session.id, batch, now=now, events=events, owner=self._owner)
        except BaseException:
            if not self._may_be_stored(batch.id):
                folder.remove(new_files)
            raise
        if not is_stored:
            folder.remove(new_files)
            return self._judge_refusal(batch)
        self._show(outcome)
        named = {offloaded_path(edit) for edit in shown.values()}
        deleted, warnings = folder.remove(path for path in folder.list_files() if path not in named)
        keeper.complain(session.id, warnings)
        self._move_brake(outcome)
        for notice in notices:
            keeper.tell(notice, is_logged=False)
        notes = tuple(map(text_reason, warnings))
        return BatchResult("done", outcome, view.tokens, wish.trigger.reason, archived, tuple(deleted), notes)

    def _make_batch(self, view: View, outcome: Outcome, archived: Archived, now: float) -> Batch:
        session = self._session
        covered = {message_id for edit in outcome.edits for message_id in edit.covers}
        return Batch(
            id=uuid.uuid4().hex,
            edits=outcome.edits,
            reason=self._wish.trigger.reason,
            facts=archived.facts,
            expects=tuple(edit.id for edit in session.edits if not covered.isdisjoint(edit.covers)),
            tokens_before=view.tokens,
            tokens_after=outcome.view.tokens,
            created_at=now,
            forgotten=tuple(covered & session.forgotten),
        )

    def _may_be_stored(self, batch_id: str) -> bool:
        """Return whether a failed commit may have succeeded after all: an extra file is better than a missing one."""
        try:
            return any(batch.id == batch_id for batch in self._keeper.ledger.read_batches(self._session.id))
        except LedgerError:
            return True

    def _judge_refusal(self, batch: Batch) -> BatchResult:
        """Return whether a commit was refused because another process was faster, or although nothing had changed."""
        keeper, session = self._keeper, self._session
        row = keeper.ledger.read_session(session.id)
        if read_versions(row) != read_versions(session.row) or not keeper.leases.prolong(session.id, self._owner):
            return BatchResult("stale")
        return BatchResult("refused", reason=explain_refusal(keeper.ledger, session.id, batch))

    def _show(self, outcome: Outcome) -> None:
        session = self._session
        session.show(outcome.view)
        session.batch_edits |= {edit.id for edit in outcome.edits}
        row, version = self._keeper.ledger.read_session(session.id), session.row.edits_version + 1
        if row is None or row.path_version != session.path_version or row.edits_version != version:
            session.path_version = -1  # Another process changed it as well: the next use reloads it.
        else:
            session.row = row

    def _move_brake(self, outcome: Outcome) -> None:
        """Release the brake, unless a compression by tokens left its own trigger in force."""
        session, wish, tokens = self._session, self._wish, outcome.view.tokens
        changes: dict[str, object] = {"counted": len(session.ids)} if wish.trigger.by_count else {}
        if wish.is_manual or wish.trigger.by_count or not self._still_fires(outcome):
            changes["brake"] = None
        else:
            why = because.STILL_LARGE(tokens=tokens, messages=len(outcome.view.items))
            brake = session.state.brake.missed(wish.model, why, len(session.ids), tokens)
            changes["brake"] = brake.to_json()
        changes |= {"forced": None, "redo": None}
        known = session.row.settings
        if any(known.get(key) != value for key, value in changes.items()):
            self._keeper.update_settings(session, **changes)

    def _still_fires(self, outcome: Outcome) -> bool:
        keeper, session, wish = self._keeper, self._session, self._wish
        # Messages that must be sent whole first (L11) are not a failure of the compression.
        tokens = outcome.view.tokens - count_unsent(outcome.view.items, wish.unsent)
        counts = replace(session.count(tokens), unsent_tokens=0)
        return decide(counts, session.lift(wish.budget, tokens, keeper.config.fold), keeper.thresholds).acts

    def miss(self, why: Reason) -> BatchResult:
        """Return a failed result; unless a person requested it, the brake counts it, from the last new turn on."""
        session, wish = self._session, self._wish
        if not wish.is_manual:
            before = session.state.brake
            if session.has_turn_since(before.messages):
                before = Brake()
            brake = before.missed(wish.model, why, len(session.ids))
            self._keeper.update_settings(session, brake=brake.to_json(), forced=None)
        return BatchResult("missed", reason=why, tokens_before=session.item_tokens + wish.fixed_tokens)

    def tell_failed(self, error: RefoldError, started: float | None = None) -> None:
        """Log and report that the compression failed; the session is unchanged."""
        keeper, session, now = self._keeper, self._session, self._keeper.clock()
        tokens, begun = session.item_tokens + self._wish.fixed_tokens, now if started is None else started
        why = because.ERROR(error=type(error).__name__, detail=str(error)[:500])
        notice = Notice("failed", session.id, why, tokens, tokens, begun, now - begun)
        try:
            keeper.tell(notice)
        except LedgerError:
            keeper.listeners.tell(notice)  # The ledger is what failed: listeners are still notified.


def _choose_writer(fold: Fold, wish: BatchRequest) -> Fold:
    """Return the fold with the writer of its summary: rules if no model may be asked, else the configured one."""
    if wish.asks_no_model:
        return replace(fold, summariser="extract")
    return replace(fold, summariser="llm") if fold.by_compressor else fold


def _have_compressed(keeper: Keeper, ask: Ask, summariser: Summariser | None) -> Flow[Reply]:
    """Let the manager's compressor write a summary; it gets the messages and the number of those that stay."""
    compressor = keeper.find_compressor()
    messages, kept = [*ask.archived, *ask.kept], len(ask.kept)
    result = yield Await(lambda: ask_as(summariser, lambda: compressor.compress(messages, kept)))
    if isinstance(result, Exception):
        return Reply(error=because.COMPRESSOR_FAILED(detail=f"{type(result).__name__}: {result}"[:300]))
    if getattr(result, "by", "llm") == "extract":
        error = getattr(result, "error", "") or because.NO_MODEL()
        return Reply(declined=True) if summariser is None else Reply(error=error)
    summary, facts = getattr(result, "summary", ""), getattr(result, "key_facts", ())
    if not isinstance(summary, str) or not summary.strip():
        return Reply(error=because.COMPRESSOR_SILENT())
    listed = "".join(f"- {fact}\n" for fact in facts if isinstance(fact, str)) if isinstance(facts, list) else ""
    return Reply(f"{summary.strip()}\n\n{FACTS_MARK['en']}\n{listed}" if listed else summary.strip())
