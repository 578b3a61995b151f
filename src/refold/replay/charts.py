"""Charts as SVG text: no script, no font, no network. The same numbers give the same bytes.

Colours are told apart by shape and label too; every mark has a title that a browser shows and a reader can be told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 860, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 16, 14, 40
_COLOURS = ("#3b6fb6", "#d1603d", "#4c9a5f", "#8a5fb0", "#b08a2e", "#4aa0a8", "#a34a6b", "#6b6b6b")
_DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 4", "10 4", "4 2 1 2", "3 6")


@dataclass(frozen=True, slots=True)
class Curve:
    """One line: a value per step, and the steps that are marked, each with what is said of it."""

    name: str
    values: tuple[float, ...]
    marks: Mapping[int, str]


def colour_of(at: int) -> str:
    """Return the colour of the n-th preset."""
    return _COLOURS[at % len(_COLOURS)]


def draw_curves(curves: Sequence[Curve], *, limit: float, title: str) -> str:
    """Draw tokens per request, one line per preset, folds as dots, the window as a line across."""
    most = max([limit, *(value for curve in curves for value in curve.values)], default=1.0) or 1.0
    steps = max((len(curve.values) for curve in curves), default=1)
    lines = [_axes(most, steps, "request")]
    if 0 < limit <= most:
        y = _y(limit, most)
        lines.append(f'<line class="limit" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        lines.append(f'<text class="note" x="{WIDTH - _RIGHT}" y="{_round(y - 4)}" text-anchor="end">window</text>')
    for at, curve in enumerate(curves):
        points = " ".join(f"{_x(step, steps)},{_y(value, most)}" for step, value in enumerate(curve.values))
        style = f'stroke="{colour_of(at)}" stroke-dasharray="{_DASHES[at % len(_DASHES)]}"'
        lines.append(f'<polyline class="curve" data-preset="{escape(curve.name)}" {style} points="{points}"/>')
        for step, told in sorted(curve.marks.items()):
            place = f'cx="{_x(step, steps)}" cy="{_y(curve.values[step], most)}"'
            lines.append(
                f'<circle class="fold" {place} r="4" fill="{colour_of(at)}"><title>{escape(told)}</title></circle>'
            )
    return _wrap(lines, title)


def draw_stacks(bars: Mapping[str, Mapping[str, float]], *, title: str) -> str:
    """Draw one bar per preset, its parts beside each other from the left, with the total at its end."""
    most = max((sum(parts.values()) for parts in bars.values()), default=1.0) or 1.0
    height = 34 * len(bars) + 20
    lines = []
    for row, (name, parts) in enumerate(bars.items()):
        y, x = 8 + 34 * row, 130.0
        lines.append(f'<text class="label" x="122" y="{y + 17}" text-anchor="end">{escape(name)}</text>')
        for at, (cause, value) in enumerate(parts.items()):
            width = _round((WIDTH - 250) * value / most)
            if width > 0:
                told = f"{name}: {cause} {value:,.0f}"
                place = f'x="{_round(x)}" y="{y}" width="{width}" height="24"'
                lines.append(
                    f'<rect class="bill" data-cause="{escape(cause)}" {place} fill="{colour_of(at)}">'
                    f"<title>{escape(told)}</title></rect>"
                )
            x += width
        lines.append(f'<text class="note" x="{_round(x + 6)}" y="{y + 17}">{sum(parts.values()):,.0f}</text>')
    return _wrap(lines, title, height)


def draw_groups(groups: Mapping[str, Mapping[str, float | None]], *, title: str) -> str:
    """Draw percentages: for each group (a span of distance) one column per preset."""
    lines = [_axes(100.0, 0, "messages between source and use")]
    inner = WIDTH - _LEFT - _RIGHT
    wide = inner / max(1, len(groups))
    for at, (name, columns) in enumerate(groups.items()):
        start = _LEFT + at * wide
        each = wide * 0.8 / max(1, len(columns))
        label = f'x="{_round(start + wide * 0.4)}" y="{HEIGHT - _BOTTOM + 16}" text-anchor="middle"'
        lines.append(f'<text class="note" {label}>{escape(name)}</text>')
        for number, (preset, value) in enumerate(columns.items()):
            if value is None:
                continue
            y = _y(value, 100.0)
            place = f'x="{_round(start + number * each)}" y="{y}" width="{_round(each * 0.9)}"'
            tall = _round(HEIGHT - _BOTTOM - y)
            lines.append(
                f'<rect class="probe" {place} height="{tall}" fill="{colour_of(number)}">'
                f"<title>{escape(f'{preset}, {name}: {value:.1f} %')}</title></rect>"
            )
    return _wrap(lines, title)


def draw_legend(names: Sequence[str]) -> str:
    """Return which colour is which."""
    marks = "".join(
        f'<span class="key"><i style="background:{colour_of(at)}"></i>{escape(name)}</span>'
        for at, name in enumerate(names)
    )
    return f'<p class="legend">{marks}</p>'


def _axes(most: float, steps: int, label: str) -> str:
    floor = HEIGHT - _BOTTOM
    lines = []
    for part in range(5):
        value = most * part / 4
        y = _y(value, most)
        lines.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        lines.append(f'<text class="note" x="{_LEFT - 6}" y="{_round(y + 4)}" text-anchor="end">{value:,.0f}</text>')
    lines.append(f'<text class="note" x="{WIDTH // 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(label)}</text>')
    if steps > 1:
        end = f'x="{WIDTH - _RIGHT}" y="{floor + 16}" text-anchor="end"'
        lines.append(f'<text class="note" x="{_LEFT}" y="{floor + 16}">1</text><text class="note" {end}>{steps}</text>')
    return "".join(lines)


def _x(step: int, steps: int) -> float:
    return _round(_LEFT + (WIDTH - _LEFT - _RIGHT) * (step / (steps - 1) if steps > 1 else 0.5))


def _y(value: float, most: float) -> float:
    return _round(HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * min(1.0, max(0.0, value / most)))


def _round(value: float) -> float:
    return round(value, 1)


def _wrap(lines: Sequence[str], title: str, height: int = HEIGHT) -> str:
    inner = "\n".join(lines)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>\n{inner}\n</svg>"
    )
