"""The frame of every page (bar, menu, language, colours, error messages) and its building blocks.

A page draws inside ``with frame("statistics"):``. Blocks are plain HTML elements with the classes of ``page.css``:
``heading``, ``text``, ``button``, ``link``, ``icon``, ``empty``, ``sheet``, ``question``, ``SortedTable``. They take
text, never HTML.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial, wraps
from importlib.resources import files
from inspect import iscoroutine, signature
from typing import Any, Generic, TypeVar

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement
from nicegui.events import GenericEventArguments

from refold.errors import RefoldError
from refold.web.pages import PAGES, PageEntry
from refold.web.visit import (
    COLOURS,
    COLOURS_COOKIE,
    LANGUAGE_COOKIE,
    PREFIX,
    NoLongerAllowed,
    clean,
    explain,
    find_visit,
    open_visit,
    page_link,
    say,
)

YEAR_S = 365 * 86_400
_COLOUR_ICONS = {"auto": "half", "light": "sun", "dark": "moon"}
T = TypeVar("T")
PAGE_ROWS = 12
log = logging.getLogger("refold.web")
Show = Callable[..., Awaitable[None]]


def write_styles() -> str:
    """Return the style rules of all icons, which contain the drawings as data: strokes on a grid of 24."""
    rules = []
    for name, strokes in _read_icons().items():
        drawing = (
            "%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24' fill='none' stroke='black' "
            f"stroke-width='1.8' stroke-linecap='round' stroke-linejoin='round'%3E%3Cpath d='{strokes}'/%3E%3C/svg%3E"
        )
        rules.append(f'.icon-{name}{{--icon:url("data:image/svg+xml,{drawing}")}}')
    return "\n".join(rules)


@cache
def _read_icons() -> dict[str, str]:
    icons: dict[str, str] = json.loads((files("refold.web") / "static" / "icons.json").read_text("utf-8"))
    return icons


def icon(name: str) -> ui.element:
    """Draw an icon; its meaning must be written beside it or in the label of its button."""
    assert name in _read_icons(), name
    return ui.element("i").classes(f"icon icon-{name}").props("aria-hidden=true")


@contextmanager
def frame(active: str, title: str = "", *, wide: bool = False) -> Iterator[ui.element]:
    """Draw a page's frame; ``active`` is the page's name, ``wide`` uses the whole width."""
    visit = find_visit()
    ui.page_title(f"{title or say(f'shell.{active}')} · refold")
    ui.add_head_html(_write_head(visit.colours, visit.language))
    with link("", "#main").classes("skip"):
        text("span", say("shell.skip"))
    with ui.element("header").classes("bar"):
        with ui.element("a").classes("brand").props(f'href="{page_link()}"'):
            ui.element("span").classes("brand-mark").props("aria-hidden=true")
            text("span", "refold")
        _draw_menu(active)
        with ui.element("div").classes("bar-end"):
            _draw_choices()
    # The framework's own page is the landmark "main" already.
    with ui.element("div").classes("main wide" if wide else "main").props("id=main tabindex=-1") as main:
        if visit.source.application.preparer.reporter.problem is not None:
            text("div", say("shell.not_stored"), "problem").props("role=alert")
        yield main


def _write_head(colours: str, language: str) -> str:
    """Return the head of the page, which contains only our own text."""
    assert colours in COLOURS
    assert language in ("en", "zh")
    # Before the first paint, so that a dark page never flashes white.
    script = (
        f'const w="{colours}",m=matchMedia("(prefers-color-scheme: dark)"),h=document.documentElement;'
        'const s=()=>{h.dataset.colours=w==="auto"?(m.matches?"dark":"light"):w};s();m.addEventListener("change",s);'
        f'h.lang="{"zh-CN" if language == "zh" else "en"}";'
        # Replace the framework's message for a lost connection by ours, in the reader's language.
        f"const t={to_script([say('shell.lost'), say('shell.reconnecting')])};"
        'addEventListener("DOMContentLoaded",()=>document.querySelectorAll("#popup span")'
        ".forEach((e,i)=>{e.textContent=t[i]}));"
    )
    return f'<script>{{{script}}}</script><link rel="stylesheet" href="{PREFIX}/look.css">'


def _draw_menu(active: str) -> None:
    with ui.element("nav").classes("menu").props(f'aria-label="{say("shell.navigation")}"'):
        for entry in PAGES:
            if not entry.icon:  # A page without an icon is not in the menu.
                continue
            with ui.element("a").props(f'href="{page_link(entry.path)}"') as item:
                icon(entry.icon)
                text("span", say(f"shell.{entry.name}"))
            if entry.name == active or (entry.name == "sessions" and active == "session"):
                item.props("aria-current=page")


def _draw_choices() -> None:
    visit = find_visit()
    following = COLOURS[(COLOURS.index(visit.colours) + 1) % len(COLOURS)]
    other = "en" if visit.language == "zh" else "zh"
    switch = button(say("shell.language"), lambda: remember(LANGUAGE_COOKIE, other), kind="quiet small")
    switch.props(f'aria-label="{say("shell.language_hint")}"')
    label = say(f"shell.colours_{visit.colours}")
    icon_button(label, _COLOUR_ICONS[visit.colours], lambda: remember(COLOURS_COOKIE, following))
    if visit.source.visitor.key_id:
        with ui.element("form").props(f'method=post action="{PREFIX}/leave"'), ui.element("button") as leave:
            leave.classes("button quiet small square").props("type=submit")
            leave.props(f'aria-label="{say("shell.sign_out")}" title="{say("shell.sign_out")}"')
            icon("leave")


def remember(cookie: str, value: str) -> None:
    """Store a reader's choice in a plain cookie and reload the page."""
    assert value.isalpha()
    ui.run_javascript(
        f'document.cookie="{cookie}={value};path={PREFIX};max-age={YEAR_S};samesite=strict";location.reload()'
    )


# Building blocks. They take text, never HTML.


def text(tag: str, content: str, classes: str = "") -> TextElement:
    """Draw an element with a text node. Set its ``text`` to change it; nothing is sent if it is the same."""
    return TextElement(tag=tag, text=content).classes(classes)


def set_prop(element: ui.element, name: str, value: bool | str) -> None:
    """Change a property of an element; nothing is sent if it is the same."""
    if element.props.get(name, False) != value:
        element.props[name] = value


def heading(content: str, level: int = 1) -> TextElement:
    return text(f"h{level}", content)


def button(
    label: str, on_click: Callable[..., Any] | None = None, *, kind: str = "", icon_name: str = ""
) -> ui.element:
    """Draw a button; an error in ``on_click`` is shown as a sentence. ``kind``: primary, danger, quiet, small …"""
    made = ui.element("button").classes(f"button {kind}").props("type=button")
    with made:
        if icon_name:
            icon(icon_name)
        if label:
            text("span", label)
    if on_click is not None:
        made.on("click", guarded(on_click))
    return made


def link(label: str, target: str, classes: str = "") -> ui.element:
    """Draw a link to one of our pages; ``target`` comes from ``page_link`` or ``session_link``."""
    made = ui.element("a").classes(classes)
    made.props["href"] = target
    if label:
        with made:
            text("span", label)
    return made


def icon_button(label: str, name: str, on_click: Callable[..., Any] | None = None) -> ui.element:
    """Draw a button with an icon; its label is read aloud, and shown on pointing at it."""
    made = button("", on_click, kind="quiet small square", icon_name=name)
    made.props.update({"aria-label": label, "title": label})
    return made


def choice(
    options: Mapping[str, str], chosen: str, on_change: Callable[[str], Any], classes: str = "input"
) -> ui.element:
    """Draw a list of values with their titles; ``on_change`` is called with the value that the reader chooses."""

    def take(event: GenericEventArguments) -> Any:
        value = str(event.args or "")
        return on_change(value) if value in options else None

    with ui.element("select").classes(classes) as made:
        for value, title in options.items():
            option = text("option", clean(title)[:120])
            option.props.update({"value": clean(value), "selected": value == chosen})
    made.on("change", guarded(take), js_handler="(e) => emit(e.target.value)")
    return made


@contextmanager
def empty(title: str, advice: str) -> Iterator[ui.element]:
    """Draw an empty state: what is missing, and what to do next."""
    with ui.element("div").classes("empty") as made:
        heading(title, 2)
        if advice:
            text("p", advice)
        yield made


@contextmanager
def sheet(title: str) -> Iterator[ui.dialog]:
    """Draw a closed dialog; once open, Escape and a click outside close it."""
    with ui.dialog() as made, ui.element("div").classes("sheet"):
        made.props["aria-label"] = title
        heading(title, 2)
        yield made


@contextmanager
def question(title: str) -> Iterator[ui.dialog]:
    """Draw and open a dialog that is removed once it is closed; its handlers must not rely on its elements then."""
    with ui.element("div") as place, sheet(title) as made:
        yield made

    def remove() -> None:
        made.delete()
        place.delete()

    made.on("hide", remove)
    made.open()


def ask_text(
    title: str, label: str, submit: str, on_done: Callable[[str], Awaitable[Any]], *, why: str = "", **props: Any
) -> None:
    """Open a dialog with one field, which has ``props``; ``on_done`` gets the text that the reader submits."""
    with question(title) as dialog:
        if why:
            text("p", why, "soft")
        with ui.element("label").classes("field"):
            text("span", label)
            field = ui.element("input").classes("input").props("autofocus")
            field.props.update(props)

        async def take(event: GenericEventArguments) -> None:
            typed = str(event.args or "").strip()
            # A closed dialog fades away slowly enough for a second press.
            if dialog.value and (typed or not props.get("required")):
                dialog.close()
                with dialog.client:
                    await on_done(typed)

        # With an input method, Enter takes over the letters that were typed.
        reading = f"(e) => {{ if (!e.isComposing) emit(document.getElementById('{field.html_id}').value); }}"
        field.on("keydown.enter", guarded(take), js_handler=reading)
        with ui.element("div").classes("sheet-end"):
            button(say("shell.cancel"), dialog.close, kind="quiet")
            button(submit, kind="primary").on("click", guarded(take), js_handler=reading)


def go(target: str) -> None:
    """Open one of our pages. (``ui.navigate.to`` would add the prefix a second time.)"""
    ui.run_javascript(f"location.assign({to_script(target)})")


def notify(message: str) -> None:
    ui.notify(message[:300], position="top", timeout=4_000, html=False)


def guarded(call: Callable[..., Any]) -> Callable[..., Awaitable[None]]:
    """Return a handler that shows errors as sentences instead of failing silently."""

    async def run(*args: Any) -> None:
        client = ui.context.client  # The element of the event may be gone when the call ends.
        try:
            answer = call(*args)
            if iscoroutine(answer):  # Not any awaitable: awaiting a dialog opens it.
                await answer
        except RefoldError as error:
            with client:
                notify(say("shell.failed", why=explain(error, 250)))
        except Exception as error:
            with client:
                notify(say("shell.unexpected", kind=type(error).__name__))
            raise

    # The framework inspects the signature to decide whether to pass the event.
    if any(parameter.default is parameter.empty for parameter in signature(call).parameters.values()):
        return lambda event: run(event)
    return lambda: run()


def to_script(value: object) -> str:
    """Return a value as JavaScript source: JSON with everything escaped that could end a script or a line."""
    return json.dumps(value).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def write_dollars(dollars: float) -> str:
    """Return an amount in dollars: whole above 1,000, with cents above 1, with four digits below."""
    sign, amount = ("−" if dollars < 0 else ""), abs(dollars)
    digits = 0 if amount >= 1_000 else 2 if amount >= 1 or amount == 0 else 4
    return f"{sign}${amount:,.{digits}f}"


@dataclass(frozen=True, slots=True)
class TableColumn(Generic[T]):
    """A column: its heading, the text of a cell, the value to sort by (else the text), and how to draw a cell."""

    title: str
    write: Callable[[T], str]
    sort_by: Callable[[T], Any] | None = None
    draw: Callable[[T], object] | None = None
    is_number: bool = False
    classes: str = ""


@dataclass
class SortedTable(Generic[T]):
    """A table that sorts by a click on a heading and shows one page of its rows at a time.

    Sorting and paging happen on the server, so a tab holds the elements of one page only. ``sorted_by`` is the first
    column to sort by, ``is_down`` its direction.
    """

    columns: Sequence[TableColumn[T]]
    rows: Sequence[T]
    label: str
    sorted_by: int = 0
    is_down: bool = True
    page_rows: int = PAGE_ROWS
    classes: str = ""
    at: int = 0
    _body: ui.element = field(init=False)
    _heads: list[SortHead] = field(init=False, default_factory=list)
    _pager: TablePager | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        with ui.element("div").classes("table-scroll card"):
            with ui.element("table").classes(f"list sorted {self.classes}") as table:
                table.props["aria-label"] = self.label
                with ui.element("thead"), ui.element("tr"):
                    for number, column in enumerate(self.columns):
                        classes = f"{'num' if column.is_number else ''} {column.classes}"
                        self._heads.append(SortHead(column.title, classes, partial(self._sort, number)))
                self._body = ui.element("tbody")
            if len(self.rows) > self.page_rows:
                self._pager = TablePager(self._turn)
        self._show()

    def _show(self) -> None:
        """Show a page of rows. Headings and buttons stay the same elements, so that no quick click on them is lost."""
        for number, head in enumerate(self._heads):
            head.show(("descending" if self.is_down else "ascending") if number == self.sorted_by else "none")
        column = self.columns[self.sorted_by]
        rows = sorted(self.rows, key=column.sort_by or column.write, reverse=self.is_down)
        self._body.clear()
        with self._body:
            for row in rows[self.at : self.at + self.page_rows]:
                self._draw_row(row)
        if self._pager is not None:
            self._pager.show(self.at, min(self.at + self.page_rows, len(rows)), len(rows))

    def _sort(self, number: int) -> None:
        self.is_down = not self.is_down if number == self.sorted_by else self.columns[number].is_number
        self.sorted_by, self.at = number, 0
        self._show()

    def _draw_row(self, row: T) -> None:
        with ui.element("tr"):
            for column in self.columns:
                with ui.element("td").classes(f"{'num' if column.is_number else ''} {column.classes}"):
                    if column.draw is not None:
                        column.draw(row)
                    else:
                        text("span", column.write(row))

    def _turn(self, step: int) -> None:
        at = self.at + step * self.page_rows
        if 0 <= at < len(self.rows):
            self.at = at
            self._show()


class SortHead:
    """The heading of a column, with the button that sorts by it."""

    def __init__(self, title: str, classes: str, on_click: Callable[[], object]) -> None:
        with ui.element("th").classes(classes).props("scope=col") as self.element:
            with ui.element("button").classes("sort").props("type=button") as made:
                text("span", title)
                self.arrow = text("span", "").props("aria-hidden=true")
            made.on("click", guarded(on_click))

    def show(self, order: str) -> None:
        """Show the order of the rows: ascending, descending or none by this column."""
        set_prop(self.element, "aria-sort", order)
        self.arrow.text = {"descending": "↓", "ascending": "↑"}.get(order, "")
        self.arrow.set_visibility(order != "none")


class TablePager:
    """The line below a table: which rows it shows, and the buttons for the pages before and after."""

    def __init__(self, on_turn: Callable[[int], object]) -> None:
        with ui.element("div").classes("pager"):
            self.shown = text("span", "", "faint num")
            self.before = icon_button(say("table.before"), "back", partial(on_turn, -1))
            self.after = icon_button(say("table.after"), "open", partial(on_turn, 1))

    def show(self, first: int, last: int, total: int) -> None:
        self.shown.text = say("table.shown", first=first + 1, last=last, total=total)
        set_prop(self.before, "disabled", first == 0)
        set_prop(self.after, "disabled", last == total)


def show_guarded(entry: PageEntry, show: Show) -> Show:
    """Return a page's function that opens a visit first and shows errors as sentences."""

    @wraps(show)
    async def show_page(*args: Any, **kwargs: Any) -> None:
        visit = open_visit()
        try:
            visit.source.check()
            await show(*args, **kwargs)
        except NoLongerAllowed:
            go(page_link("/login"))
        except RefoldError as error:
            show_problem(entry, say("shell.failed", why=explain(error)))
        except Exception as error:
            log.exception("a page failed", extra={"fields": {"page": entry.name, "error": type(error).__name__}})
            show_problem(entry, say("shell.unexpected", kind=type(error).__name__))

    return show_page


def show_problem(entry: PageEntry, problem: str) -> None:
    """Replace the page by an error message."""
    ui.context.client.content.clear()
    with frame(entry.name), empty(say("shell.problem"), "") as box:
        text("p", problem).props("role=alert")
        box.classes("is-problem")
        link(say("shell.home"), page_link(), "button")


async def show_missing(missing: str = "") -> None:
    open_visit()
    with frame("", say("shell.not_found")), empty(say("shell.not_found"), clean(f"{PREFIX}/{missing}"[:200])):
        link(say("shell.home"), page_link(), "button primary")
