"""How much a prepared context costs in a warm session, and what an open session holds in memory.

Incremental callers append and prepare; stateless ones hand the whole history in again. Both do nothing but that:
no trigger fires. Prints a Markdown section on standard output.
"""

from __future__ import annotations

import gc
import hashlib
import json
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import orjson

from refold import CompressionConfig, ContextCompressionManager
from refold.formats import digest_message

SIZES = (100, 1_000, 10_000)
ROUNDS = 60
CONFIG = CompressionConfig(window=100_000_000, reserve=0)


def make_history(count: int) -> list[dict[str, object]]:
    """A session of an agent: a question, then steps of a call and its result."""
    messages: list[dict[str, object]] = [{"role": "user", "content": "Find out why the nightly build is slow."}]
    step = 0
    while len(messages) < count:
        call = {
            "id": f"call_{step}",
            "type": "function",
            "function": {
                "name": "run",
                "arguments": json.dumps({"command": f"grep -n slow logs/{step}.txt", "n": step}),
            },
        }
        lines = "\n".join(
            f"{step:05d}:{line:02d} target {line * 7 + step} took {line * 13 % 97} ms" for line in range(12)
        )
        messages += [
            {"role": "assistant", "content": f"I look at log {step}.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{step}", "content": lines},
        ]
        step += 1
    return messages[:count]


def measure(work: Callable[[int], object], rounds: int = ROUNDS) -> float:
    """Return the median time of one call in milliseconds."""
    times = []
    for number in range(rounds):
        started = time.perf_counter()
        work(number)
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1_000


def time_incremental(workspace: Path, history: list[dict[str, object]]) -> tuple[float, float]:
    """Return the median of append + prepare, and of a prepare with nothing new."""
    manager = ContextCompressionManager(CONFIG, workspace)
    manager.append("warm", history)
    manager.prepare_context_sync("warm")

    def step(number: int) -> None:
        manager.append("warm", [{"role": "user", "content": f"and target {number}?"}])
        manager.prepare_context_sync("warm")

    appended = measure(step)
    quiet = measure(lambda _: manager.prepare_context_sync("warm"))
    manager.close()
    return appended, quiet


def time_whole(workspace: Path, history: list[dict[str, object]]) -> tuple[float, float]:
    """Return the median of a prepare with the whole history, one message longer each time, and of its round trip."""
    manager = ContextCompressionManager(CONFIG, workspace)
    manager.prepare_context_sync("whole", history)
    body = orjson.dumps(history)
    rounds = 20 if len(history) > 1_000 else ROUNDS
    # A server parses every request again: no object is the one of the last call.
    bodies = [
        [*orjson.loads(body), *({"role": "user", "content": f"and target {n}?"} for n in range(number + 1))]
        for number in range(rounds)
    ]
    times = []
    for messages in bodies:
        started = time.perf_counter()
        manager.prepare_context_sync("whole", messages)
        times.append(time.perf_counter() - started)
    round_trip = measure(lambda _: orjson.loads(orjson.dumps(history)), rounds)
    manager.close()
    return statistics.median(times) * 1_000, round_trip


def split_whole(workspace: Path, history: list[dict[str, object]]) -> dict[str, float]:
    """Return where the time of a whole history goes, each part alone, in milliseconds."""
    manager = ContextCompressionManager(CONFIG, workspace)
    manager.prepare_context_sync("split", history)
    keeper = manager._keeper
    with keeper.sessions.held("split") as session:
        prints = measure(
            lambda _: [
                hashlib.blake2b(orjson.dumps(history[at : at + 64]), digest_size=16).digest()
                for at in range(0, len(history), 64)
            ],
            20,
        )
        canonical = measure(lambda _: [digest_message(raw) for raw in history], 5)
        lookup = measure(lambda _: keeper.ledger.read_session("split"))
        counting = measure(lambda _: session.counter.count_message(history[-1]))
        shown = measure(lambda _: session.raws(history), 20)
    manager.close()
    return {
        "fingerprints": prints,
        "canonical hashes (only where bytes changed)": canonical,
        "lookup": lookup,
        "counting one new message": counting,
        "apply": shown,
    }


def weigh_session(workspace: Path, history: list[dict[str, object]]) -> tuple[float, float, float]:
    """Return MB of the history, of an open session without folds, and of one that is mostly folded."""
    size = len(orjson.dumps(history)) / 1e6
    manager = ContextCompressionManager(CONFIG, workspace)
    manager.append("flat", history)
    manager.append("deep", history)
    manager.configure(retention_count=20)
    manager.compress("deep")
    weights = []
    for name in ("flat", "deep"):
        manager.close()
        gc.collect()
        tracemalloc.start()
        manager.prepare_context_sync(name)
        gc.collect()
        weights.append(tracemalloc.get_traced_memory()[0] / 1e6)
        tracemalloc.stop()
    manager.close()
    return size, weights[0], weights[1]


def main() -> None:
    rows, splits = [], {}
    for count in SIZES:
        print(f"{count} messages", file=sys.stderr)
        history = make_history(count)
        with tempfile.TemporaryDirectory() as folder:
            appended, quiet = time_incremental(Path(folder), history)
            whole, round_trip = time_whole(Path(folder), history)
            splits = split_whole(Path(folder), history)
        rows.append((count, appended, quiet, whole, round_trip))
    with tempfile.TemporaryDirectory() as folder:
        size, flat, deep = weigh_session(Path(folder), make_history(SIZES[-1]))
    print("## The manager: a warm session in which nothing has to be done\n")
    print("`python benchmarks/bench_manager.py`; medians in milliseconds.\n")
    print(
        "| messages | append 1 + prepare | prepare, nothing new | whole history handed in | orjson round trip | ratio |"
    )
    print("|---|---|---|---|---|---|")
    for count, appended, quiet, whole, round_trip in rows:
        print(
            f"| {count:,} | {appended:.2f} | {quiet:.2f} | {whole:.2f} | {round_trip:.2f} | {whole / round_trip:.2f} |"
        )
    first, last = rows[0], rows[-1]
    print(
        f"\nIncremental, {SIZES[-1]:,} against {SIZES[0]:,} messages: {last[1] / first[1]:.2f}× "
        f"(nothing new: {last[2] / first[2]:.2f}×).\n"
    )
    print(f"Where the time of {SIZES[-1]:,} messages handed in goes, each part alone:\n")
    print("| part | ms |")
    print("|---|---|")
    for name, spent in splits.items():
        print(f"| {name} | {spent:.3f} |")
    print(
        f"\nMemory of one open session with {SIZES[-1]:,} messages ({size:.1f} MB of JSON): {flat:.1f} MB while all of "
        f"it is in view, {deep:.1f} MB when all but the newest are folded."
    )


if __name__ == "__main__":
    main()
