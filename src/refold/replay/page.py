"""The report as one HTML page that opens from disk: no script, no network, no file beside it.

Everything that came from a recording is escaped. The same report gives the same bytes. Charts are SVG text. Pointing at
a mark shows its figures above the chart, by style sheet alone; the mark's title has the same words for people who
cannot point. Colours come from the page's light or dark theme; lines also differ by their dashes.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import resources

from refold.budget.economics import CAUSES
from refold.conversation import because
from refold.conversation.reason import count_things, shorten_number
from refold.readers.session import Session
from refold.replay.record import SessionRecord
from refold.replay.report import (
    BROKEN_MAX,
    Probed,
    ReplayReport,
    Tally,
    choose_shown,
    name_distances,
    write_bill_rows,
    write_probe_rows,
    write_rows,
)

SHOWN_MAX = 12
DECISIONS_MAX = 40
WIDTH, HEIGHT = 860, 300
COLOURS = 8
# Maximum number of bands to point at; longer sessions get one band for several requests.
BANDS_MAX = 120
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 40, 40
_DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 4", "10 4", "4 2 1 2", "3 6")
_TIP_CHARS, _TIP_LINES = 128, 2


def write_page(report: ReplayReport) -> str:
    tallies = report.tallies()
    bills = {
        tally.preset: {**{cause: getattr(tally.charge, cause) for cause in CAUSES}, "re-reads": tally.reread_cost}
        for tally in tallies
    }
    requests = count_things(max((tally.requests for tally in tallies), default=0), "request")
    model = f", model {escape(report.terms.model)}" if report.terms.model else ""
    window = f", window {report.terms.window:,} tokens" if report.terms.window else ""
    folder = resources.files("refold.replay")
    return (
        (folder / "page.html")
        .read_text(encoding="utf-8")
        .format(
            style=(folder / "style.css").read_text(encoding="utf-8"),
            scope=f"{count_things(len(report.sessions), 'session')}, {requests} each{model}{window}",
            cards=_write_cards(tallies),
            table=_write_table(write_rows(report)),
            bill_legend=draw_legend((*CAUSES, "re-reads"), "b"),
            bill_chart=draw_stacks(bills, title="Whole bill by cause, in uncached input tokens"),
            bill_table=_write_table(write_bill_rows(report)),
            probes=_write_probes(report, tallies),
            legend=draw_legend(report.presets),
            sessions="\n".join(_write_session(report, session) for session in choose_shown(report, SHOWN_MAX)),
            notes=_write_notes(report),
        )
    )


def _write_cards(tallies: Sequence[Tally]) -> str:
    """Return the few figures that matter most, a card for each preset."""
    raw = next((tally.charge.total for tally in tallies if tally.preset == "raw"), 0.0)
    cards = []
    for at, tally in enumerate(tallies):
        bill = f"{tally.charge.total / raw:.2f}" if raw else f"{tally.charge.total / 1000:,.0f}k"
        whole = f"{tally.whole_bill / raw:.2f}" if raw else f"{tally.whole_bill / 1000:,.0f}k"
        rows = (
            ("requests that fit", tally.fit.percent),
            ("copied text in view", tally.copied.percent),
            ("values in view", tally.probes.view_percent),
            ("in view or recalled", tally.probes.found_percent),
        )
        lines = "".join(
            f"<div><dt>{name}</dt><dd>{'–' if percent is None else f'{percent:.1f}%'}</dd></div>"
            for name, percent in rows
        )
        cards.append(
            f'<div class="card" style="border-top-color:var(--c{at % COLOURS})"><b>{escape(tally.preset)}</b>'
            f'<strong>{bill}</strong> <span class="soft">{"of raw’s bill" if raw else "tokens’ worth"}</span>'
            f"<dl><div><dt>whole bill</dt><dd>{whole}</dd></div>{lines}</dl></div>"
        )
    return f'<div class="cards">{"".join(cards)}</div>'


def _write_table(rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows[1:])
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _write_probes(report: ReplayReport, tallies: Sequence[Tally]) -> str:
    names = [name for name in name_distances() if any(name in tally.by_distance for tally in tallies)]
    if not names:
        return '<p class="soft">No call of these sessions uses a value from an earlier message.</p>'
    groups = {name: {tally.preset: tally.by_distance.get(name) for tally in tallies} for name in names}
    intro = (
        '<p class="soft">Values that a call took from an earlier result or user message. Full colour: verbatim in '
        "view. Pale: not in view, but recall shows it among its first ten answers when asked for it.</p>"
    )
    chart = draw_groups(groups, title="Share of values in view and found, by distance in messages")
    table = _write_table(write_probe_rows(report))
    words = "A cell is the share in view / and, where that is more, in view or found by recall, in percent."
    return (
        f"{intro}{draw_legend([tally.preset for tally in tallies])}\n{chart}\n"
        f'<details><summary>By class and distance</summary><p class="soft">{words}</p>{table}</details>'
    )


def _write_session(report: ReplayReport, session: Session) -> str:
    records = [record for record in report.records if record.session == session.id]
    curves = []
    for record in records:
        marks, waits = {}, {}
        for at, request in enumerate(record.requests):
            if request.stages:
                freed = f"{request.tokens_freed:,} tokens less"
                marks[at] = f"{record.preset}, request {at + 1}: {freed}. {request.reason}"
            if request.reason.is_a(because.WAIT):  # A reason for waiting is worth a note, too.
                waits[at] = str(request.reason)
        tokens = tuple(float(request.tokens) for request in record.requests)
        curves.append(Curve(record.preset, tokens, marks, waits))
    limit = max((record.window for record in records), default=0)
    title = f"{session.id}: {max((record.tokens for record in records), default=0):,} tokens"
    chart = draw_curves(curves, limit=limit, title=title)
    return f"<h3>{escape(title)}</h3>\n{chart}\n{_write_decisions(records)}"


def _write_decisions(records: Iterable[SessionRecord]) -> str:
    rows = [
        f"<tr><td>{escape(record.preset)}</td><td>{number}</td><td>{request.tokens_freed:,}</td>"
        f'<td class="words">{escape(str(request.reason))}</td></tr>'
        for record in records
        for number, request in enumerate(record.requests, 1)
        if request.stages
    ]
    if not rows:
        return ""
    left = f'<p class="soft">and {len(rows) - DECISIONS_MAX:,} more</p>' if len(rows) > DECISIONS_MAX else ""
    head = '<tr><th>preset</th><th>request</th><th>tokens less</th><th class="words">why</th></tr>'
    table = f"<table><thead>{head}</thead><tbody>{''.join(rows[:DECISIONS_MAX])}</tbody></table>{left}"
    return f"<details><summary>Decisions ({len(rows):,})</summary>{table}</details>"


def _write_notes(report: ReplayReport) -> str:
    notes = "".join(f"<li>{escape(note)}</li>" for note in report.notes())
    broken = report.broken()
    lines = "".join(f"<li>{escape(path)}, line {one.line}: {escape(one.why)}</li>" for path, one in broken[:BROKEN_MAX])
    if len(broken) > BROKEN_MAX:
        lines += f"<li>and {len(broken) - BROKEN_MAX:,} more</li>"
    unread = f"<h2>Not read: {len(broken):,} lines</h2><ul>{lines}</ul>" if broken else ""
    return f"<h2>What these figures rest on</h2><ul>{notes}</ul>{unread}"


@dataclass(frozen=True, slots=True)
class Curve:
    """One line: a value per step, marked steps with their text, and notes on any step."""

    name: str
    values: tuple[float, ...]
    marks: Mapping[int, str]
    notes: Mapping[int, str] = field(default_factory=dict)


def draw_curves(curves: Sequence[Curve], *, limit: float, title: str) -> str:
    """Draw tokens per request, one line per preset, folds as dots, the window as a line across."""
    highest = max([limit, *(value for curve in curves for value in curve.values)], default=1.0) or 1.0
    step = _find_step(highest)
    most = step * math.ceil(highest / step - 1e-9)
    steps = max((len(curve.values) for curve in curves), default=1)
    lines = [_draw_heights(most), _draw_steps(steps), _name_axis("request")]
    if limit > 0:
        y = _y(limit, most)
        lines.append(f'<line class="limit" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        place = f'x="{_LEFT + 6}" y="{_round(y - 5)}"'
        lines.append(f'<text class="note limit-note" {place}>window {limit:,.0f}</text>')
    for at, curve in enumerate(curves):
        points = " ".join(f"{_x(step, steps)},{_y(value, most)}" for step, value in enumerate(curve.values))
        dash = f' stroke-dasharray="{_DASHES[at % COLOURS]}"' if _DASHES[at % COLOURS] else ""
        lines.append(
            f'<polyline class="curve s{at % COLOURS}" data-preset="{escape(curve.name)}"{dash} points="{points}"/>'
        )
    lines += _draw_bands(curves, steps)
    for at, curve in enumerate(curves):
        for step, tip in sorted(curve.marks.items()):
            place = f'cx="{_x(step, steps)}" cy="{_y(curve.values[step], most)}"'
            lines.append(_point(f'<circle class="fold f{at % COLOURS}" {place} r="4.5"', tip, "circle"))
    return _wrap(lines, title)


def draw_stacks(bars: Mapping[str, Mapping[str, float]], *, title: str) -> str:
    """Draw one bar per preset, its parts beside each other from the left, with the total at its end."""
    most = max((sum(parts.values()) for parts in bars.values()), default=1.0) or 1.0
    height = 36 * len(bars) + _TOP
    lines = []
    for row, (name, parts) in enumerate(bars.items()):
        y, x, whole = _TOP + 36 * row, 130.0, sum(parts.values())
        label = escape(name if len(name) <= 16 else f"{name[:15]}…")
        lines.append(f'<text class="label" x="120" y="{y + 17}" text-anchor="end">{label}</text>')
        for at, (cause, value) in enumerate(parts.items()):
            width = _round((WIDTH - 230) * value / most)
            if width > 0:
                tip = f"{name}: {cause} {value:,.0f}, {value / whole:.0%} of its bill"
                place = f'x="{_round(x)}" y="{y}" width="{width}" height="24"'
                lines.append(_point(f'<rect class="bill b{at % COLOURS}" data-cause="{escape(cause)}" {place}', tip))
            x += width
        lines.append(f'<text class="note" x="{_round(x + 8)}" y="{y + 16}">{shorten_number(whole)}</text>')
    return _wrap(lines, title, height)


def draw_groups(groups: Mapping[str, Mapping[str, Probed | None]], *, title: str) -> str:
    """Draw one column per preset in each group: full up to the share in view, pale up to the share found."""
    lines = [_draw_heights(100.0, "%"), _name_axis("messages between source and use")]
    wide = (WIDTH - _LEFT - _RIGHT) / max(1, len(groups))
    for at, (name, columns) in enumerate(groups.items()):
        start = _LEFT + at * wide + wide * 0.1
        each = wide * 0.8 / max(1, len(columns))
        label = f'x="{_round(start + wide * 0.4)}" y="{HEIGHT - _BOTTOM + 17}" text-anchor="middle"'
        lines.append(f'<text class="note" {label}>{escape(name)}</text>')
        for number, (preset, probed) in enumerate(columns.items()):
            if probed is None or probed.view_percent is None or probed.found_percent is None:
                continue
            seen, found = probed.view_percent, probed.found_percent
            tip = f"{preset}, {name} messages: {seen:.1f}% in view, {found:.1f}% in view or found by recall"
            place = f'x="{_round(start + number * each)}" width="{_round(each * 0.86)}"'
            if found > seen:
                lines.append(_point(f'<rect class="found f{number % COLOURS}" {place} {_span(seen, found)}', tip))
            lines.append(_point(f'<rect class="probe f{number % COLOURS}" {place} {_span(0.0, seen)}', tip))
    return _wrap(lines, title)


def draw_legend(names: Sequence[str], kind: str = "f") -> str:
    """Return which colour is which: ``f`` for presets, ``b`` for causes."""
    marks = "".join(
        f'<span class="key"><svg viewBox="0 0 12 12" aria-hidden="true"><rect class="{kind}{at % COLOURS}" width="12" '
        f'height="12" rx="2"/></svg>{escape(name)}</span>'
        for at, name in enumerate(names)
    )
    return f'<p class="legend">{marks}</p>'


def _draw_bands(curves: Sequence[Curve], steps: int) -> list[str]:
    """Draw one invisible band per request: pointing at it shows every preset's figure there."""
    stride = max(1, math.ceil(steps / BANDS_MAX))
    wide = (WIDTH - _LEFT - _RIGHT) / max(1, steps) * stride
    bands = []
    for step in range(0, steps, stride):
        figures = [f"{curve.name} {curve.values[step]:,.0f}" for curve in curves if step < len(curve.values)]
        notes = [f"{curve.name} {curve.notes[step]}" for curve in curves if step in curve.notes]
        tip = f"request {step + 1}: {', '.join(figures)}" + (f". {'; '.join(notes)}" if notes else "")
        left = min(max(_LEFT, _x(step, steps) - wide / 2), WIDTH - _RIGHT - wide)
        place = f'x="{_round(left)}" y="{_TOP}" width="{_round(wide)}" height="{HEIGHT - _TOP - _BOTTOM}"'
        bands.append(_point(f'<rect class="band" {place}', tip))
    return bands


def _point(opening: str, tip: str, element: str = "rect") -> str:
    """Return a mark with the text that appears when the reader points at it."""
    lines = textwrap.wrap(tip, _TIP_CHARS, max_lines=_TIP_LINES, placeholder=" …")
    spans = "".join(
        f'<tspan x="{_LEFT}" y="{14 + 14 * number}">{escape(line)}</tspan>' for number, line in enumerate(lines)
    )
    mark = f"{opening}><title>{escape(tip)}</title></{element}>"
    return f'<g class="point">{mark}<text class="tip">{spans}</text></g>'


def _draw_heights(most: float, unit: str = "") -> str:
    lines = []
    step = _find_step(most)
    for number in range(round(most / step) + 1):
        y = _y(number * step, most)
        shown = f"{number * step:.0f}{unit}" if unit else shorten_number(number * step)
        lines.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        lines.append(f'<text class="note" x="{_LEFT - 8}" y="{_round(y + 4)}" text-anchor="end">{shown}</text>')
    return "".join(lines)


def _draw_steps(steps: int) -> str:
    stride = max(1, round(_find_step(float(steps))))
    numbers = [1, *range(stride, steps + 1, stride)] if steps > 1 else [1]
    y = HEIGHT - _BOTTOM + 17
    return "".join(
        f'<text class="note" x="{_x(number - 1, steps)}" y="{y}" text-anchor="middle">{number}</text>'
        for number in dict.fromkeys(numbers)
        if number == 1 or number - 1 >= stride / 2
    )


def _name_axis(label: str) -> str:
    return f'<text class="note" x="{WIDTH // 2}" y="{HEIGHT - 5}" text-anchor="middle">{escape(label)}</text>'


def _find_step(most: float) -> float:
    """Return a round distance between four to eight lines."""
    rough = most / 5 if most > 0 else 1.0
    size = 10.0 ** math.floor(math.log10(rough))
    return next((size * factor for factor in (1, 2, 2.5, 5) if size * factor >= rough * 0.99), size * 10)


def _span(low: float, high: float) -> str:
    top = _y(high, 100.0)
    return f'y="{top}" height="{_round(_y(low, 100.0) - top)}"'


def _x(step: int, steps: int) -> float:
    return _round(_LEFT + (WIDTH - _LEFT - _RIGHT) * (step / (steps - 1) if steps > 1 else 0.5))


def _y(value: float, most: float) -> float:
    return _round(HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * min(1.0, max(0.0, value / most)))


def _round(value: float) -> float:
    return round(value, 1)


def _wrap(lines: Sequence[str], title: str, height: int = HEIGHT) -> str:
    inner = "\n".join(lines)
    opening = f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
    return f"<figure>{opening}\n{inner}\n</svg></figure>"
