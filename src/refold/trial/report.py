"""What many runs show: success, steps, repeated work, repeated acts and cost for each compressor, and paired tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from refold.evaluation.compare import PairedDifference, compare_pairs
from refold.trial.run import TrialRun


@dataclass(frozen=True, slots=True)
class TrialReport:
    """All runs of a trial. The first arm is the one that others are compared with."""

    arms: tuple[str, ...]
    runs: tuple[TrialRun, ...]
    window: int
    player: str

    def of(self, arm: str) -> list[TrialRun]:
        """Return the runs of one arm, in the order of the tasks."""
        return [run for run in self.runs if run.arm == arm]

    def compare(self) -> dict[str, PairedDifference]:
        """Return how often the other arms solve a task that the first one does not, and the other way round."""
        first = [float(run.is_solved) for run in self.of(self.arms[0])]
        return {arm: compare_pairs(first, [float(run.is_solved) for run in self.of(arm)]) for arm in self.arms[1:]}


def list_figures(report: TrialReport) -> list[list[str]]:
    """Return one row for each compressor, below a row of names."""
    rows = [["compressor", "solved", "requests", "repeats", "acts again", "bill", "peak", "unfit", "invalid"]]
    for arm in report.arms:
        runs = report.of(arm)
        solved = f"{sum(run.is_solved for run in runs)}/{len(runs)}"
        counts = [sum(getattr(run, name) for run in runs) for name in ("steps", "repeated_calls", "repeated_acts")]
        bill, peak = sum(run.bill for run in runs), max((run.tokens_peak for run in runs), default=0)
        failed = [sum(run.unfit for run in runs), sum(run.invalid for run in runs)]
        cells = [*(f"{count:,}" for count in counts), f"{bill / 1000:,.0f}k", f"{peak:,}", *map(str, failed)]
        rows.append([arm, solved, *cells])
    return rows


def list_families(report: TrialReport) -> list[list[str]]:
    """Return how many tasks of each kind were solved."""
    families = list(dict.fromkeys(run.family for run in report.runs))
    rows = [["solved", *families]]
    for arm in report.arms:
        found = {family: [run.is_solved for run in report.of(arm) if run.family == family] for family in families}
        rows.append([arm, *(f"{sum(one)}/{len(one)}" for one in found.values())])
    return rows


def list_tests(report: TrialReport) -> list[list[str]]:
    """Return the paired comparison of every other compressor with the first."""
    rows = [[f"against {report.arms[0]}", "better/worse", "difference", "95% interval", "p sign"]]
    for arm, found in report.compare().items():
        interval = f"{100 * found.low:+.0f} … {100 * found.high:+.0f}"
        wins = f"{found.wins}/{found.losses} of {found.pairs}"
        rows.append([arm, wins, f"{100 * found.mean:+.0f}", interval, f"{found.p_sign:.3f}"])
    return rows


def list_failures(runs: Sequence[TrialRun]) -> list[str]:
    """Return a line for each task that was not solved: why."""
    return [
        f"{run.arm}, {run.task}: {run.problem or '; '.join(run.wrong[:3]) or 'requests over the window'}"
        for run in runs
        if not run.is_solved
    ]


def describe_trial(report: TrialReport) -> dict[str, Any]:
    """Return the report as plain values for JSON."""
    return {
        "window": report.window,
        "player": report.player,
        "runs": [{**asdict(run), "solved": run.is_solved} for run in report.runs],
        "differences": {arm: asdict(found) for arm, found in report.compare().items()},
    }
