"""How ``compress`` grows with the conversation, where its time goes, and what it needs in memory.

Prints Markdown. All figures are of one run on one machine; the ratios are what counts.
"""

from __future__ import annotations

import cProfile
import pstats
import time
import tracemalloc

import orjson

import refold

SIZES = (100, 1_000, 10_000)
SHARE = 0.4


def make_session(count: int) -> list[dict[str, object]]:
    """Return a coding-agent session of about ``count`` messages with varied tool outputs."""
    messages: list[dict[str, object]] = [{"role": "system", "content": "You are a careful coding agent."}]
    step = 0
    while len(messages) < count:
        step += 1
        if step % 12 == 1:
            messages.append({"role": "user", "content": f"Look at module {step}, fix the failing case {step * 7}."})
        call = {"name": "run", "arguments": f'{{"command": "pytest tests/mod_{step}.py -k case_{step * 7}"}}'}
        made = {"id": f"c{step}", "type": "function", "function": call}
        messages.append({"role": "assistant", "content": None, "tool_calls": [made]})
        lines = [f"tests/mod_{step}.py::case_{step * 7 + n} PASSED in {n * 13 + step} ms" for n in range(20)]
        messages.append({"role": "tool", "tool_call_id": f"c{step}", "content": "\n".join(lines)})
    return messages


def measure(count: int) -> tuple[float, float, int, float]:
    """Return seconds of a quiet call and of a compressing one, tokens, and peak memory over the session's size."""
    tracemalloc.start()
    messages = make_session(count)
    session = tracemalloc.get_traced_memory()[0]  # All of it: calls are nested a few levels down.
    tracemalloc.stop()
    start = time.perf_counter()
    whole = refold.compress(messages, 10**9)
    quiet = time.perf_counter() - start
    budget = int(whole.total_tokens * SHARE)
    start = time.perf_counter()
    refold.compress(messages, budget)
    busy = time.perf_counter() - start
    tracemalloc.start()
    refold.compress(messages, budget)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return quiet, busy, whole.total_tokens, peak / session


def profile(count: int) -> list[tuple[str, float]]:
    """Return where the time of a compressing call goes, by package, as shares."""
    messages = make_session(count)
    budget = int(refold.compress(messages, 10**9).total_tokens * SHARE)
    profiler = cProfile.Profile()
    profiler.runcall(refold.compress, messages, budget)
    spent: dict[str, float] = {}
    for (file, _, name), (_, _, own, _, _) in pstats.Stats(profiler).stats.items():  # type: ignore[attr-defined]
        home = file.split("refold/")[-1].split("/")[0] if "refold/" in file else f"builtin {name[:40]}"
        spent[home] = spent.get(home, 0.0) + own
    total = sum(spent.values())
    return sorted(((home, own / total) for home, own in spent.items()), key=lambda pair: -pair[1])[:8]


def main() -> None:
    """Print the tables."""
    refold.compress(make_session(50), 2_000)  # load encoders and regular expressions first
    print("### compress: growth with the conversation\n")
    print(f"A generated coding-agent session, compressed to {SHARE:.0%}.\n")
    print("| messages | tokens | fits | µs a message | compressing | µs a message | JSON round trip | peak ÷ session |")
    print("|---|---|---|---|---|---|---|---|")
    for count in SIZES:
        quiet, busy, tokens, peak = measure(count)
        packed = orjson.dumps(make_session(count))
        start = time.perf_counter()
        orjson.dumps(orjson.loads(packed))
        trip = time.perf_counter() - start
        print(
            f"| {count:,} | {tokens:,} | {quiet * 1e3:.0f} ms | {quiet * 1e6 / count:.0f} | {busy * 1e3:.0f} ms "
            f"| {busy * 1e6 / count:.0f} | {trip * 1e3:.1f} ms | {peak:.1f} |"
        )
    print("\nWhere the time of a compressing call at 10,000 messages goes (profiled):\n")
    print("| package | share |\n|---|---|")
    for home, share in profile(10_000):
        print(f"| {home} | {share:.0%} |")


if __name__ == "__main__":
    main()
