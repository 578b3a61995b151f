"""The list of sessions: search, open, rename, export, delete. It refreshes itself."""

from __future__ import annotations

import time
from urllib.parse import quote

from nicegui import ui
from nicegui.events import GenericEventArguments

from refold.web.data import PAGE, SAMPLE, Listed, Listing, delete_session, list_sessions, read_saved, rename_session
from refold.web.sample import NAME
from refold.web.shell import (
    ask_text,
    button,
    empty,
    frame,
    go,
    guarded,
    heading,
    icon,
    icon_button,
    link,
    notify,
    sheet,
    text,
)
from refold.web.start import ConnectPanel, ImportPanel, find_connection
from refold.web.visit import NoLongerAllowed, clean, find_visit, page_link, say, session_link

POLL_S = 2.0
_ON_ROW = (
    "(e) => { if (!e.target.closest('a, button') && !String(getSelection())) "
    "e.currentTarget.querySelector('.session-link').click(); }"
)
_COLUMNS = ("name", "model", "messages", "tokens", "folds", "saved", "changed")
_NUMBERS = frozenset(("messages", "tokens", "folds", "saved", "changed"))


async def show(query: str = "") -> None:
    with frame("sessions"):
        await SessionList(query[:200]).draw()


class SessionList:
    """The list in one tab."""

    def __init__(self, query: str) -> None:
        self.source = find_visit().source
        self.query = query
        self.limit = PAGE
        self.listing: Listing | None = None
        self.minute = 0
        self.is_sample_coming = False

    async def draw(self) -> None:
        with ui.element("div").classes("page-head"):
            with ui.element("div").classes("grow"):
                heading(say("sessions.title"))
                text("p", say("sessions.intro"), "soft")
            search = ui.element("input").classes("input search").props("type=search maxlength=200")
            search._props.update({"placeholder": say("sessions.search"), "aria-label": say("sessions.search")})
            search._props["value"] = self.query
            search.on(
                "input",
                guarded(self._search),
                js_handler="(e) => emit(e.target.value)",
                throttle=0.15,
                leading_events=False,
            )
        self.start = ui.element("div")
        self.body = ui.element("div").classes("sessions")
        await self._refresh()
        with self.start:
            await self._draw_start()
        self.timer = ui.timer(POLL_S, self._poll)

    async def _draw_start(self) -> None:
        """Draw the ways to start: open for a new user, closed once they have sessions of their own."""
        own = self.listing is not None and any(not one.row.settings.get(SAMPLE) for one in self.listing.sessions)
        with ui.element("details").classes("start") as made:
            made._props["open"] = not own
            text("summary", say("start.title"))
            with ui.element("div").classes("start-panels"):
                self.connect = ConnectPanel()
                self.importing = ImportPanel(self._refresh)
        self.importing.result.move(self.start)
        await self._look_around()

    async def _look_around(self) -> None:
        self.connect.show(await self.source.run(find_connection))
        await self.importing.look()

    async def _poll(self) -> None:
        try:
            await self._refresh()
            await self._look_around()
        except NoLongerAllowed:
            self.timer.cancel()
            go(page_link("/login"))

    async def _search(self, event: GenericEventArguments) -> None:
        self.query = str(event.args)[:200]
        self.limit = PAGE
        await self._refresh()

    async def _refresh(self) -> None:
        page = self.source.application.page
        # Asked before the list is read: a sample that is completed meanwhile appears at the next look.
        is_sample_coming = page is not None and page.is_making_sample
        listing = await self.source.run(list_sessions, self.query, self.limit)
        if is_sample_coming:
            # Hide the sample until it is complete.
            shown = tuple(one for one in listing.sessions if one.row.id != NAME)
            hidden = len(listing.sessions) - len(shown)
            listing = Listing(shown, listing.total - hidden, listing.total > hidden)
        minute = int(time.time() // 60)
        now = (listing, minute, is_sample_coming)
        if now == (self.listing, self.minute, self.is_sample_coming):
            return
        self.listing, self.minute, self.is_sample_coming = now
        self.body.clear()
        with self.body:
            self._draw_listing(listing)

    def _draw_listing(self, listing: Listing) -> None:
        if self.is_sample_coming and not listing.is_any:
            with empty(say("sessions.sample_coming"), say("sessions.sample_why")):
                pass
        elif not listing.is_any:
            with empty(say("sessions.none"), say("sessions.none_next")):
                link(say("sessions.chat"), page_link("/chat"), "button primary")
        elif not listing.sessions:
            with empty(say("sessions.no_match", query=self.query), say("sessions.no_match_next")):
                link(say("shell.recall"), page_link("/recall", query=self.query), "button")
        else:
            self._draw_table(listing)

    def _draw_table(self, listing: Listing) -> None:
        cells: dict[str, ui.element] = {}
        with ui.element("div").classes("card"), ui.element("table").classes("list sessions-list"):
            with ui.element("thead"), ui.element("tr"):
                for column in _COLUMNS:
                    made = text("th", say(f"sessions.{column}"), "num" if column in _NUMBERS else "").props("scope=col")
                    if column == "saved":
                        made._props["title"] = say("sessions.saved_hint")
                with ui.element("th").props("scope=col"):
                    text("span", say("sessions.actions"), "hidden-text")
            with ui.element("tbody"):
                for one in listing.sessions:
                    cells[one.name] = self._draw_row(one)
        with ui.element("div").classes("row spread list-end"):
            total = say("sessions.total_one") if listing.total == 1 else say("sessions.total", count=listing.total)
            text("span", total, "faint num")
            left = listing.total - len(listing.sessions)
            if left > 0:
                button(say("sessions.more", count=min(PAGE, left)), self._show_more, kind="small")
        ui.timer(0.05, lambda: self._fill_saved(cells), once=True)

    def _draw_row(self, one: Listed) -> ui.element:
        row, is_sample = one.row, bool(one.row.settings.get(SAMPLE))
        with ui.element("tr").classes("clickable") as line:
            # The keyboard reaches the link; a click anywhere else in the row follows it.
            line.on("click", js_handler=_ON_ROW)
            with ui.element("td").classes("session-name"):
                with ui.element("div").classes("row"):
                    link(one.title, session_link(one.name), "session-link cut")
                if one.title != one.name or is_sample:
                    with ui.element("div").classes("row session-known"):
                        text("span", clean(one.name), "faint mono cut")
                        if is_sample:
                            text("span", say("sessions.sample"), "chip")
            _cell("model", clean(row.model)[:80] or "·", "model")
            _cell("messages", f"{row.messages:,}", "num")
            _cell("tokens", f"{row.tokens:,}", "num")
            _cell("folds", f"{row.compression_count:,}" if row.compression_count else "·", "num")
            saved = _cell("saved", "", "num saved")
            _cell("changed", tell_age(row.updated_at), "num soft")
            with ui.element("td").classes("session-acts"):
                self._draw_acts(one)
        return saved

    def _draw_acts(self, one: Listed) -> None:
        for act, drawing, call in (
            ("rename", "pen", lambda: self._ask_title(one)),
            ("delete", "trash", lambda: self._ask_delete(one)),
        ):
            _label(icon_button("", drawing, call), say(f"sessions.{act}"), one.title)
        with link("", page_link("/export", name=one.name), "button quiet small square") as made:
            icon("down")
        made._props["download"] = f"{quote(clean(one.name), safe='')[:80]}.json"
        _label(made, say("sessions.export"), one.title)
        made.move(target_index=1)

    async def _fill_saved(self, cells: dict[str, ui.element]) -> None:
        """Fill in the money, which takes longer to find than the rest."""
        for name, cell in cells.items():
            if cell.is_deleted:
                return
            saved = await self.source.run(read_saved, name)
            if not cell.is_deleted:
                cell._text = tell_money(saved)
                cell.classes(add="good-text" if saved and saved >= 0.005 else "")
                cell.update()

    async def _show_more(self) -> None:
        self.limit += PAGE
        await self._refresh()

    def _ask_title(self, one: Listed) -> None:
        async def rename(title: str) -> None:
            await self.source.run(rename_session, one.name, title)
            notify(say("sessions.renamed"))
            await self._refresh()

        field = {"^value": one.title if one.has_own_title else "", "placeholder": say("sessions.title_hint")}
        words = (say("sessions.rename"), say("sessions.new_title"), say("sessions.save"))
        with self.start:  # The list may be drawn again while the dialog is open.
            ask_text(*words, rename, maxlength=120, **field)

    def _ask_delete(self, one: Listed) -> None:
        async def delete() -> None:
            dialog.close()
            await self.source.run(delete_session, one.name)
            notify(say("sessions.deleted"))
            await self._refresh()

        with self.start, sheet(say("sessions.delete_title")) as dialog:
            text("strong", one.title, "cut")
            text("p", say("sessions.delete_why", count=one.row.messages), "soft")
            with ui.element("div").classes("sheet-end"):
                button(say("shell.cancel"), dialog.close, kind="quiet")
                button(say("sessions.delete"), delete, kind="danger", icon_name="trash")
        dialog.open()


def _cell(column: str, content: str, classes: str) -> ui.element:
    made = text("td", content, classes)
    made._props["data-label"] = say(f"sessions.{column}")
    return made


def _label(made: ui.element, what: str, which: str) -> None:
    made._props.update({"aria-label": f"{what}: {which}", "title": what})


def tell_money(dollars: float | None) -> str:
    """Return an amount for a table cell; a dot if it is unknown."""
    if dollars is None:
        return "·"
    if abs(dollars) < 0.005:
        return "$0.00"
    return f"−${-dollars:,.2f}" if dollars < 0 else f"${dollars:,.2f}"


def tell_age(moment: float) -> str:
    """Return how long ago something was, in a short form."""
    seconds = max(0.0, time.time() - moment)
    for limit, unit, key in ((3_600, 60, "minutes"), (86_400, 3_600, "hours"), (float("inf"), 86_400, "days")):
        if seconds < 60:
            return say("sessions.now")
        if seconds < limit:
            return say(f"sessions.{key}", count=int(seconds // unit))
    return ""
