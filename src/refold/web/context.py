"""How full a session's context is, and with what: the figures of the indicator, and what a compression would do.

Blocking functions of ``Access``. Reading them opens the session, which takes a second where it has ten thousand
messages in view: the page draws the conversation first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from refold.cli.repl.screen import break_down
from refold.conversation.reason import Reason
from refold.conversation.view import Edit
from refold.ladder.report import StageReport
from refold.llm.choose import converse_with
from refold.manager.compress import CompactResult
from refold.manager.session import parse_stored, read_window
from refold.manager.status import SessionStatus
from refold.manager.undo import Switched
from refold.server.api.interface import Access
from refold.tokens import model_info
from refold.web.markup import clean
from refold.web.reading import find_speaker
from refold.web.rows import make_lens

GOES_MAX = 60
WORDS_CHARS = 110
State = Literal["good", "warn", "bad"]
# The model's own, a guess because the model is not known, or one that the session's settings state.
WindowBy = Literal["model", "guess", "session"]
PARTS = ("system", "tools", "user", "assistant", "output", "folds")
_NAMES = {
    "system prompt": "system",
    "tools": "tools",
    "user": "user",
    "assistant": "assistant",
    "tool output": "output",
    "folds": "folds",
}


@dataclass(frozen=True, slots=True)
class Context:
    """What the indicator shows. ``parts`` add up to ``status.tokens``; ``window_by`` says who knows the window."""

    status: SessionStatus
    parts: dict[str, int]
    warn: int
    window_by: WindowBy

    @property
    def state(self) -> State:
        """Green below *warn*, amber below *soft*, red from there."""
        if self.status.tokens >= self.status.soft:
            return "bad"
        return "warn" if self.status.tokens >= self.warn else "good"


def read_context(access: Access, name: str) -> Context:
    """Return how full a session is now."""
    row = access.need(name)
    manager = access.manager
    status = manager.status(row.id)
    # The framing of a request counts with its system prompt: two tokens are no part of their own.
    items = manager.read_view(row.id)
    beside = status.tokens - sum(item.tokens for item in items)
    shares = break_down(items, status, max(0, beside - status.tools_tokens))
    parts = {_NAMES[share.name]: share.tokens for share in shares if share.name in _NAMES}
    info = model_info(row.model or None)
    budget = manager.config.budget(info)
    warn = min(status.soft, int(status.hard * budget.warn / budget.hard))
    window_by: WindowBy = (
        "session" if read_window(row.settings, row.model)[0] else "model" if info.is_known else "guess"
    )
    return Context(status, parts, warn, window_by)


@dataclass(frozen=True, slots=True)
class Going:
    """One message that would go out of view: whose it is, how it begins."""

    speaker: str
    words: str
    tokens: int


@dataclass(frozen=True, slots=True)
class StageWish:
    """What one stage would do."""

    stage: str
    count: int
    freed: int
    goes: tuple[Going, ...] = ()


@dataclass(frozen=True, slots=True)
class Preview:
    """What a compression would do."""

    before: int
    after: int
    stays: int
    reason: Reason
    stages: tuple[StageWish, ...] = ()

    @property
    def is_nothing(self) -> bool:
        """True if nothing would change."""
        return not self.stages


def preview(access: Access, name: str, instructions: str) -> Preview:
    """Return what a compression would do; nothing changes."""
    row = access.need(name)
    with converse_with(access.find_model(row)):
        result = access.manager.compress(row.id, instructions, dry_run=True)
    stages = [_tell_stage(access, name, stage) for stage in result.stages if stage.edits]
    return Preview(result.previous_tokens, result.current_tokens, result.preserved_count, result.reason, tuple(stages))


def _tell_stage(access: Access, name: str, stage: StageReport) -> StageWish:
    ids = _covered(stage.edits)
    return StageWish(stage.stage, len(ids), stage.tokens_freed, _tell_going(access, name, ids[:GOES_MAX]))


def _covered(edits: Sequence[Edit]) -> list[str]:
    return list(dict.fromkeys(one for edit in edits for one in edit.covers))


def _tell_going(access: Access, name: str, ids: Sequence[str]) -> tuple[Going, ...]:
    row = access.need(name)
    lens = make_lens(row)
    told = []
    for stored in access.ledger.read_messages(row.id, ids):
        message = parse_stored(stored, row, lens)
        texts = (
            f"{part.name}({part.text[:200]})" if part.kind == "call" else part.text[:400] for part in message.parts
        )
        words = clean(" ".join(" ".join(texts).split()))[:WORDS_CHARS]
        told.append(Going(find_speaker(message), words, stored.tokens))
    return tuple(told)


def unfold(access: Access, name: str, edit_id: str) -> Switched:
    """Undo the compression that made a fold, or the last one for an empty id."""
    row = access.need(name)
    return access.manager.undo(row.id, edit_id or None)


def refold(access: Access, name: str, edit_id: str) -> Switched:
    """Redo what was undone: one fold, or the last undone for an empty id."""
    row = access.need(name)
    return access.manager.redo(row.id, edit_id or None)


def pin(access: Access, name: str, handle: str, *, is_on: bool) -> None:
    """Pin a message, so that no compression touches it; or unpin it."""
    row = access.need(name)
    (access.manager.pin if is_on else access.manager.unpin)(row.id, handle)


def compress(access: Access, name: str, instructions: str) -> CompactResult:
    """Compress a session now."""
    row = access.need(name)
    with converse_with(access.find_model(row)):
        return access.manager.compress(row.id, instructions)
