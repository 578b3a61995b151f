"""The tables of a report, as rows of text: what each preset did, what it cost and why, what could still be seen."""

from __future__ import annotations

from collections.abc import Sequence

from refold.budget.economics import CAUSES
from refold.replay.report import Report
from refold.replay.tally import Probed, Tally, name_distances

_DISTANCES = tuple(name_distances())
_NONE = Probed(0, 0, 0)


def write_rows(report: Report) -> Sequence[tuple[str, ...]]:
    """Return the table: a heading row and one row per preset, as text; shares in percent, bills as parts of raw's."""
    tallies = report.tallies()
    raw = next((tally.charge.total for tally in tallies if tally.preset == "raw"), None)
    head = ("preset", "fits", "valid", "peak", "breaks", "÷ raw", "whole", "copied", "values", "far", "found")
    return [head, *(_write_row(tally, raw) for tally in tallies)]


def _write_row(tally: Tally, raw: float | None) -> tuple[str, ...]:
    return (
        tally.preset,
        _percent(tally.fit.percent),
        _percent(tally.valid.percent),
        f"{tally.tokens_peak:,}",
        f"{tally.breaks:,}",
        f"{tally.charge.total / raw:.2f}" if raw else "–",
        f"{tally.whole_bill / raw:.2f}" if raw else "–",
        _percent(tally.copied.percent),
        _percent(tally.probes.view_percent),
        _percent(tally.probes_far.view_percent),
        _percent(tally.probes.found_percent),
    )


def write_bill_rows(report: Report) -> Sequence[tuple[str, ...]]:
    """Return the bill by cause, in thousands of uncached input tokens, and the cost of reading again."""
    head = ("preset", "bill", *CAUSES, "asked", "re-reads", "for", "whole bill")
    return [
        head,
        *(
            (
                tally.preset,
                f"{tally.charge.total / 1000:,.0f}k",
                *(f"{getattr(tally.charge, cause) / 1000:,.0f}k" for cause in CAUSES),
                f"{tally.asked:,}",
                f"{tally.rereads:,}",
                f"{tally.reread_cost / 1000:,.0f}k",
                f"{tally.whole_bill / 1000:,.0f}k",
            )
            for tally in report.tallies()
        ),
    ]


def write_probe_rows(report: Report) -> Sequence[tuple[str, ...]]:
    """Return probes by class and by distance: a row per kind, for each preset what was in view, and found at all."""
    tallies = report.tallies()
    head = ("used again", "of", *(tally.preset for tally in tallies))
    rows: list[tuple[str, ...]] = []
    for title, tables in (("", [one.by_sort for one in tallies]), ("distance ", [one.by_distance for one in tallies])):
        names = {name for table in tables for name in table}
        for name in [*sorted(names - set(_DISTANCES)), *(one for one in _DISTANCES if one in names)]:
            found = [table.get(name, _NONE) for table in tables]
            cells = (_write_probed(one) for one in found)
            rows.append((f"{title}{name or 'other'}", f"{max(one.whole for one in found):,}", *cells))
    return [head, *rows]


def _write_probed(probed: Probed) -> str:
    """Return the share in view, and the share found at all where that is more."""
    if probed.view_percent is None or probed.found_percent is None:
        return "–"
    more = f" / {probed.found_percent:.0f}" if probed.found > probed.in_view else ""
    return f"{probed.view_percent:.0f}{more}"


def _percent(percent: float | None) -> str:
    return "–" if percent is None else f"{percent:.1f}"
