"""How deep should a fold come down in a large window? The bill and what is still in view, for several targets.

Long recorded sessions (``long_dev``: Claude Code, Codex, pi, OpenCode) are replayed in windows of 64,000, 128,000 and
200,000 tokens, each with several values of ``target_tokens``, the tokens that a fold leaves, records included. Only
sessions that are at least a fifth larger than the window count. One prefix cache for all: writes 1.25, reads 0.1 and
0.05, output 5. ``refold.replay.record`` defines the whole bill, copied text and values. ``--picture`` draws the curves.

    python benchmarks/bench_depth.py                                     the table of docs/benchmarks.md
    python benchmarks/bench_depth.py --windows 128000 --targets 9000 25000 --sessions 4
    python benchmarks/bench_depth.py --picture docs/images/depth.svg
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from bench_replay import DATA, RESERVE, Row, make_tariff, read_lines, share, show_probed

from refold.budget import Budget, window_budget
from refold.config import CompressionConfig
from refold.readers.request_log import read_session
from refold.replay.policy import BASELINES, LadderPolicy, Policy, PolicyRoom
from refold.replay.record import SessionRecord
from refold.replay.run import Measured, replay_session
from refold.tokens import counter_for

WINDOWS = (64_000, 128_000, 200_000)
TARGETS = (9_000, 12_000, 15_000, 25_000, 40_000)
READS = (0.1, 0.05)
LARGER = 1.2
FAR = 20  # messages between source and use
COLOURS = ("#b4503c", "#3c6eb4", "#3c9664")


@dataclass(frozen=True)
class Depth:
    """One session in one window, folded down to one target; a target of 0 sends everything."""

    line: str
    window: int
    target: int
    read: float

    def make_config(self) -> CompressionConfig:
        return CompressionConfig(target_tokens=self.target or None)

    def make_budget(self, _measured: Measured) -> Budget:
        return replace(window_budget(self.window, RESERVE, self.make_config().tiers()), is_of_room=True)

    def make_policy(self, room: PolicyRoom) -> Policy:
        return LadderPolicy(room, self.make_config()) if self.target else BASELINES["raw"](room)

    def run(self) -> SessionRecord:
        return replay_session(
            read_session(json.loads(self.line), "recorded"),
            "default" if self.target else "raw",
            self.make_policy,
            self.make_budget,
            counter=counter_for("gpt-4o"),
            tariff=make_tariff(self.read),
        )


def run_depth(depth: Depth) -> SessionRecord:
    return depth.run()


def read_sessions(window: int, most: int, tokens_max: int) -> list[str]:
    counter = counter_for("gpt-4o")
    lines = []
    for line in read_lines("long_dev", "all", 1_000):
        size = counter.count_text(line)
        if window * LARGER <= size <= tokens_max:
            lines.append((size, line))
    return [line for _, line in sorted(lines)[:most]]


def measure(pool: ProcessPoolExecutor, window: int, arguments: argparse.Namespace) -> list[Row]:
    lines = read_sessions(window, arguments.sessions, arguments.tokens_max)
    raw = list(pool.map(run_depth, [Depth(line, window, 0, READS[0]) for line in lines]))
    rows = []
    for target in arguments.targets:
        reads = {
            read: list(pool.map(run_depth, [Depth(line, window, target, read) for line in lines]))
            for read in arguments.reads
        }
        rows.append(Row(f"{target:,}", reads, raw))
        print_row(window, len(lines), rows[-1])
    return rows


def print_row(window: int, sessions: int, row: Row) -> None:
    requests = [request for record in row.records for request in record.requests]
    every = row.probed()
    cells = [
        f"{window:,} ({sessions})",
        row.policy,
        " / ".join(f"{row.bill(read):.3f}" for read in row.reads),
        " / ".join(f"{row.whole(read):.3f}" for read in row.reads),
        count_copied(row),
        share(every.in_view, every.whole),
        show_probed(row.probed(FAR)),
        str(sum(one.is_break for one in requests)),
        str(sum(len(one.rereads) for one in requests)),
    ]
    print(f"| {' | '.join(cells)} |")
    sys.stdout.flush()


def count_copied(row: Row) -> str:
    requests = [request for record in row.records for request in record.requests]
    return share(sum(one.runs_in_view for one in requests), sum(one.runs for one in requests))


def draw(points: dict[int, list[tuple[float, float, str]]]) -> str:
    """Return a picture: for each window a curve over the targets, whole bill across, copied text in view upwards."""
    every = [point for line in points.values() for point in line]
    left, right = min(x for x, _, _ in every) - 0.02, max(x for x, _, _ in every) + 0.05
    low, high = min(y for _, y, _ in every) - 3, 100.0

    def place(point: tuple[float, float, str]) -> tuple[float, float]:
        x, y, _ = point
        return 60 + 600 * (x - left) / (right - left), 330 - 300 * (y - low) / (high - low)

    shapes = [
        draw_curve(window, [(*place(one), one[2]) for one in line], n)
        for n, (window, line) in enumerate(points.items())
    ]
    ticks = [_write(x, 348, f"{value:.2f}") for value in _spread(left, right) for x, _ in [place((value, low, ""))]]
    ticks += [_write(18, y + 4, f"{value:.0f}%") for value in _spread(low, high) for _, y in [place((left, value, ""))]]
    axes = '<path d="M60 20V330H680" fill="none" stroke="#888"/>'
    names = [_write(560, 368, "whole bill"), _write(18, 14, "copied text in view")]
    body = "\n".join([axes, *ticks, *names, *shapes])
    frame = 'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 380" font-family="sans-serif" font-size="12"'
    return f'<svg {frame}>\n<rect width="700" height="380" fill="#fff"/>\n{body}\n</svg>\n'


def read_point(row: Row) -> tuple[float, float, str]:
    return row.whole(next(iter(row.reads))), float(count_copied(row)), row.policy


def draw_curve(window: int, places: Sequence[tuple[float, float, str]], number: int) -> str:
    colour = COLOURS[number % len(COLOURS)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in places)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y, _ in places]
    names = [_write(x + 7, y + 13, name, colour) for x, y, name in places]
    legend = _write(520, 250 + 18 * number, f"window {window:,}", colour)
    return "\n".join([f'<polyline points="{path}" fill="none" stroke="{colour}"/>', *dots, *names, legend])


def _spread(low: float, high: float) -> list[float]:
    return [low + (high - low) * n / 5 for n in range(6)]


def _write(x: float, y: float, text: str, colour: str = "#333") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}">{text}</text>'


HEAD = (
    "| window (sessions) | `target_tokens` | bill | whole bill | copied text in view % | values in view % "
    "| far in view % | prefix breaks | re-reads |\n|---|---|---|---|---|---|---|---|---|"
)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", nargs="*", type=int, default=WINDOWS)
    parser.add_argument("--targets", nargs="*", type=int, default=TARGETS)
    parser.add_argument("--reads", nargs="*", type=float, default=READS, help="prices of a cache read")
    parser.add_argument("--sessions", type=int, default=8, help="the smallest that are large enough")
    parser.add_argument("--tokens-max", type=int, default=600_000, help="sessions up to this size, as JSON")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--picture", type=Path, help="draw the curves into this file")
    arguments = parser.parse_args(given)
    if not DATA.is_dir():
        print("## Depth\n\nNo recorded sessions at ../shared/data: not measured.")
        return
    print(f"## Depth of a fold (`benchmarks/bench_depth.py`)\n\n{HEAD}")
    with ProcessPoolExecutor(arguments.jobs) as pool:
        curves = {window: measure(pool, window, arguments) for window in arguments.windows}
    if arguments.picture:
        points = {window: [read_point(row) for row in rows] for window, rows in curves.items()}
        arguments.picture.write_text(draw(points), encoding="utf-8")


if __name__ == "__main__":
    main()
