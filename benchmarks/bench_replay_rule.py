"""The economic trigger against the best schedule in hindsight, and how fast sessions are replayed.

The traces are recorded sessions reduced to sizes: what came new with each request, the head that no cut touches, and
what a cut keeps, as ``default`` left them. Schedules are billed alike, with reads at 0.1 and writes at 1.25.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

from bench_replay import DATA, READS, SETS, Task, make_tariff, read_lines, run_task
from hindsight import Trace, compare_costs, find_best_schedule, find_unavoidable, run_trigger

from refold.budget import window_budget
from refold.config import CompressionConfig
from refold.readers.request_log import read_session
from refold.readers.session import Session
from refold.replay.record import SessionRecord
from refold.replay.run import ReplayJob, Terms, run_jobs


def make_trace(record: SessionRecord, raw: SessionRecord) -> Trace | None:
    """Return a session in sizes: its growth as recorded, its head and what is kept as ``default`` left them."""
    sizes = [request.tokens for request in raw.requests]
    growth = [later - earlier for earlier, later in itertools.pairwise(sizes)]
    cuts = [(at, request) for at, request in enumerate(record.requests) if request.is_break and at > 0]
    if not cuts:
        return None
    head = min(request.shared_tokens for _, request in cuts)
    kept = [max(1, request.tokens - head - growth[at - 1]) for at, request in cuts]
    return Trace(head, sum(kept) // len(kept), (max(1, sizes[0] - head), *growth))


def show_hindsight(records: list[SessionRecord], raws: list[SessionRecord], config: CompressionConfig) -> str:
    """Return how the trigger's schedule compares with the best one in hindsight, of the same traces."""
    tariff = make_tariff(READS[0])
    ours, best, above, above_best = [], [], [], []
    for record, raw in zip(records, raws, strict=True):
        trace = make_trace(record, raw)
        if trace is None or max(trace.growth) + trace.floor_tokens > record.window:
            continue
        budget = replace(window_budget(record.window, 0, config.tiers()), is_of_room=True).above(trace.head_tokens)
        online = run_trigger(trace, budget, config.economics(tariff))
        cheapest = find_best_schedule(trace, record.window, tariff)
        least = find_unavoidable(trace, tariff)
        ours.append(online.cost)
        best.append(cheapest.cost)
        above.append(online.cost - least)
        above_best.append(cheapest.cost - least)
    whole, worst = compare_costs(ours, best)
    part, part_worst = compare_costs(above, above_best)
    return f"| {len(ours)} | {whole:.3f} | {worst:.3f} | {part:.2f} | {part_worst:.2f} |"


def measure_speed(half: str) -> None:
    """Print sessions and megabytes per second: one process and two, and for growing numbers of sessions."""
    lines = list(read_lines("swe_mini", half, 48))
    sessions: list[Session] = []
    for at, line in enumerate(lines):
        read = read_session(json.loads(line), "recorded")
        assert read is not None
        sessions.append(replace(read, id=f"{at}", bytes=len(line)))
    print("\n### Replay speed\n\nSessions of swe_mini, each under `raw` and `default`, with recall for the missing.\n")
    ReplayJob(sessions[0], "default", Terms("gpt-4o", 8_000)).run()  # What is loaded once is not a session's time.
    print("| sessions | processes | seconds | sessions/s | MB/s | seconds of one core per session |")
    print("|---|---|---|---|---|---|")
    for count, processes in ((12, 1), (24, 1), (48, 1), (48, 2)):
        chosen = sessions[:count]
        jobs = [ReplayJob(one, preset, Terms("gpt-4o", 8_000)) for one in chosen for preset in ("raw", "default")]
        begun, used = time.perf_counter(), count_core_seconds()
        run_jobs(jobs, processes=processes)
        spent, used = time.perf_counter() - begun, count_core_seconds() - used
        size = sum(one.bytes for one in chosen) / 1e6
        cells = (count, processes, f"{spent:.1f}", f"{count / spent:.1f}", f"{size / spent:.2f}", f"{used / count:.3f}")
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    print(
        f"\nProcesses that wanted to run, per core of this machine, in the end: {load:.1f}; above 1 seconds say little."
    )


def count_core_seconds() -> float:
    """Return how long cores have worked for this program and for those it has waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


INTRODUCTION = """
The recorded growth of each session, its head and what a cut keeps as `default` left them on average; the best schedule
knows the whole session (dynamic programming). *Avoidable* leaves out what every schedule pays: each token written
once, the head read with each request. The bound of 2 is for steady sizes and a window without end; recorded growth
comes in jumps, and the window forces cuts.
""".strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=("tune", "held", "all"), default="held")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    print("## The economic trigger in hindsight, and replay speed (`benchmarks/bench_replay_rule.py`)\n")
    if not DATA.is_dir():
        print("No recorded sessions at ../shared/data: not measured.")
        return
    print(f"{INTRODUCTION}\n")
    print("| set | sessions | input bill ÷ best | worst | avoidable part ÷ best | worst |\n|---|---|---|---|---|---|")
    config = CompressionConfig()
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for name in SETS:
            lines = list(read_lines(name, arguments.half, 1_000))
            done = [
                list(pool.map(run_task, [Task(line, policy, READS[0], "ratio", {}) for line in lines], chunksize=1))
                for policy in ("default", "raw")
            ]
            print(f"| {name} {show_hindsight(done[0], done[1], config)}", flush=True)
    measure_speed(arguments.half)


if __name__ == "__main__":
    main()
