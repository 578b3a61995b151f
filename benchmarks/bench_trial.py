"""Does an agent still finish its task? The tasks of ``refold trial``, for refold and for the ways that need no library.

python benchmarks/bench_trial.py                                 the player that acts on what it sees, window 16,000
python benchmarks/bench_trial.py --figures docs/figures.json
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from figures import keep_figures

from refold.evaluation.arms import read_arm
from refold.trial.report import TrialReport, list_figures
from refold.trial.run import TrialRun, list_tasks, run_task

ARMS = ("raw", "default", "mask", "trim", "chars", "last-n")


def run_arm(arm: str, window: int, player: str) -> list[TrialRun]:
    return [run_task(task, read_arm(arm), window=window, player=player) for task in list_tasks(window)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--window", type=int, default=16_000)
    parser.add_argument("--player", default="view")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--figures", type=Path, help="keep the table in this file, which docs/make_figures.py reads")
    arguments = parser.parse_args()
    with ProcessPoolExecutor(arguments.jobs) as pool:
        parts = [pool.submit(run_arm, arm, arguments.window, arguments.player) for arm in ARMS]
        runs = tuple(run for part in parts for run in part.result())
    head, *rows = list_figures(TrialReport(ARMS, runs, arguments.window, arguments.player))
    print(f"## Trial (`benchmarks/bench_trial.py`)\n\n| {' | '.join(head)} |\n{'|---' * len(head)}|")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    if arguments.figures:
        keep_figures(arguments.figures, {"trial": {"window": arguments.window, "head": head, "rows": rows}})


if __name__ == "__main__":
    main()
