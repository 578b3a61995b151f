"""The ladder: run the stages, cheapest first, until the goal is met.

``climb`` is a generator that yields the questions of its stages and returns the new view; ``drive`` answers it. It
decides nothing about when to run, and stores nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from refold.conversation import because
from refold.conversation.reason import as_reason, join_reasons
from refold.conversation.view import Edit, View, amend
from refold.errors import LawBroken
from refold.ladder.laws import find_broken
from refold.ladder.report import Rejected, StageReport
from refold.stages.stage import Ask, Goal, OutOfTime, Proposed, Reply, Stage, check_nothing

# When time is up, the newest messages stay unchanged up to this share of the room; no record replaces the rest.
LATE_SHARE = 0.85


@dataclass(frozen=True, slots=True)
class Climb:
    """The result of a run of the ladder: the view, the accepted edits, and a report per stage."""

    view: View
    edits: tuple[Edit, ...]
    stages: tuple[StageReport, ...]


Answer = Callable[[Ask], Reply]
Result = TypeVar("Result")


def climb(view: View, goal: Goal, stages: Sequence[Stage], *, strict: bool = False) -> Generator[Ask, Reply, Climb]:
    """Run the stages in order until the goal is met; once time is up, only those for *hard*, if needed."""
    edits: list[Edit] = []
    reports: list[StageReport] = []
    tokens_before = view.tokens
    is_forced = goal.force
    for stage in stages:
        limit = goal.hard if stage.when == "hard" else goal.target
        # Count and manual triggers force only such stages; the others run on token pressure.
        forces = is_forced and getattr(stage, "may_be_forced", False)
        if (view.tokens <= limit and not forces) or (goal.is_late and stage.when != "hard"):
            continue
        try:
            goal.check()
            proposed = stage.propose(view, replace(goal, force=forces, tokens_freed=tokens_before - view.tokens))
            answered = proposed if isinstance(proposed, list) else (yield from proposed)
        except OutOfTime:
            goal = replace(goal, target=int(goal.hard * LATE_SHARE), check=check_nothing, is_late=True)
            late = because.TOO_LONG()
            reports.append(StageReport(stage.name, view.tokens, view.tokens, note=late, is_failed=True))
            continue
        answer = answered if isinstance(answered, Proposed) else Proposed(answered)
        idle = _find_idle(view, answer.edits) if forces and view.tokens <= limit and not goal.instructions else []
        wanted = [edit for edit in answer.edits if edit not in idle]
        is_last = getattr(stage, "is_last_resort", False)
        view, report = take_edits(view, wanted, stage.name, is_forced=forces, is_last=is_last, strict=strict)
        rejected = (*report.rejected, *(Rejected(edit, because.NOTHING_NEW()) for edit in idle))
        note = join_reasons((report.note, as_reason(answer.note)))
        report = replace(report, rejected=rejected, note=note, is_failed=answer.is_failed)
        reports.append(report)
        edits.extend(report.edits)
    return Climb(view, tuple(edits), tuple(reports))


def take_edits(
    view: View,
    proposed: Sequence[Edit],
    stage: str,
    *,
    is_forced: bool = False,
    is_last: bool = False,
    strict: bool = False,
) -> tuple[View, StageReport]:
    """Apply a stage's edits, except those that do not shrink (L4) or break a law; return the view and the report."""
    if not proposed:
        return view, StageReport(stage, view.tokens, view.tokens)
    kept, rejected = _refuse_growth(view, proposed, is_forced=is_forced)
    after = amend(view, kept) if kept else view
    broken = find_broken(view, after, stage, is_forced=is_forced, is_last=is_last) if kept else None
    if broken is None:
        return after, StageReport(stage, view.tokens, after.tokens, tuple(kept), tuple(rejected))
    law, wrong = broken
    if strict:
        raise LawBroken(law, wrong)
    why = because.LAW_BROKEN(law=law, detail=wrong)
    rejected += [Rejected(edit, why) for edit in kept]
    return view, StageReport(stage, view.tokens, view.tokens, (), tuple(rejected), note=why)


def _refuse_growth(view: View, proposed: Sequence[Edit], *, is_forced: bool) -> tuple[list[Edit], list[Rejected]]:
    """Split proposals into those that shrink what they touch, with exact counts, and those that do not."""
    by_message: dict[str, list[Edit]] = {}
    kept: list[Edit] = []
    rejected: list[Rejected] = []
    item_of = {message.id: item for item in view.items for message in item.messages}
    for edit in proposed:
        if edit.kind == "fold":
            covered = list({id(item): item for item in map(item_of.get, edit.covers) if item}.values())
            before = sum(item.tokens for item in covered)
            after = view.lens.fold(edit, ()).tokens
            originals = sum(view.lens.plain(message).tokens for item in covered for message in item.messages)
            counted = replace(edit, tokens_before=before, tokens_after=after, tokens_covered=originals)
            if after < before or is_forced:
                kept.append(counted)
            else:
                rejected.append(Rejected(counted, because.WOULD_GROW(before=before, after=after)))
        else:
            by_message.setdefault(edit.covers[0], []).append(edit)
    for message_id, edits in by_message.items():
        item = item_of.get(message_id)
        if item is None or item.is_fold:
            rejected += [Rejected(edit, because.OUT_OF_VIEW()) for edit in edits]
            continue
        changed = view.lens.edited(item.message, (*item.edits, *edits))
        after = changed.tokens if changed else 0
        if after >= item.tokens:
            rejected += [Rejected(edit, because.WOULD_GROW(before=item.tokens, after=after)) for edit in edits]
        elif len(edits) == 1:
            kept.append(replace(edits[0], tokens_before=item.tokens, tokens_after=after))
        else:
            kept += edits
    return kept, rejected


def _find_idle(view: View, proposed: Sequence[Edit]) -> list[Edit]:
    """Return the folds that replace one earlier fold and nothing else.

    Otherwise a count that stays reached would rewrite the summary, and break the prefix, with every request.
    """
    alone = {item.ids for item in view.items if item.is_fold}
    return [edit for edit in proposed if edit.kind == "fold" and edit.covers in alone]


def drive(asking: Generator[Ask, Reply, Result], answer: Answer) -> Result:
    """Run a generator of questions to its end, answering what it asks."""
    reply: Any = None
    try:
        while True:
            reply = answer(asking.send(reply))
    except StopIteration as done:
        result: Result = done.value
        return result


def answer_nothing(_ask: Ask) -> Reply:
    """Answer for callers without a model: stages fall back to rules."""
    return Reply(error=because.NO_MODEL())
