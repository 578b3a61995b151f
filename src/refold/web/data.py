"""Data of the pages: a session with its edits and version, the list of sessions, and figures for the statistics.

All functions take ``Access`` and block; ``DataSource.run`` runs them in threads. Reading is bounded: the number of
sessions, and of requests and events of each, has a limit, and the page says when something is left out.
"""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import ceil
from weakref import WeakKeyDictionary

from refold.conversation.message import Message
from refold.conversation.reason import Reason
from refold.ledger.records import Event, MessagePath, SessionRow, StoredBatch, StoredEdit
from refold.ledger.sql.ledger import Ledger
from refold.manager import ContextCompressionManager
from refold.manager.session import parse_stored
from refold.manager.session_state import TITLE, SessionState
from refold.manager.status import put_below, read_client, read_title
from refold.manager.usage import Bill, RequestFigures, SessionFigures, sum_requests
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
_OPENINGS_MAX = 5_000
_openings: OrderedDict[tuple[str, float, int], str] = OrderedDict()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A session at one moment, without its messages."""

    row: SessionRow
    path: MessagePath
    edits: tuple[StoredEdit, ...]
    reasons: dict[str, Reason] = field(repr=False)  # Of each compression, by its batch.
    redoable: frozenset[str] = frozenset()


def find_version(row: SessionRow) -> tuple[int, int, float]:
    """Return a value that changes whenever a session does; ``updated_at`` covers settings and titles."""
    return row.path_version, row.edits_version, row.updated_at


def read_snapshot(access: Access, name: str) -> Snapshot:
    row = access.need(name)
    edits = access.ledger.read_edits(row.id, active_only=False)
    reasons = {batch.id: batch.reason for batch in access.ledger.read_batches(row.id)}
    redoable = frozenset(one for group in SessionState.read(row.settings).redo for one in group)
    return Snapshot(row, access.ledger.read_path(row.id), tuple(edits), reasons, redoable)


def read_roles(access: Access, seen: Snapshot) -> dict[str, str]:
    """Return the speaker of each message of a session, by message id."""
    return {message.id: find_speaker(message) for message in _read_all(access, seen)}


def find_speaker(message: Message) -> str:
    """Return the speaker of a message. In some formats tool results are part of a user message."""
    kinds = {part.kind for part in message.parts}
    return "tool" if "result" in kinds and "text" not in kinds else message.role


@dataclass(frozen=True, slots=True)
class Found:
    """A place in a session: a message, the part of it, the first character, and the words that are there."""

    message_id: str
    part: int
    offset: int
    words: str


def find_matches(access: Access, seen: Snapshot, query: str) -> list[Found]:
    """Return where messages contain a text, in order, the first place of each; case is ignored."""
    found = (_find_words(message, query) for message in _read_all(access, seen))
    return list(islice((one for one in found if one is not None), MATCHES_MAX))


def _find_words(message: Message, words: str) -> Found | None:
    wanted = words.casefold()
    for at, part in enumerate(message.parts):
        if (offset := part.text.casefold().find(wanted)) >= 0:
            return Found(message.id, at, offset, words)
        if wanted in part.name.casefold():
            return Found(message.id, at, 0, words)
    return None


def find_source(access: Access, seen: Snapshot, edit_id: str, at: int) -> Found | None:
    """Return where a line of a record comes from: the message it names, else the newest one with its words."""
    edit = next((one.edit for one in seen.edits if one.edit.id == edit_id and one.edit.fold), None)
    lines = edit.fold.summary.splitlines() if edit is not None and edit.fold is not None else []
    if edit is None or not 0 <= at < len(lines):
        return None
    line, places = lines[at], {one: place for place, one in enumerate(seen.path.ids)}
    last = max((places.get(one, -1) for one in edit.covers), default=-1)
    earlier = replace(
        seen, path=replace(seen.path, ids=seen.path.ids[: last + 1], digests=seen.path.digests[: last + 1])
    )
    messages = list(_read_all(access, earlier))[::-1]
    handles = re.findall(r"\bm:([0-9a-f]{6,})", line)
    named = [one for one in messages if any(one.digest.startswith(handle) for handle in handles)]
    speaker = {"U>": "user", "A>": "assistant"}.get(line[:2], "")
    spoken = [one for one in messages if one.role == speaker] if speaker else messages
    # What is left out is written [+n id]; a call and its result are joined by an arrow.
    bare = re.sub(r"^[UA]> |^\$ |^\s*[-+] ", "", line)
    pieces = sorted(re.split(r"\[\+[^][]*\]| → | ← A: | m:[0-9a-f]{6,}| \(files changed", bare), key=len, reverse=True)
    for words in [piece.strip() for piece in pieces if len(piece.strip()) > 2]:
        for some in (named, spoken, messages):
            for message in some:
                if found := _find_words(message, words):
                    return found
    if named:
        return Found(named[0].id, 0, 0, "")
    return _find_alike(spoken or messages, bare)


def _find_alike(messages: Sequence[Message], line: str) -> Found | None:
    """Return the message that has the most words of a line."""
    wanted = set(re.findall(r"[\w./-]{3,}", line.casefold()))
    best, most = None, 0
    for message in messages:
        text = " ".join(f"{part.name} {part.text}" for part in message.parts).casefold()
        count = sum(word in text for word in wanted)
        if count > most:
            best, most = message, count
    if best is None:
        return None
    longest = sorted(wanted, key=len, reverse=True)
    return next((found for word in longest if (found := _find_words(best, word))), None)


def _read_all(access: Access, seen: Snapshot) -> Iterator[Message]:
    ids = seen.path.ids
    for start in range(0, len(ids), READ_AT_ONCE):
        for stored in access.ledger.read_messages(seen.row.id, ids[start : start + READ_AT_ONCE]):
            yield parse_stored(stored, seen.row)


def is_compressed_now(access: Access, name: str) -> bool:
    """Return whether any process is compressing a session now; one cheap read."""
    return access.ledger.is_leased(access.need(name).id, now=time.time())


def find_title(row: SessionRow) -> str:
    """Return the title that a person or an import gave a session; empty if there is none."""
    return SessionState.read(row.settings).title


def rename_session(access: Access, name: str, title: str) -> None:
    """Give a session a title; an empty one removes it. The name that clients use stays the same."""
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
    """A request, or the mean of several; ``folds`` counts the compressions before it."""

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
    """The statistics of one session or of all of the caller's. ``titles`` are by the sessions' names.

    ``is_one``: only one session has requests, so each point is one request.
    """

    titles: dict[str, str]
    parts: tuple[SessionFigures, ...]
    bill: Bill
    folds: tuple[StoredBatch, ...]
    points: tuple[Point, ...]
    events: tuple[Event, ...]
    is_cut: bool
    is_one: bool

    @property
    def tokens_freed(self) -> int:
        """The tokens by which the views are smaller than the originals."""
        return sum(part.folded_away for part in self.parts)


def read_overview(access: Access, name: str = "", since: float = 0.0) -> Overview:
    """Return the figures of a session, or of the caller's newest sessions, optionally since a time.

    Folded tokens are always counted as of now.
    """
    rows = access.list_rows(SESSIONS_MAX, 0)
    chosen = [access.need(name)] if name else rows
    titles = {access.name(row.id): name_session(access, row) for row in (*rows, *chosen)}
    parts = [cut_before(read_known(access.manager, row), since) for row in chosen]
    folds = sorted((fold for part in parts for fold in part.folds), key=lambda fold: fold.created_at)
    requests = sorted((request for part in parts for request in part.requests), key=lambda one: one.time)
    events = [event for event in _read_events(access, chosen, name) if event.created_at >= since]
    is_one = sum(bool(part.requests) for part in parts) <= 1
    return Overview(
        titles=titles,
        parts=tuple(parts),
        bill=sum((part.bill for part in parts), Bill()),
        folds=tuple(folds),
        points=tuple(_list_points(requests, folds, 1 if is_one else ceil(len(requests) / SPANS_MAX))),
        events=tuple(events),
        is_cut=any(part.is_cut for part in parts) or (not name and len(rows) == SESSIONS_MAX),
        is_one=is_one,
    )


def cut_before(figures: SessionFigures, since: float) -> SessionFigures:
    """Return the figures of a session's requests and compressions since a time."""
    if not since:
        return figures
    requests = tuple(request for request in figures.requests if request.time >= since)
    share = len(requests) / len(figures.requests) if figures.requests else 0.0
    # Summaries are billed for the whole session, so a part of its requests bears a share.
    bill = replace(sum_requests(requests), dollars_summaries=figures.bill.dollars_summaries * share)
    folds = tuple(fold for fold in figures.folds if fold.created_at >= since)
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


def _list_points(requests: Sequence[RequestFigures], folds: Sequence[StoredBatch], size: int) -> list[Point]:
    """Return the mean of every ``size`` requests, oldest first. Dollars accumulate.

    A compression counts at the first point after it.
    """
    points: list[Point] = []
    dollars = dollars_raw = 0.0
    counted = 0
    for start in range(0, len(requests), max(1, size)):
        found = requests[start : start + size]
        due = sum(1 for fold in folds[counted:] if fold.created_at <= found[-1].time)
        counted += due
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
    # The newest events of all tenants may contain few of the caller's.
    found = [event for row in rows for event in access.ledger.read_newest_events(row.id, limit=EVENTS_MAX)]
    return sorted(found, key=lambda event: -event.id)[:EVENTS_MAX]


@dataclass(frozen=True, slots=True)
class Listed:
    """A session in the list, under the name that the caller knows it by."""

    row: SessionRow
    name: str
    title: str
    has_own_title: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """The first sessions that match a query, and how many match in all."""

    sessions: tuple[Listed, ...]
    total: int
    is_any: bool


def list_sessions(access: Access, query: str, limit: int) -> Listing:
    """Return the sessions that match, the last changed first."""
    rows = access.list_rows(LISTED_MAX, 0)
    wanted = query.casefold().split()
    listed: dict[str, Listed] = {}
    for row in rows:
        name, title = access.name(row.id), clean(name_session(access, row))
        text = f"{title}\n{name}\n{row.model}\n{read_client(row)}".casefold()
        if all(word in text for word in wanted):
            listed[row.id] = Listed(row, name, title, bool(find_title(row)))
    below = put_below([row for row in rows if row.id in listed])
    found = [
        replace(listed[row.id], title=f"↳ {listed[row.id].title}") if is_child else listed[row.id]
        for row, is_child in below
    ]
    return Listing(tuple(found[:limit]), len(found), bool(rows))


def name_session(access: Access, row: SessionRow) -> str:
    """Return the name that the page shows for a session: its title, else its first words, else its id."""
    return find_title(row) or _find_opening(access, row) or access.name(row.id)


def _find_opening(access: Access, row: SessionRow) -> str:
    """Return a session's first words, cached because they rarely change; forgetting a message invalidates the entry."""
    key = (row.id, row.created_at, len(SessionState.read(row.settings).stubs))
    if key not in _openings:
        opening = read_title(access.ledger, row)
        if not opening:
            return ""
        _openings[key] = opening
        while len(_openings) > _OPENINGS_MAX:
            _openings.popitem(last=False)
    return _openings[key]


def read_saved(access: Access, name: str) -> float | None:
    """Return what compression has saved in a session, in dollars; None if unknown."""
    bill = read_known(access.manager, access.need(name)).bill
    return bill.dollars_saved if bill.priced else None
