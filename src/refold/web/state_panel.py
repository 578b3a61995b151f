"""The panel beside a session that shows where the work stands; its lines lead to the messages they come from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from refold.conversation.reason import Language
from refold.reading.state_page import StateSection, list_sections
from refold.server.api.interface import Access
from refold.web.shell import guarded, heading, text
from refold.web.visit import clean, find_visit, say

# Entries of a section in the panel; `refold state` shows more.
ENTRIES_MAX = 3
BELOW_MAX = 6
# A longer session is read when the reader opens the panel.
MESSAGES_AT_ONCE = 1_000


def read_sections(access: Access, name: str, language: Language) -> list[StateSection]:
    """Return the sections of a session's state in the reader's language."""
    state = access.manager.state(access.need(name).id)
    return list_sections(state, language, ENTRIES_MAX)


class StatePanel:
    """The panel of one tab: drawn once, updated whenever the session changes while it is open."""

    def __init__(self, name: str, messages: int, on_find: Callable[[str], Awaitable[object]]) -> None:
        self.name = name
        self.is_open = messages <= MESSAGES_AT_ONCE
        self._on_find = on_find
        self._visit = find_visit()
        self._sections: list[StateSection] | None = None
        with ui.element("details").classes("state-panel") as self.box:
            if self.is_open:
                self.box.props["open"] = True
            with ui.element("summary"):
                heading(say("session.work"), 2)
            self.body = ui.element("div").classes("state-body")
        self.box.on("toggle", guarded(self._turn), js_handler="(e) => emit(e.target.open)")

    async def _turn(self, event: object) -> None:
        self.is_open = bool(getattr(event, "args", False))
        await self.fill()

    async def fill(self) -> None:
        """Show the state of the session as it is now."""
        if not self.is_open:
            return
        sections = await self._visit.source.run(read_sections, self.name, self._visit.language)
        if sections == self._sections:
            return
        self._sections = sections
        self.body.clear()
        with self.body:
            if not sections:
                text("p", say("session.work_none"), "faint")
            for section in sections:
                self._draw(section)

    def _draw(self, section: StateSection) -> None:
        heading(section.title, 3)
        with ui.element("ul"):
            for line in section.lines:
                with ui.element("li"):
                    if line.handle:
                        made = text("button", clean(line.text), "state-line").props("type=button")
                        made.on("click", guarded(lambda _, handle=line.handle: self._on_find(handle)))
                    else:
                        text("p", clean(line.text), "state-line")
                    if line.below:
                        text("pre", clean("\n".join(line.below[:BELOW_MAX])), "state-below")
            if section.more:
                text("li", say("session.work_more", count=section.more), "faint")
