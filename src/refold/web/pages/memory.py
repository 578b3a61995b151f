"""Memory: the daily pages, rendered. Their Markdown holds words of conversations, so it becomes harmless nodes."""

from __future__ import annotations

import re

from nicegui import ui

from refold.server.api.interface import Access
from refold.web.links import page_link
from refold.web.markup import show_markdown
from refold.web.shell import button, empty, frame, heading, link, text
from refold.web.visit import find_visit, say

ENTRIES_SHOWN = 20
_FRONT = re.compile(r"\A---\n.*?\n---\n", re.S)
_ENTRY = re.compile(r"^(?=## )", re.M)


async def show(date: str = "") -> None:
    """Draw the page of a day, else of the newest."""
    source = find_visit().source
    if source.access.tenant:
        with frame("memory"), empty(say("memory.title"), say("memory.operator")):
            link(say("memory.recall"), page_link("/recall"), "button primary")
        return
    dates = await source.run(list_dates)
    chosen = date if date in dates else (dates[0] if dates and not date else "")
    page = await source.run(read_page, chosen) if chosen else ""
    with frame("memory"):
        heading(say("memory.title"))
        text("p", say("memory.intro"), "soft below-head")
        if not dates:
            with empty(say("memory.empty"), say("memory.empty_next")):
                pass
            return
        with ui.element("div").classes("memory"):
            _draw_days(dates, chosen)
            with ui.element("div").classes("stack day"):
                if chosen:
                    _draw_day(chosen, page)
                else:
                    text("p", say("memory.none", date=date[:10]), "problem")


def list_dates(access: Access) -> list[str]:
    """Return the days that have a page, newest first."""
    access.check_operator()
    return access.manager.md_sync.list_dates()[::-1]


def read_page(access: Access, date: str) -> str:
    """Return the page of a day."""
    access.check_operator()
    return access.manager.md_sync.read(date) or ""


def split_entries(page: str) -> list[str]:
    """Return the entries of a page, newest first; what a person wrote above them is the last."""
    body = _FRONT.sub("", page.replace("\r\n", "\n"), count=1)
    return [entry.strip() for entry in reversed(_ENTRY.split(body)) if entry.strip()]


def _draw_days(dates: list[str], chosen: str) -> None:
    with ui.element("nav").classes("days") as days:
        days._props["aria-label"] = say("memory.days")
        for date in dates:
            item = link(date, page_link("/memory", date=date), "num day-link")
            if date == chosen:
                item._props["aria-current"] = "page"


def _draw_day(date: str, page: str) -> None:
    entries = split_entries(page)
    with ui.element("div").classes("row spread"):
        heading(date, 2).classes("num")
        text("span", say("memory.entries", count=len(entries)), "faint")
    listed = ui.element("div").classes("stack")

    def draw_more(start: int) -> None:
        with listed:
            for entry in entries[start : start + ENTRIES_SHOWN]:
                with ui.element("article").classes("panel prose entry"):
                    show_markdown(entry)
            left = len(entries) - start - ENTRIES_SHOWN
            if left > 0:

                def go_on() -> None:
                    older.delete()
                    draw_more(start + ENTRIES_SHOWN)

                older = button(say("memory.older", count=left), go_on)

    draw_more(0)
