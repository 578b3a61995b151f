"""The report as one HTML page that opens from disk: no script, no network, no file beside it.

Everything that came from a recording is escaped. The same report gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from refold.replay.charts import Curve, draw_curves, draw_groups, draw_legend, draw_stacks
from refold.replay.record import SessionRecord
from refold.replay.report import BROKEN_MAX, Report, choose_shown, write_rows
from refold.replay.session import Session
from refold.replay.tally import Tally, name_distances

SHOWN_MAX = 12
DECISIONS_MAX = 40
CAUSES = ("read", "write", "new", "output", "summariser")
_CSS = """
:root { color-scheme: light dark; --ink: #1d2733; --soft: #64707d; --line: #d8dee5; --paper: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --soft: #9aa5b1; --line: #39424d; --paper: #161a1f; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 920px;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; } h3 { font-size: 1rem; margin-bottom: .2rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .3rem .5rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; } td.words, th.words { text-align: left; }
svg { width: 100%; height: auto; display: block; }
.grid { stroke: var(--line); } .limit { stroke: #c0392b; stroke-dasharray: 3 3; }
.curve { fill: none; stroke-width: 1.8; } .note { font-size: 11px; fill: var(--soft); }
.label { font-size: 13px; fill: var(--ink); } .fold { stroke: var(--paper); }
.legend .key { margin-right: 1.2rem; white-space: nowrap; }
.legend i { display: inline-block; width: .8rem; height: .8rem; margin-right: .4rem; border-radius: 2px; }
.soft { color: var(--soft); } .scroll { overflow-x: auto; }
"""


def write_page(report: Report) -> str:
    """Return the whole page."""
    tallies = report.tallies()
    parts = [
        "<h1>What each preset would have done</h1>",
        f'<p class="soft">{len(report.sessions):,} sessions, {_count_requests(tallies):,} requests each'
        f"{f', model {escape(report.terms.model)}' if report.terms.model else ''}.</p>",
        _write_table(write_rows(report)),
        "<h2>The bill, by cause</h2>",
        draw_legend(CAUSES),
        draw_stacks(
            {tally.preset: _causes(tally) for tally in tallies}, title="Bill by cause, in uncached input tokens"
        ),
        "<h2>Exact values still in view when they were used again</h2>",
        _write_probes(tallies),
        "<h2>Tokens per request</h2>",
        '<p class="soft">A dot is a request before which the view was changed; its title says why.</p>',
        draw_legend(report.presets),
        *(_write_session(report, session) for session in choose_shown(report, SHOWN_MAX)),
        _write_notes(report),
    ]
    body = "\n".join(part for part in parts if part)
    head = f'<meta charset="utf-8"><title>refold replay</title><style>{_CSS}</style>'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    return f'<!doctype html>\n<html lang="en"><head>{head}{view}</head>\n<body>\n{body}\n</body></html>\n'


def _count_requests(tallies: Sequence[Tally]) -> int:
    return max((tally.requests for tally in tallies), default=0)


def _causes(tally: Tally) -> dict[str, float]:
    return {cause: getattr(tally.charge, cause) for cause in CAUSES}


def _write_table(rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows[1:])
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _write_probes(tallies: Sequence[Tally]) -> str:
    names = [name for name in name_distances() if any(name in tally.by_distance for tally in tallies)]
    if not names:
        return '<p class="soft">No call of these sessions uses a value from an earlier message.</p>'
    groups = {
        name: {
            tally.preset: tally.by_distance[name].percent if name in tally.by_distance else None for tally in tallies
        }
        for name in names
    }
    legend = draw_legend([tally.preset for tally in tallies])
    return f"{legend}\n{draw_groups(groups, title='Share of probes in view, by distance in messages')}"


def _write_session(report: Report, session: Session) -> str:
    records = [record for record in report.records if record.session == session.id]
    curves = [_curve(record) for record in records]
    limit = max((record.window for record in records), default=0)
    told = f"{session.id}: {max((record.tokens for record in records), default=0):,} tokens"
    return f"<h3>{escape(told)}</h3>\n{draw_curves(curves, limit=limit, title=told)}\n{_write_decisions(records)}"


def _curve(record: SessionRecord) -> Curve:
    marks = {
        at: f"{record.preset}, request {at + 1}: {request.tokens_freed:,} tokens less. {request.reason}"
        for at, request in enumerate(record.requests)
        if request.stages
    }
    return Curve(record.preset, tuple(float(request.tokens) for request in record.requests), marks)


def _write_decisions(records: Iterable[SessionRecord]) -> str:
    rows = [
        f"<tr><td>{escape(record.preset)}</td><td>{number}</td><td>{request.tokens_freed:,}</td>"
        f'<td class="words">{escape(request.reason)}</td></tr>'
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


def _write_notes(report: Report) -> str:
    notes = "".join(f"<li>{escape(note)}</li>" for note in report.notes())
    broken = report.broken()
    lines = "".join(f"<li>{escape(path)}, line {one.line}: {escape(one.why)}</li>" for path, one in broken[:BROKEN_MAX])
    if len(broken) > BROKEN_MAX:
        lines += f"<li>and {len(broken) - BROKEN_MAX:,} more</li>"
    unread = f"<h2>Not read: {len(broken):,} lines</h2><ul>{lines}</ul>" if broken else ""
    return f"<h2>What these figures rest on</h2><ul>{notes}</ul>{unread}"
