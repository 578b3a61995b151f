"""Expand: page through the exact original behind a handle. The answer to an unknown handle ends the search.

A message's handle gives its text whole, that of a part the part, that of a fold every message it replaces. Pages
join to the whole without a gap.
"""

from __future__ import annotations

from dataclasses import dataclass

from refold.conversation.message import mark, read_handle
from refold.errors import HandleUnknown, Sentence
from refold.ledger.port import Ledger
from refold.ledger.records import SessionRow, StoredMessage, format_of
from refold.recall.passages import Original, read_original


@dataclass(frozen=True, slots=True)
class OriginalPage:
    """Characters ``offset`` to ``offset + len(text)`` of an original that has ``total`` of them."""

    text: str
    handle: str
    offset: int
    total: int

    @property
    def next_offset(self) -> int | None:
        """Where the next page begins; None after the last one."""
        stop = self.offset + len(self.text)
        return stop if self.text and stop < self.total else None


def expand_handle(
    ledger: Ledger, row: SessionRow, handle: str, offset: int = 0, limit: int | None = None
) -> OriginalPage:
    """Return a page of what is behind a handle."""
    name = _read_name(handle)
    text = _read_fold(ledger, row, name) if name.startswith("f:") else _read_message(ledger, row, name)
    start = max(0, offset)
    piece = text[start:] if limit is None else text[start : start + max(0, limit)]
    return OriginalPage(piece, name, min(start, len(text)), len(text))


def find_handle(ledger: Ledger, row: SessionRow, handle: str) -> list[StoredMessage]:
    """Return the stored messages behind a handle: all with that content, or all that a fold covers."""
    name = _read_name(handle)
    if name.startswith("f:"):
        return ledger.read_messages(row.id, _covered_ids(ledger, row, name))
    found = ledger.find_messages(row.id, name.removeprefix("m:").partition(".")[0])
    if not found:
        raise _explain_unknown(name)
    return found


def _read_name(handle: str) -> str:
    name = read_handle(handle)
    if name is None:
        raise HandleUnknown(
            Sentence(
                "{handle!r} is not a handle; handles look like {sample}", handle=handle[:80], sample=mark("m:4f2a91c3")
            )
        )
    return name


def _read_message(ledger: Ledger, row: SessionRow, name: str) -> str:
    digest, dot, part = name.removeprefix("m:").partition(".")
    form = format_of(row)
    by_digest: dict[str, Original] = {}
    is_forgotten = False
    for stored in ledger.find_messages(row.id, digest):
        if stored.is_forgotten:
            is_forgotten = True
        else:
            by_digest.setdefault(stored.digest, read_original(stored, form))
    if not by_digest:
        if is_forgotten:
            raise HandleUnknown(
                Sentence("what {handle} stood for was forgotten on request; it cannot be read again", handle=mark(name))
            )
        raise _explain_unknown(name)
    # Two contents with one prefix are possible, if rare: both are shown, each whole.
    return "\n\n".join(_pick(original, name, int(part) if dot else None) for original in by_digest.values())


def _pick(original: Original, name: str, part: int | None) -> str:
    if part is None:
        return original.text
    if part >= len(original.parts):
        raise HandleUnknown(
            f"{mark(name)}: that message has {len(original.parts)} parts, counted from 0; all of it is "
            f"{mark(original.handle)}"
        )
    return original.parts[part]


def _read_fold(ledger: Ledger, row: SessionRow, name: str) -> str:
    form = format_of(row)
    stored = ledger.read_messages(row.id, _covered_ids(ledger, row, name))
    pieces = []
    for one in stored:
        original = read_original(one, form)
        text = "[forgotten]" if one.is_forgotten else original.text
        pieces.append(f"{mark(original.handle)} {original.role}\n{text}")
    return "\n\n".join(pieces)


def _covered_ids(ledger: Ledger, row: SessionRow, name: str) -> tuple[str, ...]:
    """Return the messages behind a fold, switched off or not: its handle may be in an older context."""
    folds = {
        stored.edit.fold.handle: stored.edit.covers
        for stored in ledger.read_edits(row.id, active_only=False)
        if stored.edit.fold is not None and stored.edit.fold.handle.startswith(name)
    }
    if len(folds) != 1:
        raise _explain_unknown(name)
    return next(iter(folds.values()))


def _explain_unknown(name: str) -> HandleUnknown:
    return HandleUnknown(
        Sentence("nothing in this session has the handle {handle}; asking again will not help", handle=mark(name))
    )
