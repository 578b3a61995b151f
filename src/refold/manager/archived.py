"""What a compression archived, as people read it: summary, facts, how many messages, when.

Facts come from originals only. A summary of ours, or of another program that opens with ``[Context Summary]``, is
never extracted from (S3.7): that would be hearsay.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from refold.conversation.edit import Edit, Fact
from refold.conversation.language import Language
from refold.conversation.view import View
from refold.ladder.plan import Outcome
from refold.memory import ContextSummary


@dataclass(frozen=True, slots=True)
class Archived:
    """What went behind summaries: ``count`` messages that were in view until now. ``folds`` are all in force now."""

    summary: str
    facts: tuple[Fact, ...]
    count: int
    language: Language
    date: str
    time: str
    folds: tuple[Edit, ...] = ()


def describe_archived(outcome: Outcome, view: View, language: Language, now: float) -> Archived:
    """Return what this compression archived; a fold that took in earlier ones counts only what is new."""
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
        time=local.isoformat(),
        folds=tuple(edit for edit in outcome.view.edits if edit.fold is not None),
    )


def list_summaries(edits: list[tuple[Edit, float]]) -> list[ContextSummary]:
    """Return the summaries in force, oldest first (S1.8); one that a newer fold took in is not listed."""
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
