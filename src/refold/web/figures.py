"""Figures of sessions for the page: read once, added up, and put into spans. Pure but for the ledger's reads.

Reading is bounded: so many sessions, so many requests of each; what is left out is said.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from weakref import WeakKeyDictionary

from refold.ledger.port import Ledger
from refold.ledger.records import Event, SessionRow
from refold.manager import ContextCompressionManager
from refold.manager.usage import Bill, FoldFigures, RequestFigures, SessionFigures, sum_requests
from refold.server.api.interface import Access
from refold.web.reading import name_session

SESSIONS_MAX = 200
EVENTS_MAX = 1_000
SPANS_MAX = 48
KNOWN_MAX = 1_000

_Key = tuple[str, float, int, float]
_known: WeakKeyDictionary[Ledger, OrderedDict[_Key, SessionFigures]] = WeakKeyDictionary()
_guard = threading.Lock()


@dataclass(frozen=True, slots=True)
class Point:
    """A request, or the mean of those in a span; ``folds`` says how many compressions fell into it."""

    time: float
    requests: int
    tokens: float
    tokens_raw: float
    cached: float
    folds: int
    dollars: float
    dollars_raw: float


@dataclass(frozen=True, slots=True)
class Overview:
    """All that the page shows: of one session, or of all that the caller has. ``titles`` are by the sessions' names.

    ``is_one``: only one session has requests, so each point is one of them.
    """

    titles: dict[str, str]
    parts: tuple[SessionFigures, ...]
    bill: Bill
    folds: tuple[FoldFigures, ...]
    points: tuple[Point, ...]
    events: tuple[Event, ...]
    is_cut: bool
    is_one: bool

    @property
    def tokens_freed(self) -> int:
        """What views have less than the originals."""
        return sum(part.folded_away for part in self.parts)


def read_overview(access: Access, name: str = "", since: float = 0.0) -> Overview:
    """Return the figures of a session, or of the caller's newest sessions; those since a time, if one is given.

    What is folded away is always counted as of now.
    """
    rows = access.list_rows(SESSIONS_MAX, 0)
    chosen = [access.need(name)] if name else rows
    titles = {access.name(row.id): name_session(access, row) for row in (*rows, *chosen)}
    parts = [cut_before(read_known(access.manager, row), since) for row in chosen]
    folds = sorted((fold for part in parts for fold in part.folds), key=lambda fold: fold.time)
    requests = sorted((one for part in parts for one in part.requests), key=lambda one: one.time)
    events = [event for event in _read_events(access, chosen, name) if event.created_at >= since]
    is_one = sum(bool(part.requests) for part in parts) <= 1
    return Overview(
        titles=titles,
        parts=tuple(parts),
        bill=sum((part.bill for part in parts), Bill()),
        folds=tuple(folds),
        points=tuple(list_points(requests, folds) if is_one else gather_spans(requests, folds)),
        events=tuple(events),
        is_cut=any(part.is_cut for part in parts) or (not name and len(rows) == SESSIONS_MAX),
        is_one=is_one,
    )


def cut_before(figures: SessionFigures, since: float) -> SessionFigures:
    """Return the figures of a session's requests and compressions since a time."""
    if not since:
        return figures
    requests = tuple(one for one in figures.requests if one.time >= since)
    share = len(requests) / len(figures.requests) if figures.requests else 0.0
    # Summaries are billed for the session as a whole; a part of it bears its share.
    bill = replace(sum_requests(requests), dollars_summaries=figures.bill.dollars_summaries * share)
    folds = tuple(one for one in figures.folds if one.time >= since)
    return replace(figures, requests=requests, folds=folds, bill=bill)


def read_known(manager: ContextCompressionManager, row: SessionRow) -> SessionFigures:
    """Return the figures of a session, read again only if something changed."""
    ledger = manager.ledger
    newest = ledger.read_usage(row.id, limit=1)
    key = (row.id, row.updated_at, row.edits_version, newest[0].created_at if newest else 0.0)
    with _guard:
        known = _known.setdefault(ledger, OrderedDict())
        if key in known:
            known.move_to_end(key)
            return known[key]
    figures = manager.figures(row.id)
    with _guard:
        known[key] = figures
        while len(known) > KNOWN_MAX:
            known.popitem(last=False)
    return figures


def list_points(requests: Sequence[RequestFigures], folds: Sequence[FoldFigures]) -> list[Point]:
    """Return a point for every request; a compression is told at the first request after it. Dollars add up."""
    points: list[Point] = []
    dollars = dollars_raw = 0.0
    told = 0
    for one in requests:
        due = sum(1 for fold in folds[told:] if fold.time <= one.time)
        told += due
        dollars += one.dollars or 0.0
        dollars_raw += one.dollars_raw or 0.0
        points.append(Point(one.time, 1, one.tokens, one.tokens_raw, one.cached, due, dollars, dollars_raw))
    return points


def gather_spans(requests: Sequence[RequestFigures], folds: Sequence[FoldFigures]) -> list[Point]:
    """Return the mean request of each span, spans of as many requests each, in the order of time. Dollars add up."""
    size = ceil(len(requests) / SPANS_MAX)
    points: list[Point] = []
    dollars = dollars_raw = 0.0
    told = 0
    for start in range(0, len(requests), max(1, size)):
        found = requests[start : start + size]
        due = sum(1 for fold in folds[told:] if fold.time <= found[-1].time)
        told += due
        dollars += sum(one.dollars or 0.0 for one in found)
        dollars_raw += sum(one.dollars_raw or 0.0 for one in found)
        count = len(found)
        points.append(
            Point(
                found[-1].time,
                count,
                sum(one.tokens for one in found) / count,
                sum(one.tokens_raw for one in found) / count,
                sum(one.cached for one in found) / count,
                due,
                dollars,
                dollars_raw,
            )
        )
    return points


def _read_events(access: Access, rows: Sequence[SessionRow], name: str) -> list[Event]:
    if not name and not access.tenant:
        return access.ledger.read_newest_events(None, limit=EVENTS_MAX)
    # Among the events of all tenants the caller's own may be few.
    found = [event for row in rows for event in access.ledger.read_newest_events(row.id, limit=EVENTS_MAX)]
    return sorted(found, key=lambda event: -event.id)[:EVENTS_MAX]
