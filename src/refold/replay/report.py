"""The report of a replay: one value from which the table, the JSON and the page are written.

The same records give the same bytes. Times, which no two runs share, stand apart and only where they are asked for.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from refold.budget import Tariff
from refold.replay.batch import Terms
from refold.replay.reading import FileReading
from refold.replay.record import SessionRecord
from refold.replay.rows import Broken
from refold.replay.session import Session
from refold.replay.tally import Probed, Tally, sum_times, tally_preset
from refold.tokens import counter_for, model_info
from refold.tokens.model_table import AS_OF

BROKEN_MAX = 20


@dataclass(frozen=True, slots=True)
class Report:
    """What was replayed, under which terms, what each preset did, and what could not be read."""

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
        """Return what a reader must know to judge the figures."""
        models = sorted({self.terms.model_of(session) for session in self.sessions})
        notes = []
        for name in models:
            info = model_info(name)
            counter = counter_for(info.name or None)
            if not info.is_known:
                shown = f"the model {name!r} is not known" if name else "no model is named"
                notes.append(f"{shown}: a window of {info.window:,} tokens is assumed, and no prompt cache")
            if not counter.is_exact:
                notes.append(f"tokens for {name!r} are an estimate that may be {counter.margin:.0%} too low")
        if any(not session.times for session in self.sessions):
            notes.append("where a recording has no times, the cache is taken to be warm")
        if any(not session.tools and session.system is None for session in self.sessions):
            notes.append("where a recording has no system prompt or tools, they are not billed")
        notes.append(f"bills are in uncached input tokens, at list prices of {AS_OF}")
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
    """Return the sessions worth a chart of their own: the largest, in the order of the input."""
    sizes: dict[str, int] = {}
    for record in report.records:
        sizes[record.session] = max(sizes.get(record.session, 0), record.tokens)
    ranked = sorted(report.sessions, key=lambda session: (-sizes.get(session.id, 0), session.id))[:most]
    chosen = {session.id for session in ranked}
    return [session for session in report.sessions if session.id in chosen]
