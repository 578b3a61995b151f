"""What a step of the agent costs beside the bare model call, and how soon ``refold chat`` can be typed into.

The model call goes over real HTTP to a scripted provider on this machine, with the same client and the same messages,
once through the agent and once without it. Prints a Markdown section on standard output.
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
from pathlib import Path

from refold import CompressionConfig, ContextCompressionManager
from refold.agent import Agent, AgentLimits
from refold.agent.openai_chat import OpenAIChat
from refold.agent.wire import ChatReply, ChatRequest
from refold.testing import ScriptedProvider, ScriptedUsage, call_tool, say
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


async def time_bare(provider: ScriptedProvider, history: list[dict[str, object]]) -> float:
    """Seconds of one model call with nothing around it, the median."""
    model = OpenAIChat("gpt-4o", "k", provider.openai_url)
    times: list[float] = []
    messages = list(history)
    for at in range(STEPS):
        messages.append({"role": "user", "content": f"tick {at}"})
        started = time.perf_counter()
        items = [item async for item in model.stream(ChatRequest(messages))]
        messages += [item.message for item in items if isinstance(item, ChatReply)]
        times.append(time.perf_counter() - started)
    await model.aclose()
    return statistics.median(times)


async def time_steps(provider: ScriptedProvider, history: list[dict[str, object]], folder: Path) -> float:
    """Seconds of one step of the agent: prepare, ask, run a tool, store, observe; the median."""
    config = CompressionConfig(window=10_000_000, economic=False)
    times: list[float] = []
    with ContextCompressionManager(config, folder) as manager:
        manager.append("s", history, format="openai-chat")
        limits = AgentLimits(steps_max=STEPS + 5)
        agent = Agent(OpenAIChat("gpt-4o", "k", provider.openai_url), [tick], manager, session_id="s", limits=limits)
        last = 0.0
        async for event in agent.run("go"):
            if event.kind == "step_started":
                now = time.perf_counter()
                if last:
                    times.append(now - last)
                last = now
    return statistics.median(times)


def measure(size: int) -> tuple[float, float]:
    """Return the bare call and the step, in milliseconds."""
    calls = 0

    def step(request: RecordedRequest) -> object:
        nonlocal calls
        if not request.json.get("tools"):
            return say("tick", usage=USAGE)
        calls += 1
        made = call_tool("tick", {"number": calls})
        return say("done", usage=USAGE) if calls > STEPS else type(made)(calls=made.calls, usage=USAGE)

    history = make_history(size)
    with ScriptedProvider(step) as provider, tempfile.TemporaryDirectory() as folder:  # type: ignore[arg-type]
        asyncio.run(time_bare(provider, history[:10]))  # The first call imports the client.
        gc.collect()
        bare = asyncio.run(time_bare(provider, history))
        gc.collect()
        whole = asyncio.run(time_steps(provider, history, Path(folder)))
    return bare * 1_000, whole * 1_000


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
    print("One step of the agent (prepare, ask over HTTP, run a tool, store, observe) beside the bare model call.\n")
    print("| messages in the session | bare call | step | overhead |")
    print("|---|---|---|---|")
    for size in SIZES:
        print(f"measuring steps at {size:,} messages", file=sys.stderr)
        bare, whole = measure(size)
        print(f"| {size:,} | {bare:.1f} ms | {whole:.1f} ms | {whole - bare:+.1f} ms, {whole / bare:.2f}× |")
    print("measuring starts", file=sys.stderr)
    bare_s, chat_s = measure_start()
    print("\nUntil `refold chat` can be typed into, in a pseudo-terminal (wanted: 0.8 s at most).\n")
    print("| start | median |")
    print("|---|---|")
    print(f"| bare interpreter | {bare_s:.2f} s |")
    print(f"| `refold chat` | {chat_s:.2f} s |")


if __name__ == "__main__":
    main()
