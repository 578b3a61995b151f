"""One long recorded session in one window: how many tokens each request has, with refold and without.

python benchmarks/bench_session.py                                  the session that the README shows
python benchmarks/bench_session.py --start codex --window 200000
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bench_replay import DATA, Task, read_lines
from figures import keep_figures

from refold.tokens import counter_for


def read_largest(start: str) -> str:
    """Return the largest recorded session of a client."""
    lines = (line for line in read_lines("long_dev", "all", 1_000) if json.loads(line)["id"].startswith(start))
    return max(lines, key=counter_for("gpt-4o").count_text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", default="claude-code", metavar="NAME", help="sessions whose id begins with this")
    parser.add_argument("--window", type=int, default=128_000)
    parser.add_argument("--figures", type=Path, help="keep the figures in this file, which docs/make_figures.py reads")
    arguments = parser.parse_args()
    if not DATA.is_dir():
        sys.exit("no recorded sessions at ../shared/data")
    line = read_largest(arguments.start)
    raw, ours = (Task(line, policy, 0.1, str(arguments.window), {}).run() for policy in ("raw", "default"))
    sizes = [[one.tokens, other.tokens] for one, other in zip(raw.requests, ours.requests, strict=True)]
    folds = [at for at, request in enumerate(ours.requests) if request.is_break]
    print(f"{len(sizes)} requests, {sizes[-1][0]:,} tokens at the end, {len(folds)} breaks of the prefix")
    print(
        "request, tokens without and with refold:", *(f"{at}: {a:,} {b:,}" for at, (a, b) in enumerate(sizes)), sep="\n"
    )
    if arguments.figures:
        table = {"client": arguments.start, "window": arguments.window, "sizes": sizes, "folds": folds}
        keep_figures(arguments.figures, {"session": table})


if __name__ == "__main__":
    main()
