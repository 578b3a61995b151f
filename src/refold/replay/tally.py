"""Sums of records: what one preset did over all sessions, in figures that are equal in every run.

Times are separate (``sum_times``), so that a report can leave them out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from refold.budget.economics import Charge, Tariff, sum_charges
from refold.replay.record import ProbeRecord, RequestRecord, SessionRecord

FAR = 20
# Upper bounds of the distances, in messages, by which probes are grouped.
DISTANCES = (5, 10, 20, 40, 80)

TariffOf = Callable[[SessionRecord], Tariff]


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a whole."""

    part: int
    whole: int

    @property
    def percent(self) -> float | None:
        """The share in percent; None of nothing."""
        return round(100 * self.part / self.whole, 2) if self.whole else None


@dataclass(frozen=True, slots=True)
class Probed:
    """Values used again: how many were in view, and how many were in view or recalled."""

    in_view: int
    found: int
    whole: int

    @classmethod
    def of(cls, probes: Sequence[ProbeRecord]) -> Probed:
        """Count some probes."""
        return cls(sum(one.in_view for one in probes), sum(one.is_found for one in probes), len(probes))

    @property
    def view_percent(self) -> float | None:
        """The share in view, in percent; None of nothing."""
        return Share(self.in_view, self.whole).percent

    @property
    def found_percent(self) -> float | None:
        """The share in view or found by recall, in percent; None of nothing."""
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
    """Add up what one preset did."""
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
        reasons=_count_reasons(requests),
        problems=tuple(sorted({record.problem for record in records if record.problem}))[:10],
    )


def group_distances(probes: Iterable[ProbeRecord]) -> dict[str, list[ProbeRecord]]:
    """Group probes by distance, nearest first, without empty groups."""
    groups: dict[str, list[ProbeRecord]] = {name: [] for name in name_distances()}
    for probe in probes:
        groups[_name_distance(probe.distance)].append(probe)
    return {name: found for name, found in groups.items() if found}


def name_distances() -> list[str]:
    """Return the names of the distance groups, nearest first."""
    lows = (1, *(high + 1 for high in DISTANCES))
    return [*(f"{low}-{high}" for low, high in zip(lows, DISTANCES, strict=False)), f">{DISTANCES[-1]}"]


def _name_distance(distance: int) -> str:
    at = next((at for at, high in enumerate(DISTANCES) if distance <= high), len(DISTANCES))
    return name_distances()[at]


def _share(requests: Sequence[RequestRecord], is_good: Callable[[RequestRecord], bool]) -> Share:
    return Share(sum(is_good(request) for request in requests), len(requests))


def _count_reasons(requests: Sequence[RequestRecord]) -> dict[str, int]:
    """Count what made a preset act, by the reason's code."""
    counts = Counter(request.reason.code for request in requests if request.stages)
    return dict(sorted(counts.items()))


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
