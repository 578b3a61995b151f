"""The strip above a conversation: every request as a bar, every compression as a notch, and a scrubber through them.

A request is shown as it was sent: the messages there were, under the edits that were in force at that moment. Sessions
without reported usage have a bar for every answer, counted from what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from nicegui import ui
from nicegui.events import GenericEventArguments

from refold.ledger.records import Event, MessagePath, StoredEdit
from refold.server.api.interface import Access
from refold.web.reading import Seen
from refold.web.shell import guarded
from refold.web.visit import find_visit
from refold.web.words import list_words

MOMENTS_MAX = 1_000
# Counting a session that no provider reported on reads all of its messages.
MESSAGES_MAX = 3_000
EVENTS_MAX = 2_000
_PREFIX = "session.time_"
_SWITCHES = ("undone", "redone", "recalled")


@dataclass(frozen=True, slots=True)
class Moment:
    """One request: the messages there were, what was sent, what it would have been; dollars where a price is known.

    ``folds`` are compressions made for it. ``is_counted`` means that no provider reported it.
    """

    time: float
    messages: int
    tokens: int
    tokens_raw: int
    dollars: float | None = None
    dollars_raw: float | None = None
    folds: int = 0
    is_counted: bool = False


def has_moments(access: Access, seen: Seen) -> bool:
    """Tell whether a session has a timeline, without reading it."""
    count = len(seen.path.ids)
    return 1 < count <= MESSAGES_MAX or (count > 1 and bool(access.ledger.read_usage(seen.row.id, limit=1)))


def read_moments(access: Access, seen: Seen) -> list[Moment]:
    """Return the requests of a session, oldest first."""
    figures = access.manager.figures(seen.row.id)
    known = [one for one in figures.requests if one.messages][-MOMENTS_MAX:]
    if not known:
        return _count_moments(access, seen)
    due = sorted(one.time for one in figures.folds)
    moments = []
    for one in known:
        folds = sum(time <= one.time for time in due)
        due = due[folds:]
        moments.append(Moment(one.time, one.messages, one.tokens, one.tokens_raw, one.dollars, one.dollars_raw, folds))
    return moments


def _count_moments(access: Access, seen: Seen) -> list[Moment]:
    """Return a moment for every answer of a session that no provider reported on."""
    if len(seen.path.ids) > MESSAGES_MAX:
        return []
    stored = access.ledger.read_messages(seen.row.id)
    due = sorted(
        (made.created_at, one.edit.tokens_freed, bool(one.batch_id), one.batch_id)
        for one in seen.edits
        if one.is_active and (made := seen.made.get(one.edit.id))
    )
    moments: list[Moment] = []
    total = freed = 0
    batches: set[str] = set()
    for place, message in enumerate(stored):
        if message.role == "assistant" and place:
            new = set()
            while due and due[0][0] <= message.created_at:
                _, gone, is_batch, batch = due.pop(0)
                freed += gone
                new |= {batch} - batches if is_batch else set()
            batches |= new
            moments.append(
                Moment(message.created_at, place, max(0, total - freed), total, folds=len(new), is_counted=True)
            )
        total += message.tokens
    return moments[-MOMENTS_MAX:]


def read_switches(access: Access, seen: Seen) -> list[Event]:
    """Return the events that switched edits off or on, oldest first."""
    newest = access.ledger.read_newest_events(seen.row.id, limit=EVENTS_MAX)
    return [event for event in reversed(newest) if event.kind in _SWITCHES and "edits" in event.fields]


def rewind(seen: Seen, moment: Moment, switches: Sequence[Event]) -> Seen:
    """Return a session as it was when a request was sent."""
    path = seen.path
    ids, digests = path.ids[: moment.messages], path.digests[: moment.messages]
    off: set[str] = set()
    for event in switches:
        if event.created_at <= moment.time:
            named = event.fields.get("edits")
            ids_switched = {str(one) for one in named} if isinstance(named, list) else set()
            off = off - ids_switched if event.kind == "redone" else off | ids_switched
    edits = tuple(
        replace(one, is_active=True) if not one.is_active else one
        for one in seen.edits
        if one.created_at <= moment.time and one.edit.id not in off and _was_made(one, switches)
    )
    return replace(seen, path=MessagePath(ids, digests, path.version), edits=edits, redoable=frozenset())


def _was_made(one: StoredEdit, switches: Sequence[Event]) -> bool:
    """Tell whether an edit that is off now was in force once: somebody switched it off, and it was not refused."""
    named = (event.fields.get("edits") for event in switches)
    return one.is_active or any(isinstance(ids, list) and one.edit.id in ids for ids in named)


class Timeline(ui.element, component="parts/timeline.js"):
    """The strip in one tab. ``on_seek`` gets the number of a request, 0 for now."""

    def __init__(self, on_seek: Callable[[int], Any]) -> None:
        super().__init__()
        tongue = find_visit().tongue
        words = {key.removeprefix(_PREFIX): text for key, text in list_words(tongue, _PREFIX).items()}
        self._props.update(words=words, moments=[], at=0, language="zh-CN" if tongue == "zh" else "en-GB")
        self.moments: list[Moment] = []
        self.on("seek", guarded(lambda event: on_seek(self._read_place(event))))

    def _read_place(self, event: GenericEventArguments) -> int:
        at = event.args.get("at") if isinstance(event.args, dict) else 0
        return at if isinstance(at, int) and 0 < at <= len(self.moments) else 0

    def fill(self, moments: list[Moment]) -> None:
        """Show these requests."""
        if moments == self.moments:
            return
        self.moments = moments
        self._props["moments"] = [asdict(one) for one in moments]
        self.update()

    def show(self, at: int) -> None:
        """Put the scrubber on a request, 0 for now."""
        self._props["at"] = at
        self.update()
