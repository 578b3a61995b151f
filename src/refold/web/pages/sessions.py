"""The list of sessions: search, open, rename, export, delete. It refreshes itself.

Above it are the two ways to start: connect an agent to this gateway, or import old sessions.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import quote

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement
from nicegui.events import GenericEventArguments

from refold.conversation import because
from refold.conversation.reason import shorten_number
from refold.llm.choose import GATEWAY
from refold.manager.status import read_client
from refold.server.api.interface import Access, NotFound
from refold.web.data import PAGE, SAMPLE, Listed, Listing, delete_session, list_sessions, read_saved, rename_session
from refold.web.sample import NAME
from refold.web.shell import (
    ask_text,
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
    question,
    set_prop,
    text,
    to_script,
    write_dollars,
)
from refold.web.transfer import BYTES_MAX, FILES_MAX, IMPORT_PATH, FileImport, find_import
from refold.web.visit import NoLongerAllowed, clean, find_visit, list_words, page_link, say, session_link

if TYPE_CHECKING:
    from refold.server.app import Application

POLL_S = 2.0
_ON_ROW = (
    "(e) => { if (!e.target.closest('a, button') && !String(getSelection())) "
    "e.currentTarget.querySelector('.session-link').click(); }"
)
_COLUMNS = ("name", "model", "messages", "tokens", "folds", "saved", "changed")
_NUMBERS = frozenset(("messages", "tokens", "folds", "saved", "changed"))
ROWS_MAX = 50


async def show(query: str = "") -> None:
    with frame("sessions"):
        await SessionList(query[:200]).draw()


class SessionList:
    """The list in one tab. A row stays the same elements while its session changes, so no click on it is lost."""

    def __init__(self, query: str) -> None:
        self.source = find_visit().source
        self.query = query
        self.limit = PAGE
        self.listing: Listing | None = None
        self.is_sample_coming = False
        self.refreshes = 0
        self.table: SessionTable | None = None

    async def draw(self) -> None:
        with ui.element("div").classes("page-head"):
            with ui.element("div").classes("grow"):
                heading(say("sessions.title"))
                text("p", say("sessions.intro"), "soft")
            search = ui.element("input").classes("input search").props("type=search maxlength=200")
            search.props.update({"placeholder": say("sessions.search"), "aria-label": say("sessions.search")})
            search.props["^value"] = self.query  # An attribute: a value would be reset while the user types.
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
            made.props["open"] = not own
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
        self.refreshes += 1
        number = self.refreshes
        listing = await self.source.run(list_sessions, self.query, self.limit)
        if number != self.refreshes:
            return  # A later refresh shows what is there now: another search, or the list without a deleted row.
        if is_sample_coming:
            # Hide the sample until it is complete.
            shown = tuple(session for session in listing.sessions if session.row.id != NAME)
            hidden = len(listing.sessions) - len(shown)
            listing = Listing(shown, listing.total - hidden, listing.total > hidden)
        now = (listing, is_sample_coming)
        if now != (self.listing, self.is_sample_coming):
            self.listing, self.is_sample_coming = now
            self._show(listing)
        if self.table is not None:
            self.table.show_ages()

    def _show(self, listing: Listing) -> None:
        if listing.sessions:
            if self.table is None:
                self.body.clear()
                with self.body:
                    self.table = SessionTable(self)
            self.table.show(listing)
            return
        self.table = None
        self.body.clear()
        with self.body:
            self._draw_empty(listing)

    def _draw_empty(self, listing: Listing) -> None:
        if self.is_sample_coming and not listing.is_any:
            with empty(say("sessions.sample_coming"), say("sessions.sample_why")):
                pass
        elif not listing.is_any:
            with empty(say("sessions.none"), say("sessions.none_next")):
                link(say("sessions.chat"), page_link("/chat"), "button primary")
        else:
            with empty(say("sessions.no_match", query=self.query), say("sessions.no_match_next")):
                link(say("shell.recall"), page_link("/recall", query=self.query), "button")

    async def show_more(self) -> None:
        self.limit += PAGE
        await self._refresh()

    def ask_title(self, one: Listed) -> None:
        async def rename(title: str) -> None:
            await self.source.run(rename_session, one.name, title)
            notify(say("sessions.renamed"))
            await self._refresh()

        field = {"^value": one.title if one.has_own_title else "", "placeholder": say("sessions.title_hint")}
        words = (say("sessions.rename"), say("sessions.new_title"), say("sessions.save"))
        with self.start:  # The row may go away while the dialog is open.
            ask_text(*words, rename, maxlength=120, **field)

    def ask_delete(self, one: Listed) -> None:
        async def delete() -> None:
            if not dialog.value:  # Pressed twice.
                return
            dialog.close()
            with self.start:
                await self.source.run(delete_session, one.name)
                notify(say("sessions.deleted"))
                await self._refresh()

        with self.start, question(say("sessions.delete_title")) as dialog:
            text("strong", one.title, "cut")
            text("p", say("sessions.delete_why", count=one.row.messages), "soft")
            with ui.element("div").classes("sheet-end"):
                button(say("shell.cancel"), dialog.close, kind="quiet")
                button(say("sessions.delete"), delete, kind="danger", icon_name="trash")


class SessionTable:
    """The rows of the list, one for each session, and the line below them."""

    def __init__(self, owner: SessionList) -> None:
        self.owner = owner
        self.lines: dict[str, SessionLine] = {}
        with ui.element("div").classes("card"), ui.element("table").classes("list sessions-list"):
            with ui.element("thead"), ui.element("tr"):
                for column in _COLUMNS:
                    made = text("th", say(f"sessions.{column}"), "num" if column in _NUMBERS else "").props("scope=col")
                    if column == "saved":
                        made.props["title"] = say("sessions.saved_hint")
                with ui.element("th").props("scope=col"):
                    text("span", say("sessions.actions"), "hidden-text")
            self.body = ui.element("tbody")
        with ui.element("div").classes("row spread list-end"):
            self.total = text("span", "", "faint num")
            with button("", owner.show_more, kind="small") as self.more:
                self.more_label = text("span", "")

    def show(self, listing: Listing) -> None:
        """Show a list: rows that stay are changed, not drawn again."""
        shown = {session.name: session for session in listing.sessions}
        for name in self.lines.keys() - shown.keys():
            self.lines.pop(name).element.delete()
        changed = []
        for name, one in shown.items():
            if name not in self.lines:
                with self.body:
                    self.lines[name] = SessionLine(self.owner, one)
                changed.append(self.lines[name])
            elif self.lines[name].one != one:
                self.lines[name].show(one)
                changed.append(self.lines[name])
        rows = [self.lines[name].element for name in shown]
        if rows != self.body.default_slot.children:
            self.body.default_slot.children[:] = rows
            self.body.update()
        self.total.text = _count_sessions(listing.total)
        left = listing.total - len(listing.sessions)
        self.more.set_visibility(left > 0)
        self.more_label.text = say("sessions.more", count=min(PAGE, left))
        if changed:
            with self.owner.body:
                ui.timer(0.05, lambda: self._fill_saved(changed), once=True)

    def show_ages(self) -> None:
        for line in self.lines.values():
            line.changed.text = tell_age(line.one.row.updated_at)

    async def _fill_saved(self, lines: list[SessionLine]) -> None:
        """Fill in the money, which takes longer to find than the rest."""
        for line in lines:
            if not line.element.is_deleted:
                with suppress(NotFound):  # Deleted meanwhile: the next refresh takes its row away.
                    line.show_saved(await self.owner.source.run(read_saved, line.one.name))


class SessionLine:
    """The row of one session."""

    def __init__(self, owner: SessionList, one: Listed) -> None:
        with ui.element("tr").classes("clickable") as self.element:
            # The keyboard reaches the link; a click anywhere else in the row follows it.
            self.element.on("click", js_handler=_ON_ROW)
            with ui.element("td").classes("session-name"):
                with ui.element("div").classes("row"), link("", session_link(one.name), "session-link cut"):
                    self.title = text("span", "")
                with ui.element("div").classes("row session-known") as self.known:
                    text("span", clean(one.name), "faint mono cut")
                    if client := read_client(one.row):
                        text("span", clean(client)[:40], "chip")
                    if one.row.settings.get(SAMPLE):
                        text("span", say("sessions.sample"), "chip")
            self.model = _cell("model", "model")
            self.messages = _cell("messages", "num")
            self.tokens = _cell("tokens", "num")
            self.folds = _cell("folds", "num")
            self.saved = _cell("saved", "num saved")
            self.changed = _cell("changed", "num soft")
            with ui.element("td").classes("session-acts"):
                self.acts = {
                    "rename": icon_button("", "pen", lambda: owner.ask_title(self.one)),
                    "export": link("", page_link("/export", name=one.name), "button quiet small square"),
                    "delete": icon_button("", "trash", lambda: owner.ask_delete(self.one)),
                }
            with self.acts["export"] as export:
                icon("down")
            export.props["download"] = f"{quote(clean(one.name), safe='')[:80]}.json"
        for act, made in self.acts.items():
            made.props["title"] = say(f"sessions.{act}")
        self.show(one)

    def show(self, one: Listed) -> None:
        self.one, row = one, one.row
        self.title.text = one.title
        self.known.set_visibility(one.title != one.name or bool(row.settings.get(SAMPLE)))
        self.model.text = clean(row.model)[:80] or "·"
        self.messages.text = f"{row.messages:,}"
        self.tokens.text = f"{row.tokens:,}"
        self.folds.text = f"{row.compression_count:,}" if row.compression_count else "·"
        self.changed.text = tell_age(row.updated_at)
        for act, made in self.acts.items():
            set_prop(made, "aria-label", f"{say(f'sessions.{act}')}: {one.title}")

    def show_saved(self, dollars: float | None) -> None:
        if not self.element.is_deleted:
            self.saved.text = tell_money(dollars)
            is_gain = bool(dollars and dollars >= 0.005)
            self.saved.classes(add="good-text" if is_gain else "", remove="" if is_gain else "good-text")


def _count_sessions(total: int) -> str:
    return say("sessions.total_one") if total == 1 else say("sessions.total", count=total)


def _cell(column: str, classes: str) -> TextElement:
    made = text("td", "", classes)
    made.props["data-label"] = say(f"sessions.{column}")
    return made


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


def find_connection(access: Access) -> tuple[str, float] | None:
    """Return the client and the time of the newest gateway request; None before the first one."""
    for row in access.list_rows(ROWS_MAX, 0):
        made = row.settings.get(GATEWAY)
        if isinstance(made, dict):
            return clean(str(made.get("client", "")))[:40], row.updated_at
    return None


def count_held_back(application: Application) -> int:
    """Return how many requests could not be compressed because the provider holds their earlier messages."""
    found = (
        application.metrics.registry.get_sample_value("refold_reasons_total", {"code": kind.code})
        for kind in (because.PREVIOUS_RESPONSE, because.CONVERSATION)
    )
    return int(sum(one or 0 for one in found))


@cache
def read_clients() -> dict[str, list[str]]:
    """Return the lines to copy for each client of docs/clients.md; ``{url}`` is this gateway's address."""
    clients: dict[str, list[str]] = json.loads((files("refold.web") / "static" / "clients.json").read_text("utf-8"))
    return clients


class ConnectPanel:
    """Lines to copy for each client, and a light that turns green after the first request."""

    def __init__(self) -> None:
        here = ui.context.client.request.base_url
        self.url = f"{here.scheme}://{here.netloc}"
        self.clients = read_clients()
        with ui.element("section").classes("panel start-panel connect"):
            with ui.element("div").classes("row spread"):
                heading(say("start.connect"), 2)
                with ui.element("span").classes("chip light").props("role=status") as self.light:
                    self.light_label = text("span", say("start.waiting"))
            text("p", say("start.connect_why"), "soft")
            with ui.element("label").classes("row client-choice"):
                text("span", say("start.client"), "faint")
                names = {name: say("start.any") if name == "*" else name for name in self.clients}
                choice(names, next(iter(self.clients)), self._draw, "input small-choice")
            self.lines = ui.element("div").classes("stack lines")
            self.held_back = text("p", "", "warning").props("role=status")
            self.held_back.set_visibility(False)
        self._draw(next(iter(self.clients)))

    def _draw(self, client: str) -> None:
        self.lines.clear()
        with self.lines:
            for line in self.clients[client]:
                draw_copyable(line.replace("{url}", self.url))

    def show(self, connection: tuple[str, float] | None) -> None:
        """Turn the light green after the first request; warn if requests could not be compressed."""
        source = find_visit().source
        count = 0 if source.access.tenant else count_held_back(source.application)
        self.held_back.text = say("start.held_back", count=count) if count else ""
        self.held_back.set_visibility(bool(count))
        if connection is None:
            return
        self.light.classes(add="good")
        client = connection[0]
        self.light_label.text = say("start.connected_by", client=client) if client else say("start.connected")


def draw_copyable(line: str) -> None:
    """Draw a line of code with a button that copies it."""
    with ui.element("div").classes("copyable"):
        text("code", line, "mono")
        made = icon_button(say("shell.copy"), "copy")
        made.props["aria-label"] = f"{say('shell.copy')}: {line[:60]}"
        done = to_script(say("shell.copied"))
        made.on(
            "click",
            js_handler=f"(e) => {{ const b = e.currentTarget; navigator.clipboard.writeText({to_script(line)})"
            f".then(() => {{ b.title = {done}; b.classList.add('copied'); }}); }}",
        )


class DropPlace(ui.element, component="../parts/drop.js"):
    """The area to drop files on."""

    def __init__(self) -> None:
        super().__init__()
        words = list_words(find_visit().language, "start.drop_")
        self.props.update(words=words, target=page_link(IMPORT_PATH), filesMax=FILES_MAX, bytesMax=BYTES_MAX)


class ImportPanel:
    """The panel to import old sessions and see what refold would have saved. ``on_done`` refreshes the list."""

    def __init__(self, on_done: Callable[[], Awaitable[object]]) -> None:
        self.source = find_visit().source
        self.on_done = on_done
        self.shown: FileImport | None = None
        with ui.element("section").classes("panel start-panel bring"):
            heading(say("start.bring"), 2)
            text("p", say("start.bring_why"), "soft")
            DropPlace()
            self.state = text("p", "", "faint").props("role=status")
            self.state.set_visibility(False)
        self.result = ui.element("div")

    async def look(self) -> None:
        now = find_import(self.source.application, self.source.access.tenant)
        if now is None or (now is self.shown and not now.is_running):
            return
        self.state.set_visibility(now.is_running)
        if now.is_running:
            title = clean(now.title)[:80]
            progress = say("start.playing", at=now.done + 1, count=now.total, title=title) if now.total else ""
            self.state.text = progress or say("start.reading")
            return
        self.shown = now
        self.result.clear()
        with self.result:
            draw_result(now)
        await self.on_done()


def draw_result(job: FileImport) -> None:
    """Draw the result of an import: tokens and cost with and without refold, and the whole bill."""
    with ui.element("section").classes("panel brought").props("role=status"):
        if job.problem:
            text("p", say("start.failed", why=clean(job.problem)), "problem")
            return
        bill, count = job.bill, len(job.names)
        title = say("start.result_one" if count == 1 else "start.result", count=count)
        heading(title, 2)
        with ui.element("p").classes("brought-figures num"):
            if bill.tokens_raw > bill.tokens:
                sizes = {"raw": shorten_number(bill.tokens_raw), "sent": shorten_number(bill.tokens)}
                text("strong", say("start.tokens", **sizes))
                if bill.priced:
                    saved = bill.dollars_saved
                    change = say("start.less" if saved >= 0 else "start.more", dollars=write_dollars(abs(saved)))
                    text("strong", change, "good-text" if saved > 0 else "")
            else:
                text("strong", say("start.tokens_same", sent=shorten_number(bill.tokens)))
        if bill.tokens_raw == bill.tokens:
            text("p", say("start.all_small"), "soft")
        elif bill.priced:
            raw, paid, reread = bill.dollars_raw, bill.dollars, job.reread
            dollars = {"raw": raw, "paid": paid, "reread": reread, "whole": raw - paid - reread}
            text("p", say("start.whole", **{name: write_dollars(one) for name, one in dollars.items()}), "soft")
        else:
            text("p", say("start.unpriced"), "soft")
        for problem in job.problems[:5]:
            text("p", clean(problem)[:300], "faint")
