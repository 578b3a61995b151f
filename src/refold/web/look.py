"""What the agents on this machine did last week, on the page. Nothing leaves the machine.

The histories belong to whoever started the gateway. So the button is there only if nobody else can be the reader: no
key is needed, and only this machine reaches the gateway.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from nicegui import ui

from refold.config.load import copy_environment
from refold.conversation.reason import shorten_number
from refold.look.report import ADVICE, OVERFLOWS_MAX, LookReport, list_notes, sum_up, write_look_page
from refold.look.run import look
from refold.look.study import USUAL_MODEL
from refold.sentences import tr
from refold.web.shell import button, choice, guarded, question, text, write_dollars
from refold.web.visit import DataSource, clean, find_visit, say

RANGES = (7, 30, 36_500)
DAY_S = 86_400
# The gateway keeps a core.
PROCESSES = 2


def draw_look_button(source: DataSource) -> None:
    """Draw the button that opens the report, for the person at this machine alone."""
    application = source.application
    if application.settings.is_local and not application.keys.is_required:
        button(say("look.open"), _open, kind="small")


async def _open() -> None:
    titles = {str(days): say("statistics.days", count=days) for days in RANGES[:-1]}
    with question(say("look.title")) as dialog:
        text("p", say("look.private"), "faint")

        async def fill(chosen: str) -> None:
            body.clear()
            with body:
                await _fill(dialog, body, int(chosen))

        choice({**titles, str(RANGES[-1]): say("statistics.always")}, str(RANGES[0]), fill, "input choice")
        body = ui.element("div").classes("stack")
        ui.timer(0.01, guarded(lambda: fill(str(RANGES[0]))), once=True)


async def _fill(dialog: ui.dialog, body: ui.element, days: int) -> None:
    share = 0.0

    def tell(done: int, whole: int) -> None:
        nonlocal share
        share = done / whole if whole else 1.0

    status = text("p", say("look.reading", share=share), "faint").props("role=status")
    ui.timer(0.3, lambda: status.set_text(say("look.reading", share=share)))
    since = time.time() - days * DAY_S
    studies, _ = await asyncio.to_thread(look, copy_environment(), since, processes=PROCESSES, tell=tell)
    if not dialog.is_deleted:
        body.clear()
        with body:
            _draw(sum_up(studies), days)


def _draw(found: LookReport, days: int) -> None:
    language = find_visit().language
    if not found.sessions:
        text("p", say("look.none"))
        return
    tokens, dollars = shorten_number(found.tokens), write_dollars(found.dollars)
    text("p", say("look.sum", sessions=found.sessions, requests=found.requests, tokens=tokens, dollars=dollars))
    windows = [
        (
            f"{window.window // 1000}k",
            write_dollars(window.dollars),
            f"{1 - window.dollars / found.dollars:.0%}" if found.dollars else "–",
            f"{window.folds:,}",
        )
        for window in found.windows
    ]
    _draw_table("window bill saved folds", windows)
    clients = [
        (name, f"{count:,}", shorten_number(size), write_dollars(cost)) for name, count, size, cost in found.clients
    ]
    _draw_table("client sessions tokens bill", clients)
    text("p", say("look.twice", repeated=found.repeated, reads=found.reads, tokens=found.repeated_tokens))
    full = [
        (one.client, clean(one.model)[:40], f"{one.peak:,}", f"{one.compactions}", f"{one.lost}/{one.used}")
        for one in found.overflowed[:OVERFLOWS_MAX]
    ]
    _draw_table("full model largest compactions lost", full)
    _draw_table("habit cost", [(tr(ADVICE[name], language), write_dollars(cost)) for name, cost in found.habits])
    models = clean(", ".join(found.unpriced))[:200]
    for line in list_notes(found):
        text("p", tr(line, language, like=USUAL_MODEL, models=models), "faint")
    button(say("look.save"), lambda: ui.download.content(write_look_page(found, days), "refold-look.html"))


def _draw_table(names: str, rows: Sequence[Sequence[str]]) -> None:
    """Draw a table whose first column has names, the others figures; nothing without rows."""
    if not rows:
        return
    with ui.element("div").classes("table-scroll card"), ui.element("table").classes("list"):
        with ui.element("thead"), ui.element("tr"):
            for place, name in enumerate(names.split()):
                text("th", say(f"look.column_{name}"), "num" if place else "")
        with ui.element("tbody"):
            for row in rows:
                with ui.element("tr"):
                    for place, cell in enumerate(row):
                        text("td", cell, "num" if place else "")
