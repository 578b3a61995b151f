"""What ``verify`` checks of stored rows, whichever store they come from: hashes, chained ids, runs, edits. Pure.

Each check yields what differs, as a sentence about an original: something that nobody can rebuild.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

from refold.conversation.message import chain_id
from refold.errors import RefoldError
from refold.ledger.codec import decode_edit, load_json
from refold.ledger.covering import EditRow, tell_covers
from refold.ledger.runs import Span, has_overlap

DigestOf = Callable[[object], str]


def checksum(digest: bytes, body: bytes) -> bytes:
    """Return what shows that raw bytes are those that were stored for this digest."""
    return blake2b(body, key=digest, digest_size=8).digest()


def check_messages(rows: Iterable[Sequence[Any]], digest_of: DigestOf | None) -> Iterator[str]:
    """Check all messages of a session in order: seq, id, parent, digest, whether forgotten, checksum, body."""
    seen: set[bytes] = {b""}
    expected = 0
    for seq, message_id, parent, digest, is_forgotten, stored_sum, body in rows:
        expected += 1
        where = f"message {seq} ({message_id.hex()[:8]})"
        if seq != expected:
            yield f"{where}: a message is missing before it"
            expected = seq
        if chain_id(parent.hex(), digest.hex()) != message_id.hex():
            yield f"{where}: its id does not follow from its parent and its digest"
        if parent not in seen:
            yield f"{where}: its parent is not stored before it"
        seen.add(message_id)
        if not is_forgotten:
            yield from (f"{where}: {what}" for what in _check_raw(digest, body, stored_sum, digest_of))


def _check_raw(digest: bytes, body: bytes | None, stored_sum: bytes, digest_of: DigestOf | None) -> Iterator[str]:
    if body is None:
        yield "its content is missing"
        return
    if checksum(digest, body) != stored_sum:
        yield "its content is not what was stored"
        return
    if digest_of is None:
        return
    try:
        is_same = digest_of(load_json(body)) == digest.hex()
    except (ValueError, RefoldError) as error:
        yield f"its content cannot be read ({error})"
    else:
        if not is_same:
            yield "its digest is not that of its content"


def check_runs(runs: Sequence[Span]) -> Iterator[str]:
    """Check the runs of a path."""
    if any(first > last for first, last in runs):
        yield "path: a run ends before it begins"
    if has_overlap(runs):
        yield "path: a message stands on it twice"


def check_edits(rows: Iterable[EditRow], ids: Sequence[str]) -> Iterator[str]:
    """Check edits, given the ids of all messages from the first on."""
    for row in rows:
        yield from (f"edit {row.id}: {what}" for what in _check_edit(row, ids))


def _check_edit(row: EditRow, ids: Sequence[str]) -> Iterator[str]:
    if not row.spans or row.spans[0][0] < 1 or max(span[1] for span in row.spans) > len(ids):
        yield "it covers messages that are not stored"
        return
    try:
        edit = decode_edit(row.payload, tell_covers(row.spans, ids, 1))
    except (ValueError, TypeError, KeyError) as error:
        yield f"it cannot be read ({error})"
        return
    if edit.id != row.id:
        yield "its id does not follow from what it does"
