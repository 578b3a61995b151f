"""Recorded sessions, request by request: does the context fit, what does it cost, and what is still in view?

Each session is 2.5 times too long for its window (never below system prompt, largest user message and 1,500 tokens),
or meets a fixed window of 32,000 tokens. One prefix cache for all: writes 1.25, reads r, output 5; a request's cached
part is the longest prefix it shares with the one before. Raw, the divisor, sends everything into a window without end.
Sessions are split in two by a hash of their id: settings are chosen on the ``tune`` half, the ``held`` half is what is
reported.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from refold.budget import Budget, Tariff, window_budget
from refold.config import CompressionConfig
from refold.replay.baselines import BASELINES
from refold.replay.policy import LadderPolicy, Policy, Room
from refold.replay.record import SessionRecord
from refold.replay.request_log import read_session
from refold.replay.run import Measured, replay_session
from refold.tokens import CacheRules, counter_for

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"
SETS = ("tau_airline", "swe_mini", "agent_long", "bfcl_long_replay")
READS = (0.1, 0.05)
RATIO, FLOOR_TOKENS = 2.5, 1_500
FIXED_WINDOW, FIXED_SESSION_MIN = 32_000, 60_000
FAR = 20


def make_tariff(read: float, output: float = 5.0) -> Tariff:
    return Tariff(CacheRules(read=read, write=1.25, lifetime_s=300), output)


@dataclass(frozen=True)
class Task:
    """One session under one policy and one price of reading."""

    line: str
    policy: str
    read: float
    window: str
    settings: dict[str, Any]

    def make_budget(self, measured: Measured) -> Budget:
        config = self.make_config()
        if self.window == "fixed":
            window = FIXED_WINDOW
        else:
            least = measured.system_tokens + measured.user_tokens_max + FLOOR_TOKENS
            whole = measured.tokens / RATIO
            if self.window == "room":  # What the system prompt leaves is 2.5 times too small.
                whole = measured.system_tokens + (measured.tokens - measured.system_tokens) / RATIO
                least = measured.system_tokens + measured.user_tokens_max
            window = int(max(whole, least))
        return replace(window_budget(window, 0, config.tiers()), is_of_room=True)

    def make_config(self) -> CompressionConfig:
        preset = self.policy if self.policy not in BASELINES else "default"
        return CompressionConfig(preset=preset, **self.settings)

    def make_policy(self, room: Room) -> Policy:
        baseline = BASELINES.get(self.policy)
        return baseline(room) if baseline else LadderPolicy(room, self.make_config())

    def run(self) -> SessionRecord:
        session = read_session(json.loads(self.line), "recorded")
        counter = counter_for("gpt-4o")
        return replay_session(session, self.policy, self.make_policy, self.make_budget, counter, make_tariff(self.read))


def run_task(task: Task) -> SessionRecord:
    return task.run()


def read_lines(name: str, half: str, most: int) -> Iterator[str]:
    taken = 0
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            session = json.loads(line)
            side = "tune" if hashlib.sha256(session["id"].encode()).digest()[0] % 2 else "held"
            if half in (side, "all") and taken < most:
                taken += 1
                # Tools are left out: the figures to compare with count messages only.
                session.pop("tools", None)
                yield json.dumps(session)


def share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole else "–"


@dataclass
class Row:
    """One policy on one set."""

    records: list[SessionRecord]

    def cells(self, raw: list[SessionRecord], reads: dict[float, list[SessionRecord]]) -> list[str]:
        requests = [request for record in self.records for request in record.requests]
        probes = [probe for record in self.records for probe in record.probes]
        far = [probe for probe in probes if probe.distance > FAR]
        hard = [probe for probe in probes if probe.is_hard]
        count = len(requests)
        bills = []
        for output in (5.0, 0.0):
            for read, records in reads.items():
                tariff = make_tariff(read, output)
                ours = sum(record.charge(tariff).total for record in records)
                bills.append(ours / sum(record.charge(tariff).total for record in raw))
        seconds = [one for record in self.records for one in record.seconds]
        return [
            share(sum(one.is_fit for one in requests), count),
            share(sum(not one.violations for one in requests), count),
            share(sum(one.is_intact for one in requests), count),
            f"{bills[0]:.3f} / {bills[1]:.3f}",
            f"{bills[2]:.3f} / {bills[3]:.3f}",
            f"{share(sum(p.in_view for p in far), len(far))} ({len(far)})",
            share(sum(p.in_view for p in hard), len(hard)),
            share(sum(p.in_view for p in probes), len(probes)),
            str(sum(one.is_break for one in requests)),
            f"{1000 * sum(seconds) / max(1, len(seconds)):.1f}",
        ]


def find_floor(raw: list[SessionRecord]) -> str:
    """Return the bill if nothing old were ever read again: every token is written once."""
    cells = []
    for output in (5.0, 0.0):
        pair = []
        for read in READS:
            tariff = make_tariff(read, output)
            charges = [record.charge(tariff) for record in raw]
            pair.append(sum(charge.total - charge.read for charge in charges) / sum(charge.total for charge in charges))
        cells.append(" / ".join(f"{one:.3f}" for one in pair))
    return f"| floor | – | – | – | {cells[0]} | {cells[1]} | – | – | – | – | – |"


HEAD = (
    "| policy | fits % | valid % | newest intact % | bill ÷ raw, r 0.1 / 0.05 | the same, input only | far in view % | "
    "hard in view % | all in view % | prefix breaks | ms per request |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def bench_set(pool: ProcessPoolExecutor, name: str, arguments: argparse.Namespace, settings: dict[str, Any]) -> None:
    lines = list(read_lines(name, arguments.half, arguments.sessions))
    if arguments.window == "fixed":
        counter = counter_for("gpt-4o")
        lines = [line for line in lines if counter.count_text(line) > FIXED_SESSION_MIN]
    if not lines:
        return
    done: dict[tuple[str, float], list[SessionRecord]] = {}
    policies = ["raw", *(one for one in arguments.policies if one != "raw")]
    for policy in policies:
        # A baseline does not look at prices: one replay serves all of them.
        for read in READS if policy not in BASELINES else READS[:1]:
            tasks = [Task(line, policy, read, arguments.window, settings) for line in lines]
            done[policy, read] = list(pool.map(run_task, tasks, chunksize=1))
        print(".", end="", file=sys.stderr, flush=True)
    raw = done["raw", READS[0]]
    print(f"\n**{name}**, {len(lines)} sessions, {sum(len(one.requests) for one in raw):,} requests\n\n{HEAD}")
    for policy in policies:
        reads = {read: done.get((policy, read), done[policy, READS[0]]) for read in READS}
        print(f"| {policy} | {' | '.join(Row(reads[READS[0]]).cells(raw, reads))} |")
    print(find_floor(raw), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=("tune", "held", "all"), default="held")
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--sessions", type=int, default=1_000)
    parser.add_argument("--window", choices=("ratio", "room", "fixed"), default="ratio")
    parser.add_argument("--policies", nargs="*", default=["raw", "last-n", "mask", "chars", "default"])
    parser.add_argument("--set", nargs="*", default=[], help="settings, as fold.index_share=0.3", dest="settings")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    if not DATA.is_dir():
        print("## Replay\n\nNo recorded sessions at ../shared/data: not measured.")
        return
    settings: dict[str, Any] = {}
    for one in arguments.settings:
        key, _, value = one.partition("=")
        block, dot, option = key.partition(".")
        read = json.loads(value)
        if dot:
            settings.setdefault(block, {})[option] = read
        else:
            settings[key] = read
    print("## Replay and the bill (`benchmarks/bench_replay.py`)\n")
    print(f"Half: {arguments.half}; window: {arguments.window}; {' '.join(arguments.settings)}")
    begun = time.perf_counter()
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for name in arguments.sets:
            bench_set(pool, name, arguments, settings)
    print(f"\n{time.perf_counter() - begun:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
