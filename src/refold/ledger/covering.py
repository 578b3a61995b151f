"""What edits cover, as runs of message numbers: what every store computes in the same way. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from refold.ledger.codec import decode_edit, decode_reason, load_json
from refold.ledger.records import StoredBatch, StoredEdit
from refold.ledger.runs import Span

ReadIds = Callable[[int, int], Sequence[str]]
Decode = Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class EditRow:
    """An edit as it is stored, with its key and its runs."""

    key: int
    id: str
    batch: int | None
    batch_id: str
    is_active: bool
    covered: int
    created_at: float
    payload: bytes
    spans: tuple[Span, ...]


def group_spans(rows: Iterable[Sequence[int]]) -> dict[int, list[Span]]:
    """Return runs by the key of their edit, given rows of key, first, last."""
    spans: dict[int, list[Span]] = {}
    for key, first, last in rows:
        spans.setdefault(key, []).append((first, last))
    return spans


def read_edit_row(row: Sequence[Any], spans: Mapping[int, Sequence[Span]], decode: Decode) -> EditRow:
    """Return what was selected: key, id, batch, its id, is_active, covered, created_at, payload; with its runs."""
    key, edit_id, batch, batch_id, is_active, covered, created_at, payload = row
    covers = tuple(spans.get(key, ()))
    return EditRow(key, decode(edit_id), batch, decode(batch_id), bool(is_active), covered, created_at, payload, covers)


def make_batches(batches: Iterable[Sequence[Any]], edits: Iterable[Sequence[Any]], decode: Decode) -> list[StoredBatch]:
    """Return batches of rows (key, id, reason, tokens_before, tokens_after, created_at), each with its edits, which are
    rows of batch, id, is_active."""
    members: dict[int, list[tuple[str, bool]]] = {}
    for key, edit_id, is_active in edits:
        members.setdefault(key, []).append((decode(edit_id), bool(is_active)))
    return [
        StoredBatch(
            id=decode(batch_id),
            reason=decode_reason(decode(reason)),
            tokens_before=before,
            tokens_after=after,
            created_at=created_at,
            edits=tuple(edit_id for edit_id, _ in members.get(key, ())),
            is_active=any(is_active for _, is_active in members.get(key, ())),
        )
        for key, batch_id, reason, before, after, created_at in batches
    ]


def make_edits(rows: Sequence[EditRow], read_ids: ReadIds) -> list[StoredEdit]:
    """Return rows as edits, in their order; the ids of all that they cover are read at once, from low to high."""
    if not rows:
        return []
    low = min(span[0] for row in rows for span in row.spans)
    high = max(span[1] for row in rows for span in row.spans)
    ids = read_ids(low, high)
    return [
        StoredEdit(
            decode_edit(row.payload, tell_covers(row.spans, ids, low), row.id),
            row.batch_id,
            row.is_active,
            row.created_at,
        )
        for row in rows
    ]


def meets(runs: Sequence[Span], first: int, last: int) -> bool:
    """Tell whether any number from first to last is in one of these runs, which are sorted and apart."""
    at = bisect_left(runs, first, key=lambda run: run[1])
    return at < len(runs) and runs[at][0] <= last


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Return runs that are sorted by their first, and may overlap, as runs that are apart."""
    merged: list[Span] = []
    for first, last in spans:
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def is_within(seq: int, spans: Sequence[Span]) -> bool:
    """Tell whether a number is in one of these runs, which are sorted and apart."""
    at = bisect_right(spans, (seq, float("inf"))) - 1
    return at >= 0 and seq <= spans[at][1]


def tell_covers(spans: Iterable[Span], ids: Sequence[str], low: int) -> tuple[str, ...]:
    """Return the ids of the messages in these runs, given all ids from number ``low`` on."""
    return tuple(message_id for first, last in spans for message_id in ids[first - low : last - low + 1])


def add_descendants(rows: Sequence[EditRow], ids: set[str]) -> list[EditRow]:
    """Return the edits with these ids and all that were made from them."""
    origins = {row.id: set(load_json(row.payload)["made_from"]) for row in rows}
    gone = set(ids)
    while more := {edit_id for edit_id, made_from in origins.items() if edit_id not in gone and made_from & gone}:
        gone |= more
    return [row for row in rows if row.id in gone]
