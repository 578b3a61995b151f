"""What a tab reads of a session: its row, its path, its edits, and whether any of it has changed since.

Blocking calls of the ledger and the manager, each a function of ``Access``; ``Source.run`` runs them in threads.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from weakref import WeakKeyDictionary

from refold.conversation.message import Message
from refold.conversation.reason import NO_REASON, Reason
from refold.conversation.view import Lens
from refold.ledger.port import Ledger
from refold.ledger.records import Event, MessagePath, SessionRow, StoredEdit, StoredMessage, format_of
from refold.llm.choose import GATEWAY
from refold.manager import ContextCompressionManager
from refold.manager.session import FORGOTTEN, REDO, parse_stored
from refold.manager.status import TITLE, read_client, read_title
from refold.manager.undo import read_redo
from refold.manager.usage import Bill, FoldFigures, RequestFigures, SessionFigures, sum_requests
from refold.server.api.interface import Access
from refold.web.visit import clean

SAMPLE = "sample"
TITLE_CHARS_MAX = 120
MATCHES_MAX = 500
READ_AT_ONCE = 500
SESSIONS_MAX = 200
EVENTS_MAX = 1_000
SPANS_MAX = 48
KNOWN_MAX = 1_000
_Key = tuple[str, float, int, float]
_known: WeakKeyDictionary[Ledger, OrderedDict[_Key, SessionFigures]] = WeakKeyDictionary()
_guard = threading.Lock()
PAGE = 50
LISTED_MAX = 1_000
_SAVED_KNOWN_MAX = 5_000
_OPENINGS_MAX = 5_000
_openings: OrderedDict[tuple[str, float, int], str] = OrderedDict()
_saved: OrderedDict[tuple[str, float], float | None] = OrderedDict()


@dataclass(frozen=True, slots=True)
class FoldMade:
    """When and why a fold was made."""

    created_at: float
    reason: Reason


@dataclass(frozen=True, slots=True)
class Seen:
    """A session at one moment, without its messages."""

    row: SessionRow
    path: MessagePath
    edits: tuple[StoredEdit, ...]
    made: dict[str, FoldMade] = field(repr=False)
    redoable: frozenset[str] = frozenset()

    @property
    def version(self) -> tuple[int, int, float]:
        """What changes whenever the session does."""
        return find_version(self.row)


def find_version(row: SessionRow) -> tuple[int, int, float]:
    """Return what changes whenever a session does; ``updated_at`` because settings and titles do not count as edits."""
    return row.path_version, row.edits_version, row.updated_at


def read_seen(access: Access, name: str) -> Seen:
    """Read a session as it is now."""
    row = access.need(name)
    edits = access.ledger.read_edits(row.id, active_only=False)
    reasons = {batch.id: batch.reason for batch in access.ledger.read_batches(row.id)}
    made = {one.edit.id: FoldMade(one.created_at, reasons.get(one.batch_id, NO_REASON)) for one in edits}
    redoable = frozenset(one for group in read_redo(row.settings.get(REDO)) for one in group)
    return Seen(row, access.ledger.read_path(row.id), tuple(edits), made, redoable)


def read_roles(access: Access, seen: Seen) -> dict[str, str]:
    """Return whose words each message of a session is made of, by its id."""
    lens = Lens(format_of(seen.row), lambda *_: 0, lambda _: 0)
    roles: dict[str, str] = {}
    for stored in _read_all(access, seen):
        roles[stored.id] = find_speaker(parse_stored(stored, seen.row, lens))
    return roles


def find_speaker(message: Message) -> str:
    """Return whose words a message is made of: results of tools may come in a user's message."""
    kinds = {part.kind for part in message.parts}
    return "tool" if "result" in kinds and "text" not in kinds else message.role


def find_matches(access: Access, seen: Seen, query: str) -> list[str]:
    """Return the ids of the messages that contain a text, in order, whatever its case."""
    wanted, lens = query.casefold(), Lens(format_of(seen.row), lambda *_: 0, lambda _: 0)
    found = []
    for stored in _read_all(access, seen):
        message = parse_stored(stored, seen.row, lens)
        if any(wanted in f"{part.name}\n{part.text}".casefold() for part in message.parts):
            found.append(stored.id)
            if len(found) >= MATCHES_MAX:
                break
    return found


def _read_all(access: Access, seen: Seen) -> Iterator[StoredMessage]:
    ids = seen.path.ids
    for start in range(0, len(ids), READ_AT_ONCE):
        yield from access.ledger.read_messages(seen.row.id, ids[start : start + READ_AT_ONCE])


def read_version(access: Access, name: str) -> tuple[int, int, float]:
    """Return the version of a session: one cheap read."""
    return find_version(access.need(name))


def is_compressed_now(access: Access, name: str) -> bool:
    """Tell whether somebody, in any process, is compressing a session (S3.11): one cheap read."""
    return access.ledger.is_leased(access.need(name).id, now=time.time())


def find_title(row: SessionRow) -> str:
    """Return the title a person gave a session, empty if none did."""
    title = row.settings.get(TITLE)
    return title if isinstance(title, str) else ""


def read_opening(access: Access, row: SessionRow) -> str:
    """Return the first words a person said in a session."""
    return read_title(access.ledger, row)


def rename_session(access: Access, name: str, title: str) -> None:
    """Give a session a title; an empty one takes it away. Its name, by which clients know it, stays."""
    row = access.need(name)
    wanted = " ".join(title.split())[:TITLE_CHARS_MAX]
    access.ledger.update_session(row.id, {"settings": {TITLE: wanted or None}}, time.time())


def delete_session(access: Access, name: str) -> None:
    """Delete a session with its files; daily pages stay."""
    row = access.need(name)
    access.manager.delete_session(row.id)
    access.application.forget_known(row.id)


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


@dataclass(frozen=True, slots=True)
class Listed:
    """A session in the list."""

    name: str
    title: str
    model: str
    messages: int
    tokens: int
    folds: int
    changed_at: float
    is_sample: bool = False
    has_own_title: bool = False
    client: str = ""
    parent: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """A part of the list that matches a query, and how many match in all."""

    sessions: tuple[Listed, ...]
    total: int
    is_any: bool


def list_sessions(access: Access, query: str, limit: int) -> Listing:
    """Return the sessions that match, the last changed first."""
    rows = access.list_rows(LISTED_MAX, 0)
    wanted = query.casefold().split()
    found = _put_below([one for row in rows if _matches(one := _describe(access, row), wanted)])
    return Listing(tuple(found[:limit]), len(found), bool(rows))


def _put_below(listed: list[Listed]) -> list[Listed]:
    """Return the sessions with those that were begun from another one below it."""
    names = {one.name for one in listed}
    below: dict[str, list[Listed]] = {}
    for one in listed:
        if one.parent in names and one.parent != one.name:
            below.setdefault(one.parent, []).append(replace(one, title=f"↳ {one.title}"))
    roots = [one for one in listed if one.parent not in names or one.parent == one.name]
    return [one for root in roots for one in (root, *below.get(root.name, ()))]


def _matches(one: Listed, wanted: list[str]) -> bool:
    text = f"{one.title}\n{one.name}\n{one.model}\n{one.client}".casefold()
    return all(word in text for word in wanted)


def _describe(access: Access, row: SessionRow) -> Listed:
    own = find_title(row)
    name = access.name(row.id)
    told = row.settings.get(GATEWAY)
    made = told if isinstance(told, dict) else {}
    return Listed(
        name=name,
        title=clean(name_session(access, row)),
        model=clean(row.model)[:80],
        messages=row.messages,
        tokens=row.tokens,
        folds=row.compression_count,
        changed_at=row.updated_at,
        is_sample=bool(row.settings.get(SAMPLE)),
        has_own_title=bool(own),
        client=clean(read_client(row))[:40],
        parent=access.name(str(made.get("parent", ""))),
    )


def name_session(access: Access, row: SessionRow) -> str:
    """Return what a session is called everywhere on the page: its title, else its first words, else its name."""
    return find_title(row) or _find_opening(access, row) or access.name(row.id)


def _find_opening(access: Access, row: SessionRow) -> str:
    """Return a session's first words; read once, because they rarely change. What was forgotten is not kept here."""
    forgotten = row.settings.get(FORGOTTEN)
    key = (row.id, row.created_at, len(forgotten) if isinstance(forgotten, dict) else 0)
    if key not in _openings:
        opening = read_opening(access, row)
        if not opening:
            return ""
        _openings[key] = opening
        while len(_openings) > _OPENINGS_MAX:
            _openings.popitem(last=False)
    return _openings[key]


def read_saved(access: Access, name: str) -> float | None:
    """Return what compression saved in a session so far, in dollars; None where nothing is known."""
    row = access.need(name)
    key = (row.id, row.updated_at)
    if key not in _saved:
        bill = read_known(access.manager, row).bill
        _saved[key] = bill.dollars_saved if bill.priced else None
        while len(_saved) > _SAVED_KNOWN_MAX:
            _saved.popitem(last=False)
    return _saved[key]
