"""Charts of the statistics as ECharts options: hovered for figures, zoomed, saved as a picture.

Colours are the page's own, read in the browser. Tooltips are drawn, not written as HTML, and hold our words and figures
only; nothing that a client named goes into a chart.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from nicegui import ui

from refold.web.figures import Point
from refold.web.visit import say

_GROUPED = "v => v == null ? '' : Math.round(v).toLocaleString()"
_SHORT = "v => v >= 1e6 ? (v / 1e6) + 'M' : v >= 1e3 ? (v / 1e3) + 'k' : v"
_DOLLARS = "v => v == null ? '' : '$' + (v >= 100 ? v.toFixed(0) : v >= 1 ? v.toFixed(2) : v.toFixed(4))"
_DOLLARS_SHORT = "v => '$' + Number(v.toPrecision(2))"


def draw_tokens(points: Sequence[Point], *, is_one: bool) -> ui.echart:
    """Draw the tokens of each request, sent and as they would have been, with every compression marked."""
    marks = [
        {"xAxis": place, "label": {"show": False}, "name": say("statistics.fold")}
        for place, point in enumerate(points)
        if point.folds
    ]
    sent = _line(say("statistics.sent"), [round(one.tokens) for one in points], "--accent", width=2)
    sent["markLine"] = {
        "symbol": ["none", "none"],
        "silent": True,
        "animation": False,
        "data": marks,
        "lineStyle": {":color": _colour("--part-folds"), "type": "solid", "width": 1, "opacity": 0.55},
    }
    dots = [[place, round(point.tokens)] for place, point in enumerate(points) if point.folds]
    folds = {
        "name": say("statistics.fold"),
        "type": "scatter",
        "data": dots,
        "symbol": "diamond",
        "symbolSize": 9,
        "z": 5,
        "itemStyle": {":color": _colour("--part-folds")},
        "tooltip": {"show": False},
    }
    raw = _line(say("statistics.raw"), [round(one.tokens_raw) for one in points], "--ink-3", width=1.6, dash=True)
    cached = _line(say("statistics.cached"), [round(one.cached) for one in points], "--accent", width=0)
    cached["areaStyle"] = {":color": _colour("--accent"), "opacity": 0.15}
    cached["itemStyle"]["opacity"] = 0.3
    series = [*([folds] if dots else []), cached, raw, sent]
    return _draw("tokens", points, series, _SHORT, _GROUPED, is_one=is_one)


def draw_bill(points: Sequence[Point], *, is_one: bool) -> ui.echart:
    """Draw what requests cost, added up, with and without compression."""
    paid = _line(say("statistics.paid"), [round(one.dollars, 6) for one in points], "--accent", width=2)
    raw = _line(say("statistics.raw"), [round(one.dollars_raw, 6) for one in points], "--ink-3", width=1.6, dash=True)
    return _draw("bill", points, [raw, paid], _DOLLARS_SHORT, _DOLLARS, is_one=is_one)


def _colour(variable: str) -> str:
    return f"getComputedStyle(document.documentElement).getPropertyValue('{variable}').trim()"


def _line(name: str, values: list[float], colour: str, *, width: float, dash: bool = False) -> dict[str, Any]:
    return {
        "name": name,
        "type": "line",
        "data": values,
        "symbol": "circle" if len(values) < 3 else "none",
        "symbolSize": 6,
        "sampling": "lttb",
        "lineStyle": {"width": width, "type": "dashed" if dash else "solid", ":color": _colour(colour)},
        "itemStyle": {":color": _colour(colour)},
        "emphasis": {"disabled": True},
    }


def _find_icon(series: dict[str, Any]) -> str:
    """Return how the legend shows a curve: as it is drawn."""
    if "areaStyle" in series:
        return "rect"
    if series["type"] == "scatter":
        return "diamond"
    is_dashed = series["lineStyle"]["type"] == "dashed"
    return "path://M0 3h5v2h-5zM7.5 3h5v2h-5zM15 3h5v2h-5z" if is_dashed else "path://M0 3h20v2h-20z"


def _draw(
    name: str, points: Sequence[Point], series: list[dict[str, Any]], axis: str, figure: str, *, is_one: bool
) -> ui.echart:
    legend = [{"name": one["name"], "icon": _find_icon(one)} for one in reversed(series)]
    words = {":fontFamily": "getComputedStyle(document.body).fontFamily", "fontSize": 12, ":color": _colour("--ink-3")}
    made = ui.echart(
        {
            "animation": False,
            "aria": {"enabled": True},
            "textStyle": words,
            "grid": {"left": 8, "right": 26, "top": 36, "bottom": 50, "containLabel": True},
            # Below the curves: on a phone it takes two lines.
            "legend": {
                "left": 0,
                "bottom": 0,
                "itemGap": 16,
                "itemWidth": 20,
                "itemHeight": 9,
                "data": legend,
                "textStyle": words,
            },
            "tooltip": {
                "trigger": "axis",
                "order": "seriesDesc",
                "renderMode": "richText",
                ":valueFormatter": figure,
                ":backgroundColor": _colour("--card"),
                ":borderColor": _colour("--line-strong"),
                "textStyle": {**words, ":color": _colour("--ink")},
                "axisPointer": {"lineStyle": {":color": _colour("--line-strong")}},
            },
            "toolbox": _make_toolbox(name),
            "xAxis": {
                "type": "category",
                "data": _name_places(points, is_one=is_one),
                "boundaryGap": False,
                "axisTick": {"show": False},
                "axisLine": {"lineStyle": {":color": _colour("--line-strong")}},
                "axisLabel": {**words, "hideOverlap": True, ":formatter": "v => v.split(' · ')[0]"},
            },
            "yAxis": {
                "type": "value",
                "axisLabel": {**words, ":formatter": axis},
                "splitLine": {"lineStyle": {":color": _colour("--line")}},
            },
            "series": series,
        }
    ).classes("chart")
    made._props["data-chart"] = name
    return made


def _make_toolbox(name: str) -> dict[str, Any]:
    return {
        "right": 0,
        "top": 0,
        "itemSize": 13,
        "iconStyle": {":borderColor": _colour("--ink-3")},
        "emphasis": {"iconStyle": {":borderColor": _colour("--accent"), "textPosition": "left"}},
        "feature": {
            "dataZoom": {
                "yAxisIndex": "none",
                "title": {"zoom": say("statistics.zoom"), "back": say("statistics.zoom_back")},
            },
            "saveAsImage": {
                "title": say("statistics.save"),
                "name": f"refold-{name}",
                "pixelRatio": 2,
                ":backgroundColor": _colour("--card"),
            },
        },
    }


def _name_places(points: Sequence[Point], *, is_one: bool) -> list[str]:
    """Return what stands below the curves: numbers of requests, or times; each with the other in it for the tooltip."""
    if not points:
        return []
    is_long = points[-1].time - points[0].time > 86_400
    written = [datetime.fromtimestamp(one.time).strftime("%m-%d %H:%M" if is_long else "%H:%M:%S") for one in points]
    if is_one:
        return [f"{number:,} · {time}" for number, time in enumerate(written, 1)]
    return [f"{time} · {one.requests:,}×" for time, one in zip(written, points, strict=True)]
