"""The conversation on a page, and the timeline above it: requests as bars, compressions as notches, and a scrubber.

The browser asks for the rows it is about to show; the server sends those and no others. Open folds and the chosen view
belong to the tab. A version increases with every change of the rows, so that a late response is dropped.

The timeline shows a request as it was sent: the messages up to it, under the edits in effect at that moment. Sessions
without reported usage have a bar for every answer, counted from what is stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from nicegui import ui
from nicegui.events import GenericEventArguments

from refold.conversation.message import read_handle
from refold.errors import HandleUnknown
from refold.ledger.records import Event, MessagePath
from refold.manager.session_state import SessionState
from refold.server.api.interface import Access
from refold.web.data import Found, Snapshot, find_version, read_roles, read_snapshot
from refold.web.rows import LOOKS, ROWS_MAX, Look, OutlineRow, describe_rows, find_change, make_outline, read_more
from refold.web.shell import guarded
from refold.web.visit import find_visit, list_words, say

Act = Callable[[str, str], Any]
FIRST_ROWS = 28
MOMENTS_MAX = 1_000
# Counting a session without reported usage reads all of its messages.
MESSAGES_MAX = 3_000
EVENTS_MAX = 2_000
_SWITCHES = ("undone", "redone", "recalled")


class ConversationView(ui.element, component="parts/conversation.js"):
    """The rows of one session, for one tab."""

    def __init__(
        self,
        name: str,
        seen: Snapshot,
        on_act: Act,
        handle: str = "",
        *,
        look: Look = "sees",
        marked: Sequence[str] = (),
    ) -> None:
        super().__init__()
        visit = find_visit()
        self.source, self.language = visit.source, visit.language
        self.name = name
        self.seen = seen
        self.look: Look = look
        self.is_frozen = False
        self.roles: dict[str, str] = {}
        self.role = ""
        self.open_folds: set[str] = set()
        self.version = 1
        self.place = ""
        self.outline = self._make_outline()
        target = self._find_row(handle) if handle else -1
        self.place = self.outline[target].key if target >= 0 else ""
        words = list_words(visit.language, "session.talk_")
        self.props.update(
            words=words,
            count=len(self.outline),
            version=self.version,
            look=self.look,
            target=target,
            marked=list(marked),
            language="zh-CN" if visit.language == "zh" else "en-GB",
        )
        self.on("need", guarded(self._give))
        self.on("more", guarded(self._give_more))
        self.on("toggle", guarded(self._toggle))
        self.on("place", self._take_place)
        self.on("act", guarded(lambda event: on_act(str(event.args.get("what")), str(event.args.get("id")))))

    async def give_first(self) -> None:
        """Put the first visible rows into the page itself, which saves a round trip."""
        target = self.props["target"]
        middle = target if target >= 0 else len(self.outline) - 1
        start = max(0, middle - FIRST_ROWS // 2)
        rows = self.outline[start : middle + FIRST_ROWS // 2]
        content = await self.source.run(describe_rows, self.seen, self.look, rows, self.language)
        self.props["given"] = {"start": start, "rows": content}

    def _make_outline(self) -> list[OutlineRow]:
        seen = self.seen
        rows = make_outline(
            seen.path,
            seen.edits,
            self.look,
            open_folds=self.open_folds,
            redoable=seen.redoable,
            pinned=SessionState.read(seen.row.settings).pinned,
        )
        if not self.role:
            return rows
        return [row for row in rows if row.kind == "message" and self.roles.get(row.message_id) == self.role]

    async def freeze(self, seen: Snapshot, *, is_past: bool) -> None:
        """Show a session as it was at a request; or as it is now, and follow it again."""
        self.seen = seen
        self.is_frozen = is_past
        self.props["frozen"] = is_past
        if self.role:
            roles = await self.source.run(read_roles, seen)
            if self.seen is not seen:
                return  # The reader moved on, or a refresh has shown what is newer.
            self.roles = roles
        self.outline = self._make_outline()
        first_change = self._place(lambda row: row.kind == "fold" or row.edit is not None)
        await self._show(first_change if self.is_frozen else -1)

    async def filter(self, role: str) -> None:
        """Show only the messages of one role; all of them for an empty role."""
        self.role = role
        if role:
            self.roles = await self.source.run(read_roles, self.seen)
        self.outline = self._make_outline()
        await self._show(-1)

    async def show_fold(self, *, newest: bool = False) -> None:
        """Scroll to the newest fold, or to the next one below the reader's position; after the last, to the first."""
        folds = [at for at, row in enumerate(self.outline) if row.kind == "fold"]
        if folds and newest:
            await self._show(folds[-1])
        elif folds:
            here = self._place(lambda row: row.key == self.place) if self.place else -1
            self.place = self.outline[at := next((fold for fold in folds if fold > here), folds[0])].key
            await self._show(at)

    async def show_message(self, message_id: str) -> bool:
        """Scroll to a message, opening the fold that hides it; return False if it is not here."""
        at = self._open_to({message_id})
        if at >= 0:
            await self._show(at)
        return at >= 0

    async def reveal(self, found: Found) -> bool:
        """Scroll to a message, open the part that has some words, and mark them; return False if it is not here."""
        if not await self.show_message(found.message_id):
            return False
        row = next(row for row in self.outline if row.message_id == found.message_id)
        is_changed = self.look != "said" and any(edit.part == found.part for edit in row.edits)
        goal = {"key": row.key, "at": found.part, "offset": found.offset, "original": is_changed}
        self.run_method("reveal", {**goal, "words": [found.words]})
        return True

    def show_only_sent(self, is_on: bool) -> None:
        """Show of records only what the model reads."""
        self.props["only-sent"] = is_on

    async def refresh(self) -> bool:
        """Show what has changed; return True if anything did."""
        fresh = None if self.is_frozen else await self.source.run(_read_if_changed, self.name, self.seen)
        if fresh is None:
            return False
        roles = await self.source.run(read_roles, fresh) if self.role else self.roles
        if self.is_frozen:  # The reader went to an earlier request meanwhile.
            return False
        self.seen, self.roles = fresh, roles
        await self._redraw()
        return True

    def show_switched(self, edits: Collection[str]) -> None:
        """Scroll to a fold that was undone or redone: to its row, or to where its messages are shown now."""
        folds = [edit.edit for edit in self.seen.edits if edit.edit.id in edits and edit.edit.fold]
        if not folds:
            return
        newest = folds[-1]
        at = self._place(lambda row: row.key in (f"f:{newest.id}", f"u:{newest.id}"))
        self.run_method("jump", at if at >= 0 else self._find_same(OutlineRow("fold", "", edit=newest)))

    async def _redraw(self) -> None:
        before = self.outline
        self.outline = self._make_outline()
        change = find_change(before, self.outline)
        if change is not None:
            self.version += 1
            self.run_method("splice", self.version, change.start, change.removed, change.added)

    async def change_look(self, look: str) -> None:
        """Switch to another view: what the model sees, the originals, or the difference."""
        assert look in LOOKS
        before = next((row for row in self.outline if row.key == self.place), None)
        self.look = look
        self.outline = self._make_outline()
        self.props["look"] = look
        at = self._find_same(before)
        if at < 0 and look == "difference":  # At the end nothing differs.
            at = max((place for place, row in enumerate(self.outline) if row.kind == "fold"), default=-1)
        await self._show(at)

    def _take_place(self, event: GenericEventArguments) -> None:
        self.place = str(event.args.get("key", ""))[:200]

    def _find_same(self, before: OutlineRow | None) -> int:
        """Return the new row of what the reader was looking at; -1 for the end."""
        if before is None:
            return -1
        message_id = before.message_id or (before.edit.covers[0] if before.edit else "")
        at = self._place(lambda row: row.key == before.key or row.message_id == message_id)
        if at >= 0:
            return at
        return self._place(lambda row: row.kind == "fold" and bool(row.edit and message_id in row.edit.covers))

    async def find(self, handle: str) -> None:
        """Scroll to the message behind a handle, opening the fold that hides it."""
        at = self._find_row(handle)
        if at < 0:
            raise HandleUnknown(say("session.not_here"))
        await self._show(at)

    async def _show(self, at: int) -> None:
        self.version += 1
        self.run_method("replace", self.version, len(self.outline), at)

    def _find_row(self, handle: str) -> int:
        """Return the row of a handle's message, opening the fold that hides it; -1 if it is not here."""
        name = read_handle(handle) or ""
        if name.startswith("f:"):
            return self._place(lambda row: bool(row.edit and row.edit.fold and row.edit.fold.handle == name))
        digest = name.removeprefix("m:").partition(".")[0]
        path = self.seen.path
        wanted = {one for one, other in zip(path.ids, path.digests, strict=True) if digest and other.startswith(digest)}
        return self._open_to(wanted)

    def _open_to(self, wanted: set[str]) -> int:
        """Return the row of one of these messages, opening the fold that hides it; -1 if none is in this session."""
        at = self._place(lambda row: row.message_id in wanted)
        if at >= 0 or not wanted:
            return at
        for row in self.outline:
            if row.kind == "fold" and row.edit and not wanted.isdisjoint(row.edit.covers):
                self.open_folds.add(row.edit.id)
                self.outline = self._make_outline()
                return self._place(lambda row: row.message_id in wanted)
        return -1

    def _place(self, is_wanted: Callable[[OutlineRow], bool]) -> int:
        return next((at for at, row in enumerate(self.outline) if is_wanted(row)), -1)

    async def _give(self, event: GenericEventArguments) -> None:
        version, start, stop = (_whole(event.args.get(key)) for key in ("version", "start", "stop"))
        if version != self.version or not 0 <= start < stop:
            return
        rows = self.outline[start : min(stop, start + ROWS_MAX)]
        content = await self.source.run(describe_rows, self.seen, self.look, rows, self.language)
        self.run_method("put", version, start, content)

    async def _give_more(self, event: GenericEventArguments) -> None:
        key, at, offset = str(event.args.get("key")), _whole(event.args.get("at")), _whole(event.args.get("offset"))
        is_original = bool(event.args.get("original"))
        row = next((row for row in self.outline if row.key == key), None)
        if row is None:
            return
        page = await self.source.run(read_more, self.seen, row, at, offset, original=is_original)
        self.run_method("append_text", key, at, is_original, page["text"], page["next"], page["total"])

    async def _toggle(self, event: GenericEventArguments) -> None:
        self.open_folds ^= {str(event.args.get("id"))}
        await self._redraw()


def _read_if_changed(access: Access, name: str, seen: Snapshot) -> Snapshot | None:
    if find_version(access.need(name)) == find_version(seen.row):
        return None
    return read_snapshot(access, name)


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


@dataclass(frozen=True, slots=True)
class Moment:
    """One request: the messages up to it, the tokens sent, those without refold, and dollars if a price is known.

    ``folds`` counts the compressions made for it. ``is_counted``: we counted the tokens, because no provider reported
    them.
    """

    time: float
    messages: int
    tokens: int
    tokens_raw: int
    dollars: float | None = None
    dollars_raw: float | None = None
    folds: int = 0
    is_counted: bool = False


def has_moments(access: Access, seen: Snapshot) -> bool:
    """Return whether a session has a timeline, without reading it."""
    count = len(seen.path.ids)
    return 1 < count <= MESSAGES_MAX or (count > 1 and bool(access.ledger.read_usage(seen.row.id, limit=1)))


def read_moments(access: Access, seen: Snapshot) -> list[Moment]:
    """Return the requests of a session, oldest first."""
    figures = access.manager.figures(seen.row.id)
    known = [request for request in figures.requests if request.messages][-MOMENTS_MAX:]
    if not known:
        return _count_moments(access, seen)
    due = sorted(fold.created_at for fold in figures.folds)
    moments = []
    for one in known:
        folds = sum(time <= one.time for time in due)
        due = due[folds:]
        moments.append(Moment(one.time, one.messages, one.tokens, one.tokens_raw, one.dollars, one.dollars_raw, folds))
    return moments


def _count_moments(access: Access, seen: Snapshot) -> list[Moment]:
    """Return a moment for every answer of a session without reported usage."""
    if len(seen.path.ids) > MESSAGES_MAX:
        return []
    stored = access.ledger.read_messages(seen.row.id)
    active = [edit for edit in seen.edits if edit.is_active]
    # What was shortened on arrival is gone from the message's own place; the times of an import say nothing.
    on_arrival: Counter[str] = Counter()
    for one in active:
        if not one.batch_id:
            on_arrival[one.edit.covers[0]] += one.edit.tokens_freed
    due = sorted((one.created_at, one.batch_id, one.edit.tokens_freed) for one in active if one.batch_id)
    moments: list[Moment] = []
    total = freed = 0
    batches: set[str] = set()
    for place, message in enumerate(stored):
        if message.role == "assistant" and place:
            known = len(batches)
            while due and due[0][0] <= message.created_at:
                _, batch, gone = due.pop(0)
                freed += gone
                batches.add(batch)
            moments.append(
                Moment(
                    message.created_at, place, max(0, total - freed), total, folds=len(batches) - known, is_counted=True
                )
            )
        total += message.tokens
        freed += on_arrival[message.id]
    return moments[-MOMENTS_MAX:]


def read_switches(access: Access, seen: Snapshot) -> list[Event]:
    """Return the events that deactivated or reactivated edits, oldest first."""
    newest = access.ledger.read_newest_events(seen.row.id, limit=EVENTS_MAX)
    return [event for event in reversed(newest) if event.kind in _SWITCHES and "edits" in event.fields]


def rewind(seen: Snapshot, moment: Moment, switches: Sequence[Event]) -> Snapshot:
    """Return a session as it was when a request was sent."""
    path = seen.path
    ids, digests = path.ids[: moment.messages], path.digests[: moment.messages]
    off: set[str] = set()
    for event in switches:
        if event.created_at <= moment.time:
            named = event.fields.get("edits")
            ids_switched = {str(one) for one in named} if isinstance(named, list) else set()
            off = off - ids_switched if event.kind == "redone" else off | ids_switched
    # An inactive edit that no event names was refused, so it was never active.
    named = [event.fields["edits"] for event in switches]
    switched = {str(one) for ids in named if isinstance(ids, list) for one in ids}
    edits = tuple(
        replace(edit, is_active=True)
        for edit in seen.edits
        if edit.created_at <= moment.time and edit.edit.id not in off and (edit.is_active or edit.edit.id in switched)
    )
    return replace(seen, path=MessagePath(ids, digests, path.version), edits=edits, redoable=frozenset())


class Timeline(ui.element, component="parts/timeline.js"):
    """The timeline in one tab. ``on_seek`` gets the number of a request; 0 means now."""

    def __init__(self, on_seek: Callable[[int], Any]) -> None:
        super().__init__()
        language = find_visit().language
        words = list_words(language, "session.time_")
        self.props.update(words=words, moments=[], at=0, limit=0, language="zh-CN" if language == "zh" else "en-GB")
        self.moments: list[Moment] = []

        def seek(event: GenericEventArguments) -> Any:
            at = event.args.get("at") if isinstance(event.args, dict) else 0
            return on_seek(at if isinstance(at, int) and 0 < at <= len(self.moments) else 0)

        self.on("seek", guarded(seek))

    def fill(self, moments: list[Moment], limit: int) -> None:
        if moments == self.moments and limit == self.props["limit"]:
            return
        self.moments = moments
        self.props["moments"], self.props["limit"] = [asdict(moment) for moment in moments], limit

    def show(self, at: int) -> None:
        """Move the scrubber to a request; 0 means now."""
        self.props["at"] = at
