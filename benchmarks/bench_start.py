"""How fast refold starts and how much disk a base install takes. Prints Markdown on standard output.

Each start is a fresh process, beside a bare interpreter in the same run: the difference is ours, the rest is Python's.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 15
STARTS = {
    "bare interpreter": ["-c", "pass"],
    "`import refold`": ["-c", "import refold"],
    "`refold.compress` loaded": ["-c", "import refold; refold.compress"],
    "`refold --help`": ["-m", "refold", "--help"],
}


def time_start(arguments: list[str]) -> float:
    """Seconds from nothing to exit, of one process."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True, cwd=ROOT)
    return time.perf_counter() - started


def time_starts() -> dict[str, float]:
    """The median of each kind of start; the kinds take turns, so that a noisy moment hits all of them."""
    for arguments in STARTS.values():
        time_start(arguments)  # The first run writes bytecode.
    times: dict[str, list[float]] = {name: [] for name in STARTS}
    for _ in range(ROUNDS):
        for name, arguments in STARTS.items():
            times[name].append(time_start(arguments))
    return {name: statistics.median(taken) for name, taken in times.items()}


def measure_install() -> dict[str, float]:
    """Megabytes of each pinned library of the base install, bytecode left out."""
    pins = re.findall(r"^([\w.-]+)==", (ROOT / "requirements" / "base.txt").read_text(encoding="utf-8"), re.M)
    sizes: dict[str, float] = {}
    for name in pins:
        try:
            files = distribution(name).files or []
        except PackageNotFoundError:
            continue  # Pinned for another platform.
        paths = [Path(str(file.locate())) for file in files if file.suffix != ".pyc"]
        sizes[name] = sum(path.stat().st_size for path in paths if path.is_file()) / 1e6
    own = [path for path in (ROOT / "src" / "refold").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    sizes["refold"] = sum(path.stat().st_size for path in own) / 1e6
    return sizes


def main() -> None:
    print("## Starting, and the size of the base install (`benchmarks/bench_start.py`)\n")
    starts = time_starts()
    bare = starts["bare interpreter"]
    print("| start | ms | over a bare interpreter |\n|---|---|---|")
    for name, taken in starts.items():
        print(f"| {name} | {taken * 1000:.0f} | +{(taken - bare) * 1000:.0f} ms |")
    sizes = measure_install()
    largest = sorted(sizes, key=lambda name: -sizes[name])[:5]
    print(f"\nBase install: {sum(sizes.values()):.0f} MB without bytecode; ", end="")
    print(", ".join(f"`{name}` {sizes[name]:.1f}" for name in largest) + f", {len(sizes) - len(largest)} others.")


if __name__ == "__main__":
    main()
