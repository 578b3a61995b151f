"""The report of a replay: one value for the tables, the JSON and the page.

The same records give the same bytes. Times differ between runs, so they are separate and optional.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from refold.budget import Tariff
from refold.budget.economics import CAUSES
from refold.errors import Sentence
from refold.readers.file import FileReading
from refold.readers.session import Broken, Session
from refold.replay.batch import Terms
from refold.replay.record import SessionRecord
from refold.replay.tally import Probed, Tally, name_distances, sum_times, tally_preset
from refold.tokens import counter_for, model_info
from refold.tokens.model_table import AS_OF

BROKEN_MAX = 20
_DISTANCES = tuple(name_distances())
_NONE = Probed(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Report:
    """The sessions, the terms, the records of each preset, and the lines that could not be read."""

    terms: Terms
    presets: tuple[str, ...]
    sessions: tuple[Session, ...]
    records: tuple[SessionRecord, ...]
    files: tuple[FileReading, ...] = ()

    def tariff_of(self, record: SessionRecord) -> Tariff:
        """Return the prices under which a record is billed."""
        return Tariff.of_model(model_info(self.model_of(record)))

    def model_of(self, record: SessionRecord) -> str:
        """Return the model of a record's session."""
        found = next((session for session in self.sessions if session.id == record.session), None)
        return self.terms.model_of(found) if found is not None else self.terms.model or ""

    def records_of(self, preset: str) -> list[SessionRecord]:
        """Return the records of one preset, in the order of the sessions."""
        return [record for record in self.records if record.preset == preset]

    def tallies(self) -> list[Tally]:
        """Return what each preset did, in the order they were named."""
        return [tally_preset(preset, self.records_of(preset), self.tariff_of) for preset in self.presets]

    def broken(self) -> list[tuple[str, Broken]]:
        """Return every line that could not be read, with its file."""
        return [(file.path, one) for file in self.files for one in file.broken]

    def notes(self) -> list[str]:
        """Return notes that a reader needs to judge the figures."""
        models = sorted({self.terms.model_of(session) for session in self.sessions})
        notes: list[str] = []
        for name in models:
            info = model_info(name)
            counter = counter_for(info.name or None)
            if not info.is_known:
                shown = (
                    Sentence("the model {name!r} is not known", name=name) if name else Sentence("no model is named")
                )
                notes.append(
                    Sentence(
                        "{shown}: a window of {window:,} tokens is assumed, and no prompt cache",
                        shown=shown,
                        window=info.window,
                    )
                )
            if not counter.is_exact:
                notes.append(
                    Sentence(
                        "tokens for {name!r} are an estimate that may be {margin:.0%} too low",
                        name=name,
                        margin=counter.margin,
                    )
                )
        if any(not session.times for session in self.sessions):
            notes.append(Sentence("recordings without times: the cache is assumed to be warm"))
        if any(not session.tools and session.system is None for session in self.sessions):
            notes.append(Sentence("recordings without a system prompt or tools: these are not billed"))
        notes.append(Sentence("bills are in uncached input tokens, at list prices of {date}", date=AS_OF))
        return notes


def describe(report: Report, *, with_times: bool = False) -> dict[str, object]:
    """Return the report as plain values for JSON."""
    tallies = report.tallies()
    raw = next((tally.charge.total for tally in tallies if tally.preset == "raw"), None)
    plain: dict[str, object] = {
        "model": report.terms.model,
        "window": report.terms.window,
        "sessions": len(report.sessions),
        "presets": [_describe_tally(tally, raw) for tally in tallies],
        "per_session": [_describe_record(report, record) for record in report.records],
        "files": [
            {"path": file.path, "kind": file.kind, "sessions": len(file.sessions), "broken": len(file.broken)}
            for file in report.files
        ],
        "broken": [{"path": path, "line": one.line, "why": one.why} for path, one in report.broken()],
        "notes": report.notes(),
    }
    if with_times:
        plain["times"] = {preset: asdict(sum_times(report.records_of(preset))) for preset in report.presets}
    return plain


def _describe_tally(tally: Tally, raw: float | None) -> dict[str, object]:
    charge = {name: round(value, 2) for name, value in asdict(tally.charge).items()}
    return {
        "preset": tally.preset,
        "sessions": tally.sessions,
        "requests": tally.requests,
        "fit_percent": tally.fit.percent,
        "valid_percent": tally.valid.percent,
        "newest_intact_percent": tally.intact.percent,
        "tokens": {"peak": tally.tokens_peak, "mean": tally.tokens_mean, "total": tally.tokens_total},
        "prefix_changes": tally.breaks,
        "tokens_freed": tally.tokens_freed,
        "bill": {**charge, "total": round(tally.charge.total, 2)},
        "bill_to_raw": round(tally.charge.total / raw, 4) if raw else None,
        "whole_bill": round(tally.whole_bill, 2),
        "whole_bill_to_raw": round(tally.whole_bill / raw, 4) if raw else None,
        "rereads": {"messages": tally.rereads, "bill": round(tally.reread_cost, 2)},
        "copied_in_view_percent": tally.copied.percent,
        "copied_runs": tally.copied.whole,
        "summariser": {"calls": tally.asked, "tokens": tally.asked_tokens, "bill": charge["summariser"]},
        "probes": {
            "all": _describe_probes(tally.probes),
            "far": _describe_probes(tally.probes_far),
            "hard": _describe_probes(tally.probes_hard),
            "by_distance": {name: _describe_probes(probed) for name, probed in tally.by_distance.items()},
            "by_class": {name: _describe_probes(probed) for name, probed in tally.by_sort.items()},
        },
        "acted_because": tally.reasons,
        "problems": list(tally.problems),
    }


def _describe_probes(probed: Probed) -> dict[str, object]:
    return {
        "of": probed.whole,
        "in_view": probed.in_view,
        "in_view_percent": probed.view_percent,
        "found": probed.found,
        "found_percent": probed.found_percent,
    }


def _describe_record(report: Report, record: SessionRecord) -> dict[str, object]:
    charge = record.charge(report.tariff_of(record))
    return {
        "session": record.session,
        "preset": record.preset,
        "messages": record.messages,
        "tokens": record.tokens,
        "window": record.window,
        "requests": len(record.requests),
        "fit": sum(request.is_fit for request in record.requests),
        "valid": sum(not request.violations for request in record.requests),
        "prefix_changes": sum(request.is_break for request in record.requests),
        "bill": round(charge.total, 2),
        "probes": _describe_probes(Probed.of(record.probes)),
        "decisions": [
            {
                "request": number,
                "tokens": request.tokens,
                "freed": request.tokens_freed,
                "reason": request.reason.to_dict(),
            }
            for number, request in enumerate(record.requests, 1)
            if request.stages
        ],
        "problem": record.problem,
    }


def choose_shown(report: Report, most: int) -> list[Session]:
    """Return the largest sessions, in the order of the input."""
    sizes: dict[str, int] = {}
    for record in report.records:
        sizes[record.session] = max(sizes.get(record.session, 0), record.tokens)
    ranked = sorted(report.sessions, key=lambda session: (-sizes.get(session.id, 0), session.id))[:most]
    chosen = {session.id for session in ranked}
    return [session for session in report.sessions if session.id in chosen]


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
    head = ("preset", "bill", *CAUSES, "asked", "re-reads", "cost", "whole bill")
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
    """Return probes by class and by distance: for each preset the share in view, and found at all."""
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
