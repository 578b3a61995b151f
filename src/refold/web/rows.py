"""The rows of a session's conversation: first their order, then the content of those in sight.

``make_outline`` computes the order from the path and the edits alone, so that a session of ten thousand messages opens
at once. ``describe_rows`` reads the requested rows and no others, in a thread, and returns plain values for the
browser: text cut to its first page, Markdown as nodes, figures as numbers. Nothing is HTML. ``read_more`` returns
further pages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from refold.conversation.message import Message, Part, Role
from refold.conversation.reason import NO_REASON, Language, say
from refold.conversation.view import RECALL, Edit, Item, Lens, apply, choose_edits
from refold.errors import HandleUnknown
from refold.ledger.records import MessagePath, SessionRow, StoredEdit, StoredMessage
from refold.manager.session import parse_stored
from refold.manager.session_state import SessionState
from refold.sentences import tr
from refold.server.api.interface import Access
from refold.stages.record.frame import INDEX_TITLES
from refold.web.data import Snapshot, find_speaker
from refold.web.markup import to_lines, to_tree
from refold.web.visit import clean

Look = Literal["sees", "said", "difference"]
LOOKS: tuple[Look, ...] = ("sees", "said", "difference")
RowKind = Literal["message", "fold", "undone"]
WORDS_CHARS = 6_000
OUTPUT_CHARS = 1_200
MORE_CHARS = 40_000
VALUES_MAX = 400
ROWS_MAX = 120
REASON_CHARS = 300
RowContent = dict[str, Any]


@dataclass(frozen=True, slots=True)
class OutlineRow:
    """One row: a message, a fold, or the trace of an undone fold.

    ``edit`` is the fold, or the fold that hides a message; ``edits`` are those in effect on the message's parts.
    ``is_inside`` marks an original that is shown because its fold is open. Two rows with the same ``key`` and ``mark``
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
    """The difference of two outlines: how many rows from ``start`` are removed, and how many are added there."""

    start: int
    removed: int
    added: int


class _Shapes(Lens):
    """A lens that renders nothing: it shows which edits are in effect, not their text."""

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
) -> list[OutlineRow]:
    """Return the rows of a session. ``open_folds``: folds whose originals are shown; ``redoable``: undone folds."""
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


def _list_said(path: MessagePath, items: Iterable[Item]) -> list[OutlineRow]:
    """Return every message as it was received, marked with the edits that changed or hid it."""
    behind: dict[str, Edit] = {}
    edits: dict[str, tuple[Edit, ...]] = {}
    for item in items:
        for message in item.messages:
            if item.is_fold:
                behind[message.id] = item.edits[0]
            elif item.edits:
                edits[message.id] = item.edits
    return [_message_row(one, behind.get(one), edits.get(one, ())) for one in path.ids]


def _message_row(message_id: str, fold: Edit | None, edits: tuple[Edit, ...]) -> OutlineRow:
    mark = fold.id if fold else "+".join(edit.id for edit in edits)
    return OutlineRow("message", message_id, message_id, fold, edits, mark=mark)


def _list_seen(
    items: Iterable[Item], traces: dict[str, list[Edit]], open_folds: Collection[str], *, everything: bool
) -> Iterator[OutlineRow]:
    for item in items:
        for fold in traces.get(item.message.id, ()):
            yield OutlineRow("undone", f"u:{fold.id}", edit=fold)
        if item.is_fold:
            fold = item.edits[0]
            is_open = everything or fold.id in open_folds
            yield OutlineRow("fold", f"f:{fold.id}", edit=fold, mark="open" if is_open else "")
            if is_open:
                for message in item.messages:
                    yield OutlineRow("message", f"{fold.id}/{message.id}", message.id, fold, is_inside=True)
            continue
        yield _message_row(item.message.id, None, item.edits)


def _find_traces(
    stored: Sequence[StoredEdit], redoable: Collection[str], items: Sequence[Item]
) -> dict[str, list[Edit]]:
    """Return the undone folds that can be redone, by the first message of the item where they would start.

    That item may be an older fold: undoing a fold of folds restores the folds it was made from.
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


def find_change(before: Sequence[OutlineRow], after: Sequence[OutlineRow]) -> Change | None:
    """Return the one range of rows in which two outlines differ; None if they are equal."""
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


def describe_rows(
    access: Access, seen: Snapshot, look: Look, rows: Sequence[OutlineRow], language: Language = "en"
) -> list[RowContent]:
    """Return the content of these rows for the browser, with reasons in the reader's language."""
    rows = rows[:ROWS_MAX]
    stored = {
        one.id: one for one in access.ledger.read_messages(seen.row.id, [r.message_id for r in rows if r.message_id])
    }
    content = [
        _describe_message(row, stored.get(row.message_id), seen.row, look)
        if row.kind == "message"
        else _describe_fold(row, seen, language)
        for row in rows
    ]
    for one in content:
        marks = [piece["mark"] for piece in one.get("pieces", ()) if "mark" in piece]
        for given in (one, *marks):
            if "reason" in given:
                given["reason"] = clean(say(given["reason"], language))[:REASON_CHARS]
    return content


def _describe_fold(row: OutlineRow, seen: Snapshot, language: Language) -> RowContent:
    edit = row.edit
    assert edit is not None
    assert edit.fold is not None
    made = next(one for one in seen.edits if one.edit.id == edit.id)
    content: RowContent = {
        "key": row.key,
        "kind": row.kind,
        "id": edit.id,
        "handle": edit.fold.handle,
        "count": len(edit.covers),
        "before": edit.tokens_original,
        "after": edit.tokens_after,
        "time": made.created_at,
        "reason": seen.reasons.get(made.batch_id, NO_REASON) or edit.reason,
    }
    if row.kind == "undone":
        return content
    fold = edit.fold
    speakers = {"U": tr("session.talk_by_user", language), "A": tr("session.talk_by_assistant", language)}
    values = sorted(fold.artifacts, key=lambda one: -one.weight)[:VALUES_MAX]
    return content | {
        "by": fold.by,
        "is_open": row.mark == "open",
        "summary": to_lines(leave_out_index(fold.summary) if values else fold.summary, speakers),
        "text": clean(edit.text)[:MORE_CHARS],
        "dropped": [clean(line) for line in fold.dropped],
        "facts": [
            {"kind": fact.kind, "text": clean(fact.text), "handle": fact.handle, "sent": fact.text in edit.text}
            for fact in fold.facts
        ],
        "values": [
            {
                "sort": value.sort,
                "value": clean(value.value)[:300],
                "note": clean(value.note)[:80],
                "handle": value.handle,
                "sent": value.value in edit.text,
            }
            for value in values
        ],
        "values_total": len(fold.artifacts),
    }


def leave_out_index(summary: str) -> str:
    """Return a summary without its list of exact values, which the card shows separately."""
    for title in INDEX_TITLES.values():
        head, found, rest = f"\n{summary}".partition(f"\n## {title}\n")
        if found:
            later = rest.find("\n## ")
            return (head + (rest[later:] if later >= 0 else "")).strip("\n")
    return summary


def _describe_message(row: OutlineRow, stored: StoredMessage | None, session: SessionRow, look: Look) -> RowContent:
    if stored is None:  # Deleted between two reads; the next poll reports it.
        return {"key": row.key, "kind": "message", "role": "system", "handle": "", "tokens": 0, "pieces": []}
    message = parse_stored(stored, session)
    content: RowContent = {
        "key": row.key,
        "kind": "message",
        "role": find_speaker(message),
        "handle": f"m:{stored.digest[:8]}",
        "time": stored.created_at,
        "tokens": stored.tokens,
        "inside": row.is_inside,
        "pinned": stored.id in SessionState.read(session.settings).pinned,
        "gone": look == "difference" and row.is_inside,
        "forgotten": stored.is_forgotten,
        "behind": row.edit.fold.handle if look == "said" and row.edit and row.edit.fold else "",
    }
    changes = {edit.part: edit for edit in row.edits if edit.part is not None}
    pieces = [_describe_part(part, at, changes.get(at), look) for at, part in enumerate(message.parts)]
    return content | {"pieces": [piece for piece in pieces if piece is not None]}


def _describe_part(part: Part, at: int, edit: Edit | None, look: Look) -> RowContent | None:
    if edit is None or look == "said":
        content = _describe_text(part.kind, part.name, part.text, at)
        if part.kind in ("media", "opaque"):
            kind = str(part.payload.get("type", "")) if isinstance(part.payload, dict) else ""
            content |= {"shape": "note", "text": clean(f"{part.kind} {kind}".strip())[:100]}
        if part.is_error:
            content["is_error"] = True
        if edit is not None:
            content["mark"] = _describe_edit(edit)
        return content if content["total"] or part.kind not in ("text", "thinking") else None
    if edit.stage == RECALL and edit.text.startswith(part.text):
        return _describe_text(part.kind, part.name, part.text, at) | {"recalled": _describe_recalled(part, edit)}
    shown = "" if edit.kind == "drop" else edit.text
    content = _describe_text(part.kind, part.name, shown, at)
    content |= {"shape": "code", "mark": _describe_edit(edit), "is_changed": True, "edit": edit.id}
    content |= {"text": clean(shown[: content["limit"]])}
    if look == "difference":
        limit = content["limit"]
        content["was"] = {"text": clean(part.text[:limit]), "total": len(part.text), "limit": limit, "at": at}
    return content


def _describe_text(kind: str, name: str, text: str, at: int) -> RowContent:
    limit = WORDS_CHARS if kind == "text" else OUTPUT_CHARS
    # A button for the last few lines would take as much room as they do.
    limit = limit if len(text) > 1.25 * limit else len(text)
    content: RowContent = {"kind": kind, "name": clean(name)[:200], "at": at, "total": len(text), "limit": limit}
    if kind == "text":
        return content | {"shape": "words", "tree": to_tree(text[:limit])}
    return content | {"shape": "code", "text": clean(text[:limit])}


def _describe_recalled(part: Part, edit: Edit) -> RowContent:
    """Return the text that recall added below a user's message, separately: the user did not write it."""
    added = edit.text[len(part.text) :].strip()
    return {
        "count": max(1, added.count("\n⟨") + added.startswith("⟨")),
        "tokens": max(0, edit.tokens_after - edit.tokens_before),
        "text": clean(added)[:MORE_CHARS],
    }


def _describe_edit(edit: Edit) -> RowContent:
    return {
        # The fold stage also cuts results of the messages it keeps; those are not folded.
        "stage": "clamp" if edit.stage == "fold" else edit.stage,
        "kind": edit.kind,
        "before": edit.tokens_original,
        "after": edit.tokens_after,
        "reason": edit.reason,
    }


def read_more(access: Access, seen: Snapshot, row: OutlineRow, at: int, offset: int, *, original: bool) -> RowContent:
    """Return the next page of a part, as the model sees it or as it was received."""
    if row.kind != "message":
        raise HandleUnknown("only messages have further pages")
    found = access.ledger.read_messages(seen.row.id, [row.message_id])
    if not found:
        raise HandleUnknown("this message is no longer part of the session")
    message = parse_stored(found[0], seen.row)
    if not 0 <= at < len(message.parts):
        raise HandleUnknown("this message has no such part")
    edit = next((edit for edit in row.edits if edit.part == at), None)
    text = message.parts[at].text if original or edit is None else edit.text
    start = max(0, offset)
    page = text[start : start + MORE_CHARS]
    return {"text": clean(page), "next": start + len(page), "total": len(text)}
