"""Recorded sessions, request by request: does the context fit, what does it cost, and what is still in view?

The room that a session's window leaves beside the system prompt is 2.5 times too small for the session, but never
smaller than the largest user message; or the window has 32,000 tokens. With ``--window ratio`` the whole session is 2.5
times too long. One prefix cache for all: writes 1.25, reads r, output 5; a request's cached part is the longest prefix
that it shares with the one before. Raw, the divisor, sends everything into a window without end. Sessions are split in
two by a hash of their id: settings are chosen on the ``tune`` half, the ``held`` half is reported. ``--quick`` takes
the first sessions of a file from both halves: settings chosen with it are no longer independent of the ``held`` half.

    python benchmarks/bench_replay.py                          the tables of docs/benchmarks.md
    python benchmarks/bench_replay.py --half tune --set fold.summary_share=0.3
    python benchmarks/bench_replay.py --quick --keep likely    folds keep what is likely to be used next
    python benchmarks/bench_replay.py --quick --sets swe_mini  raw and default, the first 40 sessions, no recall

The *whole bill* adds what a real agent would pay to read again what it copied later but no longer saw; *copied text in
view* is the share of copied text that it still saw. ``refold.replay.record`` defines both.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from likely_use import LikelyPolicy

from refold.budget import Budget, Tariff, window_budget
from refold.config import CompressionConfig
from refold.readers.request_log import read_session
from refold.replay.policy import LadderPolicy, Policy, PolicyRoom, find_baselines
from refold.replay.record import SessionRecord
from refold.replay.report import Probed, group_distances
from refold.replay.run import Measured, replay_session
from refold.tokens import CacheRules, counter_for

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"
SETS = ("tau_airline", "swe_mini", "agent_long", "bfcl_long_replay")
READS = (0.1, 0.05)
RATIO, FLOOR_TOKENS = 2.5, 1_500
FIXED_WINDOW, FIXED_SESSION_MIN = 32_000, 60_000
RESERVE = 8_000  # for the answer, in windows of the size that people have
FAR = 20
QUICK_SESSIONS = 40
BASELINES = find_baselines()
WINDOWS = {
    "ratio": "each session 2.5 times too long for its window",
    "room": "what the system prompt leaves of the window is 2.5 times too small",
    "fixed": "a window of 32,000 tokens, sessions above 60,000",
}


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
    with_recall: bool = False
    keeps: str = "newest"

    def make_budget(self, measured: Measured) -> Budget:
        config = self.make_config()
        if self.window.isdigit():
            return replace(window_budget(int(self.window), RESERVE, config.tiers()), is_of_room=True)
        if self.window == "fixed":
            window = FIXED_WINDOW
        else:
            least = measured.system_tokens + measured.user_tokens_max + FLOOR_TOKENS
            whole = measured.tokens / RATIO
            if self.window == "room":
                whole = measured.system_tokens + (measured.tokens - measured.system_tokens) / RATIO
                least = measured.system_tokens + measured.user_tokens_max
            window = int(max(whole, least))
        return replace(window_budget(window, 0, config.tiers()), is_of_room=True)

    def make_config(self) -> CompressionConfig:
        preset = self.policy if self.policy not in BASELINES else "default"
        return CompressionConfig(preset=preset, **self.settings)

    def make_policy(self, room: PolicyRoom) -> Policy:
        baseline = BASELINES.get(self.policy)
        ladder = LikelyPolicy if self.keeps == "likely" else LadderPolicy
        return baseline(room) if baseline else ladder(room, self.make_config())

    def run(self) -> SessionRecord:
        return replay_session(
            read_session(json.loads(self.line), "recorded"),
            self.policy,
            self.make_policy,
            self.make_budget,
            counter=counter_for("gpt-4o"),
            tariff=make_tariff(self.read),
            with_recall=self.with_recall,
        )


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


def show_probed(probed: Probed) -> str:
    return f"{share(probed.in_view, probed.whole)} ({probed.whole})"


@dataclass
class Row:
    """One policy on one set."""

    policy: str
    reads: dict[float, list[SessionRecord]]
    raw: list[SessionRecord]

    @property
    def records(self) -> list[SessionRecord]:
        return next(iter(self.reads.values()))

    def bill(self, read: float) -> float:
        tariff = make_tariff(read)
        ours = sum(record.charge(tariff).total for record in self.reads[read])
        return ours / sum(record.charge(tariff).total for record in self.raw)

    def whole(self, read: float) -> float:
        tariff = make_tariff(read)
        rereads = sum(record.charge_rereads(tariff) for record in self.reads[read])
        return self.bill(read) + rereads / sum(record.charge(tariff).total for record in self.raw)

    def probed(self, low: int = 0) -> Probed:
        return Probed.of([probe for record in self.records for probe in record.probes if probe.distance > low])

    def hard(self) -> Probed:
        return Probed.of([probe for record in self.records for probe in record.probes if probe.is_hard])

    def cells(self) -> list[str]:
        requests = [request for record in self.records for request in record.requests]
        count = len(requests)
        seconds = [one for record in self.records for one in record.seconds]
        every = self.probed()
        return [
            self.policy,
            share(sum(one.is_fit for one in requests), count),
            share(sum(not one.violations for one in requests), count),
            share(sum(one.is_intact for one in requests), count),
            " / ".join(f"{self.bill(read):.3f}" for read in self.reads),
            " / ".join(f"{self.whole(read):.3f}" for read in self.reads),
            share(sum(one.runs_in_view for one in requests), sum(one.runs for one in requests)),
            show_probed(self.probed(FAR)),
            share(self.hard().in_view, self.hard().whole),
            share(every.in_view, every.whole),
            share(every.found, every.whole),
            str(sum(one.is_break for one in requests)),
            str(sum(len(one.rereads) for one in requests)),
            f"{1000 * sum(seconds) / max(1, len(seconds)):.1f}",
        ]


HEAD = (
    "| policy | fits % | valid % | newest intact % | bill ÷ raw | whole bill | copied text in view % | far in view % | "
    "hard in view % | all in view % | in view or recalled % | prefix breaks | re-reads | "
    "ms per request |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
)


def find_floor(raw: list[SessionRecord], reads: Sequence[float]) -> str:
    """Return the bill if nothing old were ever read again: every token is written once."""
    bills = []
    for read in reads:
        charges = [record.charge(make_tariff(read)) for record in raw]
        bills.append(sum(charge.total - charge.read for charge in charges) / sum(charge.total for charge in charges))
    return f"| floor | – | – | – | {' / '.join(f'{one:.3f}' for one in bills)} |{' – |' * 9}"


def find_better(rows: list[Row]) -> list[str]:
    """Return the baselines that are both cheaper and keep more in view than ``default``; they should be none."""
    ours = next((row for row in rows if row.policy == "default"), None)
    found = []
    for row in rows if ours else ():
        if row.policy in ("default", "raw") or ours is None:
            continue
        kept, other = ours.probed(), row.probed()
        read = next(iter(ours.reads))
        if row.bill(read) < ours.bill(read) and other.in_view > kept.in_view:
            found.append(row.policy)
    return found


def show_money(row: Row) -> str:
    """Return where the money goes, in percent of raw's bill."""
    tariff = make_tariff(next(iter(row.reads)))
    whole = sum(record.charge(tariff).total for record in row.raw)
    parts = []
    for cause in ("read", "write", "output", "summariser"):
        amount = sum(getattr(record.charge(tariff), cause) for record in row.records)
        parts.append(f"{cause} {100 * amount / whole:.1f}")
    return f"{row.policy} {', '.join(parts)}"


def show_distances(row: Row) -> str:
    probes = [probe for record in row.records for probe in record.probes]
    cells = []
    for name, found in group_distances(probes).items():
        probed = Probed.of(found)
        cells.append(f"{name}: {share(probed.in_view, probed.whole)} / {share(probed.found, probed.whole)}")
    return "; ".join(cells)


def bench_set(
    pool: ProcessPoolExecutor, name: str, window: str, arguments: argparse.Namespace, settings: dict[str, Any]
) -> None:
    lines = list(read_lines(name, arguments.half, arguments.sessions))
    if window == "fixed":
        counter = counter_for("gpt-4o")
        lines = [line for line in lines if counter.count_text(line) > FIXED_SESSION_MIN]
    if not lines:
        return
    done: dict[tuple[str, float], list[SessionRecord]] = {}
    policies = ["raw", *(one for one in arguments.policies if one != "raw")]
    for policy in policies:
        # A baseline does not look at prices: one replay serves all of them.
        for read in arguments.reads if policy not in BASELINES else arguments.reads[:1]:
            tasks = [
                Task(line, policy, read, window, settings, not arguments.no_recall, arguments.keep) for line in lines
            ]
            done[policy, read] = list(pool.map(run_task, tasks, chunksize=1))
        print(".", end="", file=sys.stderr, flush=True)
    least, *_ = arguments.reads
    raw = done["raw", least]
    rows = [
        Row(policy, {read: done.get((policy, read), done[policy, least]) for read in arguments.reads}, raw)
        for policy in policies
    ]
    prices = " / ".join(f"{read:g}" for read in arguments.reads)
    counts = f"{len(lines)} sessions, {sum(len(one.requests) for one in raw):,} requests"
    print(f"\n**{name}**, {counts}, cache reads at {prices}\n\n{HEAD}")
    for row in rows:
        print(f"| {' | '.join(row.cells())} |")
    print(find_floor(raw, arguments.reads))
    better = find_better(rows)
    print(f"\nBoth cheaper and with more in view than `default`: {', '.join(better) or 'none'}.")
    for row in rows:
        if row.policy in ("raw", "default"):
            print(f"Of raw's bill, in percent: {show_money(row)}.")
        if row.policy == "default":
            print(f"By distance in messages, in view / in view or recalled %: {show_distances(row)}.")
    sys.stdout.flush()


def read_settings(given: list[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for one in given:
        key, _, value = one.partition("=")
        block, dot, option = key.partition(".")
        if dot:
            settings.setdefault(block, {})[option] = json.loads(value)
        else:
            settings[key] = json.loads(value)
    return settings


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=("tune", "held", "all"), default="held")
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--sessions", type=int, default=1_000)
    parser.add_argument("--window", nargs="*", choices=tuple(WINDOWS), default=["room", "fixed"])
    parser.add_argument("--policies", nargs="*", default=[*BASELINES, "default"])
    parser.add_argument("--set", nargs="*", default=[], help="settings, as fold.index_share=0.3", dest="settings")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--no-recall", action="store_true", help="do not search for what is not in view")
    parser.add_argument("--reads", nargs="*", type=float, default=READS, help="prices of a cache read")
    parser.add_argument("--keep", choices=("newest", "likely"), default="newest", help="what folds keep verbatim")
    parser.add_argument("--quick", action="store_true", help="see above; takes a few minutes per set")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.half, arguments.window, arguments.reads, arguments.no_recall = "all", ["room"], READS[:1], True
        arguments.sessions = min(arguments.sessions, QUICK_SESSIONS)
        arguments.policies = [one for one in arguments.policies if one not in BASELINES]
    return arguments


NOTES = """
*Whole bill*: the bill, and what a real agent would pay to read again the older messages that it copied from but no
longer saw: for each, once per compression, one request of the current size from the cache, 60 output tokens, and the
message as uncached input (*re-reads* counts them). *Copied text in view*: of the runs of ten words that an assistant
message copied from messages between the first user message and the newest step, the share that the request still
showed. Both are about what can be read again: results, a person's words, and what calls wrote; not the assistant's own
prose. A low bill with little copied text in view is not a win. *Far*: more than 20 messages between source and use
of an exact value. *Hard*: one single earlier copy. *Floor*: every token written once and nothing old ever read again,
which no agent could do. *In view or recalled*: the value is verbatim in view, or in one of the first ten answers of
recall when asked for it; baselines keep no originals.

What this does not show: whether an agent does its task as well, because a recording cannot answer differently;
whether a summary reads well; what providers really bill, whose caches may miss for reasons of their own. Recall is
asked for the value itself, which is easier than knowing what to ask. Sessions come from a few public sets; probes of
one session are not independent of each other, and far ones are few in `tau_airline`.
""".strip()


def main() -> None:
    arguments = parse_arguments()
    if not DATA.is_dir():
        print("## Replay and the bill\n\nNo recorded sessions at ../shared/data: not measured.")
        return
    settings = read_settings(arguments.settings)
    print("## Replay and the bill (`benchmarks/bench_replay.py`)\n")
    half = {"held": "the held half, by hash of their id", "tune": "the other half, by hash of their id", "all": "all"}
    print(f"Sessions: {half[arguments.half]}.{' Set: ' + ' '.join(arguments.settings) if arguments.settings else ''}\n")
    print(NOTES)
    begun = time.perf_counter()
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for window in arguments.window:
            print(f"\n### Replay: {WINDOWS[window]}")
            sets = ["swe_mini", "agent_long"] if window == "fixed" else arguments.sets
            for name in sets:
                # Few sessions are above 60,000 tokens: there both halves count.
                chosen = argparse.Namespace(**{**vars(arguments), "half": "all"}) if window == "fixed" else arguments
                bench_set(pool, name, window, chosen, settings)
    print(f"\n{time.perf_counter() - begun:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
