"""The log of what happened to sessions: a notice as the ledger keeps it, and events read back page by page."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from refold.conversation.reason import read_reason
from refold.ledger.ledger import Event, Ledger
from refold.manager.notices import Notice

PAGE = 1_000


def make_event(notice: Notice) -> Event:
    """Return a notice as the ledger logs it."""
    fields: dict[str, object] = {"reason": notice.reason.to_json(), **notice.fields}
    if notice.tokens_before or notice.tokens_after:
        fields |= {"tokens_before": notice.tokens_before, "tokens_after": notice.tokens_after}
    if notice.seconds:
        fields["seconds"] = round(notice.seconds, 4)
    return Event(notice.kind, notice.time, fields)


def describe_fields(event: Event) -> dict[str, object]:
    """Return the fields of an event for JSON interfaces: its reason with code, values and English text."""
    told = dict(event.fields)
    if "reason" in told:
        told["reason"] = read_reason(told["reason"]).to_dict()
    return told


def read_all_events(ledger: Ledger, session_id: str | None, after: int = 0) -> Iterator[Event]:
    """Yield every event of a session or of all, oldest first; only those with a greater id than ``after``."""
    while page := ledger.read_events(session_id, after=after, limit=PAGE):
        yield from page
        after = page[-1].id


def list_events(ledger: Ledger, session_id: str | None, limit: int) -> list[Event]:
    """Return the newest events of a session or of all, newest first; of all, ids without an event count as well."""
    after = 0 if session_id is not None else max(0, find_last_event(ledger) - limit)
    return list(deque(read_all_events(ledger, session_id, after), maxlen=limit))[::-1]


def find_last_event(ledger: Ledger) -> int:
    """Return the id of the newest event, found by doubling: the ledger lists events upwards only."""
    low, high = 0, 1
    while ledger.read_events(None, after=high, limit=1):
        low, high = high, high * 2
    while low < high:
        middle = (low + high) // 2
        if ledger.read_events(None, after=middle, limit=1):
            low = middle + 1
        else:
            high = middle
    return low
