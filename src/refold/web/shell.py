"""The frame of every page: bar, menu, language, colours, and how problems are told. Also the small building blocks.

A page draws inside ``with frame("statistics"):``. Blocks are plain HTML elements with the classes of ``page.css``:
``heading``, ``text``, ``button``, ``link``, ``empty``, ``sheet``. They take text, never HTML.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from inspect import iscoroutine, signature
from typing import Any

from nicegui import ui

from refold.errors import RefoldError
from refold.web.icons import icon
from refold.web.links import PREFIX, page_link
from refold.web.pages import PAGES
from refold.web.visit import COLOURS, COLOURS_COOKIE, LANGUAGE_COOKIE, find_visit, say

YEAR_S = 365 * 86_400
_COLOUR_ICONS = {"auto": "half", "light": "sun", "dark": "moon"}


@contextmanager
def frame(active: str, title: str = "", *, wide: bool = False) -> Iterator[ui.element]:
    """Draw a page's frame; ``active`` is the page's name, ``wide`` leaves the whole width to the page."""
    visit = find_visit()
    ui.page_title(f"{title or say(f'shell.{active}')} · refold")
    ui.add_head_html(_write_head(visit.colours, visit.tongue))
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


def _write_head(colours: str, tongue: str) -> str:
    """Return what stands in the head: nothing in it comes from anybody but us."""
    assert colours in COLOURS
    assert tongue in ("en", "zh")
    # Before the first paint, so that a dark page never flashes white.
    script = (
        f'const w="{colours}",m=matchMedia("(prefers-color-scheme: dark)"),h=document.documentElement;'
        'const s=()=>{h.dataset.colours=w==="auto"?(m.matches?"dark":"light"):w};s();m.addEventListener("change",s);'
        f'h.lang="{"zh-CN" if tongue == "zh" else "en"}";'
        # What the framework says by itself when the server is gone, in our words and the reader's language.
        f"const t={to_script([say('shell.lost'), say('shell.reconnecting')])};"
        'addEventListener("DOMContentLoaded",()=>document.querySelectorAll("#popup span")'
        ".forEach((e,i)=>{e.textContent=t[i]}));"
    )
    return f'<script>{{{script}}}</script><link rel="stylesheet" href="{PREFIX}/look.css">'


def _draw_menu(active: str) -> None:
    with ui.element("nav").classes("menu").props(f'aria-label="{say("shell.navigation")}"'):
        for entry in PAGES:
            if not entry.is_in_menu:
                continue
            with ui.element("a").props(f'href="{page_link(entry.path)}"') as item:
                icon(entry.icon)
                text("span", say(f"shell.{entry.name}"))
            if entry.name == active or (entry.name == "sessions" and active == "session"):
                item.props("aria-current=page")


def _draw_choices() -> None:
    visit = find_visit()
    following = COLOURS[(COLOURS.index(visit.colours) + 1) % len(COLOURS)]
    other = "en" if visit.tongue == "zh" else "zh"
    with button("", lambda: remember(LANGUAGE_COOKIE, other), kind="quiet small") as language:
        text("span", say("shell.language"))
    language.props(f'aria-label="{say("shell.language_hint")}"')
    with button("", lambda: remember(COLOURS_COOKIE, following), kind="quiet small square") as colours:
        icon(_COLOUR_ICONS[visit.colours])
    label = say(f"shell.colours_{visit.colours}")
    colours.props(f'aria-label="{label}" title="{label}"')
    if visit.source.visitor.key_id:
        with ui.element("form").props(f'method=post action="{PREFIX}/leave"'), ui.element("button") as leave:
            leave.classes("button quiet small square").props("type=submit")
            leave.props(f'aria-label="{say("shell.sign_out")}" title="{say("shell.sign_out")}"')
            icon("leave")


def remember(cookie: str, value: str) -> None:
    """Remember a reader's choice in a plain cookie and draw the page again."""
    assert value.isalpha()
    ui.run_javascript(
        f'document.cookie="{cookie}={value};path={PREFIX};max-age={YEAR_S};samesite=strict";location.reload()'
    )


# Building blocks. They take text, never HTML.


def text(tag: str, content: str, classes: str = "") -> ui.element:
    """Draw an element with a text in it."""
    made = ui.element(tag).classes(classes)
    made._text = content  # What ui.label does; the text becomes a text node.
    return made


def set_text(element: ui.element, content: str) -> None:
    """Change the text of an element; nothing is sent if it is the same."""
    if element._text != content:
        element._text = content
        element.update()


def set_prop(element: ui.element, name: str, value: bool) -> None:
    """Switch a property of an element; nothing is sent if it is the same."""
    if bool(element._props.get(name)) != value:
        element._props[name] = value
        element.update()


def heading(content: str, level: int = 1) -> ui.element:
    """Draw a heading."""
    return text(f"h{level}", content)


def button(
    label: str, on_click: Callable[..., Any] | None = None, *, kind: str = "", icon_name: str = ""
) -> ui.element:
    """Draw a button; what goes wrong in ``on_click`` is told in words. ``kind``: primary, danger, quiet, small …"""
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
    """Draw a link to a page of ours; ``target`` comes from ``links.py``."""
    made = ui.element("a").classes(classes)
    made._props["href"] = target
    if label:
        with made:
            text("span", label)
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
    """Draw a dialog, still closed; Escape and a click outside close it."""
    with ui.dialog() as made, ui.element("div").classes("sheet"):
        made._props["aria-label"] = title
        heading(title, 2)
        yield made


def go(target: str) -> None:
    """Open a page of ours; ``target`` comes from ``links.py``. (``ui.navigate.to`` would add the prefix once more.)"""
    ui.run_javascript(f"location.assign({to_script(target)})")


def notify(message: str) -> None:
    """Say something for a few seconds."""
    ui.notify(message[:300], position="bottom", timeout=4_000, html=False)


def guarded(call: Callable[..., Any]) -> Callable[..., Awaitable[None]]:
    """Return a handler that tells what goes wrong in words instead of failing silently."""

    async def run(*args: Any) -> None:
        try:
            answer = call(*args)
            if iscoroutine(answer):  # Not just anything that can be awaited: awaiting a dialog opens it.
                await answer
        except RefoldError as error:
            notify(say("shell.failed", why=str(error)[:250]))
        except Exception as error:
            notify(say("shell.unexpected", kind=type(error).__name__))
            raise

    # The framework looks at the signature to know whether to hand in the event.
    if any(one.default is one.empty for one in signature(call).parameters.values()):
        return lambda event: run(event)
    return lambda: run()


def to_script(value: object) -> str:
    """Return a value as JavaScript source: JSON with everything escaped that could end a script or a line."""
    return json.dumps(value).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def write_dollars(dollars: float) -> str:
    """Return an amount as people read it: cents where there are some, more digits below."""
    sign, amount = ("−" if dollars < 0 else ""), abs(dollars)
    digits = 0 if amount >= 1_000 else 2 if amount >= 1 or amount == 0 else 4
    return f"{sign}${amount:,.{digits}f}"
