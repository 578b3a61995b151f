"""The report: what was done, why, and what it changed, per stage. A value for people and programs; no text layout."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from refold.budget import Budget
from refold.conversation.reason import NO_REASON, Reason
from refold.conversation.view import Edit


@dataclass(frozen=True, slots=True)
class Rejected:
    """An edit that a stage proposed and the ladder did not take, and why."""

    edit: Edit
    why: Reason


@dataclass(frozen=True, slots=True)
class StageReport:
    """The effect of one stage on the view."""

    stage: str
    tokens_before: int
    tokens_after: int
    edits: tuple[Edit, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    note: Reason = NO_REASON
    is_failed: bool = False

    @property
    def tokens_freed(self) -> int:
        """Tokens that this stage took out of the view."""
        return self.tokens_before - self.tokens_after

    def to_dict(self) -> dict[str, object]:
        """Return the stage as plain values for JSON."""
        return {
            "stage": self.stage,
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "edits": [edit_to_dict(edit) for edit in self.edits],
            "rejected": [{"edit": edit_to_dict(r.edit), "why": r.why.to_dict()} for r in self.rejected],
            "note": str(self.note),
        }


@dataclass(frozen=True, slots=True)
class Report:
    """The effect of a compression. ``notes`` are for the user, such as the assumed window of an unknown model."""

    reason: Reason
    counter: str
    margin: float
    budget: Budget
    tokens_before: int
    tokens_after: int
    messages_before: int
    messages_after: int
    stages: tuple[StageReport, ...] = ()
    notes: tuple[Reason, ...] = ()

    @property
    def tokens_saved(self) -> int:
        """Tokens that the whole compression took out of the view."""
        return self.tokens_before - self.tokens_after

    def to_dict(self) -> dict[str, object]:
        """Return the report as plain values, edits by their main fields, for JSON."""
        return {
            "reason": self.reason.to_dict(),
            "counter": self.counter,
            "margin": self.margin,
            "budget": asdict(self.budget),
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "tokens_saved": self.tokens_saved,
            "messages_before": self.messages_before,
            "messages_after": self.messages_after,
            "stages": [stage.to_dict() for stage in self.stages],
            "notes": [str(note) for note in self.notes],
        }


def edit_to_dict(edit: Edit) -> dict[str, object]:
    """Return the main fields of an edit, without the texts it hides."""
    return {
        "id": edit.id,
        "kind": edit.kind,
        "stage": edit.stage,
        "messages": len(edit.covers),
        "first": edit.covers[0],
        "part": edit.part,
        "handle": edit.fold.handle if edit.fold else None,
        "tokens_before": edit.tokens_original,
        "tokens_after": edit.tokens_after,
        "reason": edit.reason.to_dict(),
        "text": edit.text,
    }
