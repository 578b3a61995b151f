"""Cost of a step of the agent beside the bare model call, and how soon ``refold chat`` can be typed into.

The model call goes over real HTTP to a scripted provider on this machine, through the official client. What a step adds
is measured against the call in the same step, so that a noisy machine hits both. Prints Markdown on standard output.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pty
import select
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from refold import CompressionConfig, ContextCompressionManager
from refold.agent import Agent, AgentLimits
from refold.llm.openai import OpenAIModel
from refold.llm.port import ChatReply, ChatRequest, Delta
from refold.testing import ScriptedProvider, ScriptedReply, ScriptedUsage, call_tool, say
from refold.testing.script import RecordedRequest

SIZES = (100, 1_000)
STEPS = 60
STARTS = 9
READY = "you ›".encode()
# Stated, not counted: counting would be the provider's work, not ours.
USAGE = ScriptedUsage(1_000, 10)


def make_history(count: int) -> list[dict[str, object]]:
    """Turns of question and answer."""
    messages: list[dict[str, object]] = []
    for at in range(count // 2):
        messages.append({"role": "user", "content": f"Question {at}: what about item {at}? " * 4})
        messages.append({"role": "assistant", "content": f"Item {at} is fine, its port is {4_000 + at}. " * 6})
    return messages


def tick(number: int) -> str:
    """Return a line."""
    return f"tick {number}"


class TimedChat(OpenAIModel):
    """A model that notes how long each of its answers took."""

    def __init__(self, url: str) -> None:
        super().__init__("gpt-4o", "k", url)
        self.times: list[float] = []

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta | ChatReply]:
        started = time.perf_counter()
        async for item in super().stream(request):
            if isinstance(item, ChatReply):
                self.times.append(time.perf_counter() - started)
            yield item


async def time_steps(url: str, history: list[dict[str, object]], folder: Path) -> tuple[list[float], list[float]]:
    """Return the time of each step (prepare, ask, store, run a tool, observe), and of the model call in it."""
    config = CompressionConfig(window=10_000_000, economic=False)
    steps: list[float] = []
    model = TimedChat(url)
    with ContextCompressionManager(config, folder) as manager:
        manager.append("s", history, format="openai-chat")
        agent = Agent(model, [tick], manager, session_id="s", limits=AgentLimits(steps_max=STEPS + 5))
        last = 0.0
        async for event in agent.run("go"):
            if event.kind == "step_started":
                now = time.perf_counter()
                steps += [now - last] if last else []
                last = now
    return steps, model.times[: len(steps)]


def measure(size: int) -> tuple[float, float, float]:
    """Return the bare call, the step, and what the step adds to its own call, in milliseconds; medians."""
    calls = 0

    def step(request: RecordedRequest) -> ScriptedReply:  # noqa: ARG001
        nonlocal calls
        calls += 1
        made = call_tool("tick", {"number": calls})
        return say("done", usage=USAGE) if calls > STEPS else ScriptedReply(calls=made.calls, usage=USAGE)

    with ScriptedProvider(step) as provider, tempfile.TemporaryDirectory() as folder:
        gc.collect()
        steps, bare = asyncio.run(time_steps(provider.openai_url, make_history(size), Path(folder)))
    # The first one imports the client and opens the session.
    added = [step - call for step, call in zip(steps[1:], bare[1:], strict=True)]
    return tuple(statistics.median(one) * 1_000 for one in (bare[1:], steps[1:], added))  # type: ignore[return-value]


def time_start(arguments: list[str], until: bytes, folder: str) -> float:
    """Seconds until a program in a pseudo-terminal has written something."""
    started = time.perf_counter()
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.environ.update({"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "HOME": folder})
        os.execv(sys.executable, [sys.executable, *arguments])
    seen = b""
    while until not in seen and time.perf_counter() - started < 30:
        if select.select([terminal], [], [], 1.0)[0]:
            try:
                seen += os.read(terminal, 65_536)
            except OSError:
                break
    taken = time.perf_counter() - started
    os.close(terminal)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return taken


def measure_start() -> tuple[float, float]:
    """Return the bare interpreter's and the chat's time until they write, in seconds."""
    chat = ["-m", "refold", "chat", "-m", "gpt-4o", "--base-url", "http://127.0.0.1:9/v1"]
    bare = ["-c", "print('ready', flush=True); import time; time.sleep(5)"]
    with tempfile.TemporaryDirectory() as folder:
        time_start(chat, READY, folder)  # The first run writes bytecode.
        pairs = [(time_start(bare, b"ready", folder), time_start(chat, READY, folder)) for _ in range(STARTS)]
    return statistics.median(one for one, _ in pairs), statistics.median(two for _, two in pairs)


def main() -> None:
    print("## Agent and chat (`benchmarks/bench_agent.py`)\n")
    print("One step of the agent (prepare, ask over HTTP, run a tool, store, observe) beside the model call in it.\n")
    print("| messages in the session | model call | step | what the step adds |")
    print("|---|---|---|---|")
    for size in SIZES:
        print(f"measuring steps at {size:,} messages", file=sys.stderr)
        bare, whole, added = measure(size)
        print(f"| {size:,} | {bare:.1f} ms | {whole:.1f} ms | {added:.1f} ms, {added / bare:.0%} of the call |")
    print("measuring starts", file=sys.stderr)
    bare_s, chat_s = measure_start()
    print("\nUntil `refold chat` can be typed into, in a pseudo-terminal (wanted: 0.8 s at most).\n")
    print("| start | median |")
    print("|---|---|")
    print(f"| bare interpreter | {bare_s:.2f} s |")
    print(f"| `refold chat` | {chat_s:.2f} s |")


if __name__ == "__main__":
    main()
