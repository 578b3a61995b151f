"""The two ends of a compression: the wish it begins with, what was made of it, and what is told of that.

Nothing of what was said goes into what is told: events are kept for ever (see ``forget``). Notes are masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from refold.budget import Budget, Trigger
from refold.conversation.reason import NO_REASON, Reason
from refold.conversation.view import View
from refold.ladder.plan import Outcome
from refold.llm.redact import redact_text
from refold.manager.archived import Archived
from refold.manager.notices import Notice
from refold.stages.stage import FOLD

_NOTE_CHARS_MAX = 2_000

Ending = Literal["done", "stale", "refused", "held", "vetoed", "missed", "idle", "begun"]


@dataclass(frozen=True, slots=True)
class Wish:
    """What a compression is to reach, and who asked for it."""

    trigger: Trigger
    model: str
    budget: Budget
    fixed_tokens: int
    instructions: str = ""
    is_manual: bool = False
    note: Reason = NO_REASON
    is_background: bool = False
    asks_no_model: bool = False
    unsent: frozenset[str] = frozenset()

    @property
    def must(self) -> bool:
        """True if it may not be put off: the view does not fit, or a person asked."""
        return self.is_manual or self.trigger.strength == "hard"


@dataclass(frozen=True, slots=True)
class Made:
    """How a compression ended.

    ``stale``: another process changed the session, so look again. ``refused``: the ledger refused it although nothing
    had changed. ``idle``: there was nothing to compress. ``begun``: it continues in the background. ``is_failed``: a
    summary was wanted and could not be had (S2.7).
    """

    ending: Ending
    outcome: Outcome | None = None
    tokens_before: int = 0
    reason: Reason = NO_REASON
    archived: Archived | None = None
    deleted_files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_failed: bool = False


def describe_made(
    session_id: str,
    wish: Wish,
    view: View,
    outcome: Outcome,
    archived: Archived,
    files: Sequence[str],
    now: float,
) -> list[Notice]:
    """Return what is logged and told of a compression, the files it wrote first."""
    stages = {report.stage: report.tokens_freed for report in outcome.stages if report.edits}
    fields: dict[str, object] = {
        "model": wish.model,
        "is_manual": wish.is_manual,
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
    if told := describe_summaries(outcome):
        fields["summaries"] = told
    if notes := [redact_text(one.note) for one in outcome.stages if one.note and one.stage != FOLD]:
        fields["notes"] = "; ".join(notes)[:_NOTE_CHARS_MAX]
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
    note = redact_text("; ".join(report.note for report in outcome.stages if report.stage == FOLD and report.note))
    return {"by": by, "note": note[:_NOTE_CHARS_MAX]} if by and note else {}
