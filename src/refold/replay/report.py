"""The report of a replay: one value for the tables, the JSON and the page.

The same records give the same bytes. Times differ between runs, so they are separate and optional.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field

from refold.budget import Tariff
from refold.budget.economics import CAUSES, Charge, sum_charges
from refold.errors import Sentence
from refold.readers.file import FileReading
from refold.readers.session import Broken, Session
from refold.replay.record import ProbeRecord, RequestRecord, SessionRecord
from refold.replay.run import Terms
from refold.tokens import counter_for, model_info
from refold.tokens.models import AS_OF

FAR = 20
# Upper bounds of the distances, in messages, by which probes are grouped.
DISTANCES = (5, 10, 20, 40, 80)

TariffOf = Callable[[SessionRecord], Tariff]
BROKEN_MAX = 20


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a whole."""

    part: int
    whole: int

    @property
    def percent(self) -> float | None:
        """The share in percent; None if the total is 0."""
        return round(100 * self.part / self.whole, 2) if self.whole else None


@dataclass(frozen=True, slots=True)
class Probed:
    """Values used again: how many were in view, and how many were in view or recalled."""

    in_view: int
    found: int
    whole: int

    @classmethod
    def of(cls, probes: Sequence[ProbeRecord]) -> Probed:
        return cls(sum(probe.in_view for probe in probes), sum(probe.is_found for probe in probes), len(probes))

    @property
    def view_percent(self) -> float | None:
        """The share in view, in percent; None if the total is 0."""
        return Share(self.in_view, self.whole).percent

    @property
    def found_percent(self) -> float | None:
        """The share in view or found by recall, in percent; None if the total is 0."""
        return Share(self.found, self.whole).percent


@dataclass(frozen=True, slots=True)
class Tally:
    """One preset over all sessions."""

    preset: str
    sessions: int
    requests: int
    fit: Share
    valid: Share
    intact: Share
    tokens_peak: int
    tokens_mean: float
    tokens_total: int
    breaks: int
    tokens_freed: int
    asked: int
    asked_tokens: int
    charge: Charge
    copied: Share
    rereads: int
    reread_cost: float
    probes: Probed
    probes_far: Probed
    probes_hard: Probed
    by_distance: dict[str, Probed] = field(default_factory=dict)
    by_sort: dict[str, Probed] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def whole_bill(self) -> float:
        """The bill, and what it would cost to read again the sources of copied text that was not in view."""
        return self.charge.total + self.reread_cost


def tally_preset(preset: str, records: Sequence[SessionRecord], tariff_of: TariffOf) -> Tally:
    """Add up what one preset did, in figures that are equal in every run."""
    requests = [request for record in records for request in record.requests]
    probes = [probe for record in records for probe in record.probes]
    sizes = [request.tokens for request in requests]
    return Tally(
        preset=preset,
        sessions=len(records),
        requests=len(requests),
        fit=_share(requests, lambda one: one.is_fit),
        valid=_share(requests, lambda one: not one.violations),
        intact=_share(requests, lambda one: one.is_intact),
        tokens_peak=max(sizes, default=0),
        tokens_mean=round(sum(sizes) / len(sizes), 1) if sizes else 0.0,
        tokens_total=sum(sizes),
        breaks=sum(request.is_break for request in requests),
        tokens_freed=sum(request.tokens_freed for request in requests),
        asked=sum(len(request.asked) for request in requests),
        asked_tokens=sum(one.prompt_tokens + one.reply_tokens for request in requests for one in request.asked),
        charge=sum_charges([record.charge(tariff_of(record)) for record in records]),
        copied=Share(sum(request.runs_in_view for request in requests), sum(request.runs for request in requests)),
        rereads=sum(len(request.rereads) for request in requests),
        reread_cost=math.fsum(record.charge_rereads(tariff_of(record)) for record in records),
        probes=Probed.of(probes),
        probes_far=Probed.of([probe for probe in probes if probe.distance > FAR]),
        probes_hard=Probed.of([probe for probe in probes if probe.is_hard]),
        by_distance={name: Probed.of(found) for name, found in group_distances(probes).items()},
        by_sort={sort: Probed.of([p for p in probes if p.sort == sort]) for sort in sorted({p.sort for p in probes})},
        reasons=dict(sorted(Counter(request.reason.code for request in requests if request.stages).items())),
        problems=tuple(sorted({record.problem for record in records if record.problem}))[:10],
    )


def group_distances(probes: Iterable[ProbeRecord]) -> dict[str, list[ProbeRecord]]:
    """Group probes by distance, nearest first, without empty groups."""
    groups: dict[str, list[ProbeRecord]] = {name: [] for name in name_distances()}
    for probe in probes:
        at = sum(probe.distance > high for high in DISTANCES)
        groups[name_distances()[at]].append(probe)
    return {name: found for name, found in groups.items() if found}


def name_distances() -> list[str]:
    """Return the names of the distance groups, nearest first."""
    lows = (1, *(high + 1 for high in DISTANCES))
    return [*(f"{low}-{high}" for low, high in zip(lows, DISTANCES, strict=False)), f">{DISTANCES[-1]}"]


def _share(requests: Sequence[RequestRecord], is_good: Callable[[RequestRecord], bool]) -> Share:
    return Share(sum(is_good(request) for request in requests), len(requests))


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds per prepare, and how the last quarter of each session compares with its first."""

    mean_ms: float
    worst_ms: float
    growth: float


def sum_times(records: Iterable[SessionRecord]) -> Times:
    """Return how long preparing took, on this machine and in this run."""
    spans = [record.seconds for record in records if record.seconds]
    every = [second for span in spans for second in span]
    if not every:
        return Times(0.0, 0.0, 1.0)
    long = [span for span in spans if len(span) >= 8]
    early = math.fsum(math.fsum(span[: len(span) // 4]) / (len(span) // 4) for span in long)
    late = math.fsum(math.fsum(span[-(len(span) // 4) :]) / (len(span) // 4) for span in long)
    growth = late / early if early else 1.0
    return Times(1000 * math.fsum(every) / len(every), 1000 * max(every), growth)


_DISTANCES = tuple(name_distances())
_NONE = Probed(0, 0, 0)


@dataclass(frozen=True, slots=True)
class ReplayReport:
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
        found = next((session for session in self.sessions if session.id == record.session), None)
        return self.terms.model_of(found) if found is not None else self.terms.model or ""

    def records_of(self, preset: str) -> list[SessionRecord]:
        return [record for record in self.records if record.preset == preset]

    def tallies(self) -> list[Tally]:
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
                shown = Sentence("no model is named")
                if name:
                    shown = Sentence("the model {name!r} is not known", name=name)
                assumed = Sentence(
                    "{shown}: a window of {window:,} tokens is assumed, and no prompt cache",
                    shown=shown,
                    window=info.window,
                )
                notes.append(assumed)
            if not counter.is_exact:
                margin = counter.margin
                estimated = Sentence(
                    "tokens for {name!r} are an estimate that may be {margin:.0%} too low", name=name, margin=margin
                )
                notes.append(estimated)
        if any(not session.times for session in self.sessions):
            notes.append(Sentence("recordings without times: the cache is assumed to be warm"))
        if any(not session.tools and session.system is None for session in self.sessions):
            notes.append(Sentence("recordings without a system prompt or tools: these are not billed"))
        notes.append(Sentence("bills are in uncached input tokens, at list prices of {date}", date=AS_OF))
        return notes


def describe(report: ReplayReport, *, with_times: bool = False) -> dict[str, object]:
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


def _describe_record(report: ReplayReport, record: SessionRecord) -> dict[str, object]:
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


def choose_shown(report: ReplayReport, most: int) -> list[Session]:
    """Return the largest sessions, in the order of the input."""
    sizes: dict[str, int] = {}
    for record in report.records:
        sizes[record.session] = max(sizes.get(record.session, 0), record.tokens)
    ranked = sorted(report.sessions, key=lambda session: (-sizes.get(session.id, 0), session.id))[:most]
    chosen = {session.id for session in ranked}
    return [session for session in report.sessions if session.id in chosen]


def write_rows(report: ReplayReport) -> Sequence[tuple[str, ...]]:
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


def write_bill_rows(report: ReplayReport) -> Sequence[tuple[str, ...]]:
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


def write_probe_rows(report: ReplayReport) -> Sequence[tuple[str, ...]]:
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
