"""Statistics: tokens per request and the bill, with and without refold; cache hits; events.

They cover one session or all of the caller's. Estimates are marked as such, beside the figure and below the curves.
Charts are ECharts options with figures on hover, zoom, and saving as a picture; what they look like is in
``static/chart.json``. Tooltips are drawn, not HTML, and contain only our words and figures, never a name that a client
chose.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any

from nicegui import ui

from refold.conversation.reason import read_reason
from refold.ledger.records import Event
from refold.manager.notices import list_folds
from refold.manager.usage import Bill, SessionFigures
from refold.tokens.models import AS_OF
from refold.web.data import Overview, Point, read_overview
from refold.web.look import draw_look_button
from refold.web.shell import (
    SortedTable,
    TableColumn,
    choice,
    empty,
    frame,
    go,
    guarded,
    heading,
    link,
    text,
    write_dollars,
)
from refold.web.visit import clean, find_visit, has_words, page_link, say, say_reason, session_link

_GROUPED = "v => v == null ? '' : Math.round(v).toLocaleString()"
_SHORT = "v => v >= 1e6 ? (v / 1e6) + 'M' : v >= 1e3 ? (v / 1e3) + 'k' : v"
_DOLLARS = "v => v == null ? '' : '$' + (v >= 100 ? v.toFixed(0) : v >= 1 ? v.toFixed(2) : v.toFixed(4))"
_DOLLARS_SHORT = "v => '$' + Number(v.toPrecision(2))"
DAY_S = 86_400
RANGES = (1, 7, 30)
_CHIPS = {"compressed": "accent", "failed": "bad", "warned": "warn", "skipped": "warn"}


@cache
def _read_looks() -> str:
    """Return the charts' options that are the same for every chart, as JSON; ``var(--…)`` is a colour of the page."""
    colour = r"getComputedStyle(document.documentElement).getPropertyValue('\1').trim()"
    return re.sub(r"var\((--[\w-]+)\)", colour, (files("refold.web") / "static" / "chart.json").read_text("utf-8"))


def draw_tokens(points: Sequence[Point], *, is_one: bool) -> ui.echart:
    """Draw the tokens of each request, with and without refold, and mark every compression."""
    looks = json.loads(_read_looks())
    dots = [[place, round(point.tokens)] for place, point in enumerate(points) if point.folds]
    mark = {"label": {"show": False}, "name": say("statistics.fold")}
    sent = _line("sent", [round(one.tokens) for one in points])
    sent["markLine"] = looks["marks"] | {"data": [{"xAxis": place, **mark} for place, _ in dots]}
    folds = looks["folds"] | {"name": say("statistics.fold"), "data": dots}
    raw = _line("raw", [round(one.tokens_raw) for one in points])
    cached = _line("cached", [round(one.cached) for one in points])
    series = [*([folds] if dots else []), cached, raw, sent]
    return _draw("tokens", points, series, axis=_SHORT, figure=_GROUPED, is_one=is_one)


def draw_bill(points: Sequence[Point], *, is_one: bool) -> ui.echart:
    """Draw the cumulative cost of requests, with and without compression."""
    paid = _line("paid", [round(point.dollars, 6) for point in points])
    raw = _line("raw", [round(point.dollars_raw, 6) for point in points])
    return _draw("bill", points, [raw, paid], axis=_DOLLARS_SHORT, figure=_DOLLARS, is_one=is_one)


def _line(key: str, values: list[float]) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(_read_looks())[key]
    return line | {"name": say(f"statistics.{key}"), "data": values, "symbol": "circle" if len(values) < 3 else "none"}


def _find_icon(series: dict[str, Any]) -> str:
    """Return the legend's icon for a curve, in the style of the curve."""
    if "areaStyle" in series:
        return "rect"
    if series["type"] == "scatter":
        return "diamond"
    is_dashed = series["lineStyle"]["type"] == "dashed"
    return "path://M0 3h5v2h-5zM7.5 3h5v2h-5zM15 3h5v2h-5z" if is_dashed else "path://M0 3h20v2h-20z"


def _draw(
    name: str, points: Sequence[Point], series: list[dict[str, Any]], *, axis: str, figure: str, is_one: bool
) -> ui.echart:
    options: dict[str, Any] = json.loads(_read_looks())["chart"]
    options["legend"]["data"] = [{"name": curve["name"], "icon": _find_icon(curve)} for curve in reversed(series)]
    options["tooltip"][":valueFormatter"] = figure
    options["xAxis"]["data"] = _name_places(points, is_one=is_one)
    options["yAxis"]["axisLabel"][":formatter"] = axis
    tools = options["toolbox"]["feature"]
    tools["dataZoom"]["title"] = {"zoom": say("statistics.zoom"), "back": say("statistics.zoom_back")}
    tools["saveAsImage"] |= {"title": say("statistics.save"), "name": f"refold-{name}"}
    made = ui.echart({**options, "series": series}).classes("chart")
    made.props["data-chart"] = name
    return made


def _name_places(points: Sequence[Point], *, is_one: bool) -> list[str]:
    """Return the labels below the curves: request numbers or times, each with the other one for the tooltip."""
    if not points:
        return []
    is_long = points[-1].time - points[0].time > 86_400
    written = [datetime.fromtimestamp(one.time).strftime("%m-%d %H:%M" if is_long else "%H:%M:%S") for one in points]
    if is_one:
        return [f"{number:,} · {time}" for number, time in enumerate(written, 1)]
    return [f"{time} · {one.requests:,}×" for time, one in zip(written, points, strict=True)]


async def show(name: str = "", days: int = 0) -> None:
    """Draw the figures of a session or of all sessions, optionally of the last ``days`` only."""
    source = find_visit().source
    days = days if days in RANGES else 0
    since = time.time() - days * DAY_S if days else 0.0
    with frame("statistics"):
        with ui.element("div").classes("page-head"):
            heading(say("statistics.title")).classes("grow")
            head = ui.element("div").classes("row")
        body = ui.element("div").classes("stack wide-gaps")
        with body:
            text("p", say("statistics.adding"), "faint").props("role=status")

        async def fill() -> None:
            overview = await source.run(read_overview, name, since)
            with head:
                _draw_choice(overview, name, days)
                draw_look_button(source)
            body.clear()
            with body:
                _draw_overview(overview, name)

        ui.timer(0.01, guarded(fill), once=True)


def _draw_choice(overview: Overview, name: str, days: int) -> None:
    titles = {"": say("statistics.all"), **overview.titles}
    _draw_select(say("statistics.of"), titles, name, lambda chosen: _link(chosen, days))
    days_ago = {str(one): say("statistics.days", count=one) for one in RANGES} | {"1": say("statistics.day")}
    ranges = {"": say("statistics.always"), **days_ago}
    _draw_select(say("statistics.range"), ranges, str(days or ""), lambda chosen: _link(name, int(chosen or 0)))
    if name:
        link(say("statistics.open"), session_link(name), "button small")


def _link(name: str, days: int) -> str:
    return page_link("/statistics", name=name, days=str(days or ""))


def _draw_select(label: str, options: dict[str, str], chosen: str, find_target: Callable[[str], str]) -> None:
    with ui.element("label").classes("row"):
        text("span", label, "faint")
        choice(options, chosen, lambda wanted: go(find_target(wanted)), "input choice")


def _draw_overview(overview: Overview, name: str) -> None:
    is_one = bool(name)
    if overview.bill.requests:
        _draw_tiles(overview)
        with ui.element("section").classes("panel stack"):
            heading(say("statistics.tokens" if overview.is_one else "statistics.tokens_mean"), 2)
            draw_tokens(overview.points, is_one=overview.is_one)
        if overview.bill.priced:
            with ui.element("section").classes("panel stack"):
                heading(say("statistics.bill"), 2)
                draw_bill(overview.points, is_one=overview.is_one)
        _draw_notes(overview)
    else:
        with empty(say("statistics.none_title"), say("statistics.none_one" if is_one else "statistics.none_all")):
            if not is_one:
                link(say("statistics.chat"), page_link("/chat"), "button primary")
    if not is_one and overview.bill.requests:
        with ui.element("section").classes("stack"):
            heading(say("statistics.sessions"), 2)
            _draw_sessions(overview)
    with ui.element("section").classes("stack"):
        heading(say("statistics.events"), 2)
        _draw_events(overview, is_one=is_one)


def _draw_tiles(overview: Overview) -> None:
    """Draw the figures, starting with what was saved."""
    bill = overview.bill
    is_smaller = bill.tokens_raw > bill.tokens
    with ui.element("dl").classes("tiles"):
        if bill.priced and is_smaller:
            share = bill.dollars_saved / bill.dollars_raw if bill.dollars_raw else 0.0
            _draw_tile(
                say("statistics.tile_saved"),
                write_dollars(bill.dollars_saved),
                say("statistics.tile_saved_sub", share=share, raw=write_dollars(bill.dollars_raw)),
                "good-text" if bill.dollars_saved > 0 else "",
            )
        sub = say("statistics.tile_tokens_sub", raw=bill.tokens_raw)
        same = say("statistics.tile_tokens_same", requests=bill.requests)
        _draw_tile(say("statistics.tile_tokens"), f"{bill.tokens:,}", sub if is_smaller else same)
        _draw_tile(say("statistics.tile_bill"), write_dollars(bill.dollars) if bill.priced else "–", _tell_bill(bill))
        sub = say("statistics.tile_cached_sub", tokens=bill.cached)
        none = say("statistics.tile_cached_none")
        _draw_tile(say("statistics.tile_cached"), f"{bill.cached_share:.0%}", sub if bill.cached else none)
        sub = say("statistics.tile_folds_sub", freed=overview.tokens_freed)
        none = say("statistics.tile_folds_none")
        has_folds = overview.folds or overview.tokens_freed
        _draw_tile(say("statistics.tile_folds"), f"{len(overview.folds):,}", sub if has_folds else none)


def _draw_tile(title: str, figure: str, sub: str, classes: str = "") -> None:
    with ui.element("div").classes("tile"):
        text("dt", title)
        text("dd", figure, f"figure {classes}")
        text("dd", sub, "faint")


def _tell_bill(bill: Bill) -> str:
    if not bill.priced:
        return say("statistics.tile_bill_none")
    if bill.tokens_raw == bill.tokens:
        return say("statistics.tile_bill_same")
    return say("statistics.tile_bill_sub", raw=write_dollars(bill.dollars_raw))


def _draw_notes(overview: Overview) -> None:
    bill = overview.bill
    with ui.element("div").classes("notes"):
        if bill.priced and bill.tokens_raw > bill.tokens:
            if bill.dollars_saved >= 0:
                share = bill.dollars_saved / bill.dollars_raw if bill.dollars_raw else 0.0
                text("p", say("statistics.saved", dollars=write_dollars(bill.dollars_saved), share=share), "strong")
            else:
                text("p", say("statistics.lost", dollars=write_dollars(-bill.dollars_saved)), "strong")
        text("p", say("statistics.estimated", date=AS_OF))
        if bill.over:
            text("p", say("statistics.over", over=bill.over, requests=bill.requests))
        if bill.dollars_summaries:
            text("p", say("statistics.summaries", dollars=write_dollars(bill.dollars_summaries)))
        if bill.priced < bill.requests:
            text("p", say("statistics.unpriced", count=bill.requests - bill.priced))
        if overview.is_cut:
            text("p", say("statistics.cut"))


def _draw_sessions(overview: Overview) -> None:
    access = find_visit().source.access
    parts = [part for part in overview.parts if part.requests]

    def title_of(part: SessionFigures) -> str:
        return overview.titles.get(access.name(part.session_id), "")

    def draw_name(part: SessionFigures) -> None:
        target = page_link("/statistics", name=access.name(part.session_id))
        link(clean(title_of(part))[:80], target, "cut name")

    SortedTable(
        [
            TableColumn(say("statistics.session"), title_of, draw=draw_name),
            _number("statistics.requests", lambda part: part.bill.requests),
            _number("statistics.column_sent", lambda part: part.bill.tokens),
            _number("statistics.column_raw", lambda part: part.bill.tokens_raw),
            TableColumn(
                say("statistics.column_cached"),
                lambda part: f"{part.bill.cached_share:.0%}",
                lambda part: part.bill.cached_share,
                is_number=True,
                classes="roomy",
            ),
            _dollars("statistics.column_bill", lambda part: part.bill.dollars),
            _dollars("statistics.column_saved", lambda part: part.bill.dollars_saved),
        ],
        parts,
        say("statistics.sessions"),
        sorted_by=2,
    )


def _number(key: str, figure: Callable[[SessionFigures], int]) -> TableColumn[SessionFigures]:
    is_roomy = key != "statistics.column_sent"
    return TableColumn(
        say(key), lambda part: f"{figure(part):,}", figure, is_number=True, classes="roomy" if is_roomy else ""
    )


def _dollars(key: str, figure: Callable[[SessionFigures], float]) -> TableColumn[SessionFigures]:
    return TableColumn(
        say(key), lambda part: write_dollars(figure(part)) if part.bill.priced else "–", figure, is_number=True
    )


def _draw_events(overview: Overview, *, is_one: bool) -> None:
    if not overview.events:
        text("p", say("statistics.no_events"), "faint")
        return
    access = find_visit().source.access

    def title_of(event: Event) -> str:
        name = access.name(event.session_id)
        return overview.titles.get(name, name)

    def draw_name(event: Event) -> None:
        link(clean(title_of(event))[:80], session_link(access.name(event.session_id)), "cut name")

    columns: list[TableColumn[Event]] = [
        TableColumn(
            say("statistics.time"),
            lambda event: f"{datetime.fromtimestamp(event.created_at):%Y-%m-%d %H:%M:%S}",
            lambda event: event.id,
            classes="num-left",
        ),
        TableColumn(
            say("statistics.kind"),
            _name_kind,
            draw=lambda event: text("span", _name_kind(event), f"chip {_CHIPS.get(event.kind, '')}"),
        ),
        TableColumn(say("statistics.reason"), _tell_reason, classes="reason"),
        TableColumn(say("statistics.change"), _tell_change, _find_freed, is_number=True),
    ]
    if not is_one:
        columns.insert(1, TableColumn(say("statistics.session"), title_of, draw=draw_name))
    SortedTable(columns, overview.events, say("statistics.events"), classes="tall")


def _name_kind(event: Event) -> str:
    key = f"statistics.kind_{event.kind}"
    return say(key) if has_words(key) else clean(event.kind[:40])


def _tell_reason(event: Event) -> str:
    folds = [
        say("statistics.fold_size", count=fold.messages, before=fold.tokens_before, after=fold.tokens_after)
        for fold in list_folds(event)
    ]
    return "; ".join([say_reason(read_reason(event.fields.get("reason"))), *folds])


def _tell_change(event: Event) -> str:
    before, after = event.fields.get("tokens_before"), event.fields.get("tokens_after")
    if isinstance(before, int) and isinstance(after, int) and before != after:
        return f"{before:,} → {after:,}"
    return f"{before:,}" if isinstance(before, int) else ""


def _find_freed(event: Event) -> int:
    before, after = event.fields.get("tokens_before"), event.fields.get("tokens_after")
    return before - after if isinstance(before, int) and isinstance(after, int) else 0
