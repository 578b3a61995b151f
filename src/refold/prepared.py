"""The result for a caller: a context that fits, a report of what was done, and access to every original."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from refold.conversation import because
from refold.conversation.message import Message, need_handle, read_behind
from refold.conversation.reason import Reason
from refold.conversation.view import RECALL, Edit, Item
from refold.formats.intake import Intake, MessageSource, SourceKind
from refold.ladder.report import Report
from refold.tokens import model_info


@dataclass(frozen=True, slots=True)
class PreparedContext:
    """A context ready to send, in the caller's format; untouched messages are the caller's own objects.

    ``original_tokens`` is its size without edits, counted like ``total_tokens``. ``body`` is the request body with the
    prepared messages in it, if the caller passed a body.
    """

    messages: list[Any]
    summary: str | None = None
    total_tokens: int = 0
    system: object = None
    tools: object = None
    edits: tuple[Edit, ...] = ()
    report: Report | None = None
    original_tokens: int = 0
    originals: Originals = field(default_factory=lambda: Originals(()), repr=False)
    body: dict[str, Any] | None = field(default=None, repr=False)
    trace: Callable[[], Sequence[MessageSource]] = field(default=tuple, repr=False)
    items: Sequence[Item] = field(default=(), repr=False, compare=False)

    def __str__(self) -> str:
        """What happened, in three lines: sizes, the reason, and what each stage took away."""
        report, count = self.report, len(self.messages)
        if report is None or not report.stages:
            sizes = f"{self.total_tokens:,} tokens, {count:,} messages: nothing was compressed"
        else:
            before = report.tokens_before
            shrunk = f" (−{1 - report.tokens_after / before:.0%})" if before else ""
            messages = f"{report.messages_before:,} → {report.messages_after:,} messages"
            sizes = f"{before:,} → {report.tokens_after:,} tokens{shrunk}, {messages}"
        if report is None:
            return sizes
        done = ", ".join(f"{one.stage} −{one.tokens_freed:,}" for one in report.stages if one.edits) or "nothing"
        return f"{sizes}\nwhy: {report.reason or 'it fits'}\ndid: {done}; {self._name_room(report)}"

    def _name_room(self, report: Report) -> str:
        return f"{self.total_tokens:,} of at most {report.budget.hard:,} tokens, counted by {report.counter}"

    @property
    def sources(self) -> list[MessageSource]:
        """The origin of each message: positions among the caller's messages, and whether it is whole."""
        return list(self.trace())

    def expand(self, handle: str, offset: int = 0, limit: int | None = None) -> str:
        """Return the original text behind a placeholder, or ``limit`` characters of it from ``offset``."""
        return self.originals.expand(handle, offset, limit)


class Originals:
    """Every original of a conversation, by handle."""

    def __init__(self, messages: Sequence[Message], edits: Sequence[Edit] = ()) -> None:
        self._messages = messages
        self._folds = [(edit.fold.handle, edit.covers) for edit in edits if edit.fold is not None]
        self._by_digest: dict[str, Message] | None = None

    def expand(self, handle: str, offset: int = 0, limit: int | None = None) -> str:
        """Return the exact text behind a handle, or a page of it; raise HandleUnknown if there is none."""
        text = self.read(handle)
        start = max(0, offset)
        return text[start:] if limit is None else text[start : start + max(0, limit)]

    def read(self, handle: str) -> str:
        """Return the whole text behind a handle."""
        name = need_handle(handle)
        if name.startswith("f:"):
            folds = dict(fold for fold in self._folds if fold[0].startswith(name))
            covers = frozenset(next(iter(folds.values()))) if len(folds) == 1 else frozenset[str]()
            return read_behind(name, [message for message in self._messages if message.id in covers])
        if self._by_digest is None:
            self._by_digest = {message.digest: message for message in self._messages}
        prefix = name.removeprefix("m:").partition(".")[0]
        return read_behind(name, [one for digest, one in self._by_digest.items() if digest.startswith(prefix)])


def trace_items(
    items: Sequence[Item],
    ids: Sequence[str],
    given: Sequence[object] | None,
    is_own: Sequence[bool] | None = None,
    *,
    origins: Sequence[int] | None = None,
) -> list[MessageSource]:
    """Return the origin of each item. ``is_own`` says which items are unchanged messages of the caller.

    With ``origins``, incoming records were replaced by their originals: positions are those of the records.
    """
    place = {message_id: at for at, message_id in enumerate(ids)}
    sources: list[MessageSource] = []
    for at, item in enumerate(items):
        covered = item.edits[0].covers if item.is_fold else (item.message.id,)
        positions = sorted(place[message_id] for message_id in covered if message_id in place)
        messages = () if given is None else tuple(given[position] for position in positions)
        is_restored = origins is not None and any(origins[position] < 0 for position in positions)
        if origins is not None:
            positions = sorted({max(origins[position], ~origins[position]) for position in positions})
        kind = _name_kind(item, is_own is None or is_own[at], is_restored)
        sources.append(MessageSource(tuple(positions), kind, messages))
    return sources


def _name_kind(item: Item, is_own: bool, is_restored: bool) -> SourceKind:
    if item.is_fold:
        return "fold"
    if not item.edits and is_own:
        return "restored" if is_restored else "whole"
    return "extended" if item.edits and all(edit.stage == RECALL for edit in item.edits) else "shortened"


def hand_over(prepared: PreparedContext, intake: Intake, *, tools: object = None) -> PreparedContext:
    """Return a prepared context in the caller's terms: its own objects, and its body if it passed one."""
    changes: dict[str, Any] = {} if tools is None else {"tools": tools}
    if not intake.is_identity:
        messages, sources = intake.give_back(prepared.messages, prepared.sources)
        changes |= {"messages": messages, "trace": lambda: sources}
    if intake.body is not None:
        changes["body"] = {**intake.body, intake.key: changes.get("messages", prepared.messages)}
    return replace(prepared, **changes) if changes else prepared


def find_summary(items: Iterable[Item]) -> str | None:
    """Return the summaries in a view, or None."""
    folds = [item.edits[0] for item in items if item.is_fold]
    return "\n\n".join(edit.fold.summary if edit.fold else edit.text for edit in folds) or None


def note_model(model: str | None, window: int, *, is_given: bool = False) -> list[Reason]:
    """Return a note about the assumed window for a report; empty if the model or the window is known."""
    if is_given or (model and model_info(model).is_known):
        return []
    return [because.MODEL_UNKNOWN(model=model, window=window) if model else because.MODEL_UNNAMED(window=window)]
