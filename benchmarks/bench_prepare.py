"""Cost of a compressing request: CPU of the slowest preparations, by cause, and how long others wait meanwhile.

    python benchmarks/bench_prepare.py              four recorded coding sessions joined, 974 messages, window 150,000
    python benchmarks/bench_prepare.py --generated  a session of the same length that the script makes up

The session grows turn by turn. "Request" is the CPU time of the thread that prepares, which a client waits for;
"beside" is what the process spends in other threads during it: the recall index, and messages that are read ahead of
the next fold. The whole session is timed with both, so work that only moved is visible. Expressions are compiled first,
as a gateway does before it is ready. The stall is the longest time that an event loop in the same process, which does
nothing but wake up every millisecond, had to wait during one compression; beside it is the longest wait within one
second without work. A fixed loop in plain Python is timed in the same run, so that figures of a busy machine can be
compared with those of an idle one.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gzip
import json
import pstats
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refold import CompressionConfig, ContextCompressionManager
from refold.patterns import compile_all
from refold.server.serve import tune_process

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "agent_long.jsonl.gz"
JOINED = ("django__django-11138", "sphinx-doc__sphinx-9229", "sympy__sympy-13091", "pylint-dev__pylint-6528")
WINDOW = 150_000
MESSAGES = 974
SLOWEST = 8
CAUSES = {
    "recall index and search": "recall/",
    "secrets": "llm/redact.py",
    "values": "reading/values.py",
    "reading": "reading/",
    "records": "stages/record/",
    "other stages": "stages/",
    "ledger": "ledger/",
}
Message = dict[str, Any]


def read_recorded() -> list[Message]:
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        sessions = {session["id"]: session["messages"] for session in map(json.loads, lines)}
    return [one for name in JOINED for one in sessions[f"miniswe-gemini3pro-{name}"]][:MESSAGES]


def make_session() -> list[Message]:
    """A coding agent: a task now and then, many steps with a listing each."""
    made: list[Message] = []
    for step in range(MESSAGES // 2):
        if step % 120 == 0:
            made.append(
                {"role": "user", "content": f"Now make module_{step} faster. What did we say about it earlier?"}
            )
        call = {
            "name": "run",
            "arguments": json.dumps({"command": f"sed -n 1,80p src/pkg_{step % 9}/module_{step}.py"}),
        }
        made.append(
            {
                "role": "assistant",
                "content": f"I read module_{step}: the loop over rows is slow because it reads row {step * 7} again.",
                "tool_calls": [{"id": f"c{step}", "type": "function", "function": call}],
            }
        )
        lines = (f"def load_{step}_{line}(row_{line}): return table_{step}[{line * step % 97}]" for line in range(24))
        made.append({"role": "tool", "tool_call_id": f"c{step}", "content": "\n".join(lines)})
    return made[:MESSAGES]


def list_requests(messages: Sequence[Message]) -> Iterator[int]:
    """Yield how many messages each request of the session has."""
    for at, message in enumerate(messages):
        is_asked = at + 1 == len(messages) or messages[at + 1]["role"] == "assistant"
        if message["role"] in ("user", "tool") and is_asked:
            yield at + 1


def calibrate() -> float:
    """Return the milliseconds of a fixed loop: about 40 on an idle machine of 2024."""
    begun = time.thread_time()
    sum(number * number for number in range(1_000_000))
    return 1e3 * (time.thread_time() - begun)


@dataclass(slots=True)
class Timed:
    messages: int
    request_ms: float
    beside_ms: float
    tokens_folded: int
    profile: cProfile.Profile | None = None


@dataclass(frozen=True, slots=True, order=True)
class Stall:
    """How long a loop waited at most, and the most CPU time that its process used in one wait.

    The second figure is that of an idle machine: the rest of a wait, other processes had the cores.
    """

    ms: float
    cpu_ms: float


def time_requests(messages: Sequence[Message], *, profiled: bool) -> list[Timed]:
    times: list[Timed] = []
    with tempfile.TemporaryDirectory() as folder:
        manager = ContextCompressionManager(CompressionConfig(window=WINDOW), folder)
        for count in list_requests(messages):
            profile = cProfile.Profile() if profiled else None
            thread, process = time.thread_time(), time.process_time()
            if profile:
                profile.enable()
            report = manager.prepare_context_sync("s", list(messages[:count])).report
            if profile:
                profile.disable()
            request = time.thread_time() - thread
            beside = time.process_time() - process - request
            folded = max(0, report.tokens_before - report.tokens_after)
            times.append(Timed(count, 1e3 * request, 1e3 * max(0.0, beside), folded, profile))
        manager.recalling.upkeep.join()
        manager.close()
    return times


def split_causes(profile: cProfile.Profile) -> dict[str, float]:
    """Return the share of the time by where it was spent, with what is called from there."""
    spent = dict.fromkeys((*CAUSES, "rest"), 0.0)
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    for (file, _, _), (_, _, own, _, callers) in stats.items():
        places = {file: own} if "refold/" in file else {caller[0]: one[2] for caller, one in callers.items()}
        for place, seconds in places.items():
            cause = next((name for name, part in CAUSES.items() if f"refold/{part}" in place), "rest")
            spent[cause] += seconds
    total = sum(spent.values()) or 1.0
    return {cause: seconds / total for cause, seconds in spent.items()}


async def measure_stall(messages: Sequence[Message], before: int) -> tuple[Stall, Stall, float]:
    """Return the longest waits of an event loop while a request folds and without one, and the seconds of the fold.

    ``before`` is how many messages the request before it had. The interpreter is tuned as the gateway tunes it.
    """
    waits: list[Stall] = []

    async def wake_up() -> None:
        while True:
            begun, cpu = time.perf_counter(), time.process_time()
            await asyncio.sleep(0.001)
            waits.append(Stall(1e3 * (time.perf_counter() - begun - 0.001), 1e3 * (time.process_time() - cpu)))

    with tempfile.TemporaryDirectory() as folder:
        manager = ContextCompressionManager(CompressionConfig(window=WINDOW), folder)
        await manager.prepare_context("s", list(messages[:before]))
        manager.recalling.upkeep.join()
        tune_process()
        waking = asyncio.create_task(wake_up())
        await asyncio.sleep(1.0)
        idle = max(waits)
        waits.clear()
        begun = time.perf_counter()
        report = (await manager.prepare_context("s", list(messages))).report
        took = time.perf_counter() - begun
        assert report.tokens_before > report.tokens_after, "the request was to fold"
        while manager.recalling.upkeep.is_busy():
            await asyncio.sleep(0.01)
        waking.cancel()
        manager.close()
    return Stall(max(one.ms for one in waits), max(one.cpu_ms for one in waits)), idle, took


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generated", action="store_true", help="a session that the script makes up")
    parser.add_argument("--skip-stall", action="store_true", help="only the CPU time")
    parser.add_argument("--untuned", action="store_true", help="a program's own process instead of a gateway's")
    wish = parser.parse_args(arguments)
    is_recorded = not wish.generated and DATA.is_file()
    messages = read_recorded() if is_recorded else make_session()
    print("## A compressing request (`benchmarks/bench_prepare.py`)\n\n```text")
    print(f"{'recorded' if is_recorded else 'generated'}, {len(messages)} messages, window {WINDOW:,}")
    print(f"the fixed loop takes {calibrate():.0f} ms")
    begun = time.process_time()
    compile_all()
    print(f"expressions compiled in {1e3 * (time.process_time() - begun):.0f} ms")
    if not wish.untuned:
        tune_process()
    print(f"garbage is collected as in {'a program' if wish.untuned else 'the gateway'}")
    begun = time.process_time()
    times = time_requests(messages, profiled=False)
    whole = 1e3 * (time.process_time() - begun)
    print(f"the whole session: {whole:,.0f} ms of CPU, {sum(one.request_ms for one in times):,.0f} of them in requests")
    print(f"{len(times)} requests, median {statistics.median(one.request_ms for one in times):.1f} ms of CPU; slowest:")
    for one in sorted(times, key=lambda timed: -timed.request_ms)[:SLOWEST]:
        folded = f"folded {one.tokens_folded:,} tokens" if one.tokens_folded else "no fold"
        per = f", {one.request_ms * 50_000 / one.tokens_folded:.0f} ms per 50,000" if one.tokens_folded else ""
        print(f"  {one.messages:4} messages: {one.request_ms:4.0f} ms, beside {one.beside_ms:3.0f} ms, {folded}{per}")
    folds = [one for one in time_requests(messages, profiled=True) if one.tokens_folded and one.profile]
    for one in folds:
        causes = split_causes(one.profile) if one.profile else {}
        told = ", ".join(f"{cause} {share:.0%}" for cause, share in sorted(causes.items(), key=lambda pair: -pair[1]))
        print(f"  fold at {one.messages} messages, by cause: {told}")
    if folds and not wish.skip_stall:
        last = folds[0].messages
        before = max(count for count in list_requests(messages) if count < last)
        stall, idle, took = asyncio.run(measure_stall(messages[:last], before))
        print(f"longest wait of the event loop during a compression of {took:.2f} s: {stall.ms:.1f} ms", end="")
        print(f" (idle: {idle.ms:.1f} ms); most CPU of this process in one wait: {stall.cpu_ms:.1f} ms")
    print("```")
    return 0


if __name__ == "__main__":
    sys.exit(main())
