"""Edits: reversible changes of what the model sees. They never change a message.

``replace`` puts a text in the place of one part, ``drop`` leaves one part out, ``fold`` puts a summary in
the place of a span. An edit's id is a hash of what it does, so the same edit has the same id everywhere.
``level`` settles which of two edits on one target holds: the higher, whatever the order they came in.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Literal

from refold.conversation.message import Role
from refold.conversation.reason import NO_REASON, Reason, text_reason

EditKind = Literal["replace", "drop", "fold"]
FactKind = Literal["preference", "decision", "todo", "key"]
RECALL = "recall"  # The stage of edits that put recalled text below a message; they hide nothing.


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing worth knowing later, with the handle of where it was said."""

    kind: FactKind
    text: str
    handle: str = ""


@dataclass(frozen=True, slots=True)
class Artifact:
    """One exact value of the index: a path, id, number, command ..., with the handle where it occurs.

    ``sort`` says what it is (file, command, error, url, id, number, date, name, identifier), ``note`` what
    happened to it (read, written, deleted, exit 1), ``weight`` how it ranks, ``alike`` how many
    unused values of one shape it is the example of (0 if it is only itself).
    """

    sort: str
    value: str
    handle: str = ""
    note: str = ""
    weight: float = 0.0
    alike: int = 0


@dataclass(frozen=True, slots=True)
class Fold:
    """What a fold knows besides its summary's text."""

    handle: str
    summary: str
    facts: tuple[Fact, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    key_points: tuple[str, ...] = ()
    turn_range: tuple[int, int] = (0, 0)
    by: str = "extract"


@dataclass(frozen=True, slots=True)
class Edit:
    """One reversible change. ``covers`` are ids of messages in order; ``part`` is set for replace and drop.

    A fold stands where its first covered message was, or before the message that ``before`` names. ``reason`` may be
    given as a sentence; it is no part of the id.
    """

    kind: EditKind
    stage: str
    covers: tuple[str, ...]
    part: int | None = None
    text: str = ""
    role: Role = "user"
    reason: Reason = NO_REASON
    level: int = 0
    made_from: tuple[str, ...] = ()
    tokens_before: int = 0
    tokens_after: int = 0
    fold: Fold | None = None
    before: str = ""
    # Tokens of the originals that a fold covers, where ``tokens_before`` is what they had in view: for a fold over
    # folds much less.
    tokens_covered: int = field(default=0, compare=False)
    id: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not self.covers:
            raise ValueError("an edit must cover at least one message")
        if (self.kind == "fold") is not (self.part is None):
            raise ValueError("replace and drop name a part; a fold names none")
        given: object = self.reason
        if isinstance(given, str):
            object.__setattr__(self, "reason", text_reason(given))
        object.__setattr__(self, "id", self.id or _edit_id(self))

    @property
    def tokens_original(self) -> int:
        """Tokens of what this edit stands for: the originals of a fold, else what it changed."""
        return self.tokens_covered or self.tokens_before

    @property
    def tokens_freed(self) -> int:
        """Tokens that this edit takes out of the view."""
        return self.tokens_before - self.tokens_after


def _edit_id(edit: Edit) -> str:
    hasher = hashlib.blake2b(digest_size=8)
    place = (edit.before,) if edit.before else ()
    head = (edit.kind, edit.stage, edit.part, edit.role, edit.level, *place)
    for piece in (repr(head), edit.text, *edit.covers):
        hasher.update(piece.encode("utf-8", "surrogatepass"))
        hasher.update(b"\0")
    return hasher.hexdigest()
