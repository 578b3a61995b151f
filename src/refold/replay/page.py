"""The report as one HTML page that opens from disk: no script, no network, no file beside it.

Everything that came from a recording is escaped. The same report gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

from refold.budget.economics import CAUSES
from refold.conversation import because
from refold.conversation.reason import count_things
from refold.readers.session import Session
from refold.replay.charts import COLOURS, Curve, draw_curves, draw_groups, draw_legend, draw_stacks
from refold.replay.record import SessionRecord
from refold.replay.report import BROKEN_MAX, Report, choose_shown, write_bill_rows, write_probe_rows, write_rows
from refold.replay.tally import Probed, Tally, name_distances

SHOWN_MAX = 12
DECISIONS_MAX = 40


def write_page(report: Report) -> str:
    """Return the whole page."""
    tallies = report.tallies()
    causes = (*CAUSES, "re-reads")
    bills = {
        tally.preset: {**{cause: getattr(tally.charge, cause) for cause in CAUSES}, "re-reads": tally.reread_cost}
        for tally in tallies
    }
    parts = [
        "<h1>What each preset would have done</h1>",
        f'<p class="soft">{count_things(len(report.sessions), "session")}, '
        f"{count_things(_count_requests(tallies), 'request')} each"
        f"{f', model {escape(report.terms.model)}' if report.terms.model else ''}"
        f"{f', window {report.terms.window:,} tokens' if report.terms.window else ''}.</p>",
        _write_cards(tallies),
        '<p class="soft">Shares in percent; ÷ raw is the bill and whole the whole bill, as shares of raw’s bill.</p>',
        _write_table(write_rows(report)),
        "<h2>The whole bill, by cause</h2>",
        '<p class="soft">In uncached input tokens. Asked: summariser calls. Re-reads: older messages that the '
        "assistant copied from although the request no longer showed them. The recording continues as if it "
        "had; a real agent would read them again. Each costs one more request from the cache, 60 output tokens and the "
        "message itself. The whole bill includes that.</p>",
        draw_legend(causes, "b"),
        _frame(draw_stacks(bills, title="Whole bill by cause, in uncached input tokens")),
        _write_table(write_bill_rows(report)),
        "<h2>Exact values when they were used again</h2>",
        _write_probes(report, tallies),
        "<h2>Tokens per request</h2>",
        '<p class="soft">A dot is a request before which the view was changed; point at it to see why, and anywhere '
        "else for the figures of that request.</p>",
        draw_legend(report.presets),
        *(_write_session(report, session) for session in choose_shown(report, SHOWN_MAX)),
        _write_notes(report),
    ]
    body = "\n".join(part for part in parts if part)
    head = f'<meta charset="utf-8"><title>refold replay</title><style>{_read_style()}</style>'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    return f'<!doctype html>\n<html lang="en"><head>{head}{view}</head>\n<body>\n{body}\n</body></html>\n'


def _count_requests(tallies: Sequence[Tally]) -> int:
    return max((tally.requests for tally in tallies), default=0)


def _read_style() -> str:
    return resources.files("refold.replay").joinpath("style.css").read_text(encoding="utf-8")


def _frame(chart: str) -> str:
    return f"<figure>{chart}</figure>"


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
            f"<div><dt>{name}</dt><dd>{'–' if percent is None else f'{percent:.1f} %'}</dd></div>"
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


def _write_probes(report: Report, tallies: Sequence[Tally]) -> str:
    names = [name for name in name_distances() if any(name in tally.by_distance for tally in tallies)]
    if not names:
        return '<p class="soft">No call of these sessions uses a value from an earlier message.</p>'
    groups = {name: {tally.preset: _pair(tally.by_distance.get(name)) for tally in tallies} for name in names}
    told = (
        '<p class="soft">Values that a call took from an earlier result or user message. Full colour: verbatim in '
        "view. Pale: not in view, but recall shows it among its first ten answers when asked for it.</p>"
    )
    chart = _frame(draw_groups(groups, title="Share of values in view and found, by distance in messages"))
    table = _write_table(write_probe_rows(report))
    words = "A cell is the share in view / and, where that is more, in view or found by recall, in percent."
    return (
        f"{told}{draw_legend([tally.preset for tally in tallies])}\n{chart}\n"
        f'<details><summary>By class and distance</summary><p class="soft">{words}</p>{table}</details>'
    )


def _pair(probed: Probed | None) -> tuple[float, float] | None:
    if probed is None or probed.view_percent is None or probed.found_percent is None:
        return None
    return probed.view_percent, probed.found_percent


def _write_session(report: Report, session: Session) -> str:
    records = [record for record in report.records if record.session == session.id]
    curves = [_curve(record) for record in records]
    limit = max((record.window for record in records), default=0)
    told = f"{session.id}: {max((record.tokens for record in records), default=0):,} tokens"
    chart = _frame(draw_curves(curves, limit=limit, title=told))
    return f"<h3>{escape(told)}</h3>\n{chart}\n{_write_decisions(records)}"


def _curve(record: SessionRecord) -> Curve:
    marks = {
        at: f"{record.preset}, request {at + 1}: {request.tokens_freed:,} tokens less. {request.reason}"
        for at, request in enumerate(record.requests)
        if request.stages
    }
    # A reason for waiting is worth a note, too.
    waits = {at: str(request.reason) for at, request in enumerate(record.requests) if request.reason.is_a(because.WAIT)}
    return Curve(record.preset, tuple(float(request.tokens) for request in record.requests), marks, waits)


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


def _write_notes(report: Report) -> str:
    notes = "".join(f"<li>{escape(note)}</li>" for note in report.notes())
    broken = report.broken()
    lines = "".join(f"<li>{escape(path)}, line {one.line}: {escape(one.why)}</li>" for path, one in broken[:BROKEN_MAX])
    if len(broken) > BROKEN_MAX:
        lines += f"<li>and {len(broken) - BROKEN_MAX:,} more</li>"
    unread = f"<h2>Not read: {len(broken):,} lines</h2><ul>{lines}</ul>" if broken else ""
    return f"<h2>What these figures rest on</h2><ul>{notes}</ul>{unread}"
