"""The order of things in a session's view, without their content: which rows a reader sees, for each way of looking.

Computed from the path and the edits alone, so that a session of ten thousand messages opens at once; what a row says
is read when it comes into sight (``rows.py``). Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from refold.conversation.message import Message, Role
from refold.conversation.view import Edit, Item, Lens, apply, choose_edits
from refold.ledger.records import MessagePath, StoredEdit

Look = Literal["sees", "said", "difference"]
LOOKS: tuple[Look, ...] = ("sees", "said", "difference")
RowKind = Literal["message", "fold", "undone"]


@dataclass(frozen=True, slots=True)
class Row:
    """One row: a message, a fold, or the trace of a fold that was undone.

    ``edit`` is the fold, or the fold a message is hidden behind; ``edits`` are those in force on the message's parts.
    ``is_inside`` marks an original that is shown because its fold is open. Two rows with one ``key`` and one ``mark``
    look the same.
    """

    kind: RowKind
    key: str
    message_id: str = ""
    edit: Edit | None = field(default=None, compare=False)
    edits: tuple[Edit, ...] = field(default=(), compare=False)
    is_inside: bool = False
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """How one outline becomes another: so many rows from ``start`` go, so many come."""

    start: int
    removed: int
    added: int


class _Shapes(Lens):
    """A lens that looks at nothing: it says which edits hold, not what they make of a text."""

    def __init__(self) -> None:
        pass

    def plain(self, message: Message) -> Item:
        return Item(None, message.role, (), 0, (message,))

    def edited(self, message: Message, edits: Iterable[Edit]) -> Item | None:
        return Item(None, message.role, (), 0, (message,), choose_edits(edits))

    def fold(self, edit: Edit, messages: tuple[Message, ...]) -> Item:
        return Item(None, edit.role, (), 0, messages, (edit,))


def make_outline(
    path: MessagePath,
    stored: Sequence[StoredEdit],
    look: Look,
    *,
    open_folds: Collection[str],
    redoable: Collection[str],
    pinned: Collection[str] = (),
) -> list[Row]:
    """Return the rows of a session. ``open_folds`` are edits whose originals are shown, ``redoable`` undone folds."""
    role: Role = "user"
    messages = [
        Message(None, role, (), digest, message_id) for message_id, digest in zip(path.ids, path.digests, strict=True)
    ]
    items = apply(messages, [one.edit for one in stored if one.is_active], _Shapes()).items
    if look == "said":
        rows = _list_said(path, items)
    else:
        traces = _find_traces(stored, redoable, items)
        rows = list(_list_seen(items, traces, open_folds, everything=look == "difference"))
    return [replace(row, mark=f"{row.mark} pinned") if row.message_id in pinned else row for row in rows]


def _list_said(path: MessagePath, items: Iterable[Item]) -> list[Row]:
    """Every message as it came, with what became of it as a remark."""
    behind: dict[str, Edit] = {}
    edits: dict[str, tuple[Edit, ...]] = {}
    for item in items:
        for message in item.messages:
            if item.is_fold:
                behind[message.id] = item.edits[0]
            elif item.edits:
                edits[message.id] = item.edits
    return [_message_row(one, behind.get(one), edits.get(one, ())) for one in path.ids]


def _message_row(message_id: str, fold: Edit | None, edits: tuple[Edit, ...]) -> Row:
    mark = fold.id if fold else "+".join(edit.id for edit in edits)
    return Row("message", message_id, message_id, fold, edits, mark=mark)


def _list_seen(
    items: Iterable[Item], traces: dict[str, list[Edit]], open_folds: Collection[str], *, everything: bool
) -> Iterator[Row]:
    for item in items:
        for fold in traces.get(item.message.id, ()):
            yield Row("undone", f"u:{fold.id}", edit=fold)
        if item.is_fold:
            fold = item.edits[0]
            is_open = everything or fold.id in open_folds
            yield Row("fold", f"f:{fold.id}", edit=fold, mark="open" if is_open else "")
            if is_open:
                for message in item.messages:
                    yield Row("message", f"{fold.id}/{message.id}", message.id, fold, is_inside=True)
            continue
        yield _message_row(item.message.id, None, item.edits)


def _find_traces(
    stored: Sequence[StoredEdit], redoable: Collection[str], items: Sequence[Item]
) -> dict[str, list[Edit]]:
    """Return the undone folds that can be put back, by the first message of the item that they would begin at.

    That item may be an older fold: undoing a fold of folds brings those back that it was made from.
    """
    if not redoable:
        return {}
    shown = {one: ids for ids in (item.ids for item in items) for one in ids}
    found: dict[str, list[Edit]] = {}
    for one in stored:
        edit = one.edit
        if edit.kind != "fold" or one.is_active or edit.id not in redoable:
            continue
        ids = shown.get(edit.covers[0], edit.covers)
        if not set(edit.covers).issubset(ids) or len(ids) == 1:
            found.setdefault(ids[0], []).append(edit)
    return found


def find_change(before: Sequence[Row], after: Sequence[Row]) -> Change | None:
    """Return the one stretch of rows in which two outlines differ; None if they do not."""
    if before == after:
        return None
    head = 0
    for one, other in zip(before, after, strict=False):
        if one != other:
            break
        head += 1
    tail = 0
    most = min(len(before), len(after)) - head
    while tail < most and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    return Change(head, len(before) - head - tail, len(after) - head - tail)
