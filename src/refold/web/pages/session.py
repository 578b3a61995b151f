"""One session: the conversation, live; folds as cards; how full the context is; and the chat box below."""

from __future__ import annotations

from nicegui import ui

from refold.server.api.interface import NotFound
from refold.web.chat_box import ChatBox
from refold.web.compress_sheet import CompressSheet
from refold.web.context import read_context
from refold.web.conversation import Conversation
from refold.web.folding import refold, unfold
from refold.web.icons import icon
from refold.web.indicator import Indicator
from refold.web.links import page_link
from refold.web.markup import clean
from refold.web.outline import LOOKS
from refold.web.reading import Seen, find_title, is_compressed_now, read_opening, read_seen
from refold.web.sample_bar import SampleBar
from refold.web.shell import empty, frame, go, guarded, heading, link, notify, text
from refold.web.source import NoLongerAllowed
from refold.web.visit import find_visit, say

POLL_S = 1.0


async def show(name: str = "", at: str = "") -> None:
    """Draw a session; ``at`` is a handle to begin at."""
    source = find_visit().source
    try:
        seen = await source.run(read_seen, name)
    except NotFound:
        raise NotFound(say("session.none", name=clean(name[:80]))) from None
    title = find_title(seen.row) or await source.run(read_opening, seen.row) or name
    with frame("session", title, wide=True) as main:
        main.classes("session")
        tab = SessionTab(name, title, seen, at)
        await tab.talk.give_first()


class SessionTab:
    """One tab on one session."""

    def __init__(self, name: str, title: str, seen: Seen, at: str) -> None:
        self.name = name
        self.source = find_visit().source
        self.is_compressing = False
        self.looks: dict[str, ui.element] = {}
        with ui.element("div").classes("session-head"):
            with link("", page_link(), "button quiet small square back") as back:
                icon("open")
            back._props["aria-label"] = say("session.back")
            heading(title).classes("cut session-title")._props["title"] = title
            self._draw_looks()
        with ui.element("div").classes("session-body"):
            with ui.element("div").classes("session-talk"):
                self.talk = Conversation(name, seen, self._act, at)
                with empty(say("session.empty"), say("session.empty_next")) as self.nothing:
                    pass
                self._show_nothing()
                SampleBar(seen.row, self.refresh)
                with ui.element("div").classes("session-chat"):
                    self.chat = ChatBox(name, self.refresh)
            with ui.element("aside").classes("session-side"):
                self.indicator = Indicator(self._open_sheet)
        self.sheet = CompressSheet(name, self._show_running, self.refresh)
        self.timer = ui.timer(POLL_S, self._poll)
        ui.timer(0.05, guarded(self._count), once=True)

    def _draw_looks(self) -> None:
        with ui.element("div").classes("switch").props("role=group") as group:
            group._props["aria-label"] = say("session.look")
            for look in LOOKS:
                made = text("button", say(f"session.look_{look}")).props("type=button")
                made.on("click", guarded(lambda _, look=look: self._change_look(look)))
                self.looks[look] = made
        self._press_look("sees")

    def _press_look(self, chosen: str) -> None:
        for look, made in self.looks.items():
            made._props["aria-pressed"] = "true" if look == chosen else "false"
            made.update()

    async def _change_look(self, look: str) -> None:
        self._press_look(look)
        await self.talk.change_look(look)

    def _show_nothing(self) -> None:
        self.nothing.set_visibility(not self.talk.outline)

    def _open_sheet(self) -> None:
        self.sheet.open()

    def _show_running(self, is_running: bool) -> None:
        self.is_compressing = is_running
        self.indicator.show_busy(is_running)

    async def refresh(self) -> None:
        """Catch up with what happened to the session, here or in another process."""
        if await self.talk.refresh():
            self._show_nothing()
            await self._count()

    async def _count(self) -> None:
        context = await self.source.run(read_context, self.name)
        self.indicator.fill(context)
        self.chat.model.show_tokens(context.status.tokens)

    async def _poll(self) -> None:
        try:
            # The lease tells it of every process: the gateway, a command, another page.
            self.indicator.show_busy(self.is_compressing or await self.source.run(is_compressed_now, self.name))
            await self.refresh()
        except NotFound:
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
        if what == "unfold":
            done = await self.source.run(unfold, self.name, which)
            notify(say("session.unfolded", tokens=max(0, done.tokens_after - done.tokens_before)))
        elif what == "refold":
            done = await self.source.run(refold, self.name, which)
            notify(say("session.refolded", tokens=max(0, done.tokens_before - done.tokens_after)))
        await self.refresh()
