"""One session: its requests on a timeline, the conversation with its folds, the context gauge, and the chat box.

A new chat is an empty session with the chat box; the first message leads to the session's own page.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from datetime import datetime

from nicegui import ui

from refold.conversation.reason import read_reason
from refold.errors import HandleUnknown
from refold.manager.session_state import HELD
from refold.manager.undo import Switched
from refold.server.api.interface import Access, NotFound
from refold.web.chat import ChatBox
from refold.web.context import CompressSheet, Indicator, pin, read_context, refold, switch_auto, unfold
from refold.web.conversation import ConversationView, Moment, Timeline, has_moments, read_moments, read_switches, rewind
from refold.web.data import Found, Snapshot, find_matches, find_source, is_compressed_now, name_session, read_snapshot
from refold.web.room import find_rooms
from refold.web.rows import LOOKS
from refold.web.sample import NAME as SAMPLE_NAME
from refold.web.sample import SampleBar, is_sample, is_sample_back
from refold.web.shell import (
    button,
    choice,
    empty,
    frame,
    go,
    guarded,
    heading,
    icon,
    icon_button,
    link,
    notify,
    set_prop,
    text,
    write_dollars,
)
from refold.web.state_panel import StatePanel
from refold.web.visit import NoLongerAllowed, clean, find_visit, page_link, say, say_reason, session_link, split_query

POLL_S = 1.0
# A session that changed this recently opens at its newest message: its reader is probably following it.
FRESH_S = 600.0
# An agent adds a request every few seconds; the timeline need not be redrawn for each of them.
TIMELINE_S = 4.0
CHAT_PREFIX = "chat-"
COMPARE = "compare"
ROLES = ("user", "assistant", "tool", "system")
QUERY_CHARS_MAX = 200


async def show(name: str = "", at: str = "", words: str = "") -> None:
    """Draw a session; ``at`` is a handle to scroll to, ``words`` are marked."""
    source = find_visit().source
    try:
        seen = await source.run(read_snapshot, name)
    except NotFound:
        raise NotFound(say("session.none", name=clean(name[:80]))) from None
    title = await source.run(name_session, seen.row)
    has_timeline = await source.run(has_moments, seen)
    with frame("session", title, wide=True) as main:
        main.classes("session")
        tab = SessionTab(name, title, seen, at, split_query(words[:QUERY_CHARS_MAX]))
        tab.tools.timeline.set_visibility(has_timeline)
        await tab.talk.give_first()


class SessionTab:
    """One tab on one session."""

    def __init__(self, name: str, title: str, seen: Snapshot, at: str, marked: Sequence[str]) -> None:
        self.name = name
        self.source = find_visit().source
        self.is_compressing = False
        self.request = 0
        self.looks: dict[str, ui.element] = {}
        self.chat: ChatBox | None = None
        with ui.element("div").classes("session-head"):
            with link("", page_link(), "button quiet small square back") as back:
                icon("open")
            back.props["aria-label"] = say("session.back")
            heading(title).classes("cut session-title").props["title"] = title
            self._draw_looks()
        self.tools = SessionTools(self)
        self.indicator = Indicator(lambda: self.sheet.open(), self.switch_auto)
        with ui.element("div").classes("session-body"):
            with ui.element("div").classes("session-talk"):
                self._draw_talk(name, seen, at, marked)
                SampleBar(seen.row, self.refresh, lambda: self.talk.run_method("to_end"))
                with ui.element("div").classes("session-chat") as self.chat_place:
                    self._draw_chat(seen)
            with ui.element("aside").classes("session-side"):
                self.state = StatePanel(name, len(seen.path.ids), lambda handle: self.talk.find(handle))
                self.indicator.draw_details()
        self.sheet = CompressSheet(name, self._show_running, self._show_compressed)
        self.timer = ui.timer(POLL_S, self._poll)
        ui.timer(0.05, guarded(self._count), once=True)

    def _draw_talk(self, name: str, seen: Snapshot, at: str, marked: Sequence[str]) -> None:
        if held := read_reason(seen.row.settings.get(HELD)):
            text("p", say("session.held", why=say_reason(held)), "problem mild small").props("role=note")
        with ui.element("div").classes("panes") as self.panes:
            self.before = Pane(say("session.before"), "before")
            self.raw: ConversationView | None = None  # Created for the first comparison.
            self.after = Pane(say("session.after"), "after")
            with self.after.box:
                self.talk = ConversationView(name, seen, self._act, at or self._find_story(seen), marked=marked)
        self.before.box.set_visibility(False)
        with empty(say("session.empty"), say("session.empty_next")) as self.nothing:
            pass
        self._show_nothing()

    def _find_story(self, seen: Snapshot) -> str:
        """Return the handle of the newest fold, where a session opens unless it is a chat or still changing."""
        if self.name.startswith(CHAT_PREFIX) or time.time() - seen.row.updated_at < FRESH_S:
            return ""
        folds = [edit.edit.fold for edit in seen.edits if edit.is_active and edit.edit.fold]
        return folds[-1].handle if folds else ""

    def _draw_chat(self, seen: Snapshot) -> None:
        """Draw the chat box in a chat, and a button that opens it in any other session."""
        if is_sample(seen.row):
            return
        room = find_rooms(self.source.application).find(seen.row.id)
        if self.name.startswith(CHAT_PREFIX) or room.is_running or not seen.path.ids:
            self._open_chat()
            return
        self.opener = button(say("session.continue"), self._open_chat, kind="small", icon_name="chat")

    def _open_chat(self) -> None:
        if self.chat is None:
            self.chat_place.clear()
            with self.chat_place:
                self.chat = ChatBox(self.name, self.refresh)
            if self.indicator.context:
                self.chat.model.show_tokens(self.indicator.context.status.tokens)

    def _draw_looks(self) -> None:
        with ui.element("div").classes("switch").props("role=group") as group:
            group.props["aria-label"] = say("session.look")
            for look in (*LOOKS, COMPARE):
                made = text("button", say(f"session.look_{look}")).props("type=button")
                made.on("click", guarded(lambda _, look=look: self._change_look(look)))
                self.looks[look] = made
        self._press_look("sees")

    def _press_look(self, chosen: str) -> None:
        for look, made in self.looks.items():
            set_prop(made, "aria-pressed", "true" if look == chosen else "false")

    async def _change_look(self, look: str) -> None:
        self._press_look(look)
        is_compared = look == COMPARE
        self.panes.classes(add="compared" if is_compared else "", remove="" if is_compared else "compared")
        self.before.box.set_visibility(is_compared)
        self.talk.show_only_sent(is_compared)
        await self.talk.change_look("sees" if is_compared else look)
        if is_compared:
            if self.raw is None:
                with self.before.box:
                    self.raw = ConversationView(self.name, self.talk.seen, self._act, look="said")
            await self.seek(self.request or len(self.tools.timeline.moments))
        self._tell_panes()

    async def seek(self, request: int) -> None:
        """Show the session as it was sent at a request, or as it is now for 0."""
        self.request = request
        self.tools.timeline.show(request)
        moments = self.tools.timeline.moments
        is_past = 0 < request <= len(moments)
        seen = await self.source.run(read_snapshot, self.name)
        if is_past:
            seen = rewind(seen, moments[request - 1], await self.source.run(read_switches, seen))
        if request != self.request:
            return  # The reader moved on meanwhile; a later call shows that request.
        self.indicator.show_request(request if is_past else 0, moments[request - 1].tokens if is_past else 0)
        for one in (self.talk, self.raw):
            if one is not None:
                await one.freeze(seen, is_past=is_past)
        self._tell_panes()
        if not is_past:
            await self._count()  # The session may have changed while the reader looked at the past.

    def _tell_panes(self) -> None:
        moments = self.tools.timeline.moments
        one = moments[self.request - 1] if 0 < self.request <= len(moments) else None
        if one is None:
            one = moments[-1] if moments else Moment(0, 0, 0, 0)
        self.before.tell(one.tokens_raw, one.dollars_raw)
        self.after.tell(one.tokens, one.dollars)

    def _show_nothing(self) -> None:
        is_empty = not self.talk.seen.path.ids
        self.nothing.set_visibility(is_empty)
        self.panes.set_visibility(not is_empty)

    def _show_running(self, is_running: bool) -> None:
        self.is_compressing = is_running
        self.indicator.show_busy(is_running)

    async def _show_compressed(self) -> None:
        await self.refresh()
        await self.talk.show_fold(newest=True)

    async def refresh(self) -> None:
        """Show what has happened to the session, here or in another process."""
        if await self.talk.refresh():
            if self.raw is not None:
                await self.raw.refresh()
            self._show_nothing()
            await self._count()

    async def _count(self) -> None:
        context = await self.source.run(read_context, self.name)
        if not self.request:  # The gauge shows the context of an earlier request until the reader comes back.
            self.indicator.fill(context)
        if self.chat is not None:
            self.chat.model.show_tokens(context.status.tokens)
        await self.tools.fill(self.talk.seen)
        await self.state.fill()

    async def _poll(self) -> None:
        try:
            # The lease covers every process: the gateway, a command, another page.
            self.indicator.show_busy(self.is_compressing or await self.source.run(is_compressed_now, self.name))
            await self.refresh()
        except NotFound:
            is_known = self.talk.seen.row.id == SAMPLE_NAME and await self.source.run(is_sample_back)
            if not is_known:
                self._end(say("session.gone"))
        except NoLongerAllowed:
            go(page_link("/login"))

    def _end(self, why: str) -> None:
        self.timer.cancel()
        notify(why)
        go(page_link())

    async def _act(self, what: str, which: str) -> None:
        if what == "find":
            await self.talk.find(which)
            return
        if what == "source":
            edit_id, _, at = which.partition(":")
            found = await self.source.run(find_source, self.talk.seen, edit_id, int(at) if at.isdecimal() else -1)
            if found is None or not await self.talk.reveal(found):
                raise HandleUnknown(say("session.no_source"))
            return
        if what in ("pin", "unpin"):
            is_back = await self.source.run(pin, self.name, which, is_on=what == "pin")
            notify(say("session.did_pin_back" if is_back else f"session.did_{what}"))
        elif what == "unfold":
            await self.undo(which)
        elif what == "refold":
            await self.redo(which)
        await self.refresh()

    async def switch_auto(self) -> None:
        """Switch automatic compression off, or on if it is off."""
        is_off = self.indicator.is_off
        await self.source.run(switch_auto, self.name, on=is_off)
        notify(say("session.did_auto_on" if is_off else "session.did_auto_off"))
        await self.refresh()

    async def undo(self, which: str = "") -> None:
        """Undo the compression that made a fold; the last one if none is named."""
        # An edit that was made on arrival belongs to no compression.
        batch = next((edit.batch_id for edit in self.talk.seen.edits if edit.edit.id == which), "")
        await self._switch(unfold, which, batch or which)

    async def redo(self, which: str = "") -> None:
        """Redo an undone compression; the last one if none is named."""
        await self._switch(refold, which, which)

    async def _switch(self, switch: Callable[[Access, str, str], Switched], which: str, target: str) -> None:
        if self.request:
            await self.seek(0)  # The change is visible in the present only.
        done = await self.source.run(switch, self.name, target)
        freed = done.tokens_before - done.tokens_after
        if switch is unfold:
            notify(say("session.unfolded", tokens=max(0, -freed)))
        else:
            notify(say("session.refolded", tokens=max(0, freed)))
        await self.refresh()
        self.talk.show_switched({which} if which else done.edits)


class Pane:
    """One side of the comparison: a heading with tokens and price, and a conversation below."""

    def __init__(self, title: str, kind: str) -> None:
        with ui.element("div").classes(f"pane pane-{kind}") as self.box, ui.element("div").classes("pane-head"):
            heading(title, 2)
            self.figures = text("p", "", "num")

    def tell(self, tokens: int, dollars: float | None) -> None:
        price = "" if dollars is None else f" · {write_dollars(dollars)}"
        self.figures.text = say("session.pane_tokens", tokens=tokens) + price


class SessionTools:
    """The tools above the conversation: the timeline, find, filter, next fold, undo and redo."""

    def __init__(self, tab: SessionTab) -> None:
        self.tab = tab
        self.source = find_visit().source
        self.query = ""
        self.matches: list[Found] = []
        self.at = -1
        with ui.element("div").classes("session-tools"):
            self.timeline = Timeline(tab.seek)
            self.filled_at = 0.0
            with ui.element("div").classes("row tools"):
                self._draw_find()
                roles = {"": say("session.filter_all"), **{role: say(f"session.talk_by_{role}") for role in ROLES}}
                choice(roles, "", lambda role: tab.talk.filter(role), "input small-choice").props(
                    f'aria-label="{say("session.filter")}"'
                )
                self.fold = icon_button(say("session.next_fold"), "fold", lambda: tab.talk.show_fold())
                self.undo = icon_button(say("session.undo"), "undo", lambda: tab.undo())
                self.redo = icon_button(say("session.redo"), "redo", lambda: tab.redo())

    def _draw_find(self) -> None:
        field = ui.element("input").classes("input find").props(f"type=search maxlength={QUERY_CHARS_MAX}")
        field.props.update({"placeholder": say("session.find"), "aria-label": say("session.find")})
        field.on("keydown.enter", guarded(self._find), js_handler="(e) => emit(e.target.value)")
        # Some browsers fire "search" for Enter as well; here it means that the field was cleared.
        field.on("search", guarded(self._find), js_handler="(e) => e.target.value || emit('')")
        self.found = text("span", "", "faint num").props("role=status")

    async def _find(self, event: object) -> None:
        query = str(getattr(event, "args", "") or "").strip()[:QUERY_CHARS_MAX]
        if not query:
            self.query, self.matches = "", []
            self.found.text = ""
            return
        talk = self.tab.talk
        if query != self.query:
            self.query, self.at = query, -1
            self.matches = await self.source.run(find_matches, talk.seen, query)
        if not self.matches:
            self.found.text = say("session.found_none")
            return
        self.at = (self.at + 1) % len(self.matches)
        self.found.text = say("session.found", at=self.at + 1, count=len(self.matches))
        await talk.reveal(self.matches[self.at])

    async def fill(self, seen: Snapshot) -> None:
        """Update the timeline, and enable what can be undone or redone."""
        now = time.monotonic()
        if not self.tab.request and self.timeline.visible and now > self.filled_at + TIMELINE_S:
            self.filled_at = now
            context = self.tab.indicator.context
            self.timeline.fill(await self.source.run(read_moments, seen), context.status.hard if context else 0)
        is_folded = any(edit.is_active and edit.batch_id for edit in seen.edits)
        for made, is_on in ((self.fold, is_folded), (self.undo, is_folded), (self.redo, bool(seen.redoable))):
            set_prop(made, "disabled", not is_on)


async def show_chat() -> None:
    name = f"chat-{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    with frame("chat", say("chat.title")), ui.element("div").classes("new-chat"):
        heading(say("chat.title"))
        text("p", say("chat.intro"), "soft")
        ChatBox(name, on_sent=lambda: go(session_link(name)))
