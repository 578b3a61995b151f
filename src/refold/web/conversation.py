"""The conversation on a page: the element, and the state of one tab that feeds it.

The browser asks for the rows it is about to show; the server answers with those and no others. What is open and which
way of looking is chosen belongs to the tab. A version counts up with every change of the rows, so that an answer that
comes too late is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui
from nicegui.events import GenericEventArguments

from refold.conversation.message import read_handle
from refold.errors import HandleUnknown
from refold.manager.session import read_pinned
from refold.server.api.interface import Access
from refold.web.outline import LOOKS, Look, Row, find_change, make_outline
from refold.web.reading import Seen, find_version, read_roles, read_seen
from refold.web.rows import ROWS_MAX, read_more, tell_rows
from refold.web.shell import guarded
from refold.web.visit import find_visit, say
from refold.web.words import list_words

Act = Callable[[str, str], Any]
_PREFIX = "session.talk_"
FIRST_ROWS = 28


class Conversation(ui.element, component="parts/conversation.js"):
    """The rows of one session, for one tab."""

    def __init__(self, name: str, seen: Seen, on_act: Act, handle: str = "", *, look: Look = "sees") -> None:
        super().__init__()
        visit = find_visit()
        self.source, self.tongue = visit.source, visit.tongue
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
        words = {key.removeprefix(_PREFIX): text for key, text in list_words(visit.tongue, _PREFIX).items()}
        self._props.update(
            words=words,
            count=len(self.outline),
            version=self.version,
            look=self.look,
            target=target,
            language="zh-CN" if visit.tongue == "zh" else "en-GB",
        )
        self.on("need", guarded(self._give))
        self.on("more", guarded(self._give_more))
        self.on("toggle", guarded(self._toggle))
        self.on("place", self._take_place)
        self.on("act", guarded(lambda event: on_act(str(event.args.get("what")), str(event.args.get("id")))))

    async def give_first(self) -> None:
        """Put the rows that are in sight first into the page itself: no journey for them."""
        target = self._props["target"]
        middle = target if target >= 0 else len(self.outline) - 1
        start = max(0, middle - FIRST_ROWS // 2)
        rows = self.outline[start : middle + FIRST_ROWS // 2]
        told = await self.source.run(tell_rows, self.seen, self.look, rows, self.tongue)
        self._props["given"] = {"start": start, "rows": told}

    def _make_outline(self) -> list[Row]:
        seen = self.seen
        rows = make_outline(
            seen.path,
            seen.edits,
            self.look,
            open_folds=self.open_folds,
            redoable=seen.redoable,
            pinned=read_pinned(seen.row.settings),
        )
        if not self.role:
            return rows
        return [row for row in rows if row.kind == "message" and self.roles.get(row.message_id) == self.role]

    async def freeze(self, past: Seen | None) -> None:
        """Show a session as it was at a request, or as it is now for None."""
        self.is_frozen = past is not None
        self._props["frozen"] = self.is_frozen
        self.update()
        self.seen = past if past is not None else await self.source.run(read_seen, self.name)
        self.outline = self._make_outline()
        await self._replace(self._find_first_fold() if self.is_frozen else -1)

    def _find_first_fold(self) -> int:
        """Return the row where what is shown first differs from what was said, -1 if it nowhere does."""
        return self._place(lambda row: row.kind == "fold" or row.edit is not None)

    async def filter(self, role: str) -> None:
        """Show the messages of one speaker only; of all for an empty role."""
        self.role = role
        if role:
            self.roles = await self.source.run(read_roles, self.seen)
        await self._replace(-1)

    async def _replace(self, at: int) -> None:
        self.version += 1
        self.outline = self._make_outline()
        self.run_method("replace", self.version, len(self.outline), at)

    async def show_newest_fold(self) -> None:
        """Bring the newest fold into sight."""
        folds = [at for at, row in enumerate(self.outline) if row.kind == "fold"]
        if folds:
            await self._show(folds[-1])

    async def next_fold(self) -> None:
        """Bring the next fold below the reader's place into sight, the first one after the last."""
        folds = [at for at, row in enumerate(self.outline) if row.kind == "fold"]
        if folds:
            here = self._place(lambda row: row.key == self.place) if self.place else -1
            self.place = self.outline[at := next((one for one in folds if one > here), folds[0])].key
            await self._show(at)

    async def show_message(self, message_id: str) -> bool:
        """Bring a message into sight, opening the fold that hides it; False if it is not here."""
        at = self._open_to({message_id})
        if at >= 0:
            await self._show(at)
        return at >= 0

    async def refresh(self) -> bool:
        """Take in what changed since; True if anything did."""
        if self.is_frozen:
            return False
        fresh = await self.source.run(_read_if_changed, self.name, self.seen)
        if fresh is None:
            return False
        if self.role:
            self.roles = await self.source.run(read_roles, fresh)
        self.seen = fresh
        await self._redraw()
        return True

    async def _redraw(self) -> None:
        before = self.outline
        self.outline = self._make_outline()
        change = find_change(before, self.outline)
        if change is not None:
            self.version += 1
            self.run_method("splice", self.version, change.start, change.removed, change.added)

    async def change_look(self, look: str) -> None:
        """Look another way."""
        assert look in LOOKS
        before = next((row for row in self.outline if row.key == self.place), None)
        self.look = look
        self.version += 1
        self.outline = self._make_outline()
        self._props["look"] = look
        self.update()
        self.run_method("replace", self.version, len(self.outline), self._find_same(before))

    def _find_same(self, before: Row | None) -> int:
        """Return where what a reader looked at stands now, -1 for the end."""
        if before is None:
            return -1
        message_id = before.message_id or (before.edit.covers[0] if before.edit else "")
        at = self._place(lambda row: row.key == before.key or row.message_id == message_id)
        if at >= 0:
            return at
        return self._place(lambda row: row.kind == "fold" and bool(row.edit and message_id in row.edit.covers))

    def _take_place(self, event: GenericEventArguments) -> None:
        self.place = str(event.args.get("key", ""))[:200]

    async def find(self, handle: str) -> None:
        """Bring the message behind a handle into sight, opening its fold if it lies in one."""
        at = self._find_row(handle)
        if at < 0:
            raise HandleUnknown(say("session.not_here"))
        await self._show(at)

    async def _show(self, at: int) -> None:
        self.version += 1
        self.run_method("replace", self.version, len(self.outline), at)

    def _find_row(self, handle: str) -> int:
        """Return where a handle's message stands, -1 if it is not here. Opens the fold that hides it."""
        name = read_handle(handle) or ""
        if name.startswith("f:"):
            return self._place(lambda row: bool(row.edit and row.edit.fold and row.edit.fold.handle == name))
        digest = name.removeprefix("m:").partition(".")[0]
        path = self.seen.path
        wanted = {one for one, other in zip(path.ids, path.digests, strict=True) if digest and other.startswith(digest)}
        return self._open_to(wanted)

    def _open_to(self, wanted: set[str]) -> int:
        """Return where one of these messages is, -1 if none is here. Opens the fold that hides it."""
        at = self._place(lambda row: row.message_id in wanted)
        if at >= 0 or not wanted:
            return at
        for row in self.outline:
            if row.kind == "fold" and row.edit and not wanted.isdisjoint(row.edit.covers):
                self.open_folds.add(row.edit.id)
                self.outline = self._make_outline()
                return self._place(lambda row: row.message_id in wanted)
        return -1

    def _place(self, is_wanted: Callable[[Row], bool]) -> int:
        return next((at for at, row in enumerate(self.outline) if is_wanted(row)), -1)

    async def _give(self, event: GenericEventArguments) -> None:
        version, start, stop = (_whole(event.args.get(key)) for key in ("version", "start", "stop"))
        if version != self.version or not 0 <= start < stop:
            return
        rows = self.outline[start : min(stop, start + ROWS_MAX)]
        told = await self.source.run(tell_rows, self.seen, self.look, rows, self.tongue)
        self.run_method("put", version, start, told)

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


def _read_if_changed(access: Access, name: str, seen: Seen) -> Seen | None:
    if find_version(access.need(name)) == seen.version:
        return None
    return read_seen(access, name)


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else -1
